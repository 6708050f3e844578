//! Values: the user's type, and its words.

use crate::slot::TAGS;

/// A value that a map stores for each key: a main word of 60 bits, and a second word for data that few keys
/// have.
pub trait Value: Copy {
    /// Returns the main word, in which the bits of [`TAGS`] are 0, and the second word, in which the lowest
    /// bit is 0. A second word of 0 costs nothing. A second word that is the same for all keys of a leaf that
    /// have one costs almost nothing.
    fn to_words(self) -> (u64, u64);
    /// Returns the value that has these words.
    fn from_words(main: u64, second: u64) -> Self;
    /// Returns whether neighbours that have the same value, with this main word, may be shown as one
    /// ([`Run`](crate::Run)).
    #[inline]
    fn joins(_main: u64) -> bool {
        true
    }
    /// Returns the value of one key of a folded [`BLOCK`](crate::BLOCK) that has this value. The key is
    /// counted from the block's first. The second word is the same for all keys. A value whose parts differ
    /// is never given to a larger slot.
    #[inline]
    fn part(self, _key: u64) -> Self {
        self
    }
}

/// Returns the words of a value, after checking that they have no bits of the map.
#[inline(always)]
pub(crate) fn words<V: Value>(value: V) -> (u64, u64) {
    let (main, second) = value.to_words();
    assert!(main & TAGS == 0 && second & 1 == 0, "a value has bits that belong to the map");
    (main, second)
}

/// A function that computes the main word of a key of a folded block. Its arguments are the block's main
/// word, the block's second word, and the key, counted from the block's first.
pub(crate) type PartOf = fn(u64, u64, u64) -> u64;

/// Returns whether all keys of a folded block that has these words have the same value.
pub(crate) fn are_alike(part: PartOf, main: u64, second: u64) -> bool {
    part(main, second, 1) == main
}

/// Applies [`Value::part`] to words, and returns the main word.
pub(crate) fn part<V: Value>(main: u64, second: u64, key: u64) -> u64 {
    let part = words(V::from_words(main, second).part(key));
    debug_assert!(part.1 == second, "a part has another second word");
    part.0
}
