//! Reservations of a member: mappings without rights, of which it makes one part readable and writable, and
//! that are served to it again without a lock.
//!
//! Runtimes of WebAssembly map memories so ([`crate::reservation`] has the pool's). Each member (a thread
//! with an address space of its own) has [`SLOTS`] slots of each class: those of class `k` have 2^`k` bytes.
//!
//! | state | the program has it | its part in the record | its part in its member | changed by |
//! |---|---|---|---|---|
//! | ordinary | as the record says | as the program was promised | as recorded | its member, under the lock, to reserved or open |
//! | reserved | yes, without rights | readable and writable | inaccessible, and zero | its member, to opening or kept |
//! | opening | yes, without rights | readable and writable | being made accessible | its member, to open or reserved |
//! | open | yes | readable and writable | accessible | its member, to closing or copying |
//! | copying | yes | readable and writable | being written to | its member, to open |
//! | closing | no | readable and writable | being made zero and inaccessible | its member, to kept or open |
//! | kept | no | readable and writable | inaccessible, and zero | its member, to reserved |
//!
//! Any member changes any state to ordinary, under the lock, and makes the record true before it releases
//! that: it removes what the program has not, and takes the rights of a part that is not open.
//!
//! 1. *Only its member is the holder of a reservation that is not ordinary*, so it changes what is mapped
//!    there without a request, and without the lock.
//! 2. *State, length and part are one word*, which changes by one atomic instruction from a known value. If
//!    that fails, another member, or a handler of this one, has changed it meanwhile, and the record decides.
//! 3. *Nothing is recorded in the page before one that is not ordinary, and in that behind*, so no region of
//!    it is joined to another one.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::record::MOST_MEMBERS;
use crate::reservation::{CLASSES, FIRST_CLASS, LAST_CLASS, Part, class_of};
use crate::{PAGE, page_end};

/// The slots of a class and a member. Models have one.
pub const SLOTS: usize = if cfg!(loom) { 1 } else { 16 };

/// The first address.
pub const START: u64 = 0x2800_0000_0000;

/// The bytes of address space for a member.
const OF_MEMBER: u64 = (SLOTS as u64) << (LAST_CLASS + 1);

/// The address after the last.
pub const END: u64 = START + MOST_MEMBERS as u64 * OF_MEMBER;

/// The distance of the first slot from the start of a member's addresses.
const FIRST: u64 = (SLOTS as u64) << FIRST_CLASS;

/// The slots of a member.
const COUNT: usize = CLASSES * SLOTS;

/// A state of a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The record alone says what it is.
    #[default]
    Ordinary,
    /// The program's, without rights.
    Reserved,
    /// The same, and its part is being made accessible.
    Opening,
    /// The program's, with an accessible part.
    Open,
    /// The same, and a file is being copied to its part.
    Copying,
    /// Not the program's any more, and its part is being made zero and inaccessible.
    Closing,
    /// Not the program's.
    Kept,
}

impl State {
    const ALL: [State; 7] = [
        State::Ordinary,
        State::Reserved,
        State::Opening,
        State::Open,
        State::Copying,
        State::Closing,
        State::Kept,
    ];
}

/// A reservation as it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its state.
    pub state: State,
    /// Its length in bytes, which are whole pages.
    pub length: u64,
    /// The part that is readable and writable in the record. Empty if there is none.
    pub part: Part,
}

impl Seen {
    const LENGTH: u32 = 3;
    const PART: u32 = Self::LENGTH + 21;
    const PART_END: u32 = Self::PART + 20;

    /// Returns whether it fits in its word.
    pub fn fits(self) -> bool {
        self.length / PAGE < 1 << 21 && self.part.end / PAGE < 1 << 20
    }

    /// Returns the same in another state.
    pub fn but(self, state: State) -> Seen {
        Seen { state, ..self }
    }

    /// Returns whether the program has it.
    pub fn is_programs(self) -> bool {
        !matches!(self.state, State::Closing | State::Kept)
    }

