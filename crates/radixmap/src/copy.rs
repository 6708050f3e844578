//! A copy of a whole map, node by node, for one that has nothing yet: what a fork needs.
//!
//! ```text
//!   a map, all of it held                   its twin
//!   root    [ child ] [  v  ] [ - ]         root    [ child ] [  w  ] [ - ]       w = copy(v)
//!              │                                       │ published when it is complete
//!           [ v ] [ - ] [ v ]                       [ w ] [ - ] [ w ]
//! ```
//! 1. Each slot of the twin is locked, set and unlocked by itself. Only empty ones can be: a key that the twin has is a
//!    panic.
//! 2. A node of the twin is filled in private and published by one store. One that stays empty is given back.
//! 3. If memory runs out, what was copied is published all the same: both maps are in order.

use core::ops::Range;
use core::ptr::NonNull;

use percore::Pinned;
use refcache::Domain;

use crate::fold::HOLD;
use crate::iter::{RangeGuard, Run, Tally, used};
use crate::memory::Memory;
use crate::node::{NodeRef, Part, Step};
use crate::slot::Slot;
use crate::{KEY_END, OutOfMemory, RadixMap, Value};

impl<V: Value> RangeGuard<'_, V> {
    /// Gives `twin`, which has nothing, what `copy` makes of each slot that has a value, folded as it is here. `copy` may
    /// change the slot; what it makes has a second word only if the value has one, and the same one for values of one leaf
    /// that have the same.
    ///
    /// # Errors
    /// No memory, or `copy` says so: the copy ends there.
    ///
    /// # Panics
    /// If the guard does not hold all keys, or the twin has some of them.
    pub fn copy_to<R: Domain>(
        &mut self,
        pin: &Pinned,
        twin: &RadixMap<V, R>,
        mut copy: impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        assert!(self.keys() == (0..KEY_END), "only a whole map is copied");
        let (here, there) = (self.here(), twin.here(pin));
        let mut root = Tally::new(&there, twin.root());
        copy_node(&mut Tally::new(here, self.node()), 0..KEY_END, &mut root, &mut copy)
    }
}

/// Copies what is below the node of `from`, which has `keys`, into that of `into`.
fn copy_node<V: Value>(
    from: &mut Tally<'_, '_>,
    keys: Range<u64>,
    into: &mut Tally<'_, '_>,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), OutOfMemory> {
    if from.node.is_wide() {
        into.node.widen()?;
    }
    for part in used::<V>(from.node, keys) {
        let twin = part.twin(into.node);
        match from.node.step(from.here, part.slot) {
            Step::Child(child) => copy_child(&mut Tally::new(from.here, child), &twin, into, copy)?,
            Step::Slot(_) => {
                if let Some(value) = copy(&mut Run::new(part, &mut from.used))? {
                    into.used += put(&twin, value);
                }
            }
        }
    }
    Ok(())
}

/// Copies what is below the node of `from` into a new child for `twin`, a slot of the node of `into`.
fn copy_child<V: Value>(
    from: &mut Tally<'_, '_>,
    twin: &Part<'_>,
    into: &mut Tally<'_, '_>,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), OutOfMemory> {
    let memory = Memory::allocate_empty()?;
    // SAFETY: fresh memory; it is freed below before anybody has seen it, or by `collapse` long after.
    let node: NodeRef<'_> =
        unsafe { memory.init(HOLD, Some(twin), NonNull::from(into.node.counters()), into.node.level() - 1) };
    let mut fresh = Tally::new(into.here, node);
    let outcome = copy_node(from, twin.keys.clone(), &mut fresh, copy);
    if fresh.used == 0 {
        // SAFETY: never published, and not used any more.
        unsafe { memory.free() };
        return outcome;
    }
    fresh.used -= HOLD;
    node.counters().created(into.here.pin);
    take(twin);
    node.publish(twin.slot);
    into.used += 1;
    outcome
}

/// Gives the twin's slots a value; how many they are. There is room for second words (see `copy_node`), or the leaf has one
/// for all, which needs none.
fn put<V: Value>(twin: &Part<'_>, value: V) -> i64 {
    let (main, second) = value.to_words();
    take(twin);
    if second != 0 {
        twin.node.fit(second).expect("values with one second word have copies with one");
        twin.set_second(second);
    }
    for slot in twin.slots() {
        slot.set(main, second != 0);
        slot.unlock();
    }
    twin.slots().len() as i64
}

fn take(twin: &Part<'_>) {
    assert!(twin.slots().iter().all(Slot::try_lock_empty), "the twin has keys of its own");
}
