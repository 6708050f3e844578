//! Whoever polls sleeps here: one queue for all pipes and for input.
//!
//! Most programs never poll, so a change costs them one look at a counter that nobody writes:
//!
//! ```text
//!   poller:  POLLERS += 1   fence   are they ready?   sleep
//!   changer: change         fence   POLLERS > 0?      wake
//! ```
//! Of the two looks behind the two fences at least one sees the other side, so no change is slept through.

use core::sync::atomic::{AtomicUsize, Ordering, fence};

use abi::Errno;

use crate::sched::WaitQueue;

static POLLERS: AtomicUsize = AtomicUsize::new(0);
static QUEUE: WaitQueue = WaitQueue::new();

/// Sleeps until `ready` gives a value or the deadline passes.
pub fn wait_until<R>(deadline: u64, ready: impl FnMut() -> Option<R>) -> Result<Option<R>, Errno> {
    // Relaxed: the fence orders it before the looks of `ready`; pairs with the fence in `changed`.
    POLLERS.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let outcome = QUEUE.wait_until_or(Some(deadline), ready);
    POLLERS.fetch_sub(1, Ordering::Relaxed);
    outcome
}

/// Something became readable or writable.
pub fn changed() {
    // Pairs with the fence in `wait_until`.
    fence(Ordering::SeqCst);
    if POLLERS.load(Ordering::Relaxed) > 0 {
        QUEUE.wake_all();
    }
}
