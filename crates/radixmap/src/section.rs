//! Sections: neighbours of one node that say the same, as one.
//!
//! ```text
//!   folded   [ v LOCK, section ] [ silent ] [ silent ] [ silent ]         16 slots in fact
//!      │ open                                              ▲ fold
//!      ▼   from the left, the first slot first             │ from the right, the first slot last
//!   open     [ v LOCK ] [ v ] [ v ] [ v LOCK ]
//! ```
//! Each node consists of sections of [`SECTION`] slots. While all slots of a section have no value, or the same one, the first
//! may speak for all (its word says so: [`Word::is_folded`]), and the others are silent: their words are 0. So whoever locks,
//! changes or looks at many slots that say the same does it once for each section. A fresh node is a frame of zeroes with the
//! first slots of its sections.
//!
//! | section | who may change it, and to what |
//! |---|---|
//! | folded | whoever locked the first slot: to another folded word; or it *opens* the section, and holds of its slots which it wants |
//! | open | whoever holds all of its slots: it *folds* them. A slot with a child is never held |
//!
//! 1. A slot is silent only while its section is folded, or its holder is about to say so. So a slot that is not silent speaks
//!    for itself, whatever was known of the section; and whoever finds a silent one asks the first, and if that speaks for
//!    itself only, the slot once more.
//! 2. While the first slot says that it speaks for all, all others are silent, to whoever has seen what was done to them. So a
//!    section is opened from the left: the first slot speaks for itself before another can be locked and changed. It
//!    is folded from the right: all others are held and silent when the first one speaks for them. Whoever finds a silent slot
//!    that the first does not speak for waits for the slot, for as long as the rest of the section takes to write.
//! 3. What a silent slot is to be locked for is known by its key: the section opens, and only the slots that are wanted stay
//!    locked. A section of which all slots are wanted is locked as it is. So a section that a range touches in part is never
//!    held folded by whoever locks that range, and what a holder has, slot by slot, is the same with sections and without.
//! 4. Second words are stored for each slot, silent or not: a section that opens has them.
//!
//! Orderings. Every write here is Release, and a look at a silent slot is Acquire: it pairs with the write that made it
//! silent, or that of whoever opened the section before.

use core::ops::Range;

use percore::Pinned;

use crate::memory::Slots;
use crate::node::{FANOUT, GROUP};
use crate::slot::{Slot, Word};

/// Slots of a section.
pub(crate) const SECTION: usize = if FANOUT < 16 { FANOUT } else { 16 };
const _: () = assert!(FANOUT.is_multiple_of(SECTION));

/// Whether the sections of nodes at `level` fold.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn folds_at(_level: u32) -> bool {
    true
}

#[cfg(loom)]
pub(crate) use models::folds_at;
#[cfg(loom)]
pub use models::with_upper_sections;

/// Models have two slots in a node: if those of all nodes were sections, most of what a model explores would be sections that
/// open. So only the leaves fold, and the nodes above them where a model is about these.
#[cfg(loom)]
mod models {
    extern crate std;

    use core::cell::Cell;

    std::thread_local! {
        static HIGHEST: Cell<u32> = const { Cell::new(0) };
    }

    pub fn folds_at(level: u32) -> bool {
        level <= HIGHEST.get()
    }

    /// Runs `model`, on this thread, with sections that fold in the nodes above the leaves too.
    pub fn with_upper_sections(model: impl FnOnce()) {
        HIGHEST.set(1);
        model();
        HIGHEST.set(0);
    }
}

/// The first slot of the section that slot `index` is of.
#[inline(always)]
pub(crate) const fn first_of(index: usize) -> usize {
    index & !(SECTION - 1)
}

impl Word {
    /// The slot behind those that it speaks for, which slot `at` is one of.
    #[inline(always)]
    pub fn next(self, at: usize) -> usize {
        if self.is_folded() { first_of(at) + SECTION } else { at + 1 }
    }
}

