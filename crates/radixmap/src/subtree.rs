//! A range below one node: locked, unlocked, split and walked from left to right. [`crate::lock`] has the
//! argument.

use core::mem;
use core::ops::{ControlFlow, Range};

use crate::expand::Mode;
use crate::lock::{Here, are_alike};
use crate::node::{NodeRef, Part, Step, leaf_indices, slot_index, slot_keys};
use crate::section::folds_at;
use crate::slot::Word;
use crate::{OutOfMemory, fold};

/// The reason why a range below a node was not locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoMemory,
    /// The node was folded, and the caller goes by the slot that led to it.
    Gone,
}

/// Locks `keys`, which are below `node`. On failure locks none of them.
#[inline(always)]
pub(crate) fn lock_below<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    mode: Mode,
) -> Result<(), Refusal> {
    if node.level() > 0 {
        return lock_above(here, node, keys, mode);
    }
    let slots = leaf_indices(&keys);
    let taken = node.slots().try_lock_in_leaf(slots.clone());
    if taken == slots.end { Ok(()) } else { lock_rest(here, node, slots, keys.start, taken) }
}

/// Locks the rest of a leaf's `slots`, which begin at key `start`. Those below slot `taken` are held, and
/// another core may hold that slot.
#[cold]
fn lock_rest<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    slots: Range<usize>,
    start: u64,
    mut taken: usize,
) -> Result<(), Refusal> {
    while taken < slots.end {
        let word = node.slots().seen(taken);
        if word.is_gone() {
            // Only the first slot can be gone, because a held slot keeps the leaf.
            return Err(Refusal::Gone);
        }
        match word.is_locked() {
            true => Taken { here, node, keys: start..start + (taken - slots.start) as u64 }.wait_for_next(),
            false => taken = node.slots().try_lock_leaf_run(taken..slots.end),
        }
    }
    Ok(())
}

/// Locks a range as `lock_below` does, above the leaves.
fn lock_above<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>, mode: Mode) -> Result<(), Refusal> {
    let mut taken = Taken { here, node, keys: keys.start..keys.start };
    let (Range { start: mut at, end }, whole) = (node.indices(&keys), node.whole_indices(&keys));
    while at < end {
        if whole.contains(&at) {
            at = node.slots().try_lock_run(at..whole.end);
        }
        if at < end {
            let part = node.part_at(at, &keys);
            taken.keys.end = part.keys.start;
            lock_part(here, &part, mode)?;
            at += 1;
        }
    }
    mem::forget(taken);
    Ok(())
}

/// Locks the part of a range on one slot. If the child is gone by the time it is entered, the slot has
/// another word.
fn lock_part<'p>(here: &Here<'p>, part: &Part<'p>, mode: Mode) -> Result<(), Refusal> {
    loop {
        return match acquire(here, part.node, part.keys.start, |_| true) {
            Acquired::Child(child) => match lock_below(here, child, part.keys.clone(), mode) {
                Err(Refusal::Gone) => continue,
                locked => locked,
            },
            Acquired::Locked(word) => {
                let taken = Taken { here, node: part.node, keys: part.keys.clone() };
                if !part.whole && !mode.leaves(here, part, word) {
                    fold::expand(here, part, word)?;
                }
                mem::forget(taken);
                Ok(())
            }
            Acquired::Gone => Err(Refusal::Gone),
            Acquired::Unwanted => Ok(()),
        };
    }
}

/// Slots that a locker has taken so far. If it fails, or foreign code panics, they are unlocked.
struct Taken<'a, 'p> {
    here: &'a Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
}

impl Taken<'_, '_> {
    /// Waits one turn for the slot behind them.
    #[cold]
    fn wait_for_next(self) {
        self.here.wait(self.node, self.keys.end);
        mem::forget(self);
    }
}

impl Drop for Taken<'_, '_> {
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            unlock_below(self.here, self.node, self.keys.clone());
        }
    }
}

/// Splits as `Held::split` does. `within` are the held keys.
pub(crate) fn split_below<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    within: &Range<u64>,
) -> Result<(), OutOfMemory> {
    for part in node.held_parts(keys) {
        let child = match node.step(here, part.slot) {
            Step::Child(child) => child,
            Step::Slot(_) if part.whole => continue,
            Step::Slot(word) => fold::expand(here, &node.common(&part, within), word)?,
        };
        if child.level() > 0 {
            split_below(here, child, part.keys, within)?;
        }
    }
    Ok(())
}

