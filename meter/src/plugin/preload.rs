//! What QEMU asks the C library, where this library is preloaded: the time, and to let idle CPUs' threads sleep and wake.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use super::METER;
use crate::host::{self, Timespec};

thread_local! {
    /// The CPU of this thread, between the callback that says that it idles and the sleep.
    static SLEEPS_NEXT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// This thread is about to sleep because `cpu` idles.
pub fn sleeps_next(cpu: usize) {
    SLEEPS_NEXT.set(Some(cpu));
}

/// Stands in front of the C library's where this library is preloaded: QEMU's timers follow it.
///
/// # Safety
/// As for the C library's.
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

/// Stands in front of the C library's: the first one after a CPU's callback says where its thread sleeps.
///
/// # Safety
/// As for the C library's.
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

/// Stands in front of the C library's: a CPU that is woken is inside at once.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: *mut c_void) -> c_int {
    if let Some(meter) = METER.get() {
        meter.wake(condition as u64);
    }
    // SAFETY: the caller's promise.
    unsafe { host::real_condition_broadcast(condition) }
}