    /// Returns whether the program has the part with its rights.
    pub fn is_open(self) -> bool {
        matches!(self.state, State::Ordinary | State::Open | State::Copying)
    }

    fn pack(self) -> u64 {
        self.state as u64
            | (self.length / PAGE) << Self::LENGTH
            | (self.part.start / PAGE) << Self::PART
            | (self.part.end / PAGE) << Self::PART_END
    }

    fn unpack(word: u64) -> Self {
        let pages = |from: u32, bits: u32| (word >> from & ((1 << bits) - 1)) * PAGE;
        Seen {
            state: State::ALL[(word & 7) as usize % State::ALL.len()],
            length: pages(Self::LENGTH, 21),
            part: Part { start: pages(Self::PART, 20), end: pages(Self::PART_END, 20) },
        }
    }
}

/// A slot of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The number of its member.
    pub member: usize,
    /// The number of its class, from 0.
    pub class: usize,
    /// Its number among those of the class.
    pub number: usize,
}

impl Slot {
    /// Returns the slot that an address lies in.
    pub fn at(address: u64) -> Option<Slot> {
        let within = address.checked_sub(START).filter(|_| address < END)?;
        let distance = Some(within % OF_MEMBER).filter(|distance| *distance >= FIRST)?;
        let bits = (distance / SLOTS as u64).ilog2();
        let number = ((distance >> bits) - SLOTS as u64) as usize;
        Some(Slot { member: (within / OF_MEMBER) as usize, class: (bits - FIRST_CLASS) as usize, number })
    }

    /// Returns the number of the class for reservations of a length. A page is left out behind each.
    pub fn class_for(length: u64) -> Option<usize> {
        class_of(length.checked_add(PAGE)?).map(|class| (class - FIRST_CLASS) as usize)
    }

    /// Returns the slots that a range touches.
    pub fn touched(start: u64, end: u64) -> impl Iterator<Item = Slot> {
        let mut next = start.max(START);
        core::iter::from_fn(move || {
            while next < end.min(END) {
                let slot = Slot::at(next);
                // Below a member's first slot there is none.
                next = slot.map_or_else(|| next - (next - START) % OF_MEMBER + FIRST, |slot| slot.end());
                if slot.is_some() {
                    return slot;
                }
            }
            None
        })
    }

    /// Returns the first address.
    pub fn start(self) -> u64 {
        let bits = FIRST_CLASS + self.class as u32;
        START + self.member as u64 * OF_MEMBER + ((SLOTS + self.number) as u64) * (1 << bits)
    }

    /// Returns the address after the last.
    pub fn end(self) -> u64 {
        self.start() + (1 << (FIRST_CLASS + self.class as u32))
    }

    /// Returns the part that a range is.
    pub fn part(self, start: u64, length: u64) -> Option<Part> {
        let from = start.checked_sub(self.start())?;
        let end = from.checked_add(page_end(length))?;
        (start.is_multiple_of(PAGE) && length > 0 && end <= self.end() - self.start())
            .then_some(Part { start: from, end })
    }

    fn index(self) -> usize {
        self.class * SLOTS + self.number
    }
}

/// The first address of views of files, from which parts are copied.
pub const VIEWS: u64 = END;

/// The address after the last of them.
pub const VIEWS_END: u64 = VIEWS + (16 << 20);

/// Returns the addresses of a member.
pub fn addresses(member: usize) -> (u64, u64) {
    let start = START + member as u64 * OF_MEMBER;
    (start, start + OF_MEMBER)
}

/// The words of a member, on pages that no other member writes to in steady state.
// The stacks of models are small.
#[cfg_attr(not(loom), repr(align(4096)))]
struct Words {
    states: [AtomicU64; COUNT],
    /// The parts that were copied from files, in pages: the first in the lower half, and that after the last.
    copied: [AtomicU64; COUNT],
    /// Counts parts that were opened.
    uses: AtomicU32,
}

