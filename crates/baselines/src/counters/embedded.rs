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

/// The place of a count in its words: `bits` bits from bit `shift` on. The bit above them is 0 in each word.
/// A reference for which there is no room would set it.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedCount {
    shift: u32,
    bits: u32,
}

/// The words that show a page: those that have `value` in the bits of `mask`, which are not the count's.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The bits that say what a word shows.
    pub mask: u64,
    /// Their value in a word that shows the page.
    pub value: u64,
}

/// The value of a word in which a reference has just been counted. If the word has it still when the
/// reference is dropped, which is usual, it need not be read before.
#[derive(Debug)]
#[must_use]
pub struct Taken(u64);

impl EmbeddedCount {
    /// Creates a count of `bits` bits from bit `shift` on.
    ///
    /// # Panics
    /// Panics unless the bits and the one above are in the word.
    pub const fn new(shift: u32, bits: u32) -> Self {
        assert!(bits > 0 && bits < 64 && shift + bits < 64, "the count lies in the word");
        Self { shift, bits }
    }

    const fn one(self) -> u64 {
        1 << self.shift
    }

    const fn overflow(self) -> u64 {
        self.one() << self.bits
    }

    /// The bits of the count, and the one above.
    const fn all(self) -> u64 {
        (self.overflow() << 1).wrapping_sub(self.one())
    }

    /// Returns the count in `value`.
    #[inline]
    pub const fn of(self, value: u64) -> u64 {
        value >> self.shift & ((1 << self.bits) - 1)
    }

    /// Counts a reference in `word` if it shows the page and counts no other, which is usual. Returns the
    /// word's new value if it did.
    #[inline(always)]
    pub fn take_first(self, word: &AtomicU64, shown: Shown) -> Option<Taken> {
        // Relaxed: the compare-and-swap decides.
        let value = word.load(Ordering::Relaxed);
        // Both questions at once. There is room for a first reference.
        if value & (shown.mask | self.all()) != shown.value {
            return None;
        }
        let new = value.wrapping_add(self.one());
        // Relaxed: as in `take`.
        let counted = word.compare_exchange_weak(value, new, Ordering::Relaxed, Ordering::Relaxed);
        counted.is_ok().then_some(Taken(new))
    }

    /// Counts a reference in `word` if it shows the page and there is room. Returns the word's new value if
    /// it did.
    pub fn take(self, word: &AtomicU64, shown: Shown) -> Option<Taken> {
        // Relaxed: the compare-and-swap decides.
        let mut value = word.load(Ordering::Relaxed);
        loop {
            let new = value.wrapping_add(self.one());
            // Both questions at once: a full count would have gone into the bit above.
            if new & (shown.mask | self.overflow()) != shown.value {
                return None;
            }
            // Relaxed: the host orders the first use of the page, and 3 the question.
            match word.compare_exchange_weak(value, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Taken(new)),
                Err(now) => value = now,
            }
        }
    }

    /// Drops a reference that was `taken` from `word`, if the word shows the page still or again and has one.
    /// Returns whether it did.
    #[inline(always)]
    pub fn leave(self, word: &AtomicU64, taken: &Taken, shown: Shown) -> bool {
        // The value shows the page and has a reference, so this is the step of `leave_from` without the look.
        // Release: see the module.
        match word.compare_exchange(taken.0, taken.0 - self.one(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => true,
            Err(now) => self.leave_from(word, now, shown),
        }
    }

    #[inline(never)]
    fn leave_from(self, word: &AtomicU64, mut value: u64, shown: Shown) -> bool {
        while value & shown.mask == shown.value && self.of(value) > 0 {
            // Release: see the module.
            match word.compare_exchange_weak(value, value - self.one(), Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => value = now,
            }
        }
        false
    }
}