/// Unlocks `keys`, which are below `node` and held.
#[inline(always)]
pub(crate) fn unlock_below<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>) {
    match node.level() {
        0 => node.slots().unlock(leaf_indices(&keys)),
        _ => unlock_above(here, node, keys),
    }
}

/// Unlocks a range as `unlock_below` does, above the leaves.
fn unlock_above<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>) {
    let Range { start: mut at, end } = node.indices(&keys);
    loop {
        at = node.slots().unlock_run(at..end, folds_at(node.level()));
        if at == end {
            return;
        }
        let part = node.part_at(at, &keys);
        if let Step::Child(child) = node.step(here, part.slot) {
            unlock_below(here, child, part.keys);
        }
        at += 1;
    }
}

/// Returns the lowest node below `root` that covers all of `keys`.
#[inline]
pub(crate) fn descend<'p>(here: &Here<'p>, root: NodeRef<'p>, keys: &Range<u64>) -> NodeRef<'p> {
    let differing = keys.start ^ (keys.end - 1);
    let mut node = root;
    while node.level() > 0 && differing < slot_keys(node.level()) {
        match node.step(here, node.slot(keys.start)) {
            Step::Child(child) => node = child,
            Step::Slot(_) => break,
        }
    }
    node
}

/// Walks a range as `Held::walk` does, above the leaves.
pub(crate) fn walk_above<'p, B>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    visit: &mut impl FnMut(NodeRef<'p>, Range<u64>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    for part in node.steps(keys) {
        match node.step(here, part.slot) {
            Step::Slot(_) => visit(node, part.keys)?,
            Step::Child(child) if child.level() == 0 => visit(child, part.keys)?,
            Step::Child(child) => walk_above(here, child, part.keys, visit)?,
        }
    }
    ControlFlow::Continue(())
}

/// The result of `acquire`.
pub(crate) enum Acquired<'p> {
    Child(NodeRef<'p>),
    /// The slot is the caller's, and had this word.
    Locked(Word),
    /// The slot was free, but not wanted.
    Unwanted,
    /// Its node was folded.
    Gone,
}

impl From<OutOfMemory> for Refusal {
    fn from(_: OutOfMemory) -> Self {
        Self::NoMemory
    }
}

/// Locks the slot of `key` in `node` if its word is `wanted`, or enters its child. Waits while another core
/// holds it.
#[inline(always)]
pub(crate) fn acquire<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    key: u64,
    wanted: impl Fn(Word) -> bool,
) -> Acquired<'p> {
    let (slot, index) = (node.slot(key), slot_index(key, node.level()));
    loop {
        match node.step(here, slot) {
            Step::Child(child) => return Acquired::Child(child),
            Step::Slot(word) if word.is_gone() => return Acquired::Gone,
            Step::Slot(word) if word.is_locked() => {}
            Step::Slot(word) if !wanted(word) => return Acquired::Unwanted,
            Step::Slot(word) if node.slots().try_lock(index, word) => return Acquired::Locked(word.own()),
            Step::Slot(_) => {}
        }
        here.wait(node, key);
    }
}

/// Shows `node` and all nodes below it to `visit`, without a lock. A node that comes or goes meanwhile may be
/// missed.
pub(crate) fn each_node<'p>(here: &Here<'p>, node: NodeRef<'p>, visit: &mut dyn FnMut(NodeRef<'p>)) {
    visit(node);
    if node.level() == 0 {
        return;
    }
    for slot in &node.slots().0 {
        if slot.held().is_child()
            && let Step::Child(child) = node.step(here, slot)
        {
            each_node(here, child, visit);
        }
    }
}

impl Mode {
    /// Returns whether the slot of `part` may be held as a whole. It is locked, had `word`, and sticks out of
    /// the range.
    fn leaves(self, here: &Here<'_>, part: &Part<'_>, word: Word) -> bool {
        match self {
            Self::Always => false,
            Self::IfPresent => !word.is_used(),
            Self::IfDiffering => !word.is_used() || are_alike(here.part, word.main(), part.second(word)),
            Self::Never => true,
        }
    }
}
