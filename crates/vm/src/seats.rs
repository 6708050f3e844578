//! The guests of a leaf: eight seats in two words, each 16 bits, 0: free. Whose they are is told in `linkage.rs`.
//!
//! A guest takes the first free seat, by CAS, and keeps it until the leaf is nobody's: so nobody sits twice. A page's
//! word names one seat, or says that all guests may have the page. Relaxed throughout: the CAS decides, and who reads a seat has
//! the lock of a page whose word was stored after the seat was taken.

use percore::{CoreId, CoreSet};
use sync::atomic::{AtomicU64, Ordering};

/// Seats in a word.
const LANES: u32 = 4;
const LANE_BITS: u32 = 16;
const LANE: u64 = (1 << LANE_BITS) - 1;

/// Which guests of a leaf have a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guests(u8);

impl Guests {
    /// None.
    pub const NONE: Self = Self(0);
    /// Perhaps all.
    pub const ALL: Self = Self(15);

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self((bits & 15) as u8)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The guest in this seat.
    fn one(seat: u32) -> Self {
        Self(seat as u8 + 1)
    }

    /// These and those.
    pub(crate) fn and(self, others: Self) -> Self {
        match (self, others) {
            (Self::NONE, one) | (one, Self::NONE) => one,
            (one, other) if one == other => one,
            _ => Self::ALL,
        }
    }

    fn has(self, seat: u32) -> bool {
        self == Self::ALL || self == Self::one(seat)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seats<'g>([&'g AtomicU64; 2]);

impl<'g> Seats<'g> {
    #[inline(always)]
    pub(crate) fn new(words: [&'g AtomicU64; 2]) -> Self {
        Self(words)
    }

    /// The seat of `core`, which takes one if there is one left.
    pub(crate) fn admit(self, core: CoreId) -> Option<Guests> {
        let mut words = (0..).zip(self.0);
        words.find_map(|(at, word)| sit(word, core).map(|lane| Guests::one(at * LANES + lane)))
    }

    /// How many are taken.
    pub(crate) fn taken(self) -> usize {
        let taken = |word: &AtomicU64| {
            (0..LANES).filter(|&lane| lane_of(word.load(Ordering::Relaxed), lane) != 0).count()
        };
        self.0.into_iter().map(taken).sum()
    }

    /// Adds the cores in the seats of `guests` to `cores`.
    pub(crate) fn add_to(self, cores: &mut CoreSet, guests: Guests) {
        for (at, word) in (0..).zip(self.0) {
            let word = word.load(Ordering::Relaxed);
            let seats = (0..LANES).filter(|lane| guests.has(at * LANES + lane));
            seats.filter_map(|lane| core_in(word, lane)).for_each(|core| cores.insert(core));
        }
    }

    /// All of them are free. Nobody takes one meanwhile.
    pub(crate) fn reset(self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

/// What stands for `core`; never 0.
pub(crate) fn name(core: CoreId) -> u64 {
    core.index() as u64 + 1
}

fn lane_of(word: u64, lane: u32) -> u64 {
    word >> (lane * LANE_BITS) & LANE
}

fn core_in(word: u64, lane: u32) -> Option<CoreId> {
    lane_of(word, lane).checked_sub(1).map(|index| CoreId::new(index as usize))
}

/// The seat of `core` in `word`, which it takes if it is free.
fn sit(word: &AtomicU64, core: CoreId) -> Option<u32> {
    let mut seats = word.load(Ordering::Relaxed);
    loop {
        let lane = (0..LANES).find(|&lane| [0, name(core)].contains(&lane_of(seats, lane)))?;
        let taken = seats | name(core) << (lane * LANE_BITS);
        match word.compare_exchange(seats, taken, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(lane),
            Err(now) => seats = now,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn cores(seats: Seats<'_>, guests: Guests) -> Vec<usize> {
        let mut cores = CoreSet::EMPTY;
        seats.add_to(&mut cores, guests);
        cores.iter().map(CoreId::index).collect()
    }

    #[test]
    fn guests_are_known_by_their_seats_and_there_are_eight() {
        let words = [const { AtomicU64::new(0) }; 2];
        let seats = Seats::new([&words[0], &words[1]]);
        let admit = |index| {
            assert_eq!(seats.taken(), index - 248);
            seats.admit(CoreId::new(index)).unwrap()
        };
        let taken: Vec<_> = (248..256).map(admit).collect();
        assert_eq!((seats.admit(CoreId::new(3)), seats.taken()), (None, 8));
        for (seat, index) in taken.into_iter().zip(248..) {
            assert_eq!(seats.admit(CoreId::new(index)), Some(seat));
            assert_eq!(cores(seats, seat), [index]);
        }
        assert_eq!(cores(seats, Guests::ALL), (248..256).collect::<Vec<_>>());
        assert_eq!(cores(seats, Guests::NONE), []);
    }

    #[test]
    fn two_different_guests_are_perhaps_all() {
        let (one, other) = (Guests::one(0), Guests::one(7));
        assert_eq!((one.and(one), one.and(Guests::NONE), Guests::NONE.and(other)), (one, one, other));
        assert_eq!((one.and(other), Guests::ALL.and(one)), (Guests::ALL, Guests::ALL));
        assert_eq!(Guests::from_bits(Guests::ALL.bits()), Guests::ALL);
    }
}
