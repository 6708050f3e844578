//! QEMU's clock, where this library is preloaded.

use std::ffi::c_int;

use super::METER;
use crate::host::{self, Timespec};

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
