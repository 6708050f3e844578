//! The slots of a node that a range touches: one at a time, or neighbours with the same value as one.

use core::iter;
use core::mem;
use core::ops::Range;

use sync::atomic::{AtomicU64, Ordering};

use crate::here::Here;
use crate::levels::{BLOCK, FANOUT, GROUP, LEVEL_BITS, leaf_indices, slot_index, slot_keys};
use crate::node::{NodeRef, Step};
use crate::section::{Locked, SECTION, Slots, first_of, folds_at};
use crate::side::Side;
use crate::slot::{Slot, Word};

impl<'p> NodeRef<'p> {
    /// Returns the slots that `keys`, a range inside this node, touches in part: the first, the last, both or
    /// none.
    #[inline(always)]
    pub fn ends(self, keys: &Range<u64>) -> impl Iterator<Item = Part<'p>> {
        let (all, whole) = (self.indices(keys), self.whole_indices(keys));
        let last = all.end.checked_sub(1).filter(|&last| last >= whole.end && last > all.start);
        let first = Some(all.start).filter(|&first| first < whole.start || first >= whole.end);
        first.into_iter().chain(last).map(move |index| self.part_at(index, keys))
    }

    /// Returns the slots that `keys`, a range inside this node, touches, for the holder of all, to change
    /// them one by one. It gives each a word of its own.
    #[inline(always)]
    pub fn own_parts(self, keys: Range<u64>) -> impl Iterator<Item = Part<'p>> {
        self.picked(keys, move |slots| {
            self.slots().open_held(slots.start);
            Some(one(slots.start))
        })
    }

    /// Returns the slots as `own_parts` does, but a folded section comes as one part, if the keys cover it.
    #[inline(always)]
    pub fn held_parts(self, keys: Range<u64>) -> impl Iterator<Item = Part<'p>> {
        let whole = self.whole_indices(&keys);
        self.picked(keys, move |slots| {
            let (at, word) = (slots.start, self.slots().held(slots.start));
            let next = word.next(at);
            if word.is_folded() && (first_of(at) < at || at < whole.start || next > whole.end) {
                self.slots().open_held(at);
                return Some(one(at));
            }
            Some(at..next)
        })
    }

    /// Returns the part of `keys`, a range inside this node, that is on slot `index`.
    #[inline(always)]
    pub fn part_at(self, index: usize, keys: &Range<u64>) -> Part<'p> {
        self.run(one(index), keys)
    }

    /// Returns the used slots, for the holder of all. Neighbours with the same value that do not stick out of
    /// the keys come as one part, if `joins` returns true for it.
    #[inline(always)]
    pub fn used_parts(self, keys: Range<u64>, joins: impl Fn(u64) -> bool) -> impl Iterator<Item = Part<'p>> {
        let whole = self.whole_indices(&keys);
        self.picked(keys, move |slots| {
            let first = self.next_used(slots)?;
            Some(self.used_run_above(first, &whole, &joins))
        })
    }

    /// Returns the first of `slots` that is used, for the holder of all. It reads the first slot before it
    /// searches, because most used slots are side by side.
    #[inline(always)]
    pub fn next_used(self, slots: Range<usize>) -> Option<usize> {
        match slots.is_empty() {
            true => None,
            false if self.slots().held(slots.start).is_used() => Some(slots.start),
            false => self.first_used(slots),
        }
    }

    /// Returns slot `first`, which is used, and the slots behind it that come as one part with it, as
    /// `used_parts` says. `whole` are the slots that do not stick out of the keys.
    #[inline(always)]
    fn used_run_above(self, first: usize, whole: &Range<usize>, joins: impl Fn(u64) -> bool) -> Range<usize> {
        let like = if whole.contains(&first) { self.like(first, joins) } else { None };
        first..like.map_or(first + 1, |like| like.end(first..whole.end))
    }

    /// Returns slot `first` of `keys`, which has a value, with the slots behind it as `used_parts` does.
    #[inline]
    pub fn used_part_at(self, first: usize, keys: &Range<u64>, joins: impl Fn(u64) -> bool) -> Part<'p> {
        self.run(self.used_run_above(first, &self.whole_indices(keys), joins), keys)
    }

    /// Returns the first run of `left`, keys of this leaf, as `used_parts` would, and takes it out of `left`.
    #[inline(always)]
    pub fn take_used_run(self, left: &mut Range<u64>, joins: impl Fn(u64) -> bool) -> Option<Part<'p>> {
        if left.is_empty() {
            return None;
        }
        let slots = leaf_indices(left);
        let base = left.start - slots.start as u64;
        let run = match slots.len() {
            1 => slots.start + usize::from(!self.slots().held(slots.start).is_used())..slots.end,
            _ => self.used_run(slots, joins),
        };
        left.start = base + run.end as u64;
        let keys = base + run.start as u64..left.start;
        (!run.is_empty()).then(|| Part {
            node: self,
            slot: &self.slots().0[run.start],
            run,
            keys,
            whole: true,
        })
    }

    /// Returns the indices of the first used run among `slots` of this leaf, for the holder of all. It is
    /// empty if there is none.
    #[inline(never)]
    pub fn used_run(self, slots: Range<usize>, joins: impl Fn(u64) -> bool) -> Range<usize> {
        let first = self.slots().end_of_unused(slots.clone());
        if first == slots.end {
            return first..first;
        }
        first..self.like(first, joins).map_or(first + 1, |like| like.end(first..slots.end))
    }

    /// Returns the first used slots, with their child if they have one. The child stays, because the caller
    /// entered it when it locked the keys.
    #[inline(always)]
    pub fn used_part(
        self,
        here: &Here<'p>,
        keys: Range<u64>,
        joins: impl Fn(u64) -> bool,
    ) -> Option<Found<'p>> {
        self.used_parts(keys, joins).next().map(|part| match self.step(here, part.slot) {
            Step::Child(child) => Found { part, child: Some(child) },
            Step::Slot(_) => Found { part, child: None },
        })
    }

    /// Returns the first used slot, for a core that holds none.
    #[inline(always)]
    pub fn first_used_part(self, keys: Range<u64>) -> Option<Part<'p>> {
        self.picked(keys, |slots| self.first_used(slots).map(one)).next()
    }

    /// Returns the used slots, for a core that holds none. Neighbours whose main words are the same come as
    /// one. The answer is a hint.
    #[inline(always)]
    pub fn used_runs(self, keys: Range<u64>) -> impl Iterator<Item = Part<'p>> {
        self.picked(keys, move |slots| {
            let first = self.first_used(slots.clone())?;
            let word = self.slots().held(first);
            // A child that is marked has the bit of a folded word.
            let like = word.is_value().then(|| self.slots().end_of_like(first..slots.end, word.own(), false));
            Some(first..like.map_or(first + 1, |end| end.max(first + 1)))
        })
    }

    /// Returns the steps of the holder's walks: a slot that has a child, or neighbours that have none.
    #[inline(always)]
    pub fn steps(self, keys: Range<u64>) -> impl Iterator<Item = Part<'p>> {
        self.picked(keys, move |slots| {
            let end = self.slots().end_while(slots.clone(), |word| !word.is_child());
            Some(slots.start..end.max(slots.start + 1))
        })
    }

    /// Returns the first of `slots` that has a child, for the holder of all.
    #[inline]
    pub fn first_child(self, mut slots: Range<usize>) -> Option<usize> {
        while !slots.is_empty() {
            // A few slots are read faster than the bits that say which slots were ever used.
            let used = if slots.len() > SECTION { self.first_used(slots.clone())? } else { slots.start };
            slots.start = self.slots().end_while(used..slots.end, |word| !word.is_child());
            if slots.start == used {
                return Some(used);
            }
        }
        None
    }

    /// Locks the neighbours of `slots` with the same value, if they are in a leaf and below `end`. The caller
    /// holds `slots`. Returns the slots that it holds then. If neighbours must not be joined, that is only
    /// the first slot.
    #[inline(always)]
    pub fn lock_alike(self, slots: Range<usize>, end: usize, joins: impl Fn(u64) -> bool) -> Range<usize> {
        let first = one(slots.start);
        let held = Locked { slots: self.slots(), range: slots.clone() };
        let joins = joins(self.slots().held(first.start).main());
        mem::forget(held);
        if joins {
            return self.lock_joined(slots, end);
        }
        if slots != first {
            self.slots().open(first.clone());
        }
        first
    }

    /// Locks the neighbours as `lock_alike` does, if they may be joined.
    #[inline(never)]
    fn lock_joined(self, slots: Range<usize>, end: usize) -> Range<usize> {
        let first = slots.start;
        let Some(like) = self.like(first, |_| true).filter(|_| self.level() == 0) else { return slots };
        let mut at = slots.end;
        while at < end
            && let Some(next) = like.try_lock(at, end)
        {
            at = next;
        }
        first..at
    }

    /// Returns the part that is slots `run` of this leaf, which has the key `key`.
    #[inline(always)]
    pub fn leaf_run(self, run: Range<usize>, key: u64) -> Part<'p> {
        let base = key & !(BLOCK - 1);
        let keys = base + run.start as u64..base + run.end as u64;
        Part { node: self, slot: &self.slots().0[run.start], run, keys, whole: true }
    }

    /// Returns the runs of slots that `pick` picks, each from the slots that are left.
    #[inline(always)]
    fn picked(
        self,
        keys: Range<u64>,
        pick: impl Fn(Range<usize>) -> Option<Range<usize>>,
    ) -> impl Iterator<Item = Part<'p>> {
        let mut left = self.indices(&keys);
        iter::from_fn(move || {
            let run = if left.is_empty() { None } else { pick(left.clone()) }?;
            left.start = run.end;
            Some(self.run(run, &keys))
        })
    }

    /// Returns the part of `keys`, a range inside this node, that is on slots `run`.
    #[inline(always)]
    pub fn run(self, run: Range<usize>, keys: &Range<u64>) -> Part<'p> {
        let shift = LEVEL_BITS * self.level();
        let base = keys.start >> shift & !(FANOUT as u64 - 1);
        let all = (base + run.start as u64) << shift..(base + run.end as u64) << shift;
        let keys = all.start.max(keys.start)..all.end.min(keys.end);
        Part { node: self, slot: &self.slots().0[run.start], run, whole: keys == all, keys }
    }

    /// Returns the first of `slots` that is used. Most slots of most nodes are empty, so they are read in
    /// groups, and in an upper node only the groups that were ever used.
    #[inline(always)]
    pub fn first_used(self, slots: Range<usize>) -> Option<usize> {
        let (touched, Range { start: mut at, end }) = (self.touched(), slots);
        while at < end {
            let left = touched >> (at / GROUP);
            let start = at / GROUP + left.trailing_zeros() as usize;
            at = at.max(start * GROUP);
            if left == 0 || at >= end {
                return None;
            }
            let groups = (touched >> start).trailing_ones() as usize;
            let stop = end.min((start + groups) * GROUP);
            at = self.slots().end_of_unused(at..stop);
            if at < stop {
                return Some(at);
            }
        }
        None
    }

    /// Returns the words of slot `index`, which the caller holds, if `joins` says that neighbours with the
    /// same value are joined.
    #[inline(always)]
    fn like(self, index: usize, joins: impl Fn(u64) -> bool) -> Option<Like<'p>> {
        let word =
            Some(self.slots().held(index).own()).filter(|word| word.is_value() && joins(word.main()))?;
        let side = &self.links().side;
        let (second, seconds) = if word.is_wide() { side.read(index) } else { (0, &[][..]) };
        let folds = !word.is_wide() && word.can_fold() && folds_at(self.level());
        Some(Like { slots: self.slots(), word, folds, second, side, seconds })
    }

    /// Returns the slot that covers all of `keys`.
    pub fn part(self, keys: Range<u64>) -> Part<'p> {
        let whole = keys.end - keys.start == slot_keys(self.level());
        let index = slot_index(keys.start, self.level());
        Part { node: self, slot: &self.slots().0[index], run: one(index), keys, whole }
    }

    /// Returns the part of `within` on the slot of `part`.
    pub fn common(self, part: &Part<'p>, within: &Range<u64>) -> Part<'p> {
        let all = self.span(part.keys.start);
        self.part(all.start.max(within.start)..all.end.min(within.end))
    }
}

