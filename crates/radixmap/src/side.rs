//! Second words: a node's side, a frame beside its slots.
//!
//! ```text
//!  node ──▶ slots:  [ main word, tags ]  [ main word, WIDE ]  [ main word ] ...    512 words, always
//!     └───▶ side:   [        -        ]  [   second word   ]  [     -     ] ...    512 words, once somebody needs one
//! ```
//! Most values have no second word, so most nodes have no side. A word of the side belongs to the slot of the same
//! index: the slot's holder reads and writes it, and what it says counts only while the slot is WIDE.
//!
//! | side | who may change it, and to what |
//! |---|---|
//! | none | whoever holds slots of the node and wants second words for them: CAS to a frame of zeroes |
//! | a frame | nobody: it stays until the node is freed |
//!
//! 1. A slot is WIDE only in a node that has a side: the holder made sure of the side (`widen`), or found the slot WIDE,
//!    or the node was born with both.
//! 2. Holders of different slots may make the side at the same time. One CAS wins; the others free their frames, which
//!    nobody has seen.
//!
//! Orderings. The CAS is Release and each look for the side is Acquire: who finds it sees its words. The words themselves
//! are Relaxed: the slot's lock orders them. `get` and `set` are out of line, so that the paths of values without second
//! words stay short.

use core::ptr::{self, NonNull};

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::OutOfMemory;
use crate::memory::{allocate_words, free};
use crate::node::FANOUT;

/// One word for each slot.
#[repr(align(64))]
struct Words([AtomicU64; FANOUT]);

/// Where the second words are; 0: there are none.
#[derive(Debug)]
pub(crate) struct Side(AtomicUsize);

impl Side {
    pub fn none() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Makes sure that there is a side. A new one says `second` for every slot.
    pub fn ensure(&self, second: u64) -> Result<(), OutOfMemory> {
        if self.words().is_some() {
            return Ok(());
        }
        let words = allocate_words::<Words, _>(|_| AtomicU64::new(second))?;
        let address = words.as_ptr().expose_provenance();
        // Release: pairs with the Acquire in `words`. Relaxed: who lost looks again.
        if self.0.compare_exchange(0, address, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: from `allocate_words`, and nobody has seen it.
            unsafe { free(words) };
        }
        Ok(())
    }

    /// The second word of slot `index`, which the caller holds and which is WIDE. Relaxed: the lock orders it.
    #[inline(never)]
    pub fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    /// Stores the second word of slot `index`, which the caller holds, having made sure of the side. Relaxed: the
    /// unlock publishes.
    #[inline(never)]
    pub fn set(&self, index: usize, second: u64) {
        self.word(index).store(second, Ordering::Relaxed);
    }

    /// Where it is, if there is one.
    pub fn address(&self) -> Option<usize> {
        self.words().map(|words| words.addr().get())
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        let words = self.words().expect("a second word in a range that was not widened for it");
        // SAFETY: published by `ensure`, initialised; it stays as long as the node does.
        unsafe { &words.as_ref().0[index] }
    }

    fn words(&self) -> Option<NonNull<Words>> {
        // Acquire: pairs with the Release in `ensure`.
        NonNull::new(ptr::with_exposed_provenance_mut(self.0.load(Ordering::Acquire)))
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nobody uses the node any more.
    pub unsafe fn discard(&self) {
        if let Some(words) = self.words() {
            // SAFETY: from `allocate_words`; the caller vouches for the rest.
            unsafe { free(words) }
        }
    }
}
