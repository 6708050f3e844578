//! Weak words: a pointer that does not keep its object alive, and the bit over which the reviewer and the readers race.

use percore::Pinned;
use sync::atomic::{AtomicU64, Ordering};

/// The owner's lock: while it is set, the object is not taken away.
const LOCK: u64 = 1 << 0;

/// Refcache's bit in a [`WeakWord`]: the object's count was zero when last looked at.
pub const DYING: u64 = 1 << 3;

/// A weak reference: a pointer to a counted object (aligned to 64 bytes) and 6 tag bits.
///
/// Bit 3 is [`DYING`]; bits 0, 1, 2, 4 and 5 belong to whoever owns the word, and bit 0, when set, keeps the object from
/// being taken away. While the object lives, the owner changes the word by read-modify-write only and leaves the pointer
/// as it is. When the object dies, the whole word becomes 0.
#[derive(Debug)]
#[repr(transparent)]
pub struct WeakWord(pub AtomicU64);

impl WeakWord {
    /// The word with [`DYING`] cleared, clearing it in memory if it was set: the object, if there is one, is not taken
    /// away while the caller stays pinned. To keep it longer, adjust its count by +1 before unpinning.
    ///
    /// The core must be online, and `tick`, `offline` and `drain` on this core end the protection.
    #[inline(always)]
    pub fn revive(&self, _pin: &Pinned) -> u64 {
        // Acquire pairs with the owner's Release that published the object; the read-modify-writes in between carry it on.
        let word = self.0.load(Ordering::Acquire);
        if word & DYING == 0 { word } else { self.clear_dying(word) }
    }

    #[cold]
    fn clear_dying(&self, mut word: u64) -> u64 {
        while word & DYING != 0 {
            // Acquire as in `revive`.
            match self.0.compare_exchange(word, word & !DYING, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return word & !DYING,
                Err(now) => word = now,
            }
        }
        word
    }

    /// The reviewer marks the object. Relaxed: the epoch barrier carries the mark to readers.
    pub(crate) fn set_dying(&self) {
        self.0.fetch_or(DYING, Ordering::Relaxed);
    }

    /// The reviewer takes the mark back.
    pub(crate) fn unset_dying(&self) {
        self.0.fetch_and(!DYING, Ordering::Relaxed);
    }

    /// The reviewer takes the object away, if it is still marked and not locked by the owner.
    pub(crate) fn kill(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & (DYING | LOCK) == DYING
            // Release pairs with the Acquire of whoever finds the word empty and reuses it.
            && self.0.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
