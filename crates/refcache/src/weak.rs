//! Weak words and [`Weak`]: references to objects that do not keep them alive.
//!
//! A reader may find an object whose count is zero and revive it, while the reviewer may release it. They
//! race for one word, and one compare-and-swap decides.
//!
//! | word | set by | meaning |
//! |---|---|---|
//! | pointer | the owner (Release), or a reader's `revive` | the object is there |
//! | pointer, DYING | the core that queued the object | its count was zero, and a reader must clear the mark before it uses the object |
//! | 0, or [`KEPT`] | the reviewer, by CAS from the marked word: `KEPT` stays as it was | gone |
//! | anything | the owner, after [`Header::unname`](crate::Header::unname) | the word names something else, and the object is released without it |
//!
//! Cases, when a reader and the reviewer meet:
//! 1. The reader clears DYING first: the reviewer's CAS finds no mark and fails. The reviewer marks the word
//!    again and waits for two epochs more.
//! 2. The reviewer's CAS is first: the reader finds the object gone.
//! 3. The reader saw the word before it was marked, and is still pinned: then its core has not flushed in the
//!    epoch after the marking, and the review has not begun. This is why a reader need not count a reference
//!    that it reads.

use core::fmt;

use percore::Pinned;
use sync::atomic::{AtomicU64, Ordering};

use crate::object::{Handle, Ref};

/// The owner's lock bit: while it is set, the object is not released.
const LOCK: u64 = 1 << 0;

/// Refcache's bit in a [`WeakWord`]: the object's global count was zero when a core last looked.
pub const DYING: u64 = 1 << 62;

/// The owner's bit in a [`WeakWord`] that stays when the object goes.
pub const KEPT: u64 = 1 << 1;

/// A word that names a counted object. It is 0 when the object is gone, or [`KEPT`] if that bit was set.
///
/// Bit 62 is [`DYING`]. All other bits belong to the owner of the word. Bit 0, while set, keeps the object
/// from being released. While the object lives, the word is not 0, and the owner changes it by
/// read-modify-writes.
#[derive(Debug)]
#[repr(transparent)]
pub struct WeakWord(pub AtomicU64);

impl WeakWord {
    /// Clears [`DYING`] in memory and returns the word. If it is neither 0 nor [`KEPT`], the object is there
    /// as long as the caller has a [`Loan`](crate::Loan) that it took before the call. To keep the object
    /// longer, adjust its count by +1 before the loan ends.
    #[inline(always)]
    pub fn revive(&self, pin: &Pinned) -> u64 {
        // Acquire pairs with the owner's Release that published the object. Read-modify-writes in between
        // continue the release sequence.
        let word = self.0.load(Ordering::Acquire);
        if word & DYING == 0 { word } else { self.win(word, pin) }
    }

    /// Clears the mark before the reviewer takes the object, or returns a word that says it came too late.
    #[cold]
    fn win(&self, mut word: u64, pin: &Pinned) -> u64 {
        while word & DYING != 0 {
            match self.try_revive(word, pin) {
                Ok(revived) => return revived,
                Err(now) => word = now,
            }
        }
        word
    }

    /// Clears the mark of `word`, which the caller read before, if the word has not changed. Meant for owners
    /// that give bit 62 a meaning of their own in words that name no object, because such words must not be
    /// revived.
    ///
    /// # Errors
    /// Returns the word that was found instead.
    #[inline]
    pub fn try_revive(&self, word: u64, _pin: &Pinned) -> Result<u64, u64> {
        let revived = word & !DYING;
        // Acquire: as in `revive`.
        self.0.compare_exchange(word, revived, Ordering::Acquire, Ordering::Acquire).map(|_| revived)
    }

    /// Replaces the word by `change` of it, unless it does not name the object any more. Relaxed: the epoch
    /// barrier orders a mark before every reader that matters, and a reader that does not see a mark being
    /// removed clears it itself.
    pub(crate) fn change_while(&self, names: impl Fn() -> bool, change: impl Fn(u64) -> u64) {
        // Acquire pairs with the Release by which the owner made the word name something else: then `names`
        // returns false. If the owner does so after `names` was called, the word differs, and never becomes
        // what it was again.
        let mut seen = self.0.load(Ordering::Acquire);
        while names() && change(seen) != seen {
            match self.0.compare_exchange_weak(seen, change(seen), Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the object's name away, if the word still names it, is still marked, and is not locked by its
    /// owner. Returns whether it did.
    pub(crate) fn take(&self, names: impl Fn() -> bool) -> bool {
        // Acquire: as in `change_while`.
        let word = self.0.load(Ordering::Acquire);
        // Release pairs with the Acquire of an owner that finds the object gone and publishes another: all
        // accesses to the old one come before. The exchange fails if a bit has changed since the load.
        word & (DYING | LOCK) == DYING
            && names()
            && self.0.compare_exchange(word, word & KEPT, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

/// A reference to the value of a [`Ref`] that does not keep it alive.
pub struct Weak<T>(Handle<T>);

// SAFETY: a `Weak` can make a `Ref`, so it is `Send` under the same condition.
unsafe impl<T: Send + Sync> Send for Weak<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send + Sync> Sync for Weak<T> {}

impl<T> Weak<T> {
    /// Takes over a count of the weak header.
    pub(crate) fn from_counted(handle: Handle<T>) -> Self {
        Self(handle)
    }

    /// Returns a reference to the value, if it is still there. It may be there for some epochs after the last
    /// `Ref` was dropped.
    ///
    /// # Panics
    /// Panics if this thread plays no core, or one that is offline.
    pub fn try_get(&self) -> Option<Ref<T>> {
        let pin = percore::pin();
        let _loan = self.0.domain().loan(&pin);
        self.0.revive(&pin).then(|| {
            // SAFETY: the value is there as long as the loan. This adds one reference, for the `Ref`.
            unsafe { self.0.add_strong(&pin) };
            Ref::from_counted(self.0)
        })
    }
}

impl<T> Clone for Weak<T> {
    /// # Panics
    /// Panics if this thread plays no core, or one that is offline.
    fn clone(&self) -> Self {
        self.0.add_weak(&percore::pin());
        Self(self.0)
    }
}

impl<T> Drop for Weak<T> {
    fn drop(&mut self) {
        // SAFETY: drops the count that this `Weak` has.
        unsafe { self.0.drop_weak() }
    }
}

impl<T> fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Weak)")
    }
}
