//! The slots of a node that a range touches: one at a time, or neighbours that say the same as one.

use core::iter;
use core::mem;
use core::ops::Range;
use core::slice;

use sync::atomic::{AtomicU64, Ordering};

use super::{GROUP, LEVEL_BITS, NodeRef, Step, slot_index, slot_keys};
use crate::lock::Here;
use crate::memory::Slots;
use crate::side::Side;
use crate::slot::{Locked, Slot, Word, count_while};
use crate::subtree::{Acquired, acquire};

impl<'p> NodeRef<'p> {
    /// The slots that `keys`, a range inside this node, touches: left to right.
    #[inline(always)]
    pub fn parts(self, keys: Range<u64>) -> impl Iterator<Item = Part<'p>> {
        self.picked(keys, |slots| Some(one(slots.start)))
    }

    /// The same without those that `passes` says yes to. It is not asked about slots that stick out of the keys.
    #[inline(always)]
    pub fn parts_without(
        self,
        keys: Range<u64>,
        passes: impl Fn(&Slot) -> bool,
    ) -> impl Iterator<Item = Part<'p>> {
        let whole = self.whole_indices(&keys);
        self.picked(keys, move |slots| {
            if !whole.contains(&slots.start) {
                return Some(one(slots.start));
            }
            let passed = slots.start + count_while(&self.slots.0[slots.start..whole.end], &passes);
            (passed < slots.end).then(|| one(passed))
        })
    }

    /// The used ones, for the holder of all: neighbours that say the same, and do not stick out of the keys, come as one part, if
    /// it `joins` them.
    #[inline(always)]
    pub fn used_parts(self, keys: Range<u64>, joins: impl Fn(u64) -> bool) -> impl Iterator<Item = Part<'p>> {
        let whole = self.whole_indices(&keys);
        self.picked(keys, move |slots| {
            let first = self.first_used(slots)?;
            let like = if whole.contains(&first) { self.like(first, &joins) } else { None };
            let more = like.map_or(0, |like| like.count(&self.slots.0[first + 1..whole.end], first + 1));
            Some(first..first + 1 + more)
        })
    }

    /// The first run of `left`, keys of this leaf, as `used_parts` would show it; it is no longer among them afterwards.
    #[inline(always)]
    pub fn take_used_run(self, left: &mut Range<u64>, joins: impl Fn(u64) -> bool) -> Option<Part<'p>> {
        if left.is_empty() {
            return None;
        }
        let slots = self.leaf_slots(left.clone());
        let run = match slots {
            [slot] => usize::from(!slot.held().is_used())..1,
            _ => self.used_run(slots, slot_index(left.start, 0), joins),
        };
        let slot = slots.get(run.start)?;
        let keys = left.start + run.start as u64..left.start + run.end as u64;
        left.start = keys.end;
        Some(Part { node: self, slot, keys, whole: true })
    }

    /// Which of `slots`, the first of which is slot `index` of this leaf, are the first run that is used.
    #[inline(never)]
    fn used_run(self, slots: &[Slot], index: usize, joins: impl Fn(u64) -> bool) -> Range<usize> {
        let first = count_while(slots, |slot| !slot.held().is_used());
        let Some((_, others)) = slots[first..].split_first() else { return first..first };
        let like = self.like(index + first, joins);
        first..first + 1 + like.map_or(0, |like| like.count(others, index + first + 1))
    }

    /// The first of them, with its child if it has one, which stays: the caller entered it when it locked the keys.
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

    /// The first used one, for somebody who holds none.
    #[inline(always)]
    pub fn first_used_part(self, keys: Range<u64>) -> Option<Part<'p>> {
        self.picked(keys, |slots| self.first_used(slots).map(one)).next()
    }

    /// The used ones, for somebody who holds none: neighbours whose main words are the same come as one. A hint.
    #[inline(always)]
    pub fn used_runs(self, keys: Range<u64>) -> impl Iterator<Item = Part<'p>> {
        self.picked(keys, move |slots| {
            let (first, end) = (self.first_used(slots.clone())?, slots.end);
            let word = self.slots.0[first].held();
            let more = count_while(&self.slots.0[first + 1..end], |slot| slot.held() == word);
            Some(first..first + 1 + more)
        })
    }

    /// What the holder's walks go by: a slot that has a child, or neighbours that have none.
    #[inline(always)]
    pub fn steps(self, keys: Range<u64>) -> impl Iterator<Item = Part<'p>> {
        self.picked(keys, move |slots| {
            let childless = count_while(&self.slots.0[slots.clone()], |slot| !slot.held().is_child());
            Some(slots.start..slots.start + childless.max(1))
        })
    }

    /// The second words, if each slot has one of its own.
    #[inline(always)]
    pub fn seconds(self) -> &'p [AtomicU64] {
        self.links().side.each()
    }

    /// The same for somebody who holds none: if it has no child it is locked now. Who holds it is waited for. Unless the node
    /// was folded.
    #[inline(always)]
    pub fn lock_used_part(
        self,
        here: &Here<'p>,
        keys: Range<u64>,
        joins: impl Fn(u64) -> bool,
    ) -> Result<Option<Found<'p>>, Gone> {
        let Some((first, child)) = self.lock_first_used(here, keys.clone())? else { return Ok(None) };
        let run = match self.level {
            0 => first..self.lock_alike(first, self.indices(&keys).end, joins),
            _ => one(first),
        };
        Ok(self.picked(keys, |_| Some(run.clone())).next().map(|part| Found { part, child }))
    }

    /// The first slot of `keys` that has a child, or had a value and is the caller's now.
    fn lock_first_used(
        self,
        here: &Here<'p>,
        keys: Range<u64>,
    ) -> Result<Option<(usize, Option<NodeRef<'p>>)>, Gone> {
        let mut slots = self.indices(&keys);
        let start = keys.start & !(slot_keys(self.level + 1) - 1);
        while let Some(at) = self.first_used(slots.clone()) {
            match acquire(here, self, start + slot_keys(self.level) * at as u64, Word::is_used) {
                Acquired::Child(child) => return Ok(Some((at, Some(child)))),
                Acquired::Locked(_) => return Ok(Some((at, None))),
                Acquired::Unwanted => slots.start = at + 1,
                Acquired::Gone => return Err(Gone),
            }
        }
        Ok(None)
    }

    /// Locks the neighbours of slot `first`, which the caller holds, that say the same, below `end`; where they end.
    fn lock_alike(self, first: usize, end: usize, joins: impl Fn(u64) -> bool) -> usize {
        let held = Locked(slice::from_ref(&self.slots.0[first]));
        let like = self.like(first, joins);
        mem::forget(held);
        let alike = like.map(|like| (first + 1..end).find(|&index| !like.try_lock(index)).unwrap_or(end));
        alike.unwrap_or(first + 1)
    }

    /// The runs of slots that `pick` picks, each from what is left.
    #[inline(always)]
    fn picked(
        self,
        keys: Range<u64>,
        pick: impl Fn(Range<usize>) -> Option<Range<usize>>,
    ) -> impl Iterator<Item = Part<'p>> {
        let shift = LEVEL_BITS * self.level;
        let mut left = self.indices(&keys);
        let base = (keys.start >> shift) - left.start as u64;
        iter::from_fn(move || {
            let run = if left.is_empty() { None } else { pick(left.clone()) }?;
            left.start = run.end;
            let all = (base + run.start as u64) << shift..(base + run.end as u64) << shift;
            let keys = all.start.max(keys.start)..all.end.min(keys.end);
            Some(Part { node: self, slot: &self.slots.0[run.start], whole: keys == all, keys })
        })
    }

    /// The first of `slots` that is used. Most slots of most nodes are empty, so those are looked at in groups, and of an
    /// upper node only the groups that were ever used.
    #[inline(always)]
    pub fn first_used(self, slots: Range<usize>) -> Option<usize> {
        let touched = self.touched();
        let groups = self.slots.0.as_chunks::<GROUP>().0;
        let mut at = slots.start;
        while at < slots.end {
            if self.slots.0[at].held().is_used() {
                return Some(at);
            }
            let group = at / GROUP + (touched >> (at / GROUP)).trailing_zeros() as usize;
            let next = (group + 1) * GROUP;
            if is_any_used(groups.get(group)?) {
                let mut left = at.max(group * GROUP)..slots.end.min(next);
                if let Some(used) = left.find(|&index| self.slots.0[index].held().is_used()) {
                    return Some(used);
                }
            }
            at = next;
        }
        None
    }

    /// What slot `index` says, which the caller holds, if neighbours that say the same are joined.
    #[inline(always)]
    fn like(self, index: usize, joins: impl Fn(u64) -> bool) -> Option<Like<'p>> {
        let word = Some(self.slots.0[index].held()).filter(|word| word.is_value() && joins(word.main()))?;
        let side = &self.links().side;
        let seconds = if word.is_wide() { side.each() } else { &[] };
        Some(Like { slots: self.slots, word, second: self.second(index, word), side, seconds })
    }

    /// The second word of slot `index`, which the caller holds and which says `word`: no child.
    #[inline(always)]
    pub fn second(self, index: usize, word: Word) -> u64 {
        if word.is_wide() { self.links().side.get(index) } else { 0 }
    }

    /// The slot that covers `keys`, which it covers alone.
    pub fn part(self, keys: Range<u64>) -> Part<'p> {
        let whole = keys.end - keys.start == slot_keys(self.level);
        Part { node: self, slot: self.slot(keys.start), keys, whole }
    }

    /// The keys of the slot that covers `key`.
    pub fn span(self, key: u64) -> Range<u64> {
        let keys = slot_keys(self.level);
        let start = key & !(keys - 1);
        start..start + keys
    }

    /// What `within` covers of the slot that `part` is of.
    pub fn common(self, part: &Part<'p>, within: &Range<u64>) -> Part<'p> {
        let all = self.span(part.keys.start);
        self.part(all.start.max(within.start)..all.end.min(within.end))
    }
}

