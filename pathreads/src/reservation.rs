//! Reservations: mappings without rights, of which the program makes one part readable and writable.
//!
//! Runtimes of WebAssembly allocate memories so: `mmap` with PROT_NONE, `mprotect` of a part, and in the end
//! one `munmap`. A reservation that is unmapped keeps its addresses and the frames of
//! its part, and serves the next mapping of that length.
//!
//! | state | the program has it | its part, if it has one | changed by |
//! |---|---|---|---|
//! | unused | no | | any thread, to changing or the kernel's |
//! | taken | as before, and a thread is changing that | as before | that thread; by others, and its handlers, to the kernel's |
//! | kept | no | accessible, and zero | any thread, to reserved, revoking or changing |
//! | reserved | yes, without rights | accessible, and zero, or as the program has left it | any thread, to taken, open, revoking or the kernel's |
//! | open | yes | accessible, as the program was promised | any thread, to taken, copying or the kernel's |
//! | revoking | as kept or reserved before | being made inaccessible | its thread, to what it was |
//! | copying | as open before | being written to | its thread, to open |
//! | changing | no: it is being begun, or unmapped | | its thread, to reserved or the kernel's |
//! | the kernel's | as the kernel's mappings say | | any thread, to taken, when all of it is unmapped in one call |
//!
//! 1. *A state changes by one atomic instruction from a known state*, which has a number that comes again
//!    after 2^24 changes. So the part that was read before is that of the state. The thread that makes it
//!    taken, or a state that is waited for, owns the other fields, until that, or another thread, changes it.
//! 2. *No thread waits for a taken one.* If a handler, or another thread, names its memory meanwhile, it
//!    becomes the kernel's, and its owner finds that. So its owner changes only memory that the program's own
//!    call names, and as Linux would.
//! 3. *A thread waits for one that is revoking, copying or changing*: that must not come after the program's
//!    next call on the memory. Its owner has blocked signals, so no handler waits for its own thread. If the
//!    owner has been killed, or is not in this child of `fork`, one that waits goes on for it.
//! 4. *Memory is made zero when it is unmapped*, by the thread that unmaps it.
//! 5. *A reserved part that is revoked keeps its content*: a program may have written to it, and open it
//!    later. Until all of it is mapped anew it has [hidden](Reservation::is_hidden) memory.
//!
//! The addresses lie in one range, in classes: the slots of class `k` have 2^`k` bytes, and begin at
//! [`SLOTS`] · 2^`k` from the start of the range. So the class and the slot follow from an address.

use sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::{PAGE, page_end};

/// The slots of a class.
pub const SLOTS: u64 = 256;

/// The class of the smallest reservations: 64 KiB.
pub const FIRST_CLASS: u32 = 16;

/// The class of the largest: 8 GiB. A memory of WebAssembly has 4 GiB and some more for guards.
pub const LAST_CLASS: u32 = 33;

/// The number of classes.
pub const CLASSES: usize = (LAST_CLASS - FIRST_CLASS + 1) as usize;

/// The number of all slots.
pub const COUNT: usize = CLASSES * SLOTS as usize;

/// The distance from the start of the range to its first slot.
pub const FIRST: u64 = SLOTS << FIRST_CLASS;

/// The distance to the end of its last.
pub const END: u64 = SLOTS << (LAST_CLASS + 1);

/// A state of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Not begun.
    Unused,
    /// A thread is changing it.
    Taken,
    /// The program has unmapped it.
    Kept,
    /// The program has it, without rights.
    Reserved,
    /// The program has opened its part.
    Open,
    /// Kept, and being made inaccessible.
    RevokingKept,
    /// Reserved, and being made inaccessible.
    RevokingReserved,
    /// Open, and a file is being copied to it.
    Copying,
    /// Being begun, or unmapped.
    Changing,
    /// The kernel's.
    Kernels,
}

impl State {
    const ALL: [State; 10] = [
        State::Unused,
        State::Taken,
        State::Kept,
        State::Reserved,
        State::Open,
        State::RevokingKept,
        State::RevokingReserved,
        State::Copying,
        State::Changing,
        State::Kernels,
    ];

