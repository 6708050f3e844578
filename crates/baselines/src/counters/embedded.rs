//! LODIC's local counter: a few bits of a word that says something else.
//!
//! After Park, Hwang, Choi, Min and Won (LODIC: Logical Distributed Counting for Scalable File Access, ATC
//! 2021, sections 4.3 to 4.5). Their word is the entry of a page in the page table of the process that reads
//! it. The entry's owner writes the rest of the word: it shows a page of a file, no page, or another page.
//!
//! ```text
//!    reader: take       the word shows the page, and has room        count + 1     or else  shared + 1
//!    reader: leave      the word shows the page, and is not 0        count - 1     or else  shared - 1
//!    owner:  replace    shared + the word's count      then          word := new, with count 0
//!                                                                    if the word has changed: again
//! ```
//!
//! | word | may become | by |
//! |---|---|---|
//! | shows the page, count n | n + 1, n - 1 | readers, by compare-and-swap |
//! | shows the page, count n | anything, count 0 | the owner, by compare-and-swap, before which it adds n to the shared count |
//! | shows the page, count n | n - 1 | the holder of a reference that moves it ([`move_one`](EmbeddedCount::move_one)), as the owner does |
//! | anything else | shows the page, count 0 | the owner |
//!
//! 1. The counts in all words and the shared count add up to the number of references, and those that an
//!    owner counts twice between its two steps. A reference may be dropped wherever there is a count. So a
//!    count may change its home between the two, which the paper has too.
//! 2. The owner adds a count to the shared one before it takes it from the word. So no reference is in
//!    neither, and none is dropped from the shared count before it was added there: that is never below zero.
//! 3. Counts move from the words to the shared one, and never back. So a look at the words first and at the
//!    shared count last finds each reference that stays meanwhile.
//! 4. The count is *asked* when no word shows the page, no owner is between its two steps, and no reference
//!    is taken any more. Then the shared count is the number of references. The paper asks while words show
//!    the page, which `queried.rs` does by 3.
//!
//! Orderings: `leave` is Release. Its partners are the Acquire of the owner's compare-and-swap, which is
//! ordered before the question, and the Acquire of the question if the reference was dropped from the shared
//! count. The owner's compare-and-swap is Release too: a reader that finds the new word, by the Acquire of a
//! look or of a `leave` that fails, finds the count that it added, and drops a reference from the shared
//! count after that (2).

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

    /// Returns the count in `word`, for a question while references are taken (`queried.rs`).
    pub fn look(self, word: &AtomicU64, shown: Shown) -> u64 {
        // Acquire: see the module.
        let value = word.load(Ordering::Acquire);
        if value & shown.mask == shown.value { self.of(value) } else { 0 }
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
            // Relaxed: the host orders the first use of the page, and the question is asked after all that
            // (4), or after a fence (`queried.rs`).
            match word.compare_exchange_weak(value, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Taken(new)),
                Err(now) => value = now,
            }
        }
    }

    /// Puts `new`, which counts nothing, into a word of which the caller is the owner, and returns what was
    /// there. `add` adds to the shared count of the page that the value shows, or takes back, before the word
    /// changes.
    pub fn replace(self, word: &AtomicU64, new: u64, mut add: impl FnMut(u64, i64)) -> u64 {
        let (mut old, mut added) = (word.load(Ordering::Relaxed), 0);
        loop {
            let count = self.of(old) as i64;
            if count != added {
                add(old, count - added);
                added = count;
            }
            // AcqRel: see the module. A core that finds the new word also sees what it leads to.
            match word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return old,
                Err(now) => old = now,
            }
        }
    }

    /// Drops a reference that was `taken` from `word`, if the word shows the page still or again and has one.
    /// Returns whether it did.
    #[inline(always)]
    pub fn leave(self, word: &AtomicU64, taken: &Taken, shown: Shown) -> bool {
        // The value shows the page and has a reference, so this is the step of `leave_from` without the look.
        // Release, and Acquire if it fails: see the module.
        match word.compare_exchange(taken.0, taken.0 - self.one(), Ordering::Release, Ordering::Acquire) {
            Ok(_) => true,
            Err(now) => self.leave_from(word, now, shown),
        }
    }

    /// Moves a reference from `word`, if it shows the page and has one, to the shared count, to which `add`
    /// adds, or from which it takes back.
    pub fn move_one(self, word: &AtomicU64, shown: Shown, mut add: impl FnMut(i64)) {
        let value = word.load(Ordering::Relaxed);
        if value & shown.mask != shown.value || self.of(value) == 0 {
            return;
        }
        add(1);
        if !self.leave_from(word, value, shown) {
            add(-1);
        }
    }

    #[inline(never)]
    fn leave_from(self, word: &AtomicU64, mut value: u64, shown: Shown) -> bool {
        while value & shown.mask == shown.value && self.of(value) > 0 {
            // Release, and Acquire if it fails: see the module.
            match word.compare_exchange_weak(value, value - self.one(), Ordering::Release, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(now) => value = now,
            }
        }
        false
    }
}