impl Slots {
    /// What slot `index` says, or its section. Any traversal must read it so: see [`Slot::enter`].
    #[inline(always)]
    pub fn enter(&self, index: usize, pin: &Pinned) -> Word {
        let word = self.0[index].enter(pin);
        if word.is_silent() { self.settled(index, |slot| slot.enter(pin)) } else { word }
    }

    /// The same for slots that have no child, or if it does not matter.
    #[inline(always)]
    pub fn seen(&self, index: usize) -> Word {
        let word = self.0[index].seen();
        if word.is_silent() { self.settled(index, Slot::seen) } else { word }
    }

    /// What slot `index` says, which was silent, or its section.
    #[inline(never)]
    fn settled(&self, index: usize, read: impl Fn(&Slot) -> Word) -> Word {
        loop {
            let first = read(&self.0[first_of(index)]);
            if first.is_folded() || first.is_gone() {
                return first;
            }
            let word = read(&self.0[index]);
            if !word.is_silent() {
                return word;
            }
            percore::relax();
        }
    }

    /// What slot `index` says, or its section, for the holder. Who does not hold the slot asks [`seen`](Slots::seen): while
    /// the section opens or folds this may be what the first slot says of itself.
    #[inline(always)]
    pub fn held(&self, index: usize) -> Word {
        let word = self.0[index].held();
        if word.is_silent() { self.0[first_of(index)].held() } else { word }
    }

    /// One try to lock slot `index`, which said `seen`, or its section did, unlocked and no child: the slot speaks for itself
    /// then, and is the only one of its section that is locked by this.
    #[inline(always)]
    pub fn try_lock(&self, index: usize, seen: Word) -> bool {
        if !seen.is_folded() {
            return self.0[index].try_lock(seen);
        }
        self.0[first_of(index)].try_lock(seen) && {
            self.open(index..index + 1);
            true
        }
    }

    /// The same for slot `index`, if it is empty.
    #[inline(always)]
    pub fn try_lock_empty(&self, index: usize) -> bool {
        let word = self.held(index);
        !word.is_used() && !word.is_locked() && self.try_lock(index, word)
    }

    /// One try to lock slot `at` if it has a value, or the folded section that begins there and ends at `end` at the latest; where
    /// that ends.
    #[inline(always)]
    pub fn try_lock_value(&self, at: usize, end: usize) -> Option<usize> {
        let (slot, word) = (&self.0[at], self.0[at].held());
        let next = match word.is_folded() {
            false => at + 1,
            true if first_of(at) == at && at + SECTION <= end => at + SECTION,
            true => return None,
        };
        (word.is_value() && !word.is_locked() && slot.try_lock(word)).then_some(next)
    }

    /// `try_lock_run` for a leaf.
    #[inline(always)]
    pub fn try_lock_in_leaf(&self, slots: Range<usize>) -> usize {
        if let [slot] = &self.0[slots.clone()] {
            let word = slot.held();
            if word.is_own() && !word.is_locked() && slot.try_lock(word) {
                return slots.end;
            }
        }
        self.try_lock_run(slots)
    }

    /// Locks slots from the left, as long as none has a child and nobody holds them; where they end. None sticks out
    /// of the range, whatever its section.
    #[inline(never)]
    pub fn try_lock_run(&self, slots: Range<usize>) -> usize {
        let Range { start: mut at, end } = slots;
        while at < end {
            let word = self.0[at].held();
            let width = match word.is_folded() {
                false if word.is_free() => 1,
                true if first_of(at) == at && at + SECTION <= end && !word.is_locked() => SECTION,
                _ => match self.try_open(at, end) {
                    Some(next) => {
                        at = next;
                        continue;
                    }
                    None => break,
                },
            };
            // Most neighbours say the same.
            let locked = self.each_like(at..end, word, width, |slot| slot.try_lock(word));
            if locked == at {
                break;
            }
            at = locked;
        }
        at
    }