/// Slots that have a value, or a slot that has a child.
pub(crate) struct Found<'p> {
    pub part: Part<'p>,
    pub child: Option<NodeRef<'p>>,
}

fn one(index: usize) -> Range<usize> {
    index..index + 1
}

/// The words of a slot, by which other slots with the same value are found.
struct Like<'p> {
    slots: &'p Slots,
    word: Word,
    /// Whether slots with this value may be sections.
    folds: bool,
    second: u64,
    side: &'p Side,
    /// All second words, if the slot has one of its own.
    seconds: &'p [AtomicU64],
}

impl Like<'_> {
    /// Returns the end of those of `slots` that have the same value. The caller holds them, and the first of
    /// them has it.
    #[inline(always)]
    fn end(&self, slots: Range<usize>) -> usize {
        let end = self.slots.end_of_like(slots.clone(), self.word, self.folds);
        match self.seconds.is_empty() {
            // If there was one second word for all slots, those that the caller holds still have it.
            true => end,
            false => (slots.start..end).find(|&index| !self.is_second(index)).unwrap_or(end),
        }
    }

    /// Locks slot `index`, or the section that begins there and ends at `end` at the latest, if no core holds
    /// it and it has the same value. Returns its end.
    #[inline(always)]
    fn try_lock(&self, index: usize, end: usize) -> Option<usize> {
        let (word, slot) = (self.slots.0[index].held(), &self.slots.0[index]);
        let next = word.next(index);
        let locked = word.own() == self.word.unlocked() && next <= end && slot.try_lock(word);
        let alike = locked && self.is_second(index);
        if locked && !alike {
            slot.unlock();
        }
        alike.then_some(next)
    }

    /// Returns whether slot `index` has the second word. One word for all slots is read again, because a core
    /// that held the slot meanwhile may have made it a frame. Relaxed: as in `Side::get`.
    #[inline(always)]
    fn is_second(&self, index: usize) -> bool {
        match self.seconds.get(index) {
            Some(second) => second.load(Ordering::Relaxed) == self.second,
            None => !self.word.is_wide() || self.side.is_one(self.second),
        }
    }
}