    /// Returns the state while the part is being made inaccessible.
    pub fn revoking(self) -> Option<State> {
        match self {
            State::Kept => Some(State::RevokingKept),
            State::Reserved => Some(State::RevokingReserved),
            _ => None,
        }
    }

    /// Returns the state after one that is waited for, if its owner is not there.
    pub fn after(self) -> Option<State> {
        match self {
            State::RevokingKept => Some(State::Kept),
            State::RevokingReserved => Some(State::Reserved),
            State::Copying => Some(State::Open),
            State::Changing => Some(State::Kernels),
            _ => None,
        }
    }
}

/// A part of a reservation, by its distances from the start in bytes, which are whole pages. Empty if nothing
/// is accessible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
}

impl Part {
    /// Returns it as one word, of numbers of pages.
    fn pack(self) -> u64 {
        (self.start / PAGE) | ((self.end / PAGE) << 32)
    }

    fn unpack(word: u64) -> Self {
        Part { start: (word & 0xffff_ffff) * PAGE, end: (word >> 32) * PAGE }
    }

    /// Returns its bytes.
    pub fn length(self) -> u64 {
        self.end - self.start
    }

    /// Returns whether all of another part lies in this one.
    pub fn has(self, other: Part) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Returns the bytes that are in both, if there are any.
    pub fn both(self, other: Part) -> Option<Part> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Part { start, end })
    }

    /// Returns this part with one that begins in it, or at its end.
    pub fn and(self, next: Part) -> Option<Part> {
        let is_next = (self.start..=self.end).contains(&next.start);
        is_next.then(|| Part { start: self.start, end: self.end.max(next.end) })
    }
}

/// A state that was seen, with the number of the change that made it, and who did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    const OWNER: u32 = 8;
    const CHANGE: u32 = 40;

    /// Returns the state.
    pub fn state(self) -> State {
        State::ALL[(self.0 & 0xff) as usize % State::ALL.len()]
    }

    /// Returns who made the change.
    pub fn owner(self) -> Owner {
        let thread = (self.0 >> (Self::OWNER + 8)) as u32 & Owner::MOST;
        Owner { generation: (self.0 >> Self::OWNER) as u8, thread }
    }
}

/// The thread for which others wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The generation of its process: each child of `fork` is of another.
    pub generation: u8,
    /// Its number in Linux, which is at most 2^22, or 0.
    pub thread: u32,
}

impl Owner {
    const MOST: u32 = 0xff_ffff;
}

/// The addresses of a slot behind its reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rest {
    /// They are reserved.
    Reserved,
    /// A thread is about to unmap them.
    Ending,
    /// They are the kernel's.
    Kernels,
}

/// A reservation. It has cache lines of its own, in pairs as the CPU fetches them.
#[repr(align(128))]
pub struct Reservation {
    state: AtomicU64,
    part: AtomicU64,
    copied: AtomicU64,
    rest: AtomicU8,
    /// Whether memory that is not accessible has content.
    pub is_hidden: AtomicBool,
    /// The CPU in whose list it is.
    pub cpu: AtomicU32,
    /// The number of the next one of that list, plus one.
    pub next: AtomicU32,
    /// The number of the view that a part was copied from.
    pub view: AtomicU32,
    /// The length in bytes. It and the flags do not change.
    pub length: AtomicU64,
    /// Whether the mapping has MAP_NORESERVE: that, or 0.
    pub flags: AtomicU64,
}

impl Reservation {
    sync::const_unless_loom! {
        /// Makes an unused one.
        pub fn new() -> Self {
            Reservation {
                state: AtomicU64::new(State::Unused as u64),
                part: AtomicU64::new(0),
                copied: AtomicU64::new(0),
                rest: AtomicU8::new(Rest::Reserved as u8),
                is_hidden: AtomicBool::new(false),
                cpu: AtomicU32::new(0),
                next: AtomicU32::new(0),
                view: AtomicU32::new(0),
                length: AtomicU64::new(0),
                flags: AtomicU64::new(0),
            }
        }
    }

    /// Returns the state.
    pub fn see(&self) -> Seen {
        // Acquire pairs with the release in `change`: the owner's other fields are seen.
        Seen(self.state.load(Ordering::Acquire))
    }