    /// Does `change` to one slot in `width`, from the left, as long as it says `word` and `change` says yes; where that ends.
    #[inline(always)]
    fn each_like(
        &self,
        slots: Range<usize>,
        word: Word,
        width: usize,
        change: impl Fn(&Slot) -> bool,
    ) -> usize {
        let changed = |slot: &Slot| slot.held() == word && change(slot);
        match width {
            1 => slots.start + count_while(&self.0[slots], changed),
            _ => {
                let sections = self.0[slots.clone()].as_chunks::<SECTION>().0;
                slots.start + SECTION * sections_while(sections, changed)
            }
        }
    }

    /// One try to lock what a folded section has of the slots from `at` to `end`: not all of it; where they end.
    #[cold]
    #[inline(never)]
    fn try_open(&self, at: usize, end: usize) -> Option<usize> {
        let first = first_of(at);
        let (word, next) = (self.0[first].held(), end.min(first + SECTION));
        if !word.is_folded() || word.is_locked() || !self.0[first].try_lock(word) {
            return None;
        }
        self.open(at..next);
        Some(next)
    }

    /// Opens the folded section of these slots, which the caller holds: of the slots it holds only these from now on.
    #[inline(never)]
    pub fn open(&self, locked: Range<usize>) {
        let first = first_of(locked.start);
        let section = self.0[first..].first_chunk::<SECTION>().expect("sections are whole");
        let word = section[0].held().unlocked().own();
        let mask = (1u64 << (locked.end - first)) - (1u64 << (locked.start - first));
        for (index, slot) in section.iter().enumerate() {
            slot.put(word.locked_if(mask >> index & 1 != 0));
        }
    }

    /// Sees to it that slot `index` speaks for itself. The caller holds it, or its section, or has the map to itself: then
    /// nothing is locked.
    #[inline(always)]
    pub fn open_held(&self, index: usize) {
        if !self.0[index].held().is_own() {
            let first = first_of(index);
            let locked = if self.0[first].held().is_locked() { SECTION } else { 0 };
            self.open(first..first + locked);
        }
    }

    /// The first of `slots` that is not `like` that, or their end; for the holder, or as a hint.
    #[inline(always)]
    pub fn end_while(&self, slots: Range<usize>, like: impl Fn(Word) -> bool) -> usize {
        let mut at = slots.start;
        let all = &self.0[..slots.end];
        while at < all.len() {
            let word = self.held(at);
            if !like(word) {
                return at;
            }
            at = word.next(at);
        }
        slots.end
    }

    /// The first of `slots` that is used, or their end; for the holder, or as a hint.
    #[inline(always)]
    pub fn end_of_unused(&self, slots: Range<usize>) -> usize {
        // One look: a slot that is silent now may have a value then.
        let first = self.0[slots.clone()].first().map(Slot::held);
        match first {
            Some(word) if word.is_used() => slots.start,
            Some(word) if slots.len() == 1 && word.is_own() => slots.end,
            _ => self.end_of_unused_run(slots),
        }
    }

    /// The same.
    #[inline(never)]
    fn end_of_unused_run(&self, slots: Range<usize>) -> usize {
        let all = &self.0[..slots.end];
        let mut at = slots.start;
        while let Some(slot) = all.get(at) {
            match slot.held() {
                word if word.is_used() => return at,
                word if word.is_silent() => match self.seen(at) {
                    word if word.is_used() => return at,
                    word => at = word.next(at),
                },
                word if word.is_folded() => at = self.end_of_sections(first_of(at), slots.end, word),
                word => at = end_of_same(all, at + 1, word),
            }
        }
        slots.end
    }

