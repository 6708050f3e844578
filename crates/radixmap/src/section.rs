//! Sections: neighbouring slots of one node that have the same word, stored once.
//!
//! ```text
//!   folded   [ v LOCK, section ] [ silent ] [ silent ] [ silent ]         16 slots in fact
//!      │ open                                              ▲ fold
//!      ▼   from the left, the first slot first             │ from the right, the first slot last
//!   open     [ v LOCK ] [ v ] [ v ] [ v LOCK ]
//! ```
//! Each node consists of sections of [`SECTION`] slots. While all slots of a section have no value, or the
//! same one, the word of the first slot may stand for all ([`Word::is_folded`]). The others are silent: their
//! words are 0. So a core that locks, changes or reads many slots with the same value does it once for each
//! section. A fresh node is a frame of zeroes with the first slots of its sections.
//!
//! | section | the cores that may change it, and the change |
//! |---|---|
//! | folded | the core that locked the first slot: to another folded word. Or it *opens* the section, and holds those of its slots that it wants |
//! | open | the holder of all of its slots: it *folds* them. A slot with a child is never held |
//!
//! 1. A slot is silent only while its section is folded, or its holder is about to fold it. So a slot that is
//!    not silent has a word of its own, whatever was known of the section. A core that finds a silent slot
//!    reads the section's first slot. If the first slot's word stands for that slot only, the core reads the
//!    silent slot again.
//! 2. While the first slot's word stands for all, all others are silent, to a core that has seen the writes
//!    to them. So a section is opened from the left: the first slot gets a word of its own before another can
//!    be locked and changed. It is folded from the right: all others are held and silent when the first slot
//!    gets a word for all. If a core finds a silent slot, and the first slot's word does not stand for it,
//!    the core waits until the slot has its word. That takes as long as another core needs to write the rest
//!    of the section.
//! 3. If a core wants only some slots of a folded section, the section opens, and only these slots stay
//!    locked. If the core wants all slots, the section is locked as it is. So the holder of a range never has
//!    a folded section that the range touches in part, and it holds the same slots as it would without
//!    sections.
//! 4. Second words are stored for each slot, silent or not, so a section that opens has them.
//!
//! Orderings. Every write here is Release, and a read of a silent slot is Acquire: it pairs with the write
//! that made it silent, or with that of the core that opened the section before.

use core::ops::Range;

use percore::Pinned;

use crate::levels::{FANOUT, GROUP};
use crate::slot::{Slot, Word};

/// A node's slots, which fill exactly one frame.
#[cfg_attr(not(loom), repr(align(4096)))]
#[cfg_attr(loom, repr(align(64)))]
#[derive(Debug)]
pub(crate) struct Slots(pub [Slot; FANOUT]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slots>() == 4096);

/// The number of slots of a section.
pub(crate) const SECTION: usize = if FANOUT < 16 { FANOUT } else { 16 };
const _: () = assert!(FANOUT.is_multiple_of(SECTION));

/// Returns whether the sections of nodes at `level` fold.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn folds_at(_level: u32) -> bool {
    true
}

#[cfg(loom)]
pub(crate) use models::folds_at;
#[cfg(loom)]
pub use models::with_upper_sections;

/// The nodes of models have two slots, which may be a section. If the sections of all nodes folded, most of a
/// model's time would go to sections that open. So only those of leaves fold, and with
/// `with_upper_sections` those of the nodes above the leaves too.
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

/// Returns the first slot of the section of slot `index`.
#[inline(always)]
pub(crate) const fn first_of(index: usize) -> usize {
    index & !(SECTION - 1)
}

impl Word {
    /// Returns the index after the slots that the word stands for, one of which is slot `at`.
    #[inline(always)]
    pub fn next(self, at: usize) -> usize {
        if self.is_folded() { first_of(at) + SECTION } else { at + 1 }
    }
}

impl Slots {
    /// Returns the word of slot `index`, or of its section. Any traversal must read it so: see
    /// [`Slot::enter`].
    #[inline(always)]
    pub fn enter(&self, index: usize, pin: &Pinned) -> Word {
        let word = self.0[index].enter(pin);
        if word.is_silent() { self.settled(index, |slot| slot.enter(pin)) } else { word }
    }

