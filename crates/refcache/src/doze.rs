//! The part of a dozing core that stays in the epochs.
//!
//! A core that goes offline and comes back writes the barrier twice, and every other core reads the barrier.
//! A core that may be back soon *dozes* instead: it flushes, parks its epoch of last flush and its review
//! queue in its doze slot, and treats itself as offline. Back online, it takes both from its slot again, and
//! the barrier has not changed. If an epoch waits for the core, another core resolves that. A core that has
//! ticked, and finds at its next tick that the epoch has not turned, takes the contents of the doze slots and
//! goes offline on behalf of their owners.
//!
//! ```text
//!             doze (the owner)              take (any core)
//!      FREE -------------------> PARKED -----------------------> TAKEN
//!        ^                                                         |   the owner: it is online again
//!        +---------------------------------------------------------+   another: it gives the queue to the orphans
//!                         free (the core that took it)                 and leaves the barrier
//! ```
//!
//! 1. The core that took a slot has its contents alone. PARKED is stored with Release and taken with Acquire,
//!    so everything that the owner did before it dozed happens before everything that is done on its behalf.
//! 2. A core that finds its slot TAKEN by another joins the barrier anew. The barrier sees two cores: one
//!    that leaves after its last flush, and one that comes and has an empty cache.
//! 3. A core dozes only while its slot is FREE.

use sync::UnsafeCell;
use sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::review::Queue;

const FREE: u8 = 0;
const PARKED: u8 = 1;
const TAKEN: u8 = 2;

/// The state that a dozing core leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    pub(crate) queue: Queue,
    /// The last epoch in which the core told the barrier that it has flushed.
    pub(crate) flushed: u64,
}

#[derive(Debug)]
pub(crate) struct DozeSlot {
    word: AtomicU8,
    /// Length of the queue that is parked here. Release in `free`, Acquire in `waiting`: a core that reads 0
    /// because the queue went to the orphans finds the objects there.
    waiting: AtomicUsize,
    parked: UnsafeCell<Parked>,
}

// SAFETY: `parked` belongs to the owner while the word is FREE, and to the core that changed the word from
// PARKED to TAKEN after that. `Parked` is `Send`.
unsafe impl Sync for DozeSlot {}

impl DozeSlot {
    pub(crate) fn new() -> Self {
        let parked = UnsafeCell::new(Parked::default());
        Self { word: AtomicU8::new(FREE), waiting: AtomicUsize::new(0), parked }
    }

    /// Returns whether the owner may doze. Acquire: partner of the Release in `free`.
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == FREE
    }

    /// Parks the owner's state.
    ///
    /// # Safety
    /// The caller is the owner, and has found the slot free.
    pub(crate) unsafe fn park(&self, parked: Parked) {
        // Relaxed: the core then publishes with a Release that its own queue is empty.
        self.waiting.store(parked.queue.len(), Ordering::Relaxed);
        // SAFETY: the contents of a free slot are the owner's.
        self.parked.with_mut(|slot| unsafe { *slot = parked });
        self.word.store(PARKED, Ordering::Release);
    }

    /// Returns whether a state is parked here. Relaxed: a hint.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.word.load(Ordering::Relaxed) == PARKED
    }

    /// Takes the parked state, if there is one. The caller then calls [`free`](Self::free).
    #[inline]
    pub(crate) fn take(&self) -> Option<Parked> {
        let taken = self.is_parked()
            && self.word.compare_exchange(PARKED, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // SAFETY: this call changed PARKED to TAKEN, so it has the contents alone until the slot is freed.
        taken.then(|| self.parked.with_mut(|parked| unsafe { core::mem::take(&mut *parked) }))
    }

    /// Gives the slot back to the owner. The caller has already published the queue's length elsewhere.
    pub(crate) fn free(&self) {
        self.waiting.store(0, Ordering::Release);
        self.word.store(FREE, Ordering::Release);
    }

    /// Returns the length of the parked queue.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}
