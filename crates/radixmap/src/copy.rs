//! A copy of a map, or of a range of it, node by node, into a map that has none of the keys, as a fork needs.
//!
//! ```text
//!   a map                                   its twin
//!   root    [ child ] [  v  ] [ - ]         root    [ child ] [  w  ] [ - ]       w = copy(v)
//!              │                                       │ published empty
//!           [ v ] [ - ] [ v ]                       [ w ] [ - ] [ w ]
//! ```
//! 1. A guard copies the values of its keys at one moment. A caller that knows that no other core changes the
//!    map meanwhile, or that permits it, holds nothing: each slot that has a value, or each run of a leaf, is
//!    locked while it is copied.
//! 2. A slot of the twin is locked, set and unlocked while its original is locked. So a core that takes a key
//!    out of the map, and then out of the twin, takes it out of both, even if it does so during the copy.
//!    Only empty slots can be set: if the twin has a key, the copy panics. A core that holds slots of the
//!    twin must not wait for slots of the map.
//! 3. A leaf may be folded while none of its slots is held. The copy then finds its slots gone, and continues
//!    with the keys that it has not copied yet, in a leaf again, as in the twin.
//! 4. If memory runs out, both maps are valid. A node of the twin that stays empty collapses.

use core::mem;
use core::ops::Range;

use percore::Pinned;
use refcache::Domain;

use crate::allocate::OutOfMemory;
use crate::entry::{Run, Tally};
use crate::fold::{HOLD, expand, plant_empty};
use crate::here::Here;
use crate::iter::RangeGuard;
use crate::levels::{KEY_END, slot_keys};
use crate::lock::{Acquired, acquire, unlock_below};
use crate::map::RadixMap;
use crate::node::{NodeRef, Step};
use crate::parts::{Found, Part};
use crate::section::Locked;
use crate::slot::Word;
use crate::value::{Value, words};

impl<V: Value> RangeGuard<'_, V> {
    /// Gives `twin`, which has none of the guard's keys, the value that `copy` returns for each slot that has
    /// a value, folded as it is here. `copy` may change the slot. Its result has a second word only if the
    /// value has one, and the same one for values of one leaf that have the same.
    ///
    /// # Errors
    /// Returns an error if there is no memory, or if `copy` does. The copy ends there.
    ///
    /// # Panics
    /// Panics if `twin` is the guard's own map, or has some of the keys.
    pub fn copy_to<R: Domain>(
        &mut self,
        pin: &Pinned,
        twin: &RadixMap<V, R>,
        mut copy: impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let from = (self.here(), self.node());
        copy_keys(&Hold::All, from, (&twin.here(pin), twin.root()), self.keys(), &mut copy)
    }
}

impl<V: Value, R: Domain> RadixMap<V, R> {
    /// Copies `keys` as [`RangeGuard::copy_to`] does, but without a guard. No slot with a value may stick out
    /// of them. A slot is locked while it is shown to `copy`. If other cores change slots meanwhile,
    /// the twin gets each slot's value from before or after the change. It may get any of the keys that are
    /// added meanwhile.
    ///
    /// # Errors
    /// Returns an error where [`RangeGuard::copy_to`] does.
    ///
    /// # Panics
    /// Panics if the twin is the map itself, or has some of the keys. Panics if a slot with a value sticks
    /// out of the keys, there are none, or they go beyond [`KEY_END`].
    pub fn copy_to(
        &self,
        pin: &Pinned,
        twin: &Self,
        keys: Range<u64>,
        mut copy: impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        assert!(keys.start < keys.end && keys.end <= KEY_END, "not a range of keys");
        let (from, into) = ((&self.here(pin), self.root()), (&twin.here(pin), twin.root()));
        copy_keys(&Hold::Shown, from, into, keys, &mut copy)
    }
}

/// The part of the map that is held.
enum Hold {
    /// All keys that are copied.
    All,
    /// The slots that are shown, while they are.
    Shown,
}

impl Hold {
    /// Returns the next slots of `keys`, which are in the node of `from`, above the leaves.
    #[inline(always)]
    fn next<'p, V: Value>(&self, from: &Tally<'_, 'p>, keys: Range<u64>) -> Result<Option<Found<'p>>, Gone> {
        match self {
            Self::All => Ok(from.node.used_part(from.here, keys, V::joins)),
            Self::Shown => lock_used_part(from.here, from.node, keys, V::joins),
        }
    }

