//! A range below one node: locked, unlocked, split and walked from left to right. Why this is right is said in
//! [`crate::lock`].

use core::ops::{ControlFlow, Range};

use crate::lock::Here;
use crate::node::{NodeRef, Part, Step, slot_keys};
use crate::slot::{Slot, Word};
use crate::{Expand, OutOfMemory, fold};

/// Why a range below a node was not locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoMemory,
    /// The node was folded: the slot that led to it says what to do.
    Gone,
}

/// Locks `keys`, which are below `node`. On failure none of them.
#[inline(always)]
pub(crate) fn lock_below<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    expand: Expand,
) -> Result<(), Refusal> {
    if node.level() > 0 {
        return lock_above(here, node, keys, expand);
    }
    // Only the first can be gone: who holds one keeps the leaf.
    match node.leaf_slots(keys).iter().all(Slot::lock) {
        true => Ok(()),
        false => Err(Refusal::Gone),
    }
}

/// `lock_below` above the leaves.
fn lock_above<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    expand: Expand,
) -> Result<(), Refusal> {
    let aligned = node.is_aligned(&keys);
    for part in node.parts_without(keys.clone(), |slot| aligned && slot.try_lock_empty()) {
        lock_part(here, &part, expand)
            .inspect_err(|_| unlock_below(here, node, keys.start..part.keys.start))?;
    }
    Ok(())
}

/// A child that is gone by the time it is entered has made room for something else.
fn lock_part<'p>(here: &Here<'p>, part: &Part<'p>, expand: Expand) -> Result<(), Refusal> {
    loop {
        return match acquire(here, part.node, part.slot, |_| true) {
            Acquired::Child(child) => match lock_below(here, child, part.keys.clone(), expand) {
                Err(Refusal::Gone) => continue,
                locked => locked,
            },
            Acquired::Locked(word) if !part.whole && !expand.leaves(here, part, word) => {
                fold::expand(here, part, word).inspect_err(|_| part.slot.unlock())?;
                Ok(())
            }
            Acquired::Gone => Err(Refusal::Gone),
            _ => Ok(()),
        };
    }
}

/// `Held::split`.
pub(crate) fn split_below<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
) -> Result<(), OutOfMemory> {
    for part in node.parts(keys) {
        let child = match node.step(here, part.slot) {
            Step::Child(child) => child,
            Step::Slot(_) if part.whole => continue,
            Step::Slot(word) => fold::expand(here, &node.whole(&part), word)?,
        };
        if child.level() > 0 {
            split_below(here, child, part.keys)?;
        }
    }
    Ok(())
}

/// Unlocks `keys`, which are below `node` and held.
#[inline(always)]
pub(crate) fn unlock_below<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>) {
    match node.level() {
        0 => node.leaf_slots(keys).iter().for_each(Slot::unlock),
        _ => unlock_above(here, node, keys),
    }
}

/// `unlock_below` above the leaves.
fn unlock_above<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>) {
    for part in node.parts_without(keys, Slot::unlock_empty) {
        match node.step(here, part.slot) {
            Step::Child(child) => unlock_below(here, child, part.keys),
            Step::Slot(_) => part.slot.unlock(),
        }
    }
}

/// The lowest node below `root` that covers all of `keys`.
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

/// `Held::walk` above the leaves.
pub(crate) fn walk_above<'p, B>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    keys: Range<u64>,
    visit: &mut impl FnMut(NodeRef<'p>, Range<u64>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let mut run = keys.start..keys.start;
    for part in node.parts(keys) {
        let Step::Child(child) = node.step(here, part.slot) else {
            run.end = part.keys.end;
            continue;
        };
        if !run.is_empty() {
            visit(node, run)?;
        }
        run = part.keys.end..part.keys.end;
        match child.level() {
            0 => visit(child, part.keys)?,
            _ => walk_above(here, child, part.keys, visit)?,
        }
    }
    if run.is_empty() { ControlFlow::Continue(()) } else { visit(node, run) }
}

/// What `acquire` found.
pub(crate) enum Acquired<'p> {
    Child(NodeRef<'p>),
    /// The slot is ours; it said this.
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

/// Locks `slot` of `node` if what it says is `wanted`, or enters its child; waits while somebody else holds it.
#[inline(always)]
pub(crate) fn acquire<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    slot: &'p Slot,
    wanted: impl Fn(Word) -> bool,
) -> Acquired<'p> {
    loop {
        match node.step(here, slot) {
            Step::Child(child) => return Acquired::Child(child),
            Step::Slot(word) if word.is_gone() => return Acquired::Gone,
            Step::Slot(word) if word.is_locked() => {}
            Step::Slot(word) if !wanted(word) => return Acquired::Unwanted,
            Step::Slot(word) if slot.try_lock(word) => return Acquired::Locked(word),
            Step::Slot(_) => {}
        }
        percore::relax();
    }
}

/// Shows `node` and all nodes below it to `visit`. Nothing is locked: one that comes or goes meanwhile may be missed.
pub(crate) fn each_node<'p>(here: &Here<'p>, node: NodeRef<'p>, visit: &mut dyn FnMut(NodeRef<'p>)) {
    visit(node);
    if node.level() == 0 {
        return;
    }
    for slot in node.slots() {
        if let Step::Child(child) = node.step(here, slot) {
            each_node(here, child, visit);
        }
    }
}

impl Expand {
    /// Whether the slot of `part`, which is locked, sticks out of the range and said `word`, may be held whole.
    fn leaves(self, here: &Here<'_>, part: &Part<'_>, word: Word) -> bool {
        match self {
            Expand::Always => false,
            Expand::IfPresent => !word.is_used(),
            Expand::IfDiffering => {
                !word.is_used() || (here.part)(word.main(), part.second(word), 1) == word.main()
            }
            Expand::Never => true,
        }
    }
}
