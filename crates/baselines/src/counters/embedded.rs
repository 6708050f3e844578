//! LODIC's local counter: a few bits of a word that says something else.
//!
//! After Park, Hwang, Choi, Min and Won (LODIC: Logical Distributed Counting for Scalable File Access, ATC
//! 2021, sections 4.3 to 4.5). Their word is the entry of a page in the page table of the process that reads
//! it. The entry's owner writes the rest of the word: it shows a page of a file, no page, or another page.
//!
//! ```text
//!    reader: take       the word shows the page, and has room        count + 1     or else  shared + 1
//!    reader: leave      the word shows the page, and is not 0        count - 1     or else  shared - 1
//!    owner:  replace    old := swap(word, new, with count 0)                       then     shared + old's count
//! ```
//!
//! | word | may become | by |
//! |---|---|---|
//! | shows the page, count n | n + 1, n - 1 | readers, by compare-and-swap |
//! | shows the page, count n | anything, count 0 | the owner, by a swap, after which it adds n to the shared count |
//! | anything else | shows the page, count 0 | the owner |
//!
//! 1. The counts in all words, the shared count, and what an owner has taken and not added yet, together are
//!    the number of references. Each step above keeps the sum, wherever a reference is dropped. So a count
//!    may change its home between the two, which the paper has too.
//! 2. A reference that is not in the words any more may be dropped before the owner has added it. Then the
//!    shared count is below zero for a moment, so it wraps. It means nothing alone while a word shows the
//!    page.
//! 3. The count is *asked* when no word shows the page, no owner is between its two steps, and no reference
//!    is taken any more. Then the shared count is the number of references. The paper asks while words show
//!    the page: it sums them, one after the other, and holds all updates off by a flag.
//!
//! Orderings: `leave` is Release. Its partners are the Acquire of the owner's swap, which is ordered before
//! the question, and the Acquire of the question if the reference was dropped from the shared count.

use sync::atomic::{AtomicU64, Ordering};

/// The place of a count in its words: `bits` bits from bit `shift` on.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedCount {
    shift: u32,
    bits: u32,
}

impl EmbeddedCount {
    /// Creates a count of `bits` bits from bit `shift` on.
    ///
    /// # Panics
    /// Panics unless the bits are in the word, and leave some of it.
    pub const fn new(shift: u32, bits: u32) -> Self {
        assert!(bits > 0 && bits < 64 && shift + bits <= 64, "the count lies in the word");
        Self { shift, bits }
    }

    const fn one(self) -> u64 {
        1 << self.shift
    }

    const fn most(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Returns the count in `value`.
    #[inline]
    pub const fn of(self, value: u64) -> u64 {
        value >> self.shift & self.most()
    }

    /// Counts a reference in `word` if `shows` holds for its value and there is room. Returns whether it did.
    #[inline]
    pub fn take(self, word: &AtomicU64, shows: impl Fn(u64) -> bool) -> bool {
        self.take_and_set(word, shows, 0)
    }

    /// Does the same, and sets `bits` of the rest of the word.
    #[inline]
    pub(super) fn take_and_set(self, word: &AtomicU64, shows: impl Fn(u64) -> bool, bits: u64) -> bool {
        let room = |value| shows(value) && self.of(value) < self.most();
        // Relaxed: the host orders the first use of the page, and 3 the question.
        self.change(word, room, |value| (value + self.one()) | bits, Ordering::Relaxed)
    }

    /// Drops a reference from `word` if `shows` holds for its value and it has one. Returns whether it did.
    #[inline]
    pub fn leave(self, word: &AtomicU64, shows: impl Fn(u64) -> bool) -> bool {
        let counted = |value| shows(value) && self.of(value) > 0;
        // Release: see the module.
        self.change(word, counted, |value| value - self.one(), Ordering::Release)
    }

    #[inline]
    fn change(
        self,
        word: &AtomicU64,
        may: impl Fn(u64) -> bool,
        change: impl Fn(u64) -> u64,
        order: Ordering,
    ) -> bool {
        // Relaxed: the compare-and-swap decides.
        let mut value = word.load(Ordering::Relaxed);
        while may(value) {
            match word.compare_exchange_weak(value, change(value), order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => value = now,
            }
        }
        false
    }
}