/// The reservations of all members. They lie in memory that all share. Zeroes are a valid value.
#[repr(C)]
pub struct Reservations {
    words: [Words; MOST_MEMBERS],
}

impl Reservations {
    sync::const_unless_loom! {
        /// Makes a table of ordinary ones.
        pub fn new() -> Self {
            let words = atomics![Words {
                states: atomics![AtomicU64::new(0); COUNT],
                copied: atomics![AtomicU64::new(0); COUNT],
                uses: AtomicU32::new(0),
            }; MOST_MEMBERS];
            Reservations { words }
        }
    }

    fn word(&self, slot: Slot) -> &AtomicU64 {
        &self.words[slot.member].states[slot.index()]
    }

    /// Returns what a reservation is.
    pub fn see(&self, slot: Slot) -> Seen {
        // Acquire pairs with the release in `change` and `end`.
        Seen::unpack(self.word(slot).load(Ordering::Acquire))
    }

    /// Changes a reservation. Returns whether it was `from`.
    pub fn change(&self, slot: Slot, from: Seen, to: Seen) -> bool {
        // Release: a member that sees it ordinary sees the version that was announced before, and one that
        // sees it open sees the part that was copied. Nothing is acquired: the caller has seen `from`.
        let (from, new) = (from.pack(), to.pack());
        let is_changed =
            self.word(slot).compare_exchange(from, new, Ordering::Release, Ordering::Relaxed).is_ok();
        if is_changed && to.state == State::Open {
            // Release pairs with the acquire in `uses`. A handler may count, too.
            self.words[slot.member].uses.fetch_add(1, Ordering::Release);
        }
        is_changed
    }

    /// Makes a reservation ordinary, and returns what it was.
    pub fn end(&self, slot: Slot) -> Seen {
        // Release, as in `change`. Acquire: the part that was copied is seen.
        Seen::unpack(self.word(slot).swap(0, Ordering::AcqRel))
    }

    /// Returns the part that was copied from a file. It is empty if there is none.
    pub fn copied(&self, slot: Slot) -> Part {
        let word = self.words[slot.member].copied[slot.index()].load(Ordering::Relaxed);
        Part { start: (word & 0xffff_ffff) * PAGE, end: (word >> 32) * PAGE }
    }

    /// Sets the part that was copied from a file, in a state that its member changes next.
    pub fn set_copied(&self, slot: Slot, part: Part) {
        let word = (part.start / PAGE) | ((part.end / PAGE) << 32);
        self.words[slot.member].copied[slot.index()].store(word, Ordering::Relaxed);
    }

    /// Returns the addresses of those of the first members.
    pub fn of_first(&self, members: usize) -> core::ops::Range<usize> {
        let range = self.words[..members].as_ptr_range();
        range.start as usize..range.end as usize
    }

    /// Returns how often a member opened a part.
    pub fn uses(&self, member: usize) -> u32 {
        self.words[member].uses.load(Ordering::Acquire)
    }
}

impl Default for Reservations {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    const ONE: Slot = Slot { member: 1, class: 0, number: 0 };

    fn seen(state: State, length: u64, start: u64, end: u64) -> Seen {
        Seen { state, length: length * PAGE, part: Part { start: start * PAGE, end: end * PAGE } }
    }

    #[test]
    fn each_address_of_a_slot_leads_to_it() {
        for member in [0, 1, MOST_MEMBERS - 1] {
            let (mut end, to) = addresses(member);
            end += FIRST;
            assert_eq!(Slot::at(end - 1).filter(|slot| slot.member == member), None);
            for (class, number) in
                (0..CLASSES).flat_map(|class| (0..SLOTS).map(move |number| (class, number)))
            {
                let slot = Slot { member, class, number };
                assert_eq!(slot.start(), end);
                assert_eq!([slot.start(), slot.end() - 1].map(Slot::at), [Some(slot); 2]);
                end = slot.end();
            }
            assert_eq!(end, to);
        }
        assert_eq!((Slot::at(START - 1), Slot::at(END), Slot::at(u64::MAX)), (None, None, None));
    }

