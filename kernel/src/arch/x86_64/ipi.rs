//! Interrupts from core to core.

use core::sync::atomic::{AtomicBool, Ordering};

use percore::CoreId;

use super::{apic, idt, interrupts, percpu};
use crate::counters::{self, Counter};

static STOP: AtomicBool = AtomicBool::new(false);

/// Makes `core` look at its run queue on its way to user mode, or out of its sleep.
pub fn send_reschedule(core: CoreId) {
    send(core, idt::RESCHEDULE);
}

pub(super) fn send_shootdown(core: CoreId) {
    send(core, idt::SHOOTDOWN);
}

fn send(core: CoreId, vector: u8) {
    let _off = interrupts::off();
    if let Some(cpu) = percpu::of(core) {
        counters::bump(Counter::Ipis);
        apic::send(cpu.apic_id(), vector);
    }
}

/// Makes every other core halt for ever, by a non-maskable interrupt.
pub fn stop_other_cores() {
    // Release pairs with the Acquire in `stop_if_told`.
    STOP.store(true, Ordering::Release);
    // A core that has not started yet has no handler either.
    percpu::others().for_each(|cpu| apic::nmi(cpu.apic_id()));
}

/// Handles a non-maskable interrupt. It uses no per-core data, since it may hit between `syscall` and
/// `swapgs`.
pub(super) fn stop_if_told() {
    while STOP.load(Ordering::Acquire) {
        // SAFETY: this core does nothing any more.
        unsafe { core::arch::asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
