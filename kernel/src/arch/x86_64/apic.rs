//! The local APIC (xAPIC through memory, x2APIC through MSRs where the CPU has it) and the I/O APIC's one
//! line.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::cpu::{cpuid_if_known, finish_stores, msr, out8, read_msr, write_msr};
use super::idt;
use super::kernel_map::device;

const ID: u32 = 0x20;
const END_OF_INTERRUPT: u32 = 0xb0;
const SPURIOUS: u32 = 0xf0;
const COMMAND: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const TIMER: u32 = 0x320;
const LINT0: u32 = 0x350;
const LINT1: u32 = 0x360;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;

const MASKED: u32 = 1 << 16;
const TIMER_TSC_DEADLINE: u32 = 2 << 17;
const DELIVER_NMI: u32 = 4 << 8;
const DELIVER_INIT: u32 = 5 << 8;
const DELIVER_STARTUP: u32 = 6 << 8;
const ASSERT: u32 = 1 << 14;
const PENDING: u32 = 1 << 12;

static X2APIC: AtomicBool = AtomicBool::new(false);
/// Physical address of the xAPIC's registers.
static BASE: AtomicU64 = AtomicU64::new(0xfee0_0000);

/// Returns whether the APICs are in the mode with numbers of 32 bits.
#[inline(always)]
pub fn is_x2apic() -> bool {
    // Relaxed: set by the boot core before the others start.
    X2APIC.load(Ordering::Relaxed)
}

fn read(register: u32) -> u32 {
    if is_x2apic() {
        return read_msr(msr::X2APIC + (register >> 4)) as u32;
    }
    // SAFETY: an APIC register, mapped uncached in the physmap.
    unsafe { device::<u32>(BASE.load(Ordering::Relaxed) + u64::from(register)).read_volatile() }
}

#[inline(always)]
fn write(register: u32, value: u32) {
    // SAFETY: an APIC register of this core, with the effect that the callers want.
    unsafe {
        if is_x2apic() {
            write_msr(msr::X2APIC + (register >> 4), u64::from(value));
        } else {
            device::<u32>(BASE.load(Ordering::Relaxed) + u64::from(register)).write_volatile(value);
        }
    }
}

/// Chooses the mode. Called on the boot core, first.
pub fn detect() {
    X2APIC.store(cpuid_if_known(1, 0).ecx & 1 << 21 != 0, Ordering::Relaxed);
    BASE.store(read_msr(msr::APIC_BASE) & 0xf_ffff_f000, Ordering::Relaxed);
    // SAFETY: masks every line of the two legacy interrupt controllers, since the kernel uses the I/O APIC.
    unsafe {
        out8(0x21, 0xff);
        out8(0xa1, 0xff);
    }
}

/// Enables this core's APIC.
pub fn init() {
    let mode = 1 << 11 | u64::from(is_x2apic()) << 10;
    // SAFETY: enables the APIC in the mode that the rest of this file uses.
    unsafe { write_msr(msr::APIC_BASE, read_msr(msr::APIC_BASE) | mode) };
    write(LINT0, MASKED);
    write(LINT1, DELIVER_NMI);
    write(TIMER, MASKED | u32::from(idt::TIMER));
    write(DIVIDE, 0xb); // by 1
    write(SPURIOUS, 1 << 8 | u32::from(idt::SPURIOUS));
}

/// Returns this core's APIC number.
pub fn id() -> u32 {
    if is_x2apic() { read(ID) } else { read(ID) >> 24 }
}

/// Acknowledges the interrupt in service.
#[inline(always)]
pub fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Interrupts the core whose APIC is `apic_id`. Interrupts are off: the xAPIC takes a command in two writes.
#[inline]
pub fn send(apic_id: u32, vector: u8) {
    command(apic_id, u32::from(vector) | ASSERT);
}

fn command(apic_id: u32, low: u32) {
    if is_x2apic() {
        finish_stores(); // what the target is to see: the MSR write waits for no earlier store by itself
        // SAFETY: sends an interrupt that its target handles.
        unsafe { write_msr(msr::X2APIC + (COMMAND >> 4), u64::from(apic_id) << 32 | u64::from(low)) };
        return;
    }
    while read(COMMAND) & PENDING != 0 {
        core::hint::spin_loop();
    }
    write(COMMAND_HIGH, apic_id << 24);
    write(COMMAND, low);
}

/// Resets the core whose APIC is `apic_id`.
pub fn init_core(apic_id: u32) {
    command(apic_id, DELIVER_INIT | ASSERT);
}

/// Starts a core that was reset, at the page-aligned physical address `at` below 1 MiB.
pub fn start_core(apic_id: u32, at: u64) {
    command(apic_id, DELIVER_STARTUP | ASSERT | (at >> 12) as u32);
}

/// Sends a non-maskable interrupt to a core.
pub fn nmi(apic_id: u32) {
    command(apic_id, DELIVER_NMI | ASSERT);
}

/// Starts counting down from `count`, one a bus cycle, without an interrupt at the end: for calibration.
pub fn count_down_silently(count: u32) {
    write(TIMER, MASKED | u32::from(idt::TIMER));
    write(INITIAL_COUNT, count);
}

/// Returns the rest of the count.
pub fn count_left() -> u32 {
    read(CURRENT_COUNT)
}

/// Requests one timer interrupt after `count` bus cycles, or none if 0.
pub fn one_shot(count: u32) {
    write(TIMER, u32::from(idt::TIMER));
    write(INITIAL_COUNT, count);
}

/// Lets the timer ring at values of the TSC_DEADLINE register.
pub fn use_tsc_deadline() {
    write(TIMER, TIMER_TSC_DEADLINE | u32::from(idt::TIMER));
}

/// Sends line `line` of the I/O APIC at `base` to the core whose APIC is `apic_id`, as `vector`.
pub fn route(base: u64, line: u32, vector: u8, apic_id: u32) {
    let set = |register: u32, value: u32| {
        let select = device::<u32>(base);
        // SAFETY: the I/O APIC's select and window registers, which only the boot core accesses.
        unsafe {
            select.write_volatile(register);
            select.add(4).write_volatile(value);
        }
    };
    set(0x10 + 2 * line + 1, apic_id << 24);
    set(0x10 + 2 * line, u32::from(vector));
}
