//! The range protocol.
//!
//! | a slot's state word | state | the cores that may change it, and the change |
//! |---|---|---|
//! | `OWN` | empty | any core: CAS to `OWN`, `LOCK` |
//! | `OWN`, `LOCK` | empty, held | the holder: to a value, a child, or `OWN` |
//! | `0` | silent: the first slot of its section has its word (`section.rs`) | the holder of that slot: to the first slot's content |
//! | value | a value for every key below the slot | any core: CAS to value, `LOCK` |
//! | value, `LOCK` | the same, held | the holder: to another value, to nothing, to a child, or unlocked |
//! | child | its keys live in the child | Refcache: adds `DYING`. The holder of all slots of the child: CAS to value, `LOCK` |
//! | child, `DYING` | the child was found empty | a traversal, or Refcache if it is used again: clears `DYING`. Refcache: CAS to `OWN`, the child is gone. The holder of all slots of the child: as above |
//! | gone | the slot's node was folded | none |
//!
//! ```text
//!  lock 5..7 when slot S holds the folded value v (S covers 4..8):
//!
//!      S: v            S: v LOCK                 S: child                     S: child
//!                                                   │                            │
//!                                          4: v  5: v LOCK  6: v LOCK  7: v     4: v  5: v  6: v  7: v
//!      ── CAS ──▶      ── built in private, published by one store ──▶  ── unlock: one store each ──▶
//! ```
//!
//! 1. Every state has one author of its next change, or several that race by CAS. A child slot is never
//!    locked.
//! 2. The holder of a range holds every slot that the range touches and that has no child. No other core can
//!    lock or expand these slots. So the set changes only by the holder's own actions, and a walk over the
//!    range finds it again: an unlock reaches the slots at any level where they are by then.
//! 3. A locker waits only for a slot to the right of everything that it has locked. Slots are taken from left
//!    to right, and the slots that an expansion makes are locked already where they are wanted, and only
//!    there. Two lockers that wait for each other would each hold a slot to the right of the slots that they
//!    hold. So no core waits for ever, unless it holds a slot already when it begins to lock. Then it must
//!    keep an order itself (`docs/design/radix.md`).
//! 4. Two ranges that overlap compete for their leftmost common key. It is under one slot at any time, and
//!    the holder of that slot, or of one that it was expanded into, goes first.
//! 5. A waiter reads the word again at every turn and locks by CAS from exactly the word that it read. If the
//!    slot became a child meanwhile the waiter goes down. A lock bit is never set in a word that the waiter
//!    has not checked.
//! 6. A core that finds a slot gone holds nothing of its node, because a node is folded by the holder of all
//!    its slots. It goes by the parent's slot again (`fold.rs`).
//! 7. A core that uses a node has a loan of the Refcache domain ([`Here`]), and read the word that leads to
//!    the node without `DYING`, or cleared `DYING`. So the node stays until the loan ends, and no core counts
//!    the nodes on its path.
//!
//! Orderings. A lock's CAS is Acquire and an unlock's store is Release: each holder sees all writes of the
//! last one. Publishing a child is Release and reading a word on the way down is Acquire: a core that enters
//! a child sees its slots. Writes under a lock are Relaxed.

use core::mem;
use core::ops::{ControlFlow, Range};

use crate::allocate::OutOfMemory;
use crate::expand::Mode;
use crate::fold;
use crate::here::Here;
use crate::levels::{BLOCK, leaf_indices, slot_index};
use crate::node::{NodeRef, Step};
use crate::overlap::Record;
use crate::parts::Part;
use crate::section::folds_at;
use crate::slot::Word;
use crate::value::are_alike;

/// A locked range.
#[derive(Debug)]
pub(crate) struct Held<'p> {
    pub here: Here<'p>,
    /// The lowest node that covered the whole range when it was locked.
    node: NodeRef<'p>,
    keys: Range<u64>,
    record: Record,
}

impl<'p> Held<'p> {
    /// Locks `keys`, left to right.
    #[inline(always)]
    pub fn lock(
        here: Here<'p>,
        root: NodeRef<'p>,
        keys: Range<u64>,
        mode: Mode,
    ) -> Result<Self, OutOfMemory> {
        loop {
            let node = root.descend(&here, &keys);
            match lock_below(&here, node, keys.clone(), mode) {
                Ok(()) => return Ok(Self::new(here, node, keys)),
                Err(Refusal::NoMemory) => return Err(OutOfMemory),
                Err(Refusal::Gone) => {}
            }
        }
    }

    /// Locks `key` alone, if it has a value. Locks its whole block, if that is folded and `whole` returns
    /// true for its words.
    #[inline(always)]
    pub fn lock_key(
        here: Here<'p>,
        root: NodeRef<'p>,
        key: u64,
        whole: impl Fn(u64, u64) -> bool,
    ) -> Result<Option<Self>, OutOfMemory> {
        let mut node = root;
        loop {
            match acquire(&here, node, key, Word::is_used) {
                Acquired::Child(child) => node = child,
                Acquired::Unwanted => return Ok(None),
                Acquired::Gone => node = root,
                Acquired::Locked(_) if node.level() == 0 => {
                    return Ok(Some(Self::new(here, node, key..key + 1)));
                }
                Acquired::Locked(word) => {
                    let mut held = Self::new(here, node, node.span(key));
                    held.narrow(key, word, whole)?;
                    return Ok(Some(held));
                }
            }
        }
    }

