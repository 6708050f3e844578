//! The blocks that a member has kept, so that it finds one of a size at once.
//!
//! They are hints: another member may have made a block ordinary, and its bit stays. So a block that is kept
//! again may have its bit set, and counts once. Handlers of the member come between any two instructions.

use sync::atomic::{AtomicU64, Ordering};

use crate::PAGE;
use crate::block::{SIZES, SLOTS, pages_of};

const WORDS: usize = SLOTS.div_ceil(64);

/// The slots of each size that are kept, and their bytes, which are never too few: they are added before the
/// bit is set, and subtracted after it is cleared.
pub struct Kept {
    slots: [[AtomicU64; WORDS]; SIZES],
    bytes: AtomicU64,
}

impl Kept {
    sync::const_unless_loom! {
        /// Creates one without any.
        pub fn new() -> Self {
            Kept { slots: atomics![atomics![AtomicU64::new(0); WORDS]; SIZES], bytes: AtomicU64::new(0) }
        }
    }

    /// Returns the bytes of all that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Notes a slot of the size with this number.
    pub fn add(&self, size: usize, slot: usize) {
        let (word, bit) = (&self.slots[size][slot / 64], 1 << (slot % 64));
        let bytes = pages_of(size) * PAGE;
        // Before the bit is set: a handler may take the slot at once, and subtract.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            self.subtract(bytes);
        }
    }

    /// Takes a slot of the size with this number.
    pub fn take(&self, size: usize) -> Option<usize> {
        self.slots[size].iter().enumerate().find_map(|(index, word)| {
            loop {
                let bits = word.load(Ordering::Relaxed);
                if bits == 0 {
                    return None;
                }
                let bit = bits.trailing_zeros() as usize;
                // A handler may have taken it.
                if word.fetch_and(!(1 << bit), Ordering::Relaxed) >> bit & 1 != 0 {
                    self.subtract(pages_of(size) * PAGE);
                    return Some(index * 64 + bit);
                }
            }
        })
    }

    /// Subtracts from the bytes. A handler that has made a thread may have forgotten all.
    fn subtract(&self, bytes: u64) {
        let less = |all: u64| Some(all.saturating_sub(bytes));
        let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Forgets all.
    pub fn forget(&self) {
        self.slots.iter().flatten().for_each(|word| word.store(0, Ordering::Relaxed));
        self.bytes.store(0, Ordering::Relaxed);
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_once() {
        let kept = Kept::new();
        kept.add(1, 0);
        kept.add(1, SLOTS - 1);
        kept.add(2, 5);
        assert_eq!(kept.bytes(), 7 * PAGE);
        assert_eq!([kept.take(1), kept.take(1), kept.take(1)], [Some(0), Some(SLOTS - 1), None]);
        assert_eq!((kept.bytes(), kept.take(2), kept.bytes()), (3 * PAGE, Some(5), 0));
    }

    /// Another member has made the block ordinary meanwhile, and its own has mapped the place again.
    #[test]
    fn a_block_that_is_kept_again_counts_once() {
        let kept = Kept::new();
        (0..1000).for_each(|_| kept.add(63, 7));
        assert_eq!(kept.bytes(), 64 * PAGE);
        assert_eq!((kept.take(63), kept.bytes()), (Some(7), 0));
    }

    #[test]
    fn nothing_is_kept_when_all_is_forgotten() {
        let kept = Kept::new();
        kept.add(1, 1);
        kept.forget();
        assert_eq!((kept.bytes(), kept.take(1)), (0, None));
    }
}
