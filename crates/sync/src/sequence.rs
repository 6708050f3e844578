//! Words that are read together without a lock.

use core::array;

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::spin_loop;

/// A number of 32 bits and `N` words. A reader gets all of them as one writer left them, and writes nothing.
/// The first word has the number in its low half and the version in its high half:
///
/// | version | the words are | changed by |
/// |---|---|---|
/// | even | complete | a writer, which makes it odd by a compare-and-swap |
/// | odd | being written, by one writer | that writer, which makes it even |
///
/// A reader reads the version before and after the words, and tries again if they differ. A writer holds up
/// readers and other writers, so it must not be interrupted by one of them.
///
/// Orderings: the writer's fence (W) stands between the odd version and the words, the reader's fence (R)
/// between the words and the second look at the version. A reader that finds a new word sees the odd version
/// then. The even version is stored with Release and loaded with Acquire, so a reader that finds it finds its
/// words.
#[derive(Debug)]
pub struct Sequence<const N: usize> {
    first: AtomicU64,
    words: [AtomicU64; N],
}

/// The lowest bit of the version.
const ODD: u64 = 1 << 32;

impl<const N: usize> Sequence<N> {
    crate::const_unless_loom! {
        /// Makes words that are all 0.
        pub fn new() -> Self {
            Self { first: AtomicU64::new(0), words: zeroes() }
        }
    }

    #[cfg(not(loom))]
    /// Makes a number and words.
    pub const fn of(number: u32, words: [u64; N]) -> Self {
        // An array of atomics cannot be mapped in a constant.
        let mut atomics = zeroes();
        let mut at = 0;
        while at < N {
            atomics[at] = AtomicU64::new(words[at]);
            at += 1;
        }
        Self { first: AtomicU64::new(number as u64), words: atomics }
    }

    /// Returns the number and the words.
    #[inline]
    pub fn read(&self) -> (u32, [u64; N]) {
        loop {
            let before = self.first.load(Ordering::Acquire);
            let words = array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
            fence(Ordering::Acquire); // R
            if before & ODD == 0 && self.first.load(Ordering::Relaxed) == before {
                return (before as u32, words);
            }
            spin_loop();
        }
    }

    /// Returns one of the words, from the last writer or from one that is writing now. It orders nothing.
    ///
    /// # Panics
    /// If there is none with this index.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    /// Replaces the number and the words, and returns the old ones. Writes nothing if they are the same.
    pub fn replace(&self, number: u32, words: [u64; N]) -> (u32, [u64; N]) {
        let old = self.read();
        if old == (number, words) {
            return old;
        }
        let begun = self.begin();
        let old = (begun as u32, self.own_words());
        self.finish(begun, (number, words));
        old
    }

    /// Replaces the number and the words by `new` if they are `old`, and returns whether they were.
    pub fn replace_if(&self, old: (u32, [u64; N]), new: (u32, [u64; N])) -> bool {
        let begun = self.begin();
        let is_old = (begun as u32, self.own_words()) == old;
        if is_old {
            self.finish(begun, new);
        } else {
            self.first.store(begun, Ordering::Release);
        }
        is_old
    }

    /// Returns the words, which this writer may change.
    fn own_words(&self) -> [u64; N] {
        array::from_fn(|at| self.words[at].load(Ordering::Relaxed))
    }

    /// Writes the words, and makes the version even. The first word was `begun` before this writer began.
    fn finish(&self, begun: u64, (number, words): (u32, [u64; N])) {
        fence(Ordering::Release); // W
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        let version = (begun & !(ODD - 1)).wrapping_add(2 * ODD);
        self.first.store(version | u64::from(number), Ordering::Release);
    }

    /// Makes the version odd, and returns the first word from before.
    fn begin(&self) -> u64 {
        loop {
            let before = self.first.load(Ordering::Relaxed);
            // Acquire: the words of the writer before are complete.
            let (odd, relaxed) = (before | ODD, Ordering::Relaxed);
            if before & ODD == 0
                && self.first.compare_exchange(before, odd, Ordering::Acquire, relaxed).is_ok()
            {
                return before;
            }
            spin_loop();
        }
    }
}

#[cfg(not(loom))]
const fn zeroes<const N: usize>() -> [AtomicU64; N] {
    [const { AtomicU64::new(0) }; N]
}

#[cfg(loom)]
fn zeroes<const N: usize>() -> [AtomicU64; N] {
    array::from_fn(|_| AtomicU64::new(0))
}

impl<const N: usize> Default for Sequence<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_is_returned_and_the_same_is_not_written() {
        let sequence = Sequence::<3>::new();
        assert_eq!(sequence.replace(5, [1, 2, 3]), (0, [0; 3]));
        assert_eq!((sequence.read(), sequence.word(1)), ((5, [1, 2, 3]), 2));
        let version = sequence.first.load(Ordering::Relaxed);
        assert_eq!(sequence.replace(5, [1, 2, 3]), (5, [1, 2, 3]));
        assert_eq!(sequence.first.load(Ordering::Relaxed), version);
        assert_eq!(sequence.replace(u32::MAX, [0; 3]), (5, [1, 2, 3]));
        assert_eq!(sequence.read(), (u32::MAX, [0; 3]));
    }

    #[test]
    fn only_the_expected_words_are_replaced() {
        let sequence = Sequence::<2>::new();
        sequence.replace(1, [2, 3]);
        assert!(!sequence.replace_if((1, [2, 4]), (5, [6, 7])));
        assert!(!sequence.replace_if((2, [2, 3]), (5, [6, 7])));
        assert_eq!(sequence.read(), (1, [2, 3]));
        assert!(sequence.replace_if((1, [2, 3]), (5, [6, 7])));
        assert_eq!(sequence.read(), (5, [6, 7]));
    }

    #[test]
    fn the_version_wraps() {
        let sequence = Sequence::<1>::new();
        sequence.first.store(!(2 * ODD - 1), Ordering::Relaxed);
        sequence.replace(7, [1]);
        assert_eq!(sequence.first.load(Ordering::Relaxed), 7);
    }
}
