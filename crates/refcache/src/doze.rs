//! The place in the epochs of a core that dozes.
//!
//! A core that goes offline and comes back writes the barrier twice, and every other core reads it there. A core that may be back
//! soon *dozes* instead: it flushes, puts what it has in the epochs (its place in the barrier, and its review queue) on
//! its seat, and is offline, as far as it can tell itself. Back online, it takes that from its seat again, and the
//! barrier knows nothing of all this. An epoch that waits for the core is another's to see to: who has ticked, and finds the
//! epoch where it was at the next tick, takes what lies on the seats and goes offline in their owners' names.
//!
//! ```text
//!             doze (the owner)              take (anybody)
//!      FREE -------------------> PARKED -------------------------> TAKEN
//!        ^                                                         |   the owner: it is online again
//!        +---------------------------------------------------------+   another: it gives the queue to the orphans
//!                         free (who took it)                           and leaves the barrier
//! ```
//!
//! 1. Whoever took it has it alone. PARKED is stored with Release and taken with Acquire, so what the core did before it
//!    dozed is before what is done in its name.
//! 2. A core that finds another's hand on its seat joins the barrier anew. For the barrier these are two cores: one
//!    that leaves, after its last flush, and one that comes, with nothing cached.
//! 3. A core dozes on a free seat only.

use sync::UnsafeCell;
use sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::review::Queue;

const FREE: u8 = 0;
const PARKED: u8 = 1;
const TAKEN: u8 = 2;

/// What a core has in the epochs.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    pub(crate) queue: Queue,
    /// The last epoch in which the core told the barrier that it has flushed.
    pub(crate) flushed: u64,
}

#[derive(Debug)]
pub(crate) struct DozeSlot {
    word: AtomicU8,
    /// Length of the queue that was left here. Whoever finds 0 because the queue has become orphans finds those: Release
    /// in `free`, Acquire in `waiting`.
    waiting: AtomicUsize,
    parked: UnsafeCell<Parked>,
}

// SAFETY: `place` is its core's while the word is FREE, and belongs to the one who took it from PARKED to TAKEN. A `Parked` may be
// sent.
unsafe impl Sync for DozeSlot {}

impl DozeSlot {
    pub(crate) fn new() -> Self {
        let parked = UnsafeCell::new(Parked::default());
        Self { word: AtomicU8::new(FREE), waiting: AtomicUsize::new(0), parked }
    }

    /// Whether the owner may doze. Acquire: partner of the Release in `free`.
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == FREE
    }

    /// Leaves a place on the seat.
    ///
    /// # Safety
    /// The caller is the owner, and has found the seat free.
    pub(crate) unsafe fn park(&self, parked: Parked) {
        // Relaxed: after this the core shows that its own queue is empty, by a Release.
        self.waiting.store(parked.queue.len(), Ordering::Relaxed);
        // SAFETY: a free seat's place is the owner's.
        self.parked.with_mut(|slot| unsafe { *slot = parked });
        self.word.store(PARKED, Ordering::Release);
    }

    /// Whether something lies here. Relaxed: a hint.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.word.load(Ordering::Relaxed) == PARKED
    }

    /// Takes what lies here, if anything does. The caller then calls [`free`](Self::free).
    #[inline]
    pub(crate) fn take(&self) -> Option<Parked> {
        let taken = self.is_parked()
            && self.word.compare_exchange(PARKED, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // SAFETY: this flow has turned PARKED into TAKEN, so it is alone here until it frees the seat.
        taken.then(|| self.parked.with_mut(|parked| unsafe { core::mem::take(&mut *parked) }))
    }

    /// The seat is the owner's again. What was taken is shown elsewhere by now.
    pub(crate) fn free(&self) {
        self.waiting.store(0, Ordering::Release);
        self.word.store(FREE, Ordering::Release);
    }

    /// Length of the queue that lies here.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}
