//! A lock in one bit of a word whose other bits belong to the data: the radix map's slot lock.

use crate::atomic::{AtomicU64, Ordering};

/// Sets `bit` if it was clear, and returns the word as it was before, or `Err(word)` if the bit was already
/// set.
///
/// Acquire on success: pairs with the Release of [`unlock_bit`].
#[inline(always)]
pub fn try_lock_bit(word: &AtomicU64, bit: u64) -> Result<u64, u64> {
    let seen = word.load(Ordering::Relaxed);
    if seen & bit != 0 {
        return Err(seen);
    }
    word.compare_exchange(seen, seen | bit, Ordering::Acquire, Ordering::Relaxed)
}

/// Spins until the caller has set `bit`, calling `relax` once a turn. Returns the word without the bit.
#[inline]
pub fn lock_bit(word: &AtomicU64, bit: u64, mut relax: impl FnMut()) -> u64 {
    loop {
        match try_lock_bit(word, bit) {
            Ok(seen) => return seen,
            Err(_) => relax(),
        }
    }
}

/// Clears `bit`. Release: everything written under the lock is seen by the next [`try_lock_bit`].
#[inline(always)]
pub fn unlock_bit(word: &AtomicU64, bit: u64) {
    word.fetch_and(!bit, Ordering::Release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_lock_leaves_the_other_bits_alone() {
        let word = AtomicU64::new(0b1010);
        assert_eq!(try_lock_bit(&word, 1), Ok(0b1010));
        assert_eq!(try_lock_bit(&word, 1), Err(0b1011));
        word.fetch_or(0b100, Ordering::Relaxed);
        unlock_bit(&word, 1);
        assert_eq!(lock_bit(&word, 1, || unreachable!("the lock is free")), 0b1110);
    }
}