/// The node was folded.
pub(crate) struct Gone;

/// Slots that have a value, or a slot that has a child.
pub(crate) struct Found<'p> {
    pub part: Part<'p>,
    pub child: Option<NodeRef<'p>>,
}

fn one(index: usize) -> Range<usize> {
    index..index + 1
}

#[inline(always)]
fn is_any_used(slots: &[Slot; GROUP]) -> bool {
    slots.iter().fold(Word::EMPTY, |all, slot| all.or(slot.held())).is_used()
}

/// What a slot says, to find others that say the same.
struct Like<'p> {
    slots: &'p Slots,
    word: Word,
    second: u64,
    side: &'p Side,
    /// All second words, if the slot has one of its own.
    seconds: &'p [AtomicU64],
}

impl Like<'_> {
    /// How many of `slots`, which the caller holds and the first of which is slot `first`, come before one that does not say it.
    #[inline(always)]
    fn count(&self, slots: &[Slot], first: usize) -> usize {
        let alike = count_while(slots, |slot| slot.held() == self.word);
        match self.seconds.is_empty() {
            // If they had one second word for all, those that the caller holds have it still.
            true => alike,
            false => (first..first + alike).take_while(|&index| self.is_second(index)).count(),
        }
    }

    /// Locks slot `index`, if nobody holds it and it says the same.
    #[inline(always)]
    fn try_lock(&self, index: usize) -> bool {
        let (slot, free) = (&self.slots.0[index], self.word.unlocked());
        let locked = slot.held() == free && slot.try_lock(free);
        let alike = locked && self.is_second(index);
        if locked && !alike {
            slot.unlock();
        }
        alike
    }

    /// One word for all is looked at anew: whoever held the slot meanwhile may have made it a frame. Relaxed: as in
    /// `Side::get`.
    #[inline(always)]
    fn is_second(&self, index: usize) -> bool {
        match self.seconds.get(index) {
            Some(second) => second.load(Ordering::Relaxed) == self.second,
            None => !self.word.is_wide() || self.side.is_one(self.second),
        }
    }
}

