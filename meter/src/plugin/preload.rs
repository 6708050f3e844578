//! Wrappers of C library functions that QEMU calls where this library is preloaded: the clock, and the sleep
//! and wake of idle CPUs' threads.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use super::METER;
use crate::host::{self, Timespec};

thread_local! {
    /// The CPU of this thread, between the callback that says that it idles and the sleep.
    static SLEEPS_NEXT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Records that this thread is about to sleep because `cpu` idles.
pub fn sleeps_next(cpu: usize) {
    SLEEPS_NEXT.set(Some(cpu));
}

/// Replaces the C library's function where this library is preloaded. QEMU's timers follow it.
///
/// # Safety
/// The same as for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, into: *mut Timespec) -> c_int {
    let virtual_time = || METER.get().filter(|_| clock == host::MONOTONIC)?.time();
    match virtual_time() {
        Some(time) => {
            // SAFETY: the caller's promise.
            unsafe { into.write(Timespec::from_nanoseconds(time)) };
            0
        }
        // SAFETY: as above.
        None => unsafe { host::real_clock(clock, into) },
    }
}

/// Replaces the C library's function. The first call after a CPU's callback tells where its thread sleeps.
///
/// # Safety
/// The same as for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int {
    if let Some(meter) = METER.get() {
        if let Some(cpu) = SLEEPS_NEXT.take() {
            meter.cpus[cpu].set_bed(condition as u64);
        }
        meter.sleep(condition as u64);
    }
    // SAFETY: the caller's promise.
    unsafe { host::real_condition_wait(condition, mutex) }
}

/// Replaces the C library's function. A CPU that is woken is inside at once.
///
/// # Safety
/// The same as for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: *mut c_void) -> c_int {
    if let Some(meter) = METER.get() {
        meter.wake(condition as u64);
    }
    // SAFETY: the caller's promise.
    unsafe { host::real_condition_broadcast(condition) }
}