    /// Changes the state, if it is the one that was seen. Returns the new one.
    pub fn change(&self, seen: Seen, to: State, owner: Owner) -> Option<Seen> {
        let change = (seen.0 >> Seen::CHANGE).wrapping_add(1) << Seen::CHANGE;
        let owner = u64::from(owner.thread & Owner::MOST) << 8 | u64::from(owner.generation);
        let new = Seen(change | owner << Seen::OWNER | to as u64);
        // `see` has acquired this very state.
        let changed = self.state.compare_exchange(seen.0, new.0, Ordering::Release, Ordering::Relaxed);
        changed.is_ok().then_some(new)
    }

    /// Returns the part. It is empty if there is none.
    pub fn part(&self) -> Part {
        Part::unpack(self.part.load(Ordering::Relaxed))
    }

    /// Sets the part. The caller owns the reservation.
    pub fn set_part(&self, part: Part) {
        self.part.store(part.pack(), Ordering::Relaxed);
    }

    /// Returns the part that was copied from a file. It is empty if there is none.
    pub fn copied(&self) -> Part {
        Part::unpack(self.copied.load(Ordering::Relaxed))
    }

    /// Sets the part that was copied from a file. The caller owns the reservation.
    pub fn set_copied(&self, part: Part) {
        self.copied.store(part.pack(), Ordering::Relaxed);
    }

