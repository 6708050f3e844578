//! A copy of a whole map, node by node, for one that has nothing yet: what a fork needs.
//!
//! ```text
//!   a map                                   its twin
//!   root    [ child ] [  v  ] [ - ]         root    [ child ] [  w  ] [ - ]       w = copy(v)
//!              │                                       │ published empty
//!           [ v ] [ - ] [ v ]                       [ w ] [ - ] [ w ]
//! ```
//! 1. Whoever holds all of the map copies what it was at one moment. Whoever knows that nobody else changes it meanwhile, or
//!    does not mind, holds nothing: each slot that has a value, or each run of a leaf, is locked while it is copied.
//! 2. A slot of the twin is locked, set and unlocked while what it is copied from is locked: whoever takes a key out of the
//!    map, and then out of the twin, takes it out of both, though he comes in between. Only empty slots can be set: a key that
//!    the twin has is a panic. Nobody who holds slots of the twin waits for slots of the map.
//! 3. If memory runs out, both maps are in order. A node of the twin that stays empty collapses.

use core::ops::Range;
use core::ptr::NonNull;

use percore::Pinned;
use refcache::Domain;

use crate::entry::{Run, Tally};
use crate::fold::HOLD;
use crate::iter::{RangeGuard, used};
use crate::lock::Here;
use crate::memory::Memory;
use crate::node::{NodeRef, Part, Step};
use crate::slot::{Slot, Word};
use crate::subtree::{Acquired, acquire};
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
        copy_node(&mut Tally::new(here, self.node()), 0..KEY_END, &mut root, &Hold::All, &mut copy)
    }
}

impl<V: Value, R: Domain> RadixMap<V, R> {
    /// The same without a guard: what `copy` is shown is locked as long as it looks. What others change meanwhile the twin
    /// has as it was before or after, each slot by itself, and of what is new, anything.
    ///
    /// # Errors
    /// As [`RangeGuard::copy_to`].
    ///
    /// # Panics
    /// If the twin has some of the keys.
    pub fn copy_to(
        &self,
        pin: &Pinned,
        twin: &Self,
        mut copy: impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let (here, there) = (self.here(pin), twin.here(pin));
        let mut root = Tally::new(&there, twin.root());
        copy_node(&mut Tally::new(&here, self.root()), 0..KEY_END, &mut root, &Hold::Shown, &mut copy)
    }
}

/// What of the map is held.
enum Hold {
    All,
    /// What is shown, as long as it is.
    Shown,
}

impl Hold {
    /// The next slots of `keys`, which are in the node of `from`: a run with values, or one with a child.
    #[inline(always)]
    fn next<'p, V: Value>(&self, from: &Tally<'_, 'p>, keys: Range<u64>) -> Option<Part<'p>> {
        match self {
            Self::All => used::<V>(from.node, keys).next(),
            Self::Shown => from.node.lock_used_part(from.here, keys, V::joins),
        }
    }

    /// They were shown.
    fn leave(&self, slots: &[Slot]) {
        if matches!(self, Self::Shown) {
            slots.iter().for_each(Slot::unlock);
        }
    }
}

/// Copies what is below the node of `from`, which has `keys`, into that of `into`.
fn copy_node<V: Value>(
    from: &mut Tally<'_, '_>,
    mut keys: Range<u64>,
    into: &mut Tally<'_, '_>,
    hold: &Hold,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), OutOfMemory> {
    while let Some(part) = hold.next::<V>(from, keys.clone()) {
        keys.start = part.keys.end;
        let (twin, slots) = (part.twin(into.node), part.slots());
        if let Step::Child(child) = from.node.step(from.here, part.slot) {
            copy_child(&mut Tally::new(from.here, child), &twin, into, hold, copy)?;
            continue;
        }
        // First, so that nothing fails that `copy` counts on.
        let fits = make_fit(&part, &twin);
        let value = fits.and_then(|()| copy(&mut Run::new(part, &mut from.used)));
        if let Ok(Some(value)) = value {
            into.used += put(into.here, &twin, value);
        }
        from.tell();
        hold.leave(slots);
        value?;
    }
    Ok(())
}

/// Copies what is below the node of `from` into a new child for `twin`, a slot of the node of `into`.
fn copy_child<'p, V: Value>(
    from: &mut Tally<'_, '_>,
    twin: &Part<'p>,
    into: &mut Tally<'_, 'p>,
    hold: &Hold,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), OutOfMemory> {
    let memory = Memory::allocate_empty()?;
    // SAFETY: fresh memory, which is freed by `collapse`.
    let node: NodeRef<'_> =
        unsafe { memory.init(HOLD, Some(twin), NonNull::from(into.node.counters()), into.node.level() - 1) };
    node.counters().created(into.here.pin);
    take(into.here, twin);
    node.publish(twin.slot);
    into.used += 1;
    // Told at the end, so that the node's first count stands in for whatever others may have told by then.
    let mut fresh = Tally::new(into.here, node);
    fresh.used -= HOLD;
    copy_node(from, twin.keys.clone(), &mut fresh, hold, copy)
}

/// Sees to it that the twin's slots can have second words, if those of the part have. A leaf that has one for all has copies
/// with one, which needs nothing.
fn make_fit(part: &Part<'_>, twin: &Part<'_>) -> Result<(), OutOfMemory> {
    if part.slot.held().is_wide() && part.node.is_wide() { twin.node.widen() } else { Ok(()) }
}

/// Gives the twin's slots, which fit, a value; how many they are.
fn put<V: Value>(there: &Here<'_>, twin: &Part<'_>, value: V) -> i64 {
    let (main, second) = value.to_words();
    take(there, twin);
    if second != 0 {
        twin.node.fit(second).expect("values with one second word have copies with one");
        twin.set_second(second);
    }
    twin.slots().iter().for_each(|slot| slot.give(main, second != 0));
    twin.slots().len() as i64
}

/// Locks the twin's slots, which will be used.
fn take<'p>(there: &Here<'p>, twin: &Part<'p>) {
    for slot in twin.slots() {
        let is_taken = slot.try_lock(Word::EMPTY)
            || matches!(acquire(there, twin.node, slot, |word| !word.is_used()), Acquired::Locked(_));
        assert!(is_taken, "the twin has keys of its own");
    }
    twin.node.touch(&twin.keys);
}