    /// Makes a guard of `keys`, which the caller has locked below `node`.
    #[inline(always)]
    fn new(here: Here<'p>, node: NodeRef<'p>, keys: Range<u64>) -> Self {
        let record = here.record(&keys);
        Self { here, node, keys, record }
    }

    /// Narrows a guard that holds one folded slot, which had `word`, to `key` alone or its block.
    fn narrow(&mut self, key: u64, word: Word, whole: impl Fn(u64, u64) -> bool) -> Result<(), OutOfMemory> {
        let start = key & !(BLOCK - 1);
        let alone = self.node.part(key..key + 1);
        let part = match whole(word.main(), alone.second(word)) {
            true => self.node.part(start..start + BLOCK),
            false => alone,
        };
        if !part.whole {
            fold::expand(&self.here, &part, word)?;
        }
        self.keys = part.keys;
        self.record.change(&self.keys);
        Ok(())
    }

    #[inline(always)]
    pub fn keys(&self) -> Range<u64> {
        self.keys.clone()
    }

    /// Expands the held slots until no slot sticks out of `keys`, which are held. The guard holds the new
    /// slots that are in its range. On failure the slots that were expanded stay so.
    pub fn split(&self, keys: Range<u64>) -> Result<(), OutOfMemory> {
        split_below(&self.here, self.node, keys, &self.keys)
    }

    /// Returns the leaf of `key`, which is held, after expanding every slot above it.
    #[inline(always)]
    pub fn leaf_of(&self, key: u64) -> Result<NodeRef<'p>, OutOfMemory> {
        match self.node.level() {
            0 => Ok(self.node),
            _ => self.split_off(key),
        }
    }

    fn split_off(&self, key: u64) -> Result<NodeRef<'p>, OutOfMemory> {
        self.split(key..key + 1)?;
        Ok(self.node.descend(&self.here, &(key..key + 1)))
    }

    /// Gives the keys of `block`, which are held, one value as one slot, and removes the leaf.
    ///
    /// # Panics
    /// Panics if they are not those of a leaf.
    pub fn fold(&mut self, block: Range<u64>, main: u64, second: u64) -> Result<(), OutOfMemory> {
        assert!(block.start & (BLOCK - 1) == 0 && block.end - block.start == BLOCK, "not a block: {block:?}");
        let leaf = self.node.descend(&self.here, &block);
        assert!(leaf.level() == 0, "the block {block:?} has no leaf");
        let parent = leaf.parent().expect("a leaf has a parent");
        fold::fold(&self.here, leaf, &parent.part(block), main, second)?;
        if self.node.level() == 0 {
            self.node = parent;
        }
        Ok(())
    }

    /// Makes sure that second words can be stored for `keys`, which are held, as `make_sure` does for a node.
    pub fn widen(
        &self,
        keys: Range<u64>,
        make_sure: impl Fn(NodeRef<'p>) -> Result<(), OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let widened = self.walk(keys, |node, _| match make_sure(node) {
            Ok(()) => ControlFlow::Continue(()),
            Err(out_of_memory) => ControlFlow::Break(out_of_memory),
        });
        widened.break_value().map_or(Ok(()), Err)
    }

    /// Returns the node below which everything is held.
    pub fn node(&self) -> NodeRef<'p> {
        self.node
    }

    /// Shows the slots of `keys`, which are held, to `visit` from left to right. Each call gets a node and a
    /// run of keys whose slots in that node are held.
    #[inline(always)]
    pub fn walk<B>(
        &self,
        keys: Range<u64>,
        mut visit: impl FnMut(NodeRef<'p>, Range<u64>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match self.node.level() {
            0 => visit(self.node, keys),
            _ => walk_above(&self.here, self.node, keys, &mut visit),
        }
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        unlock_below(&self.here, self.node, self.keys());
    }
}

/// The reason why a range below a node was not locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    NoMemory,
    /// The node was folded, and the caller goes by the slot that led to it.
    Gone,
}

impl From<OutOfMemory> for Refusal {
    fn from(_: OutOfMemory) -> Self {
        Self::NoMemory
    }
}

/// Locks `keys`, which are below `node`. On failure locks none of them.
#[inline(always)]
fn lock_below<'p>(here: &Here<'p>, node: NodeRef<'p>, keys: Range<u64>, mode: Mode) -> Result<(), Refusal> {
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
        self.here.wait(|| self.node.span(self.keys.end));
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
fn split_below<'p>(
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

/// Walks a range as `Held::walk` does, above the leaves.
fn walk_above<'p, B>(
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
        here.wait(|| node.span(key));
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
