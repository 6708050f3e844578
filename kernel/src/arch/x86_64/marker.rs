//! Markers for the contention meter (see [`abi::marker`]): no-operations, always executed.

use core::arch::asm;

use abi::marker::{RUN, STOP, displacement};

/// The marker of an operation.
macro_rules! say {
    ($operation:ident) => {
        // SAFETY: a no-operation. Memory counts as clobbered: nothing moves across.
        unsafe {
            asm!(".byte 0x0f, 0x1f, 0x80", ".long {}", const displacement($operation, 0),
                options(nostack, preserves_flags))
        }
    };
}

/// Marks the start of the program.
pub fn run() {
    say!(RUN);
}

/// Marks the end of the program, whose objects still exist.
pub fn stop() {
    say!(STOP);
}