/// A slot, and the part of a range that is on it. Or a run of slots with the same value, none of which sticks
/// out of the range.
pub(crate) struct Part<'p> {
    pub node: NodeRef<'p>,
    pub slot: &'p Slot,
    /// The indices of the slots in the node.
    run: Range<usize>,
    pub keys: Range<u64>,
    /// Whether the range covers the slots completely.
    pub whole: bool,
}

impl<'p> Part<'p> {
    /// Returns the second word of the slot, which the caller holds and which has `word`.
    #[inline(always)]
    pub fn second(&self, word: Word) -> u64 {
        self.node.second(self.index(), word)
    }

    /// Stores the second word of the slots, which the caller holds. The caller has made sure of the side.
    #[inline(always)]
    pub fn set_second(&self, second: u64) {
        self.node.set_second(&self.keys, second);
    }

    /// Returns the same slots.
    #[inline(always)]
    pub fn again(&self) -> Part<'p> {
        self.twin(self.node)
    }

    /// Returns the same slots of another node.
    #[inline(always)]
    pub fn twin<'t>(&self, node: NodeRef<'t>) -> Part<'t> {
        let Self { run, keys, whole, .. } = self;
        Part { node, slot: &node.slots().0[run.start], run: run.clone(), keys: keys.clone(), whole: *whole }
    }

    /// Returns the indices of the slots in the node.
    #[inline(always)]
    pub fn range(&self) -> Range<usize> {
        self.run.clone()
    }

    /// Returns the number of slots.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.range().len()
    }

    /// Returns the word of the slots, which the caller holds, in the form for one slot.
    #[inline(always)]
    pub fn word(&self) -> Word {
        self.node.slots().held(self.index()).own()
    }

    /// Stores `word` in them, as `Slots::set` does.
    #[inline(always)]
    pub fn set(&self, word: Word, folds: bool) {
        self.node.set_slots(self.range(), word, folds);
    }

    /// Returns a guard of the slots, which the caller has locked. Dropping it unlocks them.
    #[inline(always)]
    pub fn lock(&self) -> Locked<'p> {
        Locked { slots: self.node.slots(), range: self.range() }
    }

    /// Returns the index of the slot in the node, or of the first of the run.
    #[inline(always)]
    pub fn index(&self) -> usize {
        self.run.start
    }
}
