use crate::{CoreId, MAX_CORES};

const WORDS: usize = MAX_CORES / 64;

/// A set of cores: one bit each, on the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreSet([u64; WORDS]);

impl CoreSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Returns the set of cores 0 to `count - 1`.
    pub fn first(count: usize) -> Self {
        (0..count).map(CoreId::new).collect()
    }

    /// Returns the set with these bits: core 0 is the lowest bit of the first word.
    #[inline]
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// Adds `core`.
    #[inline]
    pub fn insert(&mut self, core: CoreId) {
        self.0[core.index() / 64] |= 1 << (core.index() % 64);
    }

    /// Takes `core` out.
    #[inline]
    pub fn remove(&mut self, core: CoreId) {
        self.0[core.index() / 64] &= !(1 << (core.index() % 64));
    }

    /// Adds every core of `other`.
    #[inline]
    pub fn union(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine |= theirs;
        }
    }

    /// Returns whether `core` is in the set.
    #[inline]
    pub fn contains(&self, core: CoreId) -> bool {
        self.0[core.index() / 64] & (1 << (core.index() % 64)) != 0
    }

    /// Returns whether no core is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |any, word| any | word) == 0
    }

    /// Returns the number of cores in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the cores, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = CoreId> {
        let words = self.0;
        (0..WORDS).flat_map(move |at| Bits(words[at]).map(move |bit| CoreId::new(at * 64 + bit)))
    }
}

impl FromIterator<CoreId> for CoreSet {
    fn from_iter<I: IntoIterator<Item = CoreId>>(cores: I) -> Self {
        let mut set = Self::EMPTY;
        cores.into_iter().for_each(|core| set.insert(core));
        set
    }
}

struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in_in_order() {
        let mut set: CoreSet = [200, 3, 64].into_iter().map(CoreId::new).collect();
        set.insert(CoreId::new(63));
        set.remove(CoreId::new(3));
        let members: alloc::vec::Vec<_> = set.iter().map(CoreId::index).collect();
        assert_eq!(members, [63, 64, 200]);
        assert_eq!(set.len(), 3);
        assert!(!set.contains(CoreId::new(3)) && set.contains(CoreId::new(200)));
    }

    #[test]
    fn first_is_dense() {
        assert_eq!(CoreSet::first(256).len(), 256);
        assert!(CoreSet::first(0).is_empty());
    }
}