    /// Begins to unmap the rest of the slot. Returns whether it was reserved.
    pub fn begin_rest(&self) -> bool {
        let (from, to) = (Rest::Reserved as u8, Rest::Ending as u8);
        // Relaxed: no thread has unmapped any of it before.
        self.rest.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Notes that the rest of the slot is unmapped.
    pub fn end_rest(&self) {
        // Release pairs with the acquire in `rest`: the program may map others there.
        self.rest.store(Rest::Kernels as u8, Ordering::Release);
    }

    /// Returns whose the rest of the slot is.
    pub fn rest(&self) -> Rest {
        match self.rest.load(Ordering::Acquire) {
            0 => Rest::Reserved,
            1 => Rest::Ending,
            _ => Rest::Kernels,
        }
    }
}

impl Default for Reservation {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the class of reservations of this length.
pub fn class_of(length: u64) -> Option<u32> {
    let fits = (1..=1 << LAST_CLASS).contains(&length);
    fits.then(|| page_end(length).next_power_of_two().trailing_zeros().max(FIRST_CLASS))
}

/// Returns the number of a slot.
pub fn number(class: u32, slot: u64) -> usize {
    (u64::from(class - FIRST_CLASS) * SLOTS + slot) as usize
}

/// Returns the bytes of a slot, and its distance from the start of the range.
pub fn place(number: usize) -> (u64, u64) {
    let (class, slot) = (FIRST_CLASS + (number as u64 / SLOTS) as u32, number as u64 % SLOTS);
    (1 << class, (SLOTS + slot) << class)
}

/// Returns the number of the slot at this distance from the start of the range.
pub fn number_at(distance: u64) -> Option<usize> {
    let is_slot = (FIRST..END).contains(&distance);
    is_slot.then(|| {
        let class = (distance / SLOTS).ilog2();
        number(class, (distance >> class) - SLOTS)
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn slots_follow_from_addresses() {
        let mut end = FIRST;
        for slot in 0..COUNT {
            let (size, distance) = place(slot);
            assert_eq!(distance, end, "{slot}");
            assert!(distance.is_multiple_of(size));
            for inside in [distance, distance + size / 2, distance + size - 1] {
                assert_eq!(number_at(inside), Some(slot));
            }
            end += size;
        }
        assert_eq!((end, number_at(END), number_at(FIRST - 1)), (END, None, None));
    }

    #[test]
    fn a_class_is_the_next_power_of_two() {
        let wasm = 4_362_076_160;
        for (length, class) in [(1, 16), (65_536, 16), (65_537, 17), (262_144, 18), (wasm, 33), (1 << 33, 33)]
        {
            assert_eq!(class_of(length), Some(class), "{length}");
            assert!(length <= place(number(class, 3)).0);
        }
        assert_eq!((class_of(0), class_of((1 << 33) + 1), class_of(u64::MAX)), (None, None, None));
    }

    #[test]
    fn parts_grow_at_their_end() {
        let part = Part { start: 2, end: 4 };
        let grown = |start, end| part.and(Part { start, end }).map(|part| (part.start, part.end));
        assert_eq!([grown(4, 6), grown(2, 6), grown(3, 4)], [Some((2, 6)), Some((2, 6)), Some((2, 4))]);
        assert_eq!([grown(5, 6), grown(1, 6)], [None, None]);
        assert!(
            part.has(part) && part.has(Part { start: 3, end: 4 }) && !part.has(Part { start: 3, end: 5 })
        );
        assert_eq!(part.both(Part { start: 3, end: 9 }), Some(Part { start: 3, end: 4 }));
        assert_eq!(part.both(Part { start: 4, end: 9 }), None);
    }

    #[test]
    fn revoking_ends_where_it_began() {
        for state in State::ALL {
            assert_eq!(state.revoking().map(State::after), state.revoking().map(|_| Some(state)));
        }
        assert_eq!(State::ALL.into_iter().filter_map(State::revoking).count(), 2);
        assert_eq!(State::ALL.into_iter().filter_map(State::after).count(), 4);
        (0..State::ALL.len()).for_each(|index| assert_eq!(State::ALL[index] as usize, index));
    }

    #[test]
    fn a_state_that_comes_again_is_another() {
        const OWNER: Owner = Owner { generation: 3, thread: (1 << 22) - 1 };
        let one = Reservation::new();
        let unused = one.see();
        let taken = one.change(unused, State::Taken, OWNER).unwrap();
        assert_eq!((taken.state(), one.change(unused, State::Taken, OWNER)), (State::Taken, None));
        let kernels = one.change(taken, State::Kernels, OWNER).unwrap();
        let again = one.change(kernels, State::Taken, OWNER).unwrap();
        assert_eq!((again.state(), one.change(taken, State::Open, OWNER)), (State::Taken, None));
        assert_eq!((one.see(), again.owner()), (again, OWNER));
        assert_eq!((one.rest(), one.begin_rest()), (Rest::Reserved, true));
        assert_eq!((one.rest(), one.begin_rest()), (Rest::Ending, false));
        one.end_rest();
        assert_eq!((one.rest(), one.begin_rest()), (Rest::Kernels, false));
    }

    #[test]
    fn parts_are_kept_as_they_are() {
        let one = Reservation::new();
        let parts = [(0, 0), (0, 1), (3, 9), (1 << 20, 1 << 21)];
        for part in parts.map(|(start, end)| Part { start: start * PAGE, end: end * PAGE }) {
            one.set_part(part);
            one.set_copied(part);
            assert_eq!((one.part(), one.copied()), (part, part));
        }
    }

    /// Threads map, open and unmap one reservation, and revoke it: one owns it at a time, and finds the part
    /// that it read before.
    #[test]
    fn a_reservation_has_one_owner_at_a_time() {
        static ONE: Reservation = Reservation::new();
        static OWNERS: AtomicUsize = AtomicUsize::new(0);
        let own = |from: State, by, to| {
            let (seen, part) = (ONE.see(), ONE.part());
            let mine = if seen.state() == from { ONE.change(seen, by, Owner::default()) } else { None };
            let Some(mine) = mine else { return 0 };
            assert_eq!((OWNERS.fetch_add(1, Ordering::Relaxed), ONE.part()), (0, part));
            ONE.set_part(Part { start: part.start + PAGE, end: part.start + PAGE });
            OWNERS.fetch_sub(1, Ordering::Relaxed);
            assert!(ONE.change(mine, to, Owner::default()).is_some());
            1
        };
        let steps = [
            (State::Unused, State::Taken, State::Kept),
            (State::Kept, State::Taken, State::Reserved),
            (State::Reserved, State::Taken, State::Open),
            (State::Open, State::Taken, State::Kept),
            (State::Kept, State::RevokingKept, State::Kept),
            (State::Reserved, State::RevokingReserved, State::Reserved),
        ];
        let owned: u64 = std::thread::scope(|scope| {
            let run = || (0..60_000).map(|turn| steps[turn % 6]).map(|(a, b, c)| own(a, b, c)).sum::<u64>();
            let threads: std::vec::Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(ONE.part().start, owned * PAGE);
    }
}