    /// Returns the next of `slots`, those of `keys`, in `leaf`.
    #[inline(always)]
    fn next_in_leaf<'p, V: Value>(
        &self,
        here: &Here<'p>,
        leaf: NodeRef<'p>,
        keys: &Range<u64>,
        slots: Range<usize>,
    ) -> Result<Option<Range<usize>>, Gone> {
        match self {
            Self::All => Ok(Some(leaf.used_run(slots, V::joins)).filter(|run| !run.is_empty())),
            Self::Shown => lock_used_run(here, leaf, keys, slots, V::joins),
        }
    }
}

/// The child of a slot, if it has one.
type Child<'p> = Option<NodeRef<'p>>;

/// The node was folded.
struct Gone;

/// Returns the first used slots of `keys`, a range inside `node`, which is above the leaves, for a core that
/// holds none. If they have no child they are locked now. Waits for a holder. Fails if the node was folded.
#[inline(always)]
fn lock_used_part<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    joins: impl Fn(u64) -> bool,
) -> Result<Option<Found<'p>>, Gone> {
    let slots = node.indices(&keys);
    let Some((first, child)) = lock_first_used(here, node, &keys, slots.clone())? else { return Ok(None) };
    let run = match child {
        None if first.len() > 1 => node.lock_alike(first, slots.end, joins),
        _ => first,
    };
    Ok(Some(Found { part: node.run(run, &keys), child }))
}

/// Locks the first used slots among `slots`, those of `keys`, for a core that holds none of `leaf`. Waits
/// for a holder. Fails if the leaf was folded.
#[inline(always)]
fn lock_used_run<'p>(
    here: &Here<'p>,
    leaf: NodeRef<'p>,
    keys: &Range<u64>,
    slots: Range<usize>,
    joins: impl Fn(u64) -> bool,
) -> Result<Option<Range<usize>>, Gone> {
    // Most used slots are side by side.
    let first = match leaf.slots().try_lock_value(slots.start, slots.end) {
        Some(end) => slots.start..end,
        None => match lock_first_used(here, leaf, keys, slots.clone())? {
            Some((first, _)) => first,
            None => return Ok(None),
        },
    };
    Ok(Some(leaf.lock_alike(first, slots.end, joins)))
}

/// Returns the first of `slots`, those of `keys`, that has a child, or had a value and is the caller's now,
/// with its section if that is folded.
#[inline(never)]
fn lock_first_used<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: &Range<u64>,
    mut slots: Range<usize>,
) -> Result<Option<(Range<usize>, Child<'p>)>, Gone> {
    while let Some(at) = node.first_used(slots.clone()) {
        if let Some(end) = node.slots().try_lock_value(at, slots.end) {
            return Ok(Some((at..end, None)));
        }
        match acquire(here, node, node.part_at(at, keys).keys.start, Word::is_used) {
            Acquired::Child(child) => return Ok(Some((at..at + 1, Some(child)))),
            Acquired::Locked(_) => return Ok(Some((at..at + 1, None))),
            Acquired::Unwanted => slots.start = at + 1,
            Acquired::Gone => return Err(Gone),
        }
    }
    Ok(None)
}

/// The reason why a copy ends.
enum Stop {
    NoMemory,
    /// The node was folded. Its keys before this one were copied.
    Gone(u64),
}

impl From<OutOfMemory> for Stop {
    fn from(_: OutOfMemory) -> Self {
        Self::NoMemory
    }
}

/// Copies `keys` of a map, which are below `from`, into a map that has none of them. That map's root
/// is `into`.
fn copy_keys<'p, V: Value>(
    hold: &Hold,
    (here, from): (&Here<'p>, NodeRef<'p>),
    (there, into): (&Here<'_>, NodeRef<'_>),
    keys: Range<u64>,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), OutOfMemory> {
    copy_below(&mut Tally::new(here, from), keys, &mut Tally::new(there, into), hold, copy)
        .map_err(|_| OutOfMemory)
}