/// A slot, and the part of a range that falls on it; or a run of slots that say the same, none of which sticks out of it.
pub(crate) struct Part<'p> {
    pub node: NodeRef<'p>,
    pub slot: &'p Slot,
    pub keys: Range<u64>,
    /// The range covers the slot completely.
    pub whole: bool,
}

impl<'p> Part<'p> {
    /// The second word of the slot, which the caller holds and which says `word`.
    #[inline(always)]
    pub fn second(&self, word: Word) -> u64 {
        self.node.second(self.index(), word)
    }

    /// Stores the second word of the slots, which the caller holds, having made sure of the side.
    #[inline(always)]
    pub fn set_second(&self, second: u64) {
        self.node.set_second(&self.keys, second);
    }

    /// The same slots.
    #[inline(always)]
    pub fn again(&self) -> Part<'p> {
        self.twin(self.node)
    }

    /// The same slots of another node.
    #[inline(always)]
    pub fn twin<'t>(&self, node: NodeRef<'t>) -> Part<'t> {
        Part { node, slot: node.slot(self.keys.start), keys: self.keys.clone(), whole: self.whole }
    }

    /// The slots of a run, or the only one.
    #[inline(always)]
    pub fn slots(&self) -> &'p [Slot] {
        match self.node.level {
            0 => self.node.leaf_slots(self.keys.clone()),
            _ => self.node.slots_of(&self.keys),
        }
    }

    /// Which slot of the node it is, or the first of the run.
    #[inline(always)]
    pub fn index(&self) -> usize {
        slot_index(self.keys.start, self.node.level)
    }
}
