//! The processor's privileged instructions, one function each.

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};

/// The model-specific registers that the kernel uses.
pub mod msr {
    pub const TSC: u32 = 0x10;
    pub const APIC_BASE: u32 = 0x1b;
    pub const EFER: u32 = 0xc000_0080;
    pub const STAR: u32 = 0xc000_0081;
    pub const LSTAR: u32 = 0xc000_0082;
    pub const SFMASK: u32 = 0xc000_0084;
    pub const FS_BASE: u32 = 0xc000_0100;
    pub const GS_BASE: u32 = 0xc000_0101;
    pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
    pub const TSC_AUX: u32 = 0xc000_0103;
    pub const TSC_DEADLINE: u32 = 0x6e0;
    pub const X2APIC: u32 = 0x800;
}

/// Reads a model-specific register that this CPU has.
#[inline(always)]
pub fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading one of these MSRs changes nothing. A missing one raises #GP, which panics.
    unsafe { asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Makes every store before this visible to all cores before any instruction after it starts.
#[inline(always)]
pub fn finish_stores() {
    // SAFETY: fences only order.
    unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) };
}

/// Writes a model-specific register.
///
/// # Safety
/// The value must keep the machine as the rest of the kernel expects it.
#[inline(always)]
pub unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack))
    };
}

/// Reads a byte from an I/O port.
///
/// # Safety
/// Reading the port must have no effect that another part of the kernel does not expect.
#[inline(always)]
pub unsafe fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: the caller's promise.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack)) };
    value
}

/// Writes a byte to an I/O port.
///
/// # Safety
/// The device must do nothing to memory or CPU state that the kernel does not expect.
#[inline(always)]
pub unsafe fn out8(port: u16, value: u8) {
    // SAFETY: the caller's promise.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack)) };
}

/// Reads four bytes from an I/O port.
///
/// # Safety
/// As for [`in8`].
pub unsafe fn in32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: the caller's promise.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack)) };
    value
}

/// Writes four bytes to an I/O port.
///
/// # Safety
/// As for [`out8`].
pub unsafe fn out32(port: u16, value: u32) {
    // SAFETY: the caller's promise.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack)) };
}

/// Reads CR2, the address of the last page fault.
#[inline(always)]
pub fn cr2() -> u64 {
    let value: u64;
    // SAFETY: reading a control register changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack)) };
    value
}

/// Reads CR3: the physical address of the top page table.
#[inline(always)]
pub fn cr3() -> u64 {
    let value: u64;
    // SAFETY: reading a control register changes nothing.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack)) };
    value
}

/// Loads CR3, which also drops every non-global translation from the TLB: all of them, or those of the PCID
/// in `root`, or none, if bit 63 is set.
///
/// # Safety
/// `root` must be a top page table whose kernel half is the kernel's.
#[inline(always)]
pub unsafe fn set_cr3(root: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack)) };
}

/// CR4: pages may be global, and then stay in the TLB when CR3 is loaded.
pub const GLOBAL_PAGES: u64 = 1 << 7;

/// Reads CR4.
pub fn cr4() -> u64 {
    let value: u64;
    // SAFETY: reading a control register changes nothing.
    unsafe { asm!("mov {}, cr4", out(reg) value, options(nomem, nostack)) };
    value
}

/// Loads CR4.
///
/// # Safety
/// The CPU must have every feature that is switched on.
pub unsafe fn set_cr4(value: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack)) };
}

/// Reads CR0.
pub fn cr0() -> u64 {
    let value: u64;
    // SAFETY: reading a control register changes nothing.
    unsafe { asm!("mov {}, cr0", out(reg) value, options(nomem, nostack)) };
    value
}

/// Loads CR0.
///
/// # Safety
/// Paging and protection must stay on.
pub unsafe fn set_cr0(value: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov cr0, {}", in(reg) value, options(nostack)) };
}

/// Drops this core's translations of the page at `address`.
#[inline(always)]
pub fn flush_page(address: u64) {
    // SAFETY: dropping a cached translation is always allowed.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack)) };
}

/// Drops all of this core's translations, those of global pages too.
pub fn flush_all() {
    let now = cr4();
    // Changing the bit flushes. An interrupt in between that does the same leaves it as it was.
    // SAFETY: every CPU has global pages, and all else stays.
    unsafe {
        set_cr4(now ^ GLOBAL_PAGES);
        set_cr4(now);
    }
}

/// Reads the time stamp counter.
#[inline(always)]
pub fn tsc() -> u64 {
    // SAFETY: reading the counter changes nothing.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the CPU's answer to CPUID.
pub fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    __cpuid_count(leaf, subleaf)
}

/// Returns the CPU's answer to CPUID, or zeroes if it does not know the leaf.
pub fn cpuid_if_known(leaf: u32, subleaf: u32) -> CpuidResult {
    let known = cpuid(leaf & 0xc000_0000, 0).eax;
    if leaf <= known { cpuid(leaf, subleaf) } else { CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 } }
}