    /// Returns the word of slot `index`, or of its section, for slots that have no child, or if a child does
    /// not matter.
    #[inline(always)]
    pub fn seen(&self, index: usize) -> Word {
        let word = self.0[index].seen();
        if word.is_silent() { self.settled(index, Slot::seen) } else { word }
    }

    /// Returns the word of slot `index`, which was silent, or of its section.
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

    /// Returns the word of slot `index`, or of its section, for the holder. A core that does not hold the
    /// slot calls [`seen`](Slots::seen), because while the section opens or folds this may be the first
    /// slot's own word.
    #[inline(always)]
    pub fn held(&self, index: usize) -> Word {
        let word = self.0[index].held();
        if word.is_silent() { self.0[first_of(index)].held() } else { word }
    }

    /// Tries once to lock slot `index`. `seen` is the word that the slot or its section had, which is
    /// unlocked and no child's. If the try succeeds, the slot has a word of its own, and the call has locked
    /// no other slot of its section.
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

    /// Tries once to lock slot `index`, if it is empty.
    #[inline(always)]
    pub fn try_lock_empty(&self, index: usize) -> bool {
        let word = self.held(index);
        !word.is_used() && !word.is_locked() && self.try_lock(index, word)
    }

    /// Tries once to lock slot `at` if it has a value, or the folded section that begins there and ends at
    /// `end` at the latest. Returns the end.
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

    /// Locks slots as `try_lock_run` does, for a leaf.
    #[inline(always)]
    pub fn try_lock_in_leaf(&self, slots: Range<usize>) -> usize {
        if let [slot] = &self.0[slots.clone()] {
            let word = slot.held();
            if word.is_own() && !word.is_locked() && slot.try_lock(word) {
                return slots.end;
            }
        }
        self.try_lock_leaf_run(slots)
    }

    /// Locks slots of a leaf from the left until one is held by another core. Returns where they end. It
    /// tries each further slot by compare-and-swap from its neighbour's word, without reading it first. The
    /// try fails if the slot has another word, but the caller will write to that slot's line too.
    #[inline(never)]
    pub fn try_lock_leaf_run(&self, slots: Range<usize>) -> usize {
        self.try_lock_each(slots, Slot::try_lock)
    }

    /// Locks slots from the left until one has a child or is held by another core. Returns where they end. No
    /// slot sticks out of the range, whatever its section. The line of a child is only read.
    #[inline(never)]
    pub fn try_lock_run(&self, slots: Range<usize>) -> usize {
        self.try_lock_each(slots, |slot, word| slot.held() == word && slot.try_lock(word))
    }

    /// Locks slots as the two functions above do. `try_next` locks a slot if it equals its left neighbour.
    #[inline(always)]
    fn try_lock_each(&self, slots: Range<usize>, try_next: impl Fn(&Slot, Word) -> bool) -> usize {
        let Range { start: mut at, end } = slots;
        while at < end {
            let (slot, word) = (&self.0[at], self.0[at].held());
            let next = match word.is_free() {
                // Most neighbours have the same word, unless they are entries for pages.
                true if word.can_fold() => self.each_slot(at..end, |slot| try_next(slot, word)),
                true => at + usize::from(slot.try_lock(word)),
                false if word.is_child() => break,
                false
                    if word.is_section()
                        && first_of(at) == at
                        && at + SECTION <= end
                        && !word.is_locked() =>
                {
                    self.each_section(at..end, |slot| try_next(slot, word))
                }
                false => self.try_open(at, end).unwrap_or(at),
            };
            if next == at {
                break;
            }
            at = next;
        }
        at
    }

    /// Changes slots from the left until `change` returns false. Returns the index of that slot, or the end.
    #[inline(always)]
    fn each_slot(&self, slots: Range<usize>, change: impl Fn(&Slot) -> bool) -> usize {
        slots.start + count_while(&self.0[slots], change)
    }

    /// Changes the first slots of the sections that lie within `slots`, which begin with a section. Returns
    /// the first slot for which `change` returned false, or the end of the sections.
    #[inline(always)]
    fn each_section(&self, slots: Range<usize>, change: impl Fn(&Slot) -> bool) -> usize {
        let sections = self.0[slots.clone()].as_chunks::<SECTION>().0;
        slots.start + SECTION * count_while(sections, |section| change(&section[0]))
    }

