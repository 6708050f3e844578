//! The end of the machine.

use super::cpu::out8;
use super::{interrupts, uart};

/// QEMU's `isa-debug-exit` device: writing `code` makes QEMU exit with `code * 2 + 1`.
const DEBUG_EXIT: u16 = 0xf4;
/// Bochs' port for the same: it ends when it has read the word.
const BOCHS_EXIT: (u16, &[u8]) = (0x8900, b"Shutdown");

/// Ends the machine; halts for ever where there is no such device.
pub fn exit(code: u8) -> ! {
    interrupts::disable();
    // What lies in a port when QEMU exits is lost.
    uart::flush();
    // SAFETY: the devices end the machine, which is what was asked for; one that is not there hears nothing.
    unsafe {
        out8(DEBUG_EXIT, code);
        BOCHS_EXIT.1.iter().for_each(|&byte| out8(BOCHS_EXIT.0, byte));
    }
    loop {
        // SAFETY: interrupts are off; nothing happens any more.
        unsafe { core::arch::asm!("hlt", options(nomem, nostack)) };
    }
}