/// Copies `keys` below the node of `from` into the twin of that node, which is the node of `into` or below
/// it.
fn copy_below<V: Value>(
    from: &mut Tally<'_, '_>,
    keys: Range<u64>,
    into: &mut Tally<'_, '_>,
    hold: &Hold,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), Stop> {
    if from.node.level() < into.node.level() {
        return copy_below(from, keys.clone(), &mut child_of(into, keys.start)?, hold, copy);
    }
    assert!(from.node.memory() != into.node.memory(), "a map is not copied to itself");
    copy_node(from, keys, into, hold, copy)
}

/// Copies everything below the node of `from`, which has `keys`, into that of `into`.
fn copy_node<V: Value>(
    from: &mut Tally<'_, '_>,
    mut keys: Range<u64>,
    into: &mut Tally<'_, '_>,
    hold: &Hold,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), Stop> {
    if let (Some(leaf), Some(twin)) = (from.node.leaf(), into.node.leaf()) {
        return copy_leaf(from, (leaf, twin), keys, into, hold, copy);
    }
    while let Some(found) = hold.next::<V>(from, keys.clone()).map_err(|Gone| Stop::Gone(keys.start))? {
        keys.start = found.part.keys.end;
        match found.child {
            Some(child) => copy_child(from, (child, found.part.keys), into, hold, copy)?,
            None => {
                let twin = into.node;
                copy_run(from, found.part, (into, twin), hold, copy)?;
            }
        }
    }
    Ok(())
}

/// Copies `keys` of `leaf`, which is the node of `from`, into `twin`, which is that of `into`.
#[inline(never)]
fn copy_leaf<'p, V: Value>(
    from: &mut Tally<'_, 'p>,
    (leaf, twin): (NodeRef<'p>, NodeRef<'_>),
    keys: Range<u64>,
    into: &mut Tally<'_, '_>,
    hold: &Hold,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), Stop> {
    let mut left = leaf.indices(&keys);
    while !left.is_empty() {
        let next = hold.next_in_leaf::<V>(from.here, leaf, &keys, left.clone());
        let gone = |Gone| Stop::Gone(leaf.leaf_run(left.clone(), keys.start).keys.start);
        let Some(run) = next.map_err(gone)? else { break };
        left.start = run.end;
        copy_run(from, leaf.leaf_run(run, keys.start), (into, twin), hold, copy)?;
    }
    Ok(())
}

/// Copies slots that have a value and are held into the slots of `twin`, which is the node of `into`.
#[inline(always)]
fn copy_run<'p, V: Value>(
    from: &mut Tally<'_, 'p>,
    part: Part<'p>,
    (into, twin): (&mut Tally<'_, '_>, NodeRef<'_>),
    hold: &Hold,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), OutOfMemory> {
    let lock = matches!(hold, Hold::Shown).then(|| part.lock());
    assert!(part.whole, "a slot sticks out of the keys that are copied");
    let _record = from.here.record(&part.keys);
    let shown = Shown { from, _lock: lock };
    let twin = part.twin(twin);
    // This comes before `copy`, so that nothing can fail after it.
    if part.word().is_wide() {
        make_fit(&part, &twin)?;
    }
    if let Some(value) = copy(&mut Run::new(part, shown.from.here, &mut shown.from.used))? {
        into.used += put(into.here, &twin, value)?;
    }
    Ok(())
}

/// Slots that are shown. Their changes are counted before they are unlocked, even if foreign code panics.
struct Shown<'a, 'h, 'p> {
    from: &'a mut Tally<'h, 'p>,
    _lock: Option<Locked<'p>>,
}

impl Drop for Shown<'_, '_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.from.tell();
    }
}

