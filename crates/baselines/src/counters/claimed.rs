//! A local counter for whichever object claims it: a word that names the object and counts references to it.
//!
//! LODIC (see `embedded.rs`) counts in words that show the page for another purpose. This is the same counter
//! with a word of its own, so a process needs no mapping of the page, and one word serves many pages, one
//! after the other.
//!
//! | word | may become | by |
//! |---|---|---|
//! | free | object A, count 0 | a reader of A that claims it |
//! | object A, count n | n + 1, and the taker | a reader of A, by compare-and-swap |
//! | object A, count n > 0 | n - 1 | the reader that was counted here |
//! | object A, count 0 | object B, count 0 | a reader of B that claims it |
//! | object A, count 0 | free | the caller that asks about A |
//!
//! Words lie in [sets](ClaimedSet) of eight, a cache line. An object may claim any word of its set. If none
//! is free, the bit *used* says which object gives way, as in a clock: a reader sets it with its count, and a
//! claim that finds no word without it clears it in all of them and gives up. So of nine objects that are
//! read equally often eight keep their words.
//!
//! 1. A word keeps its object while its count is above 0. So a reference is dropped where it was taken, by
//!    one subtraction, and never changes its home. A reader that finds no room counts in the object instead.
//! 2. The count is *asked* when no reference to the object is taken any more, and no word is claimed for it.
//!    Then references only become fewer, so the words may be looked at one after the other: an object that
//!    has none in each of them, when it is looked at, has none.
//! 3. The question frees the words of its object. So when the object's memory is used again, no word names
//!    it, and the next object there knows of each word that was claimed for it.
//! 4. Two readers of an object may claim a word each at the same time. That does no harm: the question looks
//!    at all words of the set.
//!
//! Orderings: [`leave`](ClaimedCount::leave) is Release. Its partner is the Acquire load of the question,
//! also if the word was claimed in between, since a claim is a read-modify-write and continues its release
//! sequence.

use sync::atomic::{AtomicU64, Ordering};

/// The bits below the object's number: the count, above it the taker, and above that [`USED`].
const BITS: u32 = 16;
/// A reference was taken since this was last cleared, or the word has just been claimed.
const USED: u64 = 1 << (BITS - 1);
/// The bits of the count, as many as in the paper.
const COUNT_BITS: u32 = 7;
/// The largest count.
const MOST: u64 = (1 << COUNT_BITS) - 1;
/// The taker of the last reference.
const TAKER: u64 = (ClaimedCount::TAKERS - 1) << COUNT_BITS;

/// A word that counts references to one object at a time. It begins free.
#[derive(Debug, Default)]
pub struct ClaimedCount(AtomicU64);

/// Eight words in one cache line. Each object has one set of a host's sets, and may claim any word there.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct ClaimedSet([ClaimedCount; ClaimedSet::WORDS]);

const fn names(value: u64, object: u64) -> bool {
    value >> BITS == object
}

/// Returns the value of a word that names an object and has no count, but may have had one of `taker`.
const fn alone(object: u64, taker: u64) -> u64 {
    object << BITS | USED | taker << COUNT_BITS
}

const fn count(value: u64) -> u64 {
    value & MOST
}

impl ClaimedCount {
    /// Takers have numbers below this. The word remembers the taker of the last reference, so that takers who
    /// share it find out. The count does not depend on takers.
    pub const TAKERS: u64 = 1 << (BITS - 1 - COUNT_BITS);

