//! Enables the CPU's protection features.

use core::arch::asm;

use super::cpu::{self, GLOBAL_PAGES, cpuid_if_known, msr, read_msr, set_cr4, write_msr};
use super::{entry, fpu, gdt, user_copy};
use crate::options;

const UMIP: u64 = 1 << 11;
const SMEP: u64 = 1 << 20;
const SMAP: u64 = 1 << 21;
const SYSCALL_ENABLE: u64 = 1;
const NO_EXECUTE: u64 = 1 << 11;
/// Flags that `syscall` clears: TF, IF, DF, IOPL, NT, AC.
const CLEARED_FLAGS: u64 = 0x4_7700;

/// Enables no-execute pages, which the kernel's own map needs. Called before anything else.
///
/// # Panics
/// If the CPU has none.
pub fn enable_no_execute() {
    assert!(cpuid_if_known(0x8000_0001, 0).edx & 1 << 20 != 0, "the CPU has no NX");
    // SAFETY: no entry used that bit otherwise.
    unsafe { write_msr(msr::EFER, read_msr(msr::EFER) | NO_EXECUTE | SYSCALL_ENABLE) };
}

/// Enables SMEP, SMAP and UMIP where the CPU has them, and global pages, `syscall` and the FPU.
pub fn init() {
    let leaf7 = cpuid_if_known(7, 0);
    let has = |register: u32, bit: u32, flag: u64| if register & 1 << bit != 0 { flag } else { 0 };
    let wanted = has(leaf7.ebx, 7, SMEP) | has(leaf7.ebx, 20, SMAP) | has(leaf7.ecx, 2, UMIP) | GLOBAL_PAGES;
    // SAFETY: the CPU has all of them, and only `user_copy` accesses user memory.
    unsafe { set_cr4(cpu::cr4() | wanted) };
    if wanted & SMAP != 0 {
        // SAFETY: the CPU has SMAP, thus `clac`.
        unsafe { asm!("clac", options(nomem, nostack)) };
        user_copy::use_smap();
    }
    fpu::init();
    init_syscall();
}

fn init_syscall() {
    let kernel = u64::from(gdt::KERNEL_CS);
    let user_base = u64::from(gdt::USER_BASE);
    // SAFETY: the selectors that `gdt` lays out for `syscall` and `sysret`.
    unsafe {
        write_msr(msr::STAR, user_base << 48 | kernel << 32);
        write_msr(msr::SFMASK, CLEARED_FLAGS);
    }
    choose_syscall_entry(false);
}

/// Chooses the entry of system calls on this core, which looks whether the task is traced if any is
/// (`are_traced`), and reports the calls if the options say so. Other calls pay nothing for it. On the boot
/// core it is called again when the options are known.
pub fn choose_syscall_entry(are_traced: bool) {
    let entry =
        if are_traced || options::get().trace { entry::traced_syscall_entry } else { entry::syscall_entry };
    // SAFETY: entries that expect what `init_syscall` has set.
    unsafe { write_msr(msr::LSTAR, entry as *const () as u64) }
}

/// Returns AT_HWCAP as in Linux: EDX of CPUID leaf 1.
pub fn hwcap() -> u64 {
    u64::from(cpuid_if_known(1, 0).edx)
}