    /// Changes `from` to `to` in slots that the caller holds, from the left, until one differs. Returns the
    /// index of that slot, or the end. If `from` is a section's word, the sections lie within `slots`.
    #[inline(always)]
    fn replace(&self, slots: Range<usize>, from: Word, to: Word) -> usize {
        let put = |slot: &Slot| {
            let like = slot.held() == from;
            if like {
                slot.put(to);
            }
            like
        };
        if from.is_section() { self.each_section(slots, put) } else { self.each_slot(slots, put) }
    }

    /// Tries once to lock a part of the folded section of slot `at`: its slots from `at` on and before `end`.
    /// Returns their end.
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

    /// Opens the folded section that contains the slots `locked`. The caller holds the section, and from now
    /// on only these slots of it.
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

    /// Makes sure that slot `index` has a word of its own. The caller holds the slot or its section. Or it
    /// has the map exclusively, and nothing is locked.
    #[inline(always)]
    pub fn open_held(&self, index: usize) {
        if !self.0[index].held().is_own() {
            let first = first_of(index);
            let locked = if self.0[first].held().is_locked() { SECTION } else { 0 };
            self.open(first..first + locked);
        }
    }

    /// Returns the first of `slots` for whose word `like` returns false, or their end. It is exact for the
    /// holder, and a hint for other cores.
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

    /// Returns the first of `slots` that is used, or their end. It is exact for the holder, and a hint for
    /// other cores.
    #[inline(always)]
    pub fn end_of_unused(&self, slots: Range<usize>) -> usize {
        // The slot is read once, because a slot that is silent now may have a value at a second read.
        let first = self.0[slots.clone()].first().map(Slot::held);
        match first {
            Some(word) if word.is_used() => slots.start,
            Some(word) if slots.len() == 1 && word.is_own() => slots.end,
            _ => self.end_of_unused_run(slots),
        }
    }

    /// Returns the same for more than one slot.
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

    /// Returns the end of those of `slots` that have `word`, which is in the form for one slot. It is exact
    /// for the holder, and a hint for other cores. If `folds` is set, the holder folds the whole sections
    /// among them.
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
                let next = self.each_slot(at + 1..slots.end, |slot| slot.held() == word);
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

    /// Returns the end of the folded sections from slot `at` on that have `word`. The first of them is known
    /// to have had it. No section that begins at or after slot `end` is read.
    #[inline(always)]
    fn end_of_sections(&self, at: usize, end: usize, word: Word) -> usize {
        let next = at + SECTION;
        let sections = self.0[next..end.next_multiple_of(SECTION)].as_chunks::<SECTION>().0;
        next + SECTION * count_while(sections, |section| section[0].held() == word)
    }

    /// Returns the number of `slots` that have a child, as a hint.
    pub fn count_children(&self, slots: Range<usize>) -> u64 {
        let Range { start: mut at, end } = slots;
        let mut count = 0;
        while at < end {
            let (first, next) = (first_of(at), end.min(first_of(at) + SECTION));
            if !self.0[first].held().is_folded() {
                count += self.0[at..next].iter().filter(|slot| slot.held().is_child()).count();
            }
            at = next;
        }
        count as u64
    }

    /// Returns the number of runs of slots with the same value among `slots`, as a hint.
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

    /// Returns the number of `slots`, which the caller holds, that have no value.
    #[inline(always)]
    pub fn count_unused(&self, slots: Range<usize>) -> usize {
        match &self.0[slots.clone()] {
            [slot] if slot.held().is_used() => 0,
            [slot] if slot.held().is_own() => 1,
            _ => self.count_unused_run(slots),
        }
    }

    /// Returns the same for more than one slot.
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

    /// Stores `word`, in the form for one slot, in `slots`, which the caller holds or no other core can see.
    /// The word's lock bit decides whether they stay locked. Whole sections fold, if `folds` allows it.
    #[inline(always)]
    pub fn set(&self, slots: Range<usize>, word: Word, folds: bool) {
        match &self.0[slots.clone()] {
            [slot] if slot.held().is_own() => slot.put(word),
            _ => self.set_run(slots, word, folds),
        }
    }

