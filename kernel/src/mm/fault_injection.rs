//! Fault injection: the N-th allocation from now on fails, and some that follow it. Every frame and every
//! object of the heap counts, but not what the first process asks for, which watches the others.
//!
//! After a single failure the kernel reclaims and finds memory. After many in a row it must fail the call and
//! undo its steps.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use percore::pin;

use super::Watcher;
use crate::above::Above;
use crate::arch::per_core::all_cores;

/// Allocations until the last one that fails, or 0 if none is counted. Relaxed everywhere: a test knows when
/// it asks.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// Number of allocations that fail, at the end.
static FAILURES: AtomicU64 = AtomicU64::new(0);
/// Number of allocations that have failed since the last plan.
static FAILED: AtomicU64 = AtomicU64::new(0);

all_cores! {
    /// Cores on which fault injection is off. Only the core itself accesses its entry.
    static WITHOUT_FAULTS: AtomicBool = AtomicBool::new(false);
}

/// Makes the `first` allocation from now on fail, and `failures` in all, or none if `first` is 0.
pub fn plan(first: u64, failures: u64) {
    FAILED.store(0, Ordering::Relaxed);
    FAILURES.store(failures, Ordering::Relaxed);
    LEFT.store(first.checked_sub(1).map_or(0, |before| before.saturating_add(failures)), Ordering::Relaxed);
}

/// Returns how many have failed since the last plan.
pub fn failed() -> u64 {
    FAILED.load(Ordering::Relaxed)
}

/// Returns whether this allocation is to fail.
#[inline(always)]
pub fn should_fail() -> bool {
    LEFT.load(Ordering::Relaxed) != 0 && is_planned()
}

#[cold]
fn is_planned() -> bool {
    if WITHOUT_FAULTS.mine(&pin()).load(Ordering::Relaxed) || Above::is_watcher() != Some(false) {
        return false;
    }
    let before = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    let fails = before.is_ok_and(|left| left <= FAILURES.load(Ordering::Relaxed));
    FAILED.fetch_add(fails.into(), Ordering::Relaxed);
    fails
}

/// Runs `f` with fault injection off: its allocations were already checked to succeed.
#[inline]
pub fn without_faults<R>(f: impl FnOnce() -> R) -> R {
    let off = WITHOUT_FAULTS.mine(&pin());
    off.store(true, Ordering::Relaxed);
    let result = f();
    off.store(false, Ordering::Relaxed);
    result
}
