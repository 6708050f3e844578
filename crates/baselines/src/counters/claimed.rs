//! A local counter for whichever object claims it: a word that names the object and counts references to it.
//!
//! LODIC (see `embedded.rs`) counts in words that show the page for another purpose. This is the same counter
//! with a word of its own, so a process needs no mapping of the page, and one word serves many pages, one
//! after the other.
//!
//! | word | may become | by |
//! |---|---|---|
//! | free | object A, count 0 | a reader of A that claims it |
//! | object A, count n | n + 1 | a reader of A, by compare-and-swap |
//! | object A, count n > 0 | n - 1 | the reader that was counted here |
//! | object A, count 0 | object B, count 0 | a reader of B that claims it |
//! | object A, count 0 | free | the caller that asks about A |
//!
//! 1. A word keeps its object while its count is above 0. So a reference is dropped where it was taken, by
//!    one subtraction, and never changes its home. A reader that finds no room counts in the object instead.
//! 2. The count is *asked* when no reference to the object is taken any more, and no word is claimed for it.
//!    Then references only become fewer, so the words may be looked at one after the other: an object that
//!    has none in each of them, when it is looked at, has none.
//! 3. The question frees the words of its object. So when the object's memory is used again, no word names
//!    it, and the next object there knows of each word that was claimed for it.
//!
//! Orderings: [`leave`](ClaimedCount::leave) is Release. Its partner is the Acquire load of the question, also
//! if the word was claimed in between, since a claim is a read-modify-write and continues its release
//! sequence.

use sync::atomic::{AtomicU64, Ordering};

use super::embedded::EmbeddedCount;

/// The count, below the object's number.
const COUNT: EmbeddedCount = EmbeddedCount::new(0, BITS);
const BITS: u32 = 16;

/// A word that counts references to one object at a time. It begins free.
#[derive(Debug, Default)]
pub struct ClaimedCount(AtomicU64);

const fn names(value: u64, object: u64) -> bool {
    value >> BITS == object
}

impl ClaimedCount {
    /// Counts a reference to `object` if the word names it and has room. Returns whether it did. No object is
    /// called 0, and none has more than 48 bits.
    #[inline]
    pub fn take(&self, object: u64) -> bool {
        COUNT.take(&self.0, |value| names(value, object))
    }

    /// Drops a reference that was counted here.
    #[inline]
    pub fn leave(&self) {
        // Release: see the module.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Makes the word name `object` if it counts no reference. Returns whether it names the object now.
    pub fn claim(&self, object: u64) -> bool {
        // Relaxed: the compare-and-swap decides.
        let old = self.0.load(Ordering::Relaxed);
        let is_free = || COUNT.of(old) == 0;
        let claim = || self.0.compare_exchange(old, object << BITS, Ordering::Relaxed, Ordering::Relaxed);
        names(old, object) || (is_free() && claim().is_ok())
    }

    /// Returns whether a reference to `object` is counted here, and frees the word if it only names it. Exact
    /// as the module says.
    pub fn has(&self, object: u64) -> bool {
        // Acquire: see the module.
        let value = self.0.load(Ordering::Acquire);
        if names(value, object) && COUNT.of(value) == 0 {
            // No other caller changes it: nothing is counted for the object, and if another claims the word,
            // it names that one.
            _ = self.0.compare_exchange(value, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        names(value, object) && COUNT.of(value) > 0
    }

    /// Returns whether any reference is counted here.
    pub fn is_used(&self) -> bool {
        // Acquire: the word's memory is used again after the last reference.
        COUNT.of(self.0.load(Ordering::Acquire)) > 0
    }
}
