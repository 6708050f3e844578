//! The number of signals that wait, of all processes, for RLIMIT_SIGPENDING. All users
//! share it.
//!
//! Each core counts up to [`BATCH`] signals by itself, so cores that send signals share no line. The exact
//! number is added up only if it may have come to a limit.

use core::sync::atomic::{AtomicI64, Ordering};

use percore::pin;

use crate::arch;
use crate::arch::per_core::all_cores;

/// A core passes its number on when it is as large as this, or as small below zero.
const BATCH: i64 = 32;

all_cores! {
    /// Relaxed, as the sum: a signal that another core adds meanwhile may be in the number or not.
    static OF_CORES: AtomicI64 = AtomicI64::new(0);
}
static PASSED_ON: AtomicI64 = AtomicI64::new(0);

/// Counts `by` more signals, or fewer.
pub fn add(by: i64) {
    let pin = pin();
    let mine = OF_CORES.mine(&pin);
    let number = mine.fetch_add(by, Ordering::Relaxed) + by;
    if number.abs() >= BATCH {
        mine.fetch_sub(number, Ordering::Relaxed);
        PASSED_ON.fetch_add(number, Ordering::Relaxed);
    }
}

/// Returns whether at least `most` signals wait.
pub fn is_at(most: u64) -> bool {
    let passed_on = PASSED_ON.load(Ordering::Relaxed);
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    if passed_on + BATCH * (arch::cores() as i64) < most {
        return false;
    }
    let here: i64 = OF_CORES.first(arch::cores()).map(|number| number.load(Ordering::Relaxed)).sum();
    passed_on + here >= most
}
