//! The end of a piece of work on a range: a key at which a caller may stop, to continue there later.

use core::ops::Range;

use percore::Pinned;
use refcache::Domain;

use crate::here::Here;
use crate::levels::{FANOUT, KEY_END};
use crate::map::RadixMap;
use crate::node::{NodeRef, Step};
use crate::value::Value;

/// The cost of a node in addition to its used slots, in slots: to enter it, and to lock and unlock its empty
/// slots.
const NODE: u64 = 28;
/// The number of slots of a leaf.
const LEAF: u64 = FANOUT as u64;
/// The cost of two leaves and some of the nodes above them.
const TWO_LEAVES: u64 = 2 * LEAF + 6 * NODE;

impl<V: Value, R: Domain> RadixMap<V, R> {
    /// Returns the end of the first part of `keys` that has about `slots` slots with a value: the first key
    /// of the slot or the empty node that follows, or the end of `keys`. Neighbours with the same value count
    /// as one, a node counts as some slots more, and a leaf is not split. It takes no lock, so the answer is
    /// a hint, like that of [`RadixMap::peek`].
    ///
    /// # Panics
    /// Panics if the range is empty or goes beyond [`KEY_END`].
    pub fn extent(&self, pin: &Pinned, keys: Range<u64>, slots: u64) -> u64 {
        assert!(keys.start < keys.end && keys.end <= KEY_END, "not a range of keys");
        let (here, end) = (self.here(pin), keys.end);
        let node = self.root().descend(&here, &keys);
        // A part may be longer than `slots` by a leaf, because a leaf is not split. So two leaves are taken
        // as one part. A range below a higher node is rarely so short, and the check would read more nodes.
        if slots >= LEAF && node.level() <= 1 && fits(node, &keys, slots.max(TWO_LEAVES)) {
            return end;
        }
        first_beyond(&here, node, keys, &mut { slots }).unwrap_or(end)
    }
}

/// Returns whether `most` slots are enough for `keys` below `node`, which is a leaf or a parent of leaves.
/// Counts each leaf as a full one, so the leaves are not read.
fn fits(node: NodeRef<'_>, keys: &Range<u64>, most: u64) -> bool {
    let slots = node.indices(keys);
    let leaves = if node.level() > 0 { node.slots().count_children(slots.clone()) } else { 0 };
    NODE + slots.len() as u64 + leaves * (NODE + LEAF) <= most
}

/// Returns the first key of `keys`, below `node`, that has a value or is an empty node's after `left` slots
/// were counted.
fn first_beyond<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>, left: &mut u64) -> Option<u64> {
    if node.level() == 0 {
        let (slots, all) = (node.slots(), node.indices(&keys));
        // An empty node waits to be freed. It is locked and unlocked as others are, so a part may end there.
        let first = Some(slots.end_of_unused(all.clone())).filter(|&first| first < all.end);
        if *left == 0 {
            return Some(keys.start + first.map_or(0, |first| (first - all.start) as u64));
        }
        *left = left.saturating_sub(NODE + first.map_or(0, |first| slots.count_used_runs(first..all.end)));
        return None;
    }
    let (start, mut is_empty) = (keys.start, true);
    let beyond = node.used_runs(keys).find_map(|part| {
        is_empty = false;
        match node.step(here, part.slot) {
            // A slot of a run may have got a child meanwhile, which has the keys of that slot.
            Step::Child(child) => first_beyond(here, child, node.of_slot(part.keys), left),
            Step::Slot(word) if !word.is_used() => None,
            Step::Slot(_) if *left == 0 => Some(part.keys.start),
            Step::Slot(_) => {
                *left -= 1;
                None
            }
        }
    });
    if is_empty && *left == 0 {
        return Some(start);
    }
    // The node is counted at the end, so that a part has at least one leaf or slot.
    *left = left.saturating_sub(NODE);
    beyond
}