    /// Counts a reference to `object` if the word names it and counts no other, and the last one was taken by
    /// `taker`, too, which is usual. Returns whether it did. No object is called 0, and none has more than 48
    /// bits.
    #[inline(always)]
    pub fn take_first(&self, object: u64, taker: u64) -> bool {
        let alone = alone(object, taker);
        // Another value is only read: threads that read other pages do not take the word's line from each
        // other. Relaxed: the host orders the first use of the object, and 2 the question.
        self.0.load(Ordering::Relaxed) == alone
            && self.0.compare_exchange(alone, alone + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Counts a reference of `taker` to `object` if the word names it and has room. Returns the taker of the
    /// reference before if it did.
    pub fn take(&self, object: u64, taker: u64) -> Option<u64> {
        // Relaxed: the compare-and-swap decides.
        let mut value = self.0.load(Ordering::Relaxed);
        while names(value, object) && count(value) < MOST {
            let new = (value + 1) & !TAKER | USED | taker << COUNT_BITS;
            // Relaxed: as above.
            match self.0.compare_exchange_weak(value, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((value & TAKER) >> COUNT_BITS),
                Err(now) => value = now,
            }
        }
        None
    }

    /// Drops a reference that was counted here.
    #[inline]
    pub fn leave(&self) {
        // Release: see the module.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Makes the word name `object` for `taker` if it counts no reference. Returns whether it names the
    /// object now.
    pub fn claim(&self, object: u64, taker: u64) -> bool {
        // Relaxed: the compare-and-swap decides.
        let old = self.0.load(Ordering::Relaxed);
        names(old, object) || (count(old) == 0 && self.claim_from(old, alone(object, taker)))
    }

    fn claim_if(&self, new: u64, may: impl Fn(u64) -> bool) -> bool {
        // Relaxed: as above.
        let old = self.0.load(Ordering::Relaxed);
        may(old) && self.claim_from(old, new)
    }

    /// Makes the word `new` if it is `old` still.
    fn claim_from(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn names(&self, object: u64) -> bool {
        // Relaxed: a reference is taken by compare-and-swap.
        names(self.0.load(Ordering::Relaxed), object)
    }

    /// Returns whether a reference to `object` is counted here, and frees the word if it only names it. Exact
    /// as the module says.
    pub fn has(&self, object: u64) -> bool {
        // Acquire: see the module.
        let value = self.0.load(Ordering::Acquire);
        if names(value, object) && count(value) == 0 {
            self.free(value, object);
        }
        names(value, object) && count(value) > 0
    }

    /// Frees a word that named `object` when it was `value`. Nothing is counted for the object any more, and
    /// if another claims the word, it names that one.
    fn free(&self, mut value: u64, object: u64) {
        while names(value, object) {
            // A claim of another object may have cleared the bit. Relaxed: it is not counted here.
            match self.0.compare_exchange(value, 0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => value = now,
            }
        }
    }

    /// Returns whether any reference is counted here.
    pub fn is_used(&self) -> bool {
        // Acquire: the word's memory is used again after the last reference.
        count(self.0.load(Ordering::Acquire)) > 0
    }
}

impl ClaimedSet {
    /// The words of a set. Loom explores a small one.
    pub const WORDS: usize = if cfg!(loom) { 2 } else { 8 };

    /// Counts a reference of `taker` to `object` in a word that names it and has room. Returns the word, and
    /// the taker of the reference before.
    pub fn take(&self, object: u64, taker: u64) -> Option<(&ClaimedCount, u64)> {
        self.0.iter().find_map(|word| Some((word, word.take(object, taker)?)))
    }

    /// Makes a word name `object` for `taker`: `first` if it is free, or else another that is, or else one
    /// without a reference that has not been used for longest. Returns whether it did. It does not if a word
    /// names the object already.
    pub fn claim(&self, first: usize, object: u64, taker: u64) -> bool {
        if self.0.iter().any(|word| word.names(object)) {
            return false;
        }
        let claim = |may: fn(u64) -> bool| {
            self.0
                .iter()
                .cycle()
                .skip(first)
                .take(Self::WORDS)
                .any(|word| word.claim_if(alone(object, taker), may))
        };
        let claimed = claim(|old| old == 0) || claim(|old| old & USED == 0 && count(old) == 0);
        if !claimed {
            // Relaxed: a hint. The count stays as it is.
            self.0.iter().for_each(|word| _ = word.0.fetch_and(!USED, Ordering::Relaxed));
        }
        claimed
    }

    /// Returns whether a reference to `object` is counted here, and if not, frees the words that name it.
    /// Exact as the module says.
    pub fn has(&self, object: u64) -> bool {
        self.0.iter().any(|word| word.has(object))
    }

    /// Returns whether any reference is counted here.
    pub fn is_used(&self) -> bool {
        self.0.iter().any(ClaimedCount::is_used)
    }
}
