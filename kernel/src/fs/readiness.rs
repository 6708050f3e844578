//! The wait queue of `poll`: one for all pipes and for input.
//!
//! Most programs never poll, so a change costs them one load of a counter that is then never written:
//!
//! ```text
//!   poller:  POLLERS += 1   fence   are they ready?   sleep
//!   changer: change         fence   POLLERS > 0?      wake
//! ```
//! At least one of the two looks behind the two fences sees the other side, so no poller sleeps through a
//! change.

use core::sync::atomic::{AtomicUsize, Ordering, fence};

use abi::Errno;

use crate::sched::WaitQueue;

static POLLERS: AtomicUsize = AtomicUsize::new(0);
static QUEUE: WaitQueue = WaitQueue::new();

/// Sleeps until `ready` returns a value or the deadline (nanoseconds since boot) passes, then returns `None`.
pub fn wait_until<R>(deadline: u64, ready: impl FnMut() -> Option<R>) -> Result<Option<R>, Errno> {
    // Relaxed: the fence orders it before the calls of `ready`. Pairs with the fence in `changed`.
    POLLERS.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let outcome = QUEUE.wait_until_or(Some(deadline), ready);
    POLLERS.fetch_sub(1, Ordering::Relaxed);
    outcome
}

/// Wakes the pollers. A file has become readable or writable.
pub fn changed() {
    // Pairs with the fence in `wait_until`.
    fence(Ordering::SeqCst);
    if POLLERS.load(Ordering::Relaxed) > 0 {
        QUEUE.wake_all();
    }
}
