//! Memory that runs out when a test says so: the N-th allocation from now on fails, and some that follow it. Every frame
//! that is asked for counts, and every object of the heap, but not what the first process asks for: it watches the others.
//!
//! After one failure alone the kernel looks for memory and finds some; after many in a row it must give up, and undo.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use percore::{AllCores, MAX_CORES, pin};
use sync::CachePadded;

use crate::{arch, process};

/// Allocations until the last one that fails; 0: none is counted. Relaxed everywhere: a test knows when it asks.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// How many of them fail, at the end.
static FAILURES: AtomicU64 = AtomicU64::new(0);
/// How many have failed since the last plan.
static FAILED: AtomicU64 = AtomicU64::new(0);
/// Cores that allocate what they have made sure of. Each core's own.
static SPARED: AllCores<AtomicBool> =
    AllCores::new([const { CachePadded::new(AtomicBool::new(false)) }; MAX_CORES]);

/// The `first` allocation from now on fails, and so many in all; none if `first` is 0.
pub fn plan(first: u64, failures: u64) {
    FAILED.store(0, Ordering::Relaxed);
    FAILURES.store(failures, Ordering::Relaxed);
    LEFT.store(first.checked_sub(1).map_or(0, |before| before.saturating_add(failures)), Ordering::Relaxed);
}

/// How many have failed since.
pub fn failed() -> u64 {
    FAILED.load(Ordering::Relaxed)
}

/// Whether this allocation is to fail.
#[inline(always)]
pub fn strikes() -> bool {
    LEFT.load(Ordering::Relaxed) != 0 && struck()
}

#[cold]
fn struck() -> bool {
    if SPARED.mine(&pin()).load(Ordering::Relaxed) || is_watcher() {
        return false;
    }
    let before = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    let strikes = before.is_ok_and(|left| left <= FAILURES.load(Ordering::Relaxed));
    FAILED.fetch_add(strikes.into(), Ordering::Relaxed);
    strikes
}

fn is_watcher() -> bool {
    arch::with_current(|task| task.process().pid() == process::FIRST).unwrap_or(true)
}

/// Calls `f`, which allocates what was seen to be there: that does not count.
#[inline]
pub fn spared<R>(f: impl FnOnce() -> R) -> R {
    let spared = SPARED.mine(&pin());
    spared.store(true, Ordering::Relaxed);
    let result = f();
    spared.store(false, Ordering::Relaxed);
    result
}