/// Copies everything below `child`, which has `keys`, into the child of the twin of its slot. That is a new
/// child, unless an earlier part of the map made it.
fn copy_child<'p, V: Value>(
    from: &mut Tally<'_, 'p>,
    (mut child, mut keys): (NodeRef<'p>, Range<u64>),
    into: &mut Tally<'_, '_>,
    hold: &Hold,
    copy: &mut impl FnMut(&mut Run<'_, V>) -> Result<Option<V>, OutOfMemory>,
) -> Result<(), Stop> {
    let mut twins = child_of(into, keys.start)?;
    loop {
        match copy_node(&mut Tally::new(from.here, child), keys.clone(), &mut twins, hold, copy) {
            Err(Stop::Gone(rest)) => keys.start = rest,
            copied => return copied,
        }
        match unfold(from, &keys)? {
            Some(leaf) => child = leaf,
            None => return Ok(()),
        }
    }
}

/// Returns the leaf that has `keys` now, if they have values. They are the last keys of a leaf that was
/// folded before they were copied.
fn unfold<'p>(from: &Tally<'_, 'p>, keys: &Range<u64>) -> Result<Option<NodeRef<'p>>, OutOfMemory> {
    match acquire(from.here, from.node, keys.start, Word::is_used) {
        Acquired::Child(leaf) => Ok(Some(leaf)),
        Acquired::Unwanted => Ok(None),
        Acquired::Gone => unreachable!("only leaves are folded"),
        Acquired::Locked(word) => {
            let part = from.node.part(keys.clone());
            let lock = part.lock();
            let leaf = expand(from.here, &part, word)?;
            mem::forget(lock);
            unlock_below(from.here, leaf, part.keys);
            Ok(Some(leaf))
        }
    }
}

/// Returns the child that has `key` of the node of `into`. Makes a new one if there is none.
fn child_of<'a, 'p>(into: &mut Tally<'a, 'p>, key: u64) -> Result<Tally<'a, 'p>, OutOfMemory> {
    let twin = into.node.part(into.node.span(key));
    let (node, first_count) = match into.node.step(into.here, twin.slot) {
        Step::Child(node) => (node, 0),
        Step::Slot(_) => (make_child(into, &twin)?, HOLD),
    };
    let mut child = Tally::new(into.here, node);
    // The node's first count is taken away at the end. So a new node keeps it until then, in addition to the
    // slots that other cores have counted.
    child.used -= first_count;
    Ok(child)
}

/// Makes a new node in the slot of `twin`, which is a slot of the node of `into`.
fn make_child<'p>(into: &mut Tally<'_, 'p>, twin: &Part<'p>) -> Result<NodeRef<'p>, OutOfMemory> {
    let lock = take(into.here, twin);
    let node = plant_empty(into.here, twin)?;
    mem::forget(lock);
    into.used += 1;
    Ok(node)
}

/// Makes sure that the twin's slots can have second words, as those of the part have. If a leaf has one
/// second word for all slots, so has its copy, and nothing needs to be done.
#[inline(always)]
fn make_fit(part: &Part<'_>, twin: &Part<'_>) -> Result<(), OutOfMemory> {
    if part.node.is_wide() { twin.node.widen() } else { Ok(()) }
}

/// Gives the twin's slots a value. Returns the number of slots.
#[inline(always)]
fn put<V: Value>(there: &Here<'_>, twin: &Part<'_>, value: V) -> Result<i64, OutOfMemory> {
    let (main, second) = words(value);
    let folds = V::joins(main);
    let lock = take(there, twin);
    if second != 0 {
        twin.node.fit(second)?;
        twin.set_second(second);
    }
    mem::forget(lock);
    twin.set(Word::value(main, second != 0), folds);
    Ok(twin.len() as i64)
}

/// Locks the twin's slots, which will be used.
#[inline(always)]
fn take<'p>(there: &Here<'p>, twin: &Part<'p>) -> Locked<'p> {
    let (slots, all) = (twin.node.slots(), twin.range());
    let mut at = match all.len() {
        1 => all.start + usize::from(slots.try_lock_empty(all.start)),
        _ => slots.try_lock_run(all.clone()),
    };
    while at < all.end {
        let taken = Locked { slots, range: all.start..at };
        let key = twin.keys.start + slot_keys(twin.node.level()) * (at - all.start) as u64;
        let acquired = acquire(there, twin.node, key, |word| !word.is_used());
        assert!(matches!(acquired, Acquired::Locked(_)), "the twin has keys of its own");
        mem::forget(taken);
        at = slots.try_lock_run(at + 1..all.end);
    }
    let taken = Locked { slots, range: all.clone() };
    assert!(slots.end_of_unused(all.clone()) == all.end, "the twin has keys of its own");
    twin.node.touch(&twin.keys);
    taken
}