    /// Stores a word as `set` does, in more than one slot.
    #[inline(never)]
    fn set_run(&self, slots: Range<usize>, word: Word, folds: bool) {
        let Range { start: mut at, end } = slots;
        while at < end {
            let next = first_of(at) + SECTION;
            if folds && first_of(at) == at && next <= end {
                let said = self.0[at].held();
                if !said.is_section() {
                    self.fold_section(at, word.folded());
                    at = next;
                    continue;
                }
                at = self.replace(at..end, said, word.folded());
            } else {
                self.open_held(at);
                let stop = next.min(end);
                self.0[at..stop].iter().for_each(|slot| slot.put(word));
                at = stop;
            }
        }
    }

    /// Stores `word`, in the form for one slot, in all slots, which are silent and which no other core can
    /// see, as sections if it may.
    #[inline(always)]
    pub fn init(&self, word: Word) {
        if !word.can_fold() {
            return self.0.iter().for_each(|slot| slot.put(word));
        }
        for section in self.0.as_chunks::<SECTION>().0 {
            section[0].put(word.folded());
        }
    }

    /// Marks all of these slots, which the caller holds, as gone, because the node was folded: see
    /// [`Slot::bury`].
    pub fn bury(&self) {
        let mut at = 0;
        while at < FANOUT {
            let next = self.held(at).next(at);
            self.0[at].bury();
            at = next;
        }
    }

    /// Unlocks slots of a leaf, which are all that the caller holds there.
    #[inline(always)]
    pub fn unlock(&self, slots: Range<usize>) {
        match &self.0[slots.clone()] {
            [slot] => slot.unlock(),
            _ => _ = self.unlock_run(slots, true),
        }
    }

    /// Unlocks `slots`, which the caller holds, from the left up to one that has a child. Returns the index
    /// of that one, or the end. If `folds` is set, whole sections that are empty fold, which takes no longer.
    #[inline(never)]
    pub fn unlock_run(&self, slots: Range<usize>, folds: bool) -> usize {
        let Range { start: mut at, end } = slots;
        while at < end {
            let word = self.0[at].held();
            if !word.is_locked() {
                return at;
            }
            if !word.can_fold() {
                self.0[at].put(word.unlocked());
                at += 1;
            } else if !folds || word != Word::EMPTY.locked() {
                at = self.replace(at..end, word, word.unlocked());
            } else if self.try_fold(at, end, word) {
                at += SECTION;
            } else {
                at = self.replace(at..end.min(first_of(at) + SECTION), word, word.unlocked());
            }
        }
        end
    }

    /// Folds those of `slots`, which the caller holds and which have `word`, that are whole sections.
    #[cold]
    fn fold(&self, slots: Range<usize>, word: Word) {
        let mut at = slots.start.next_multiple_of(SECTION);
        while at + SECTION <= slots.end {
            self.fold_section(at, word.folded());
            at += SECTION;
        }
    }

    /// Stores `word` for the section that begins at slot `at`, whose slots the caller holds.
    #[inline(always)]
    fn fold_section(&self, at: usize, word: Word) {
        self.0[at + 1..at + SECTION].iter().rev().for_each(|slot| slot.put(Word::SILENT));
        self.0[at].put(word);
    }

    /// Folds and unlocks the section of slot `at`, if it begins there, ends at `end` at the latest, and all
    /// of its slots, which the caller holds, have `word`.
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

/// Returns the number of `all`, slots or sections, before the first one for which `like` returns false.
#[inline(always)]
pub(crate) fn count_while<T>(all: &[T], like: impl Fn(&T) -> bool) -> usize {
    let (groups, rest) = all.as_chunks::<GROUP>();
    for (index, group) in groups.iter().enumerate() {
        if let Some(other) = group.iter().position(|one| !like(one)) {
            return index * GROUP + other;
        }
    }
    groups.len() * GROUP + rest.iter().take_while(|one| like(one)).count()
}

/// Returns the first slot from slot `at` on that does not have `word`. It is usually near.
#[inline(always)]
fn end_of_same(slots: &[Slot], mut at: usize, word: Word) -> usize {
    while slots.get(at).is_some_and(|slot| slot.held() == word) {
        at += 1;
    }
    at
}

/// Slots that a core holds. Dropping it unlocks them.
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