    /// Where those of `slots` end that say `word`, that of one slot; for the holder, who may want the sections among them that are
    /// whole to fold, or as a hint.
    #[inline(always)]
    pub fn end_of_like(&self, slots: Range<usize>, word: Word, folds: bool) -> usize {
        let all = &self.0[..slots.end];
        let mut at = slots.start;
        while let Some(slot) = all.get(at) {
            let said = match slot.held() {
                silent if silent.is_silent() => self.0[first_of(at)].held(),
                said => said,
            };
            if said == word {
                let next = end_of_same(all, at + 1, word);
                if folds && next - at >= SECTION {
                    self.fold(at..next, word);
                }
                at = next;
            } else if said == word.folded() {
                at = self.end_of_sections(first_of(at), slots.end, said);
            } else {
                return at;
            }
        }
        slots.end
    }

    /// Where the folded sections from slot `at` on end, or that of slot `end`, the first of which said `word`, as all do.
    #[inline(always)]
    fn end_of_sections(&self, at: usize, end: usize, word: Word) -> usize {
        let next = at + SECTION;
        let sections = self.0[next..end.next_multiple_of(SECTION)].as_chunks::<SECTION>().0;
        next + SECTION * sections_while(sections, |slot| slot.held() == word)
    }

    /// How many runs of slots with a value that say the same there are among `slots`: a hint.
    pub fn count_used_runs(&self, slots: Range<usize>) -> u64 {
        let Range { start: mut at, end } = slots;
        let mut count = 0;
        while at < end {
            let word = self.held(at).own();
            count += u64::from(word.is_used());
            at = self.end_of_like(at..end, word, false).max(at + 1);
        }
        count
    }

    /// How many of `slots`, which the caller holds, have no value.
    #[inline(always)]
    pub fn count_unused(&self, slots: Range<usize>) -> usize {
        match &self.0[slots.clone()] {
            [slot] if slot.held().is_used() => 0,
            [slot] if slot.held().is_own() => 1,
            _ => self.count_unused_run(slots),
        }
    }

    /// The same.
    #[inline(never)]
    fn count_unused_run(&self, slots: Range<usize>) -> usize {
        let all = &self.0[..slots.end];
        let (mut at, mut count) = (slots.start, 0);
        while at < all.len() {
            let word = self.held(at);
            let next = match word.is_own() {
                true => end_of_same(all, at + 1, word),
                false => self.end_of_sections(first_of(at), all.len(), word).min(all.len()),
            };
            count += if word.is_used() { 0 } else { next - at };
            at = next;
        }
        count
    }

    /// Makes `slots`, which the caller holds or nobody else can see, say `word`, the word of one slot. What the word says of the
    /// lock is what becomes of it. Sections that are whole fold, if the word may.
    #[inline(always)]
    pub fn set(&self, slots: Range<usize>, word: Word, folds: bool) {
        match &self.0[slots.clone()] {
            [slot] if slot.held().is_own() => slot.put(word),
            _ => self.set_run(slots, word, folds),
        }
    }

    /// The same.
    #[inline(never)]
    fn set_run(&self, slots: Range<usize>, word: Word, folds: bool) {
        let Range { start: mut at, end } = slots;
        while at < end {
            let next = first_of(at) + SECTION;
            if folds && first_of(at) == at && next <= end {
                let said = self.0[at].held();
                if !said.is_folded() {
                    self.fold_section(at, word.folded());
                    at = next;
                    continue;
                }
                let folded = word.folded();
                at = self.each_like(at..end, said, SECTION, |slot| {
                    slot.put(folded);
                    true
                });
            } else {
                self.open_held(at);
                let stop = next.min(end);
                self.0[at..stop].iter().for_each(|slot| slot.put(word));
                at = stop;
            }
        }
    }

    /// Makes all slots, which are silent and nobody else can see, say `word`, that of one slot: as sections, if it may.
    #[inline(always)]
    pub fn init(&self, word: Word) {
        if !word.can_fold() {
            return self.0.iter().for_each(|slot| slot.put(word));
        }
        for section in self.0.as_chunks::<SECTION>().0 {
            section[0].put(word.folded());
        }
    }

    /// What has all of these slots is folded, or gone: see [`Slot::bury`]. The caller holds them.
    pub fn bury(&self) {
        let mut at = 0;
        while at < FANOUT {
            let next = self.held(at).next(at);
            self.0[at].bury();
            at = next;
        }
    }

