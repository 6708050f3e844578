//! The block that belongs to one core. GS points to it in kernel mode.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use percore::{CoreId, MAX_CORES};
use sync::CachePadded;

use super::cpu::{msr, write_msr};
use super::gdt::{Gdt, Tss};
use super::vdso;

/// One core's block. The entry code and `switch` know these offsets: see [`KERNEL_RSP`] and its neighbours.
#[repr(C, align(128))]
pub struct Cpu {
    /// The user's stack pointer for the few instructions until it is pushed.
    user_rsp: AtomicU64,
    /// Top of the running task's kernel stack, for syscalls.
    kernel_rsp: AtomicU64,
    core: u64,
    /// The core's time stamp counter when the clocks began. Relaxed: only the core itself accesses it.
    tsc_at_boot: AtomicU64,
    pub(super) tss: UnsafeCell<Tss>,
    pub(super) gdt: UnsafeCell<Gdt>,
    /// Other cores read it to send an interrupt. The core itself writes the words above in each system call.
    apic_id: CachePadded<AtomicU32>,
}

/// Offset of the scratch word for the user's stack pointer.
pub const USER_RSP: usize = offset_of!(Cpu, user_rsp);
/// Offset of the kernel stack's top.
pub const KERNEL_RSP: usize = offset_of!(Cpu, kernel_rsp);
/// Offset of the task state segment's kernel stack pointer.
pub const TSS_RSP0: usize = offset_of!(Cpu, tss) + Tss::RSP0;
const CORE: usize = offset_of!(Cpu, core);
const TSC_AT_BOOT: usize = offset_of!(Cpu, tsc_at_boot);

static CPUS: [AtomicPtr<Cpu>; MAX_CORES] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CORES];
static COUNT: AtomicU32 = AtomicU32::new(1);

impl Cpu {
    /// Creates a block for `core`.
    pub const fn new(core: usize) -> Self {
        Self {
            user_rsp: AtomicU64::new(0),
            kernel_rsp: AtomicU64::new(0),
            core: core as u64,
            tsc_at_boot: AtomicU64::new(0),
            tss: UnsafeCell::new(Tss::new()),
            gdt: UnsafeCell::new(Gdt::new()),
            apic_id: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// Makes this block the running core's.
    ///
    /// # Safety
    /// Called by the core itself, with a block that no other core has.
    pub unsafe fn install(&'static self) {
        // SAFETY: the caller's block. The kernel uses GS for nothing else.
        unsafe {
            write_msr(msr::GS_BASE, &raw const *self as u64);
            write_msr(msr::KERNEL_GS_BASE, 0);
        }
        // Release pairs with the Acquire in `of`.
        CPUS[self.core as usize].store((&raw const *self).cast_mut(), Ordering::Release);
    }

    /// Returns the core's APIC number. Relaxed: set by the core before it takes part in anything.
    #[inline(always)]
    pub fn apic_id(&self) -> u32 {
        self.apic_id.load(Ordering::Relaxed)
    }

    pub(super) fn set_apic_id(&self, id: u32) {
        self.apic_id.store(id, Ordering::Relaxed);
    }
}

/// Returns the core that the caller runs on.
#[inline(always)]
pub fn core() -> CoreId {
    let index: usize;
    // SAFETY: GS points to this core's block from the first lines of boot on. Not `pure`: a task may migrate
    // between two calls.
    unsafe {
        asm!("mov {}, gs:[{offset}]", out(reg) index, offset = const CORE, options(nostack, preserves_flags, readonly))
    };
    // SAFETY: `install` stored a number below MAX_CORES.
    unsafe { core::hint::assert_unchecked(index < MAX_CORES) };
    CoreId::new(index)
}

/// Returns this core's time stamp counter when the clocks began.
#[inline(always)]
pub fn tsc_at_boot() -> u64 {
    let counter: u64;
    // SAFETY: as in `core`.
    unsafe {
        asm!("mov {}, gs:[{offset}]", out(reg) counter, offset = const TSC_AT_BOOT,
            options(nostack, preserves_flags, readonly))
    };
    counter
}

/// Sets this core's counter of the time when the clocks began.
pub fn set_tsc_at_boot(counter: u64) {
    if let Some(cpu) = of(core()) {
        cpu.tsc_at_boot.store(counter, Ordering::Relaxed);
        vdso::set_tsc_at_boot(core(), counter);
    }
}

/// Returns the number of cores of the machine.
#[inline(always)]
pub fn cores() -> usize {
    // Relaxed: written once, before the other cores start.
    COUNT.load(Ordering::Relaxed) as usize
}

pub(super) fn set_cores(count: usize) {
    COUNT.store(count as u32, Ordering::Relaxed);
}

/// Returns the block of `core`, once it has started.
pub(super) fn of(core: CoreId) -> Option<&'static Cpu> {
    let cpu = CPUS[core.index()].load(Ordering::Acquire);
    // SAFETY: `install` was given a block that lives for ever. Only its UnsafeCells change, by the owner.
    unsafe { cpu.as_ref() }
}

/// Returns the blocks of all cores that have started but this one.
pub(super) fn others() -> impl Iterator<Item = &'static Cpu> {
    let me = core();
    (0..MAX_CORES).map(CoreId::new).filter(move |core| *core != me).filter_map(of)
}

/// Returns the physical addresses of the block of `core`, once the core has started.
pub fn core_block(core: CoreId) -> Option<(u64, u64)> {
    of(core).map(super::place_of)
}

// SAFETY: only the owner core accesses the cells, and the rest is constant.
unsafe impl Sync for Cpu {}
