//! The interrupt descriptor table: 256 stubs that push their number and jump to `trap_entry`.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use super::gdt::{IST_DOUBLE_FAULT, IST_MACHINE_CHECK, IST_NMI, KERNEL_CS};

/// Non-maskable interrupt.
pub const NMI: u8 = 2;
/// Double fault.
pub const DOUBLE_FAULT: u8 = 8;
/// Page fault.
pub const PAGE_FAULT: u8 = 14;
/// Machine check.
pub const MACHINE_CHECK: u8 = 18;
/// The first vector that is not an exception.
pub const FIRST_INTERRUPT: u8 = 32;
/// Input on the control port.
pub const CONTROL_INPUT: u8 = 0x30;
/// Packets from the network.
pub const NETWORK: u8 = 0x31;
/// This core's timer.
pub const TIMER: u8 = 0xe0;
/// Another core put a task into this core's run queue.
pub const RESCHEDULE: u8 = 0xe1;
/// Another core requests an invalidation.
pub const SHOOTDOWN: u8 = 0xe2;
/// An interrupt that went away before it was acknowledged.
pub const SPURIOUS: u8 = 0xff;

const VECTORS: usize = 256;
const STUB_BYTES: u64 = 16;

global_asm!(
    r#"
    .section .text
    .align 16
    .global trap_stubs
    trap_stubs:
    .set vector, 0
    .rept 256
        .align 16
        // These exceptions push an error code themselves: 8, 10 to 14, 17, 21, 29, 30.
        .if !((vector < 32) && ((0x60227d00 >> vector) & 1))
        push 0
        .endif
        push vector
        jmp {entry}
        .set vector, vector + 1
    .endr
    // Names for tools that count entries from outside.
    .global stub_page_fault, stub_timer, stub_reschedule, stub_shootdown
    .set stub_page_fault, trap_stubs + {stub} * {page_fault}
    .set stub_timer, trap_stubs + {stub} * {timer}
    .set stub_reschedule, trap_stubs + {stub} * {reschedule}
    .set stub_shootdown, trap_stubs + {stub} * {shootdown}
    "#,
    entry = sym super::entry::trap_entry,
    stub = const STUB_BYTES,
    page_fault = const PAGE_FAULT,
    timer = const TIMER,
    reschedule = const RESCHEDULE,
    shootdown = const SHOOTDOWN,
);

unsafe extern "C" {
    static trap_stubs: u8;
}

#[repr(C, align(4096))]
struct Table(UnsafeCell<[[u64; 2]; VECTORS]>);

// SAFETY: written once by the boot core before any core loads it.
unsafe impl Sync for Table {}

static IDT: Table = Table(UnsafeCell::new([[0; 2]; VECTORS]));

fn gate(vector: usize) -> [u64; 2] {
    let at = (&raw const trap_stubs) as u64 + vector as u64 * STUB_BYTES;
    let stack = match vector as u8 {
        NMI => IST_NMI,
        DOUBLE_FAULT => IST_DOUBLE_FAULT,
        MACHINE_CHECK => IST_MACHINE_CHECK,
        _ => 0,
    };
    // A present interrupt gate. The user may raise breakpoint and overflow.
    let user = if matches!(vector, 3 | 4) { 3 << 45 } else { 0 };
    let low = at & 0xffff | u64::from(KERNEL_CS) << 16 | u64::from(stack) << 32 | 0x8e << 40 | user;
    [low | (at >> 16 & 0xffff) << 48, at >> 32]
}

/// Fills the table in. Once, by the boot core.
pub fn init() {
    // SAFETY: the table has not been loaded yet.
    let table = unsafe { &mut *IDT.0.get() };
    table.iter_mut().enumerate().for_each(|(vector, entry)| *entry = gate(vector));
}

#[repr(C, packed)]
struct TablePointer {
    limit: u16,
    base: u64,
}

/// Makes this core use the table.
pub fn load() {
    let pointer = TablePointer { limit: (size_of::<Table>() - 1) as u16, base: IDT.0.get() as u64 };
    // SAFETY: the table is filled in and lives for ever.
    unsafe { asm!("lidt [{}]", in(reg) &raw const pointer, options(nostack, readonly)) };
}