    /// Unlocks slots of a leaf, which the caller holds: all that it holds there.
    #[inline(always)]
    pub fn unlock(&self, slots: Range<usize>) {
        match &self.0[slots.clone()] {
            [slot] => slot.unlock(),
            _ => _ = self.unlock_run(slots, true),
        }
    }

    /// Unlocks slots from the left, which the caller holds, up to one that has a child; where that is. Sections that are whole and
    /// empty fold, if wanted: that takes no longer.
    #[inline(never)]
    pub fn unlock_run(&self, slots: Range<usize>, folds: bool) -> usize {
        let Range { start: mut at, end } = slots;
        while at < end {
            let word = self.0[at].held();
            if !word.is_locked() {
                return at;
            }
            if folds && word == Word::EMPTY.locked() && self.try_fold(at, end, word) {
                at += SECTION;
                continue;
            }
            let (free, width) = (word.unlocked(), if word.is_folded() { SECTION } else { 1 });
            let stop = if folds && width == 1 { end.min(first_of(at) + SECTION) } else { end };
            at = self.each_like(at..stop, word, width, |slot| {
                slot.put(free);
                true
            });
        }
        end
    }

    /// Folds those of `slots`, which the caller holds and which say `word`, that are whole sections.
    #[cold]
    fn fold(&self, slots: Range<usize>, word: Word) {
        let mut at = slots.start.next_multiple_of(SECTION);
        while at + SECTION <= slots.end {
            self.fold_section(at, word.folded());
            at += SECTION;
        }
    }

    /// Makes the section that begins at slot `at`, whose slots the caller holds, say `word`.
    #[inline(always)]
    fn fold_section(&self, at: usize, word: Word) {
        self.0[at + 1..at + SECTION].iter().rev().for_each(|slot| slot.put(Word::SILENT));
        self.0[at].put(word);
    }

    /// Folds and unlocks the section of slot `at`, if it begins there, ends at `end` at the latest, and all of its slots, which the
    /// caller holds, say `word`.
    #[inline(always)]
    fn try_fold(&self, at: usize, end: usize, word: Word) -> bool {
        let whole = first_of(at) == at && at + SECTION <= end;
        let folds = whole && self.0[at..at + SECTION].iter().all(|slot| slot.held() == word);
        if folds {
            self.fold_section(at, word.folded().unlocked());
        }
        folds
    }
}

/// How many of `slots` come before the first that is not `like` that.
#[inline(always)]
fn count_while(slots: &[Slot], like: impl Fn(&Slot) -> bool) -> usize {
    let (groups, rest) = slots.as_chunks::<GROUP>();
    for (index, group) in groups.iter().enumerate() {
        if let Some(other) = group.iter().position(|slot| !like(slot)) {
            return index * GROUP + other;
        }
    }
    groups.len() * GROUP + rest.iter().take_while(|slot| like(slot)).count()
}

/// How many sections there are before the first one whose first slot is not `like` that.
#[inline(always)]
fn sections_while(sections: &[[Slot; SECTION]], like: impl Fn(&Slot) -> bool) -> usize {
    sections.iter().position(|section| !like(&section[0])).unwrap_or(sections.len())
}

/// The first slot from slot `at` on that does not say `word`.
#[inline(always)]
fn end_of_same(slots: &[Slot], mut at: usize, word: Word) -> usize {
    while slots.get(at).is_some_and(|slot| slot.held() == word) {
        at += 1;
    }
    at
}

/// Slots that somebody holds; they are unlocked when it goes.
pub(crate) struct Locked<'p> {
    pub slots: &'p Slots,
    pub range: Range<usize>,
}

impl Drop for Locked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        match &self.slots.0[self.range.clone()] {
            [slot] => slot.unlock(),
            _ => _ = self.slots.unlock_run(self.range.clone(), false),
        }
    }
}
