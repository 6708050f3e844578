//! The RadixVM kernel.
#![no_std]
#![no_main]

extern crate alloc;

mod arch;
mod control;
mod counters;
mod fs;
mod mm;
mod panic;
mod process;
mod sched;
mod syscall;
