//! The private sharers of a leaf (see `linkage.rs`): a list of eight entries in two words. Each entry has 16
//! bits, and 0 means free.
//!
//! A core takes the first free entry, by CAS, and keeps it until the leaf has no owner. So no core has two. A
//! page's word names one entry, or says that all private sharers may have the page. Accesses are Relaxed
//! throughout: the CAS decides, and a core that reads an entry has the lock of a page whose word was stored
//! after the entry was taken.

use percore::{CoreId, CoreSet};
use sync::atomic::{AtomicU64, Ordering};

/// Entries in a word.
const LANES: u32 = 4;
const LANE_BITS: u32 = 16;
const LANE: u64 = (1 << LANE_BITS) - 1;

/// The private sharers of a leaf that have a page: none, one, or perhaps all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateSharers(u8);

impl PrivateSharers {
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

    /// Returns the sharer in entry `entry`.
    fn one(entry: u32) -> Self {
        Self(entry as u8 + 1)
    }

    /// Returns these and `others`, or all if they are more than one.
    pub(crate) fn and(self, others: Self) -> Self {
        match (self, others) {
            (Self::NONE, one) | (one, Self::NONE) => one,
            (one, other) if one == other => one,
            _ => Self::ALL,
        }
    }

    fn has(self, entry: u32) -> bool {
        self == Self::ALL || self == Self::one(entry)
    }
}

/// The list of a leaf's private sharers. See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharerList<'g>([&'g AtomicU64; 2]);

impl<'g> SharerList<'g> {
    #[inline(always)]
    pub(crate) fn new(words: [&'g AtomicU64; 2]) -> Self {
        Self(words)
    }

    /// Returns the entry of `core`, which takes one if there is one left.
    pub(crate) fn add(self, core: CoreId) -> Option<PrivateSharers> {
        let mut words = (0..).zip(self.0);
        words.find_map(|(at, word)| {
            find_or_take(word, core).map(|lane| PrivateSharers::one(at * LANES + lane))
        })
    }

    /// Returns how many entries are taken.
    pub(crate) fn len(self) -> usize {
        let taken = |word: &AtomicU64| {
            (0..LANES).filter(|&lane| lane_of(word.load(Ordering::Relaxed), lane) != 0).count()
        };
        self.0.into_iter().map(taken).sum()
    }

    /// Returns whether no entry is taken.
    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Adds the cores in the entries that `sharers` names to `cores`.
    pub(crate) fn add_to(self, cores: &mut CoreSet, sharers: PrivateSharers) {
        for (at, word) in (0..).zip(self.0) {
            let word = word.load(Ordering::Relaxed);
            let lanes = (0..LANES).filter(|lane| sharers.has(at * LANES + lane));
            lanes.filter_map(|lane| core_in(word, lane)).for_each(|core| cores.insert(core));
        }
    }

    /// Frees all entries. No core takes one meanwhile.
    pub(crate) fn reset(self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

/// Returns the 16 bits that stand for `core`, which are never 0.
pub(crate) fn id_of(core: CoreId) -> u64 {
    core.index() as u64 + 1
}

fn lane_of(word: u64, lane: u32) -> u64 {
    word >> (lane * LANE_BITS) & LANE
}

fn core_in(word: u64, lane: u32) -> Option<CoreId> {
    lane_of(word, lane).checked_sub(1).map(|index| CoreId::new(index as usize))
}

/// Returns the lane of `core` in `word`, which it takes if it has none and one is free.
fn find_or_take(word: &AtomicU64, core: CoreId) -> Option<u32> {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let lane = (0..LANES).find(|&lane| [0, id_of(core)].contains(&lane_of(seen, lane)))?;
        let taken = seen | id_of(core) << (lane * LANE_BITS);
        match word.compare_exchange(seen, taken, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(lane),
            Err(now) => seen = now,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn cores(list: SharerList<'_>, sharers: PrivateSharers) -> Vec<usize> {
        let mut cores = CoreSet::EMPTY;
        list.add_to(&mut cores, sharers);
        cores.iter().map(CoreId::index).collect()
    }

    #[test]
    fn sharers_are_known_by_their_entries_and_there_are_eight() {
        let words = [const { AtomicU64::new(0) }; 2];
        let list = SharerList::new([&words[0], &words[1]]);
        let add = |index| {
            assert_eq!(list.len(), index - 248);
            list.add(CoreId::new(index)).unwrap()
        };
        let taken: Vec<_> = (248..256).map(add).collect();
        assert_eq!((list.add(CoreId::new(3)), list.len()), (None, 8));
        for (sharer, index) in taken.into_iter().zip(248..) {
            assert_eq!(list.add(CoreId::new(index)), Some(sharer));
            assert_eq!(cores(list, sharer), [index]);
        }
        assert_eq!(cores(list, PrivateSharers::ALL), (248..256).collect::<Vec<_>>());
        assert_eq!(cores(list, PrivateSharers::NONE), []);
    }

    #[test]
    fn two_different_sharers_are_perhaps_all() {
        let (one, other) = (PrivateSharers::one(0), PrivateSharers::one(7));
        assert_eq!(
            (one.and(one), one.and(PrivateSharers::NONE), PrivateSharers::NONE.and(other)),
            (one, one, other)
        );
        assert_eq!(
            (one.and(other), PrivateSharers::ALL.and(one)),
            (PrivateSharers::ALL, PrivateSharers::ALL)
        );
        assert_eq!(PrivateSharers::from_bits(PrivateSharers::ALL.bits()), PrivateSharers::ALL);
    }
}
