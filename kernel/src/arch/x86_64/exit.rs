//! The end of the machine.

use super::cpu::out8;
use super::{interrupts, uart};

/// QEMU's `isa-debug-exit` device: writing `code` makes QEMU exit with `code * 2 + 1`.
const DEBUG_EXIT: u16 = 0xf4;

/// Ends the machine; halts for ever where there is no such device.
pub fn exit(code: u8) -> ! {
    interrupts::disable();
    // What lies in a port when QEMU exits is lost.
    uart::flush();
    // SAFETY: the device ends the machine, which is what was asked for.
    unsafe { out8(DEBUG_EXIT, code) };
    loop {
        // SAFETY: interrupts are off; nothing happens any more.
        unsafe { core::arch::asm!("hlt", options(nomem, nostack)) };
    }
}
