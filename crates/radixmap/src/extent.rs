//! How far some work reaches: where a caller may stop, and go on later.

use core::ops::Range;

use percore::Pinned;
use refcache::Domain;

use crate::lock::Here;
use crate::node::{NodeRef, Step};
use crate::{KEY_END, RadixMap, Value};

/// What a node costs besides its used slots, in slots: to get there, and to lock and unlock its empty slots.
const NODE: u64 = 28;

impl<V: Value, R: Domain> RadixMap<V, R> {
    /// Returns where the first part of `keys` ends that has about `slots` slots with a value: at the first key of the slot
    /// that follows, or at the end of `keys`. Neighbours that say the same count as one, a node counts as some
    /// slots more, and a leaf is not cut. Without a lock: a hint, like [`RadixMap::peek`].
    ///
    /// # Panics
    /// If the range is empty or goes beyond [`KEY_END`].
    pub fn extent(&self, pin: &Pinned, keys: Range<u64>, slots: u64) -> u64 {
        assert!(keys.start < keys.end && keys.end <= KEY_END, "not a range of keys");
        let (end, mut left) = (keys.end, slots);
        first_beyond(&self.here(pin), self.root(), keys, &mut left).unwrap_or(end)
    }
}

/// The first key of `keys`, below `node`, that has a value when `left` slots were counted down.
fn first_beyond<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>, left: &mut u64) -> Option<u64> {
    if node.level() == 0 {
        let (slots, all) = (node.slots(), node.indices(&keys));
        let first = slots.end_of_unused(all.clone());
        return match first < all.end {
            false => None,
            true if *left == 0 => Some(keys.start + (first - all.start) as u64),
            true => {
                *left = left.saturating_sub(NODE + slots.count_used_runs(first..all.end));
                None
            }
        };
    }
    let beyond = node.used_runs(keys).find_map(|part| match node.step(here, part.slot) {
        Step::Child(child) => first_beyond(here, child, part.keys, left),
        Step::Slot(word) if !word.is_used() => None,
        Step::Slot(_) if *left == 0 => Some(part.keys.start),
        Step::Slot(_) => {
            *left -= 1;
            None
        }
    });
    // Afterwards, so that a part has a leaf or a slot at least.
    *left = left.saturating_sub(NODE);
    beyond
}
