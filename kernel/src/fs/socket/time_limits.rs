//! How long the calls of a socket wait (SO_RCVTIMEO, SO_SNDTIMEO).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::sched;

/// The limits of one socket, in nanoseconds, or 0 for none. Relaxed: they apply to calls that begin later.
#[derive(Debug, Default)]
pub struct TimeLimits {
    /// That of calls that receive or accept.
    pub receive: AtomicU64,
    /// That of calls that send or connect.
    pub send: AtomicU64,
}

impl TimeLimits {
    /// Calls `f`, which receives, and lets it wait as long as it may if it may `wait`.
    #[inline]
    pub fn receiving<R>(&self, wait: bool, f: impl FnOnce() -> R) -> R {
        within(&self.receive, wait, f)
    }

    /// Does the same for a call that sends.
    #[inline]
    pub fn sending<R>(&self, wait: bool, f: impl FnOnce() -> R) -> R {
        within(&self.send, wait, f)
    }
}

#[inline]
fn within<R>(limit: &AtomicU64, wait: bool, f: impl FnOnce() -> R) -> R {
    match limit.load(Ordering::Relaxed) {
        ns if wait && ns > 0 => sched::wait_at_most(ns, f),
        _ => f(),
    }
}
