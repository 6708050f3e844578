//! Looking up in the middle of a long call.
//!
//! Kernel code is not preempted, so whatever takes long is done in pieces of about 10^6 instructions at most, and looks up
//! between two of them, by [`pause`]. Nothing is held then: no lock, nothing that is there only while the caller is pinned.
//! So a call is one step for others only as far as its pieces are.

use sync::{SpinGuard, SpinLock};

use super::{cores, work};
use crate::arch;

/// For a task between two pieces of what it does, which holds no lock: does what this core was asked to do, lets others run
/// if that is due, and returns whether to go on. If not, the task is killed: nobody will see what its call returns.
#[inline]
pub fn pause() -> bool {
    let goes_on = |task: &super::Task| {
        if is_asked() {
            work::give_way();
        }
        !task.is_killed()
    };
    // What the idle flow does is for nobody else to wait for.
    arch::with_current(goes_on).unwrap_or(true)
}

/// Whether this core was asked to look up: [`pause`] is due.
pub fn is_asked() -> bool {
    cores::mine().attention.any()
}

/// Locks what others may have locked while they pause, and lets them run until they have done. The caller holds no lock.
pub fn lock<T>(lock: &SpinLock<T>) -> SpinGuard<'_, T> {
    loop {
        match lock.try_lock() {
            Some(guard) => return guard,
            None => work::give_way(),
        }
    }
}
