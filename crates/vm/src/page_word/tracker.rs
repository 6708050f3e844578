//! The cores that may translate a page, in 18 bits at any number of cores.
//!
//! ```text
//!  bits 17-16   15-8   7-0
//!     0-2      second first     0 to 2 cores, by number
//!      3       one bit for each of 16 groups of cores
//! ```
//!
//! Most pages are used by one core, or handed from one to another. A third core turns names into groups: a
//! shootdown then reaches cores that never had the page, and never misses one that had it. With at most
//! 16 cores a group is one core, so nothing is lost.

use percore::{CoreId, CoreSet};

const NAMED: u32 = 2;
const GROUPS: usize = 16;
const COUNT_SHIFT: u32 = 16;
const COARSE: u32 = (NAMED + 1) << COUNT_SHIFT;

/// How many cores make a group, for a machine of a given size.
#[derive(Clone, Copy, Debug)]
pub struct Grain {
    cores: usize,
    group: usize,
}

impl Grain {
    pub(crate) fn new(cores: usize) -> Self {
        Self { cores, group: cores.div_ceil(GROUPS).max(1) }
    }

    fn bit(self, core: CoreId) -> u32 {
        1 << (core.index() / self.group)
    }
}

/// A set of cores that may be larger than what was put in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tracker(u32);

impl Tracker {
    pub(crate) const BITS: u32 = 18;
    pub(crate) const NOBODY: Self = Self(0);

    /// Returns the tracker whose bits these are.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits as u32 & ((1 << Self::BITS) - 1))
    }

    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.0)
    }

    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self == Self::NOBODY
    }

    /// Returns whether `core` may be in the set.
    #[inline]
    pub(crate) fn contains(self, core: CoreId, grain: Grain) -> bool {
        match self.is_coarse() {
            false => self.named().any(|name| name == core),
            true => self.0 & grain.bit(core) != 0,
        }
    }

    /// Returns the set and `core`.
    #[inline]
    pub(crate) fn with(self, core: CoreId, grain: Grain) -> Self {
        if self.contains(core, grain) {
            return self;
        }
        let count = self.count();
        if count < NAMED {
            let name = (core.index() as u32) << (8 * count);
            return Self((self.0 | name) + (1 << COUNT_SHIFT));
        }
        self.coarse(grain).add_group(core, grain)
    }

    /// Returns the cores that may be in this set.
    pub(crate) fn cores(self, grain: Grain) -> CoreSet {
        let mut cores = CoreSet::EMPTY;
        self.add_to(&mut cores, grain);
        cores
    }

    /// Adds every core that may be in this set to `cores`.
    #[inline]
    pub(crate) fn add_to(self, cores: &mut CoreSet, grain: Grain) {
        match self.is_coarse() {
            false => self.named().for_each(|core| cores.insert(core)),
            true => self.members(grain).for_each(|core| cores.insert(core)),
        }
    }

    /// Returns how many cores are named. A number greater than can be named means groups.
    #[inline]
    fn count(self) -> u32 {
        self.0 >> COUNT_SHIFT
    }

    #[inline]
    pub(crate) fn is_coarse(self) -> bool {
        self.0 & COARSE == COARSE
    }

    #[inline]
    fn named(self) -> impl Iterator<Item = CoreId> {
        (0..self.count()).map(move |at| CoreId::new((self.0 >> (8 * at)) as usize & 0xff))
    }

    fn members(self, grain: Grain) -> impl Iterator<Item = CoreId> {
        (0..grain.cores).map(CoreId::new).filter(move |&core| self.contains(core, grain))
    }

    #[cold]
    fn coarse(self, grain: Grain) -> Self {
        match self.is_coarse() {
            false => self.named().fold(Self(COARSE), |set, core| set.add_group(core, grain)),
            true => self,
        }
    }

    fn add_group(self, core: CoreId, grain: Grain) -> Self {
        Self(self.0 | grain.bit(core))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use percore::MAX_CORES;

    fn track(cores: &[usize], grain: Grain) -> Tracker {
        cores.iter().fold(Tracker::NOBODY, |set, &core| set.with(CoreId::new(core), grain))
    }

    fn members(set: Tracker, grain: Grain) -> CoreSet {
        let mut cores = CoreSet::EMPTY;
        set.add_to(&mut cores, grain);
        cores
    }

    fn set_of(cores: &[usize]) -> CoreSet {
        cores.iter().copied().map(CoreId::new).collect()
    }

    #[test]
    fn two_cores_are_exact_at_any_machine_size() {
        let grain = Grain::new(MAX_CORES);
        for cores in [&[][..], &[0], &[255], &[0, 255], &[200, 7], &[7, 7, 7, 7]] {
            assert_eq!(members(track(cores, grain), grain), set_of(cores), "{cores:?}");
        }
    }

    #[test]
    fn many_cores_are_exact_up_to_16() {
        let grain = Grain::new(GROUPS);
        let cores = [15, 0, 5, 11, 12];
        assert_eq!(members(track(&cores, grain), grain), set_of(&cores));
    }

    #[test]
    fn coarse_sets_miss_no_core_and_name_no_absent_one() {
        for machine in [17, 64, 100, 255, 256] {
            let grain = Grain::new(machine);
            let cores = [0, machine / 3, machine / 2, machine - 1];
            let set = members(track(&cores, grain), grain);
            assert!(cores.iter().all(|&core| set.contains(CoreId::new(core))), "{machine} cores");
            assert!(set.iter().all(|core| core.index() < machine), "{machine} cores");
            assert!(set.len() <= 4 * machine.div_ceil(GROUPS), "{machine} cores: {} targets", set.len());
        }
    }

    /// Whatever the machine's size, no group is in every set.
    #[test]
    fn coarse_sets_name_no_core_of_another_group() {
        for machine in [17, 64, 100, 255, 256] {
            let grain = Grain::new(machine);
            let last = CoreId::new(machine - 1);
            assert!(!members(track(&[0, 1, 2], grain), grain).contains(last), "{machine} cores");
        }
    }

    #[test]
    fn fits_its_bits() {
        let grain = Grain::new(MAX_CORES);
        let full = track(&(0..MAX_CORES).collect::<alloc::vec::Vec<_>>(), grain);
        assert_eq!(full.bits() >> Tracker::BITS, 0);
        assert_eq!(Tracker::from_bits(full.bits()), full);
        assert_eq!(members(full, grain), CoreSet::first(MAX_CORES));
    }
}
