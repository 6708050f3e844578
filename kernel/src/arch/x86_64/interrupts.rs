//! This core's interrupt flag.

use core::arch::asm;
use core::marker::PhantomData;

/// Keeps interrupts off until it is dropped, and then restores their former state.
#[derive(Debug)]
pub struct Guard {
    were_on: bool,
    _stays_here: PhantomData<*mut ()>,
}

/// Disables interrupts.
#[inline(always)]
pub fn off() -> Guard {
    let were_on = are_on();
    disable();
    Guard { were_on, _stays_here: PhantomData }
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        if self.were_on {
            enable();
        }
    }
}

/// Returns whether interrupts are on.
#[inline(always)]
pub fn are_on() -> bool {
    let flags: u64;
    // SAFETY: reads the flags through the stack, which `nostack` absent allows.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(nomem, preserves_flags)) };
    flags & 1 << 9 != 0
}

/// Enables interrupts.
#[inline(always)]
pub fn enable() {
    // SAFETY: the kernel's handlers may run wherever interrupts are on. Memory is clobbered: handlers write
    // it.
    unsafe { asm!("sti", options(nostack)) };
}

/// Disables interrupts. Prefer [`off`].
#[inline(always)]
pub fn disable() {
    // SAFETY: fewer interrupts break no promise. Memory is clobbered so that nothing moves across.
    unsafe { asm!("cli", options(nostack)) };
}

/// Sleeps until the core is reset, if interrupts are off.
pub fn halt_for_ever() {
    // SAFETY: waiting changes nothing.
    unsafe { asm!("hlt", options(nomem, nostack)) };
}

/// Sleeps until an interrupt was handled, and returns with interrupts off again.
///
/// The caller has interrupts off and has found nothing to do. `sti` takes effect after the next instruction,
/// so an interrupt that came since the check ends the `hlt` at once.
pub fn halt_until_interrupt() {
    // SAFETY: interrupts may be handled here. They are off again afterwards, as the caller had them.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}
