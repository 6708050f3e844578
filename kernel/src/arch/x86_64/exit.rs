//! The end of the machine.

use super::cpu::out8;
use super::{interrupts, uart};

/// QEMU's `isa-debug-exit` device: writing `code` makes QEMU exit with `code * 2 + 1`.
const DEBUG_EXIT: u16 = 0xf4;
/// Bochs' port for the same: it ends when it has read the word.
const BOCHS_EXIT: (u16, &[u8]) = (0x8900, b"Shutdown");

/// Ends the machine, or halts for ever if there is no such device.
pub fn exit(code: u8) -> ! {
    interrupts::disable();
    // Bytes that are still in a port when QEMU exits are lost.
    uart::flush();
    // SAFETY: the devices end the machine, as requested. A write to an absent device has no effect.
    unsafe {
        out8(DEBUG_EXIT, code);
        BOCHS_EXIT.1.iter().for_each(|&byte| out8(BOCHS_EXIT.0, byte));
    }
    loop {
        // SAFETY: interrupts are off, and nothing runs on this core any more.
        unsafe { core::arch::asm!("hlt", options(nomem, nostack)) };
    }
}
