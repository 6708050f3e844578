//! The shared part of LODIC's count, and the paper's question: is the sum of it and of all words zero *now*,
//! while references are taken and dropped?
//!
//! The paper (Park, Hwang, Choi, Min and Won, LODIC, ATC 2021, section 4.5) sums the counts, and stops at the
//! first that is not zero. A flag holds all updates off meanwhile. The words are those of `embedded.rs`.
//!
//! ```text
//!   a core that asks                          a core that takes a reference
//!   ────────────────                          ─────────────────────────────
//!   A1  flag := set                           T1  count it, in a word or here
//!   A2  fence                                 T2  fence
//!   A3  look at the words: a count? → held    T3  while the flag is set: wait
//!   A4  look at the shared part: the same         use the page
//!   A5  act on the answer
//!   A6  flag := clear
//! ```
//!
//! 1. One core asks at a time. Another one gets no [`Question`].
//! 2. A reference that A3 and A4 miss was counted (T1) after they had looked. Then T2 came after A2, and T3
//!    finds the flag. So it waits until A6, and the page is not used between A4 and A6 if both find nothing.
//! 3. A reference that was counted before is found. It is in a word or in the shared part at each moment,
//!    moves from words to the shared part only (`embedded.rs`, 2 and 3), and is dropped by its holder only. A
//!    reference that waits is not dropped, so it takes away nothing that is looked for.
//! 4. A reference may be counted twice while its word is replaced, and one that waits may be found. Then the
//!    answer is *held*, though no one uses the page. The paper's answer is of the same kind: the core that
//!    asked tries again later. A reader that waits has counted itself, so every later question ends at once.
//!
//! The paper holds drops off, too. They may go on here: they only make the answer *held* too careful.
//!
//! Orderings: A2 and T2 are partners. The drop of a reference is Release, its partner the Acquire of A4, or
//! of the look at the word. A6 is Release, its partners are the Acquire of T3 and the fence of the next A2:
//! a reader that waited, or the core that asks next, finds what was done.

use sync::atomic::{AtomicU64, Ordering, fence};
use sync::spin_loop;

/// Set while someone asks.
const ASKED: u64 = 1 << 63;

/// The references to a page that are counted in no word.
#[derive(Debug)]
#[repr(transparent)]
pub struct SharedPart(AtomicU64);

/// A question about a page. References that are taken meanwhile wait until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Question<'p>(&'p SharedPart);

impl SharedPart {
    /// Creates one without references.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the word, which the owner of a page may use while no other core does.
    pub fn word(&self) -> &AtomicU64 {
        &self.0
    }

    /// Counts a reference here.
    #[inline(always)]
    pub fn take(&self) {
        // Relaxed: the host orders the first use of the page, or `wait` does.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops a reference that was counted here.
    #[inline(always)]
    pub fn leave(&self) {
        // Release: see the module.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Adds references that are in a word, or takes them back.
    #[inline]
    pub fn add(&self, references: i64) {
        // Relaxed: the owner's next step at the word is Release.
        self.0.fetch_add(references as u64, Ordering::Relaxed);
    }

    /// Returns the number of references that are counted here.
    #[inline]
    pub fn count(&self) -> u64 {
        // Acquire: see the module.
        self.0.load(Ordering::Acquire) & !ASKED
    }

    /// Waits until no one asks, for a caller that has just counted its reference and has not used the page.
    /// It is needed only where questions are asked while references are taken.
    pub fn wait(&self) {
        fence(Ordering::SeqCst); // T2, partner of A2
        while self.0.load(Ordering::Acquire) & ASKED != 0 {
            spin_loop();
        }
    }

    /// Begins a question, unless another one is not over.
    pub fn ask(&self) -> Option<Question<'_>> {
        // Relaxed: the fence orders, also after the Release with which another question ended.
        let is_first = self.0.fetch_or(ASKED, Ordering::Relaxed) & ASKED == 0;
        fence(Ordering::SeqCst); // A2, partner of T2
        // Not `then_some`: to drop a question clears the flag.
        is_first.then(|| Question(self))
    }
}

impl Default for SharedPart {
    fn default() -> Self {
        Self::new()
    }
}

impl Question<'_> {
    /// Returns whether the page has references in the shared part. The last call, which decides, comes after
    /// the words were looked at.
    pub fn is_held(&self) -> bool {
        self.0.count() != 0
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        // Release: see the module.
        self.0.0.fetch_and(!ASKED, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_question_finds_what_is_counted_and_counts_nothing() {
        let part = SharedPart::new();
        assert!(!part.ask().unwrap().is_held());
        part.take();
        let question = part.ask().unwrap();
        assert!(question.is_held() && part.ask().is_none() && part.count() == 1);
        part.leave();
        assert!(!question.is_held());
        drop(question);
        part.wait();
        assert_eq!(part.word().load(Ordering::Relaxed), 0);
    }
}