    #[test]
    fn a_page_is_left_out_behind_a_reservation() {
        let class = |length| Slot::class_for(length);
        assert_eq!([class(1), class(0xf000), class(0x1_0000)], [Some(0), Some(0), Some(1)]);
        let wasm = 4_362_076_160;
        assert_eq!([class(wasm), class((1 << 33) - PAGE), class(1 << 33)], [Some(17), Some(17), None]);
        assert_eq!(class(u64::MAX), None);
    }

    #[test]
    fn a_range_touches_its_slots() {
        let touched = |start, end| Slot::touched(start, end).collect::<Vec<_>>();
        let next = Slot { number: 1, ..ONE };
        assert_eq!(touched(ONE.start(), ONE.end()), [ONE]);
        assert_eq!(touched(ONE.end() - 1, next.start() + 1), [ONE, next]);
        assert_eq!(touched(addresses(1).0, ONE.start() + 1), [ONE]);
        assert_eq!(touched(addresses(1).0, ONE.start()), []);
        assert_eq!(touched(0, START).len() + touched(END, u64::MAX).len(), 0);
        assert_eq!(Slot::touched(0, u64::MAX).count(), MOST_MEMBERS * COUNT);
    }

    #[test]
    fn a_part_is_whole_pages_of_its_slot() {
        let (at, length) = (ONE.start(), 0x1_0000);
        assert_eq!(ONE.part(at, length), Some(Part { start: 0, end: length }));
        assert_eq!(ONE.part(at + PAGE, 1), Some(Part { start: PAGE, end: 2 * PAGE }));
        let wrong = [(at + 1, 1), (at - PAGE, PAGE), (at, 0), (at, length + 1), (at, u64::MAX - PAGE)];
        assert_eq!(wrong.map(|(start, length)| ONE.part(start, length)), [None; 5]);
    }

    #[test]
    fn state_length_and_part_are_one_word() {
        let most = (1 << 20) - 1;
        for state in State::ALL {
            for (length, start, end) in [(0, 0, 0), (1, 0, 1), ((1 << 21) - 1, most - 1, most)] {
                let one = seen(state, length, start, end);
                assert!(one.fits());
                assert_eq!(Seen::unpack(one.pack()), one);
            }
        }
        assert!(!seen(State::Open, 1 << 21, 0, 1).fits() && !seen(State::Open, 1, 0, 1 << 20).fits());
    }

    #[test]
    fn a_state_changes_from_what_it_was() {
        static TABLE: Reservations = Reservations::new();
        let (open, other) = (seen(State::Open, 9, 1, 3), seen(State::Open, 9, 1, 4));
        assert!(TABLE.change(ONE, Seen::default(), open) && !TABLE.change(ONE, other, open));
        assert!(TABLE.change(ONE, open, open.but(State::Closing)));
        assert!(TABLE.change(ONE, open.but(State::Closing), open.but(State::Kept)));
        assert_eq!((TABLE.uses(1), TABLE.uses(0)), (1, 0));
        assert_eq!((TABLE.end(ONE), TABLE.see(ONE)), (open.but(State::Kept), Seen::default()));
        TABLE.set_copied(ONE, open.part);
        assert_eq!(
            (TABLE.copied(ONE), TABLE.copied(Slot { number: 1, ..ONE })),
            (open.part, Part::default())
        );
    }

    #[test]
    fn a_state_says_what_the_program_has() {
        let has = |state| (Seen::default().but(state).is_programs(), Seen::default().but(state).is_open());
        assert_eq!([State::Ordinary, State::Open, State::Copying].map(has), [(true, true); 3]);
        assert_eq!([State::Reserved, State::Opening].map(has), [(true, false); 2]);
        assert_eq!([State::Closing, State::Kept].map(has), [(false, false); 2]);
    }
}
