//! Pauses in the middle of a long call.
//!
//! Kernel code is not preempted, so long work is done in pieces of about 10^6 instructions at most, with a
//! [`pause`] between two of them. Nothing is held then: no lock, and nothing that exists only while the
//! caller is pinned. So a call is atomic for other tasks only within each piece.

use sync::{SpinGuard, SpinLock};

use super::attention::REAP;
use super::{cores, work};
use crate::arch;

/// Does the work that this core was asked to do, lets other tasks run if that is due, and returns whether to
/// go on. If it returns false, the task is killed, and the result of its call is not used. Called by a task
/// between two pieces of its work, with no lock held.
#[inline]
pub fn pause() -> bool {
    let goes_on = |task: &super::Task| {
        match cores::mine().attention.reasons() {
            0 => {}
            // A task that frees what the core has left would give it up after each piece.
            REAP => work::serve_and_take_turns(),
            _ => work::give_way(),
        }
        !task.is_killed()
    };
    // No other task waits for the work of the idle flow.
    arch::with_current(goes_on).unwrap_or(true)
}

/// Returns whether this core was asked to look up, so that [`pause`] is due.
pub fn is_asked() -> bool {
    cores::mine().attention.any()
}

/// Takes a lock that others may hold while they pause, and lets them run until they release it. The caller
/// holds no lock.
pub fn lock<T>(lock: &SpinLock<T>) -> SpinGuard<'_, T> {
    loop {
        match lock.try_lock() {
            Some(guard) => return guard,
            None => work::give_way(),
        }
    }
}
