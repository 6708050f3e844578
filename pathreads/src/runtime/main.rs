//! The runtime: `pathreads [--] PROG ARGS` loads a program into its own process and intercepts the
//! program's system calls.
//!
//! It has no libc and no thread-local data. Its code is compiled without vector registers, so a
//! program's are never touched. Its state between calls is in a few atomics. [The
//! design](../../../docs/design/pathreads.md) has the picture, the invariants and the reasons.
#![no_std]
#![no_main]

mod boot;
mod clone;
mod context;
mod dispatch;
mod entry;
mod exec;
mod image;
mod isolate;
mod patch;
mod pool;
mod program_file;
mod sigaction;
mod spawn;
mod stack;
mod sys;
mod user;

use core::panic::PanicInfo;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    sys::fail(b"an internal error, please report it", 125)
}
