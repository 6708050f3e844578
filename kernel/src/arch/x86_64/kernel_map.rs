//! The kernel's own half of every address space: physmap, image, kernel stacks. Nothing is both writable and
//! executable; the image's read-only part is read-only in the physmap too.

use core::sync::atomic::{AtomicU64, Ordering};

use percore::Pinned;
use sync::SpinLock;

use super::boot::{KERNEL_BASE, boot_pml4};
use super::cpu;
use super::page_table::{ENTRIES, TOP, Table, bits};
use super::physmap::{PHYSMAP, phys_to_virt};
use super::pvh::BootInfo;
use crate::mm::frames;
use crate::mm::owner::Owner;

/// Where kernel stacks live.
pub const STACKS: u64 = 0xffff_c000_0000_0000;
const LARGE_PAGE: u64 = 2 << 20;
const FOUR_GIB: u64 = 4 << 30;
const FRAME: u64 = 4096;

unsafe extern "C" {
    static __text_start: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __kernel_end: u8;
}

/// The kernel's top table, complete for the upper half after `init`.
static ROOT: AtomicU64 = AtomicU64::new(0);
/// Serialises changes to the kernel half below the top.
static CHANGES: SpinLock<()> = SpinLock::new(());

/// Where an object lies in physical memory: (start, end).
pub fn place_of<T: ?Sized>(object: &T) -> (u64, u64) {
    let at = (&raw const *object).cast::<u8>() as u64;
    let start = if at >= KERNEL_BASE { at - KERNEL_BASE } else { at - PHYSMAP };
    (start, start + size_of_val(object) as u64)
}

/// Where the kernel's image lies in physical memory: (start, end).
pub fn kernel_image() -> (u64, u64) {
    let phys = |symbol: *const u8| symbol as u64 - KERNEL_BASE;
    (phys(&raw const __text_start), phys(&raw const __kernel_end))
}

/// Physical address of the kernel's own top table: no user pages.
#[inline(always)]
pub fn kernel_root() -> u64 {
    // Relaxed: written once, before other cores start.
    ROOT.load(Ordering::Relaxed)
}

/// The kernel's top table, to copy its upper half.
pub fn kernel_table() -> &'static Table {
    // SAFETY: `init` made it and nobody frees it.
    unsafe { Table::at(kernel_root()) }
}

/// Builds the real map and runs on it.
///
/// # Panics
/// If there is no memory for its tables.
pub fn init(pin: &Pinned, boot: &BootInfo, end: u64) {
    let root = new_table(pin);
    ROOT.store(root, Ordering::Relaxed);
    for top in [PHYSMAP, STACKS, KERNEL_BASE] {
        let index = (top >> 39) as usize;
        kernel_table().entry(index).store(new_table(pin) | bits::PRESENT | bits::WRITE, Ordering::Relaxed);
    }
    (0..end.max(FOUR_GIB)).step_by(LARGE_PAGE as usize).for_each(|phys| map_physical(pin, boot, phys));
    map_image(pin);
    load();
}

/// Runs this core on the kernel's map.
pub fn load() {
    // SAFETY: the map shows the running code, its stack and all data, as before.
    unsafe { cpu::set_cr3(kernel_root()) };
}

/// The map that starting cores pass through.
pub fn boot_root() -> u64 {
    (&raw const boot_pml4) as u64 - KERNEL_BASE
}

fn map_physical(pin: &Pinned, boot: &BootInfo, phys: u64) {
    let overlaps = |(start, end): (u64, u64)| start < phys + LARGE_PAGE && phys < end;
    let device = if boot.ram().any(overlaps) { 0 } else { bits::DEVICE };
    let read_only = phys >= kernel_image().0 && phys < (&raw const __data_start) as u64 - KERNEL_BASE;
    let write = if read_only { 0 } else { bits::WRITE };
    map(pin, PHYSMAP + phys, 1, phys | bits::LARGE | device | write | bits::NO_EXECUTE);
}

fn map_image(pin: &Pinned) {
    let (text, rodata, data) = (
        (&raw const __text_start) as u64,
        (&raw const __rodata_start) as u64,
        (&raw const __data_start) as u64,
    );
    let end = (&raw const __kernel_end) as u64;
    let parts =
        [(text, rodata, 0), (rodata, data, bits::NO_EXECUTE), (data, end, bits::NO_EXECUTE | bits::WRITE)];
    for (start, end, rights) in parts {
        (start..end).step_by(FRAME as usize).for_each(|at| map(pin, at, 0, (at - KERNEL_BASE) | rights));
    }
}

/// Gives a kernel stack a page of memory at `at`, which had none. `None` without memory.
pub fn map_new_page(pin: &Pinned, at: u64) -> Option<()> {
    let _changing = CHANGES.lock();
    // Tables first: they stay for the next try, a frame would be lost.
    let place = place(pin, at, 0)?;
    let frame = frames::alloc_kernel(pin, Owner::STACK)?;
    set(place, (frame << 12) | bits::WRITE | bits::NO_EXECUTE);
    Some(())
}

fn map(pin: &Pinned, at: u64, level: u32, entry: u64) {
    set(place(pin, at, level).expect("memory for the kernel's tables"), entry);
}

/// The entry for `at` in its table of level `level`.
fn place(pin: &Pinned, at: u64, level: u32) -> Option<&'static AtomicU64> {
    let mut table = kernel_table();
    for above in (level + 1..=TOP).rev() {
        table = below_or_new(pin, table.toward(at >> 12, above))?;
    }
    Some(table.toward(at >> 12, level))
}

/// Sets an entry that was empty: no TLB knows it.
fn set(place: &AtomicU64, entry: u64) {
    // Release: whoever learns of the address sees the page.
    place.store(entry | bits::PRESENT | bits::GLOBAL, Ordering::Release);
}

fn below_or_new(pin: &Pinned, entry: &AtomicU64) -> Option<&'static Table> {
    if entry.load(Ordering::Relaxed) == 0 {
        let table = frames::alloc_kernel(pin, Owner::KERNEL_TABLE)? << 12;
        entry.store(table | bits::PRESENT | bits::WRITE, Ordering::Release);
    }
    // SAFETY: kernel tables are never freed, and nobody maps a large page twice.
    unsafe { Table::below(entry.load(Ordering::Relaxed)) }
}

fn new_table(pin: &Pinned) -> u64 {
    frames::alloc_kernel(pin, Owner::KERNEL_TABLE).expect("memory for the kernel's tables") << 12
}

/// Fills frames side by side with zeroes.
///
/// # Safety
/// `at` is the first of `count` frames in the physmap that nobody else uses.
#[inline(always)]
pub unsafe fn zero_frames(at: *mut u8, count: usize) {
    // SAFETY: the caller's frames; 512 words of 8 bytes each.
    unsafe {
        core::arch::asm!("rep stosq", inout("rcx") count * ENTRIES => _, inout("rdi") at => _, in("rax") 0,
            options(nostack, preserves_flags));
    }
}

/// Copies a frame. Programs may write the source meanwhile: the copy then has some of each.
///
/// # Safety
/// Both are frames in the physmap; nobody else uses `to`.
#[inline(always)]
pub unsafe fn copy_frame(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's frames; 512 words of 8 bytes.
    unsafe {
        core::arch::asm!("rep movsq", inout("rcx") ENTRIES => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
}

/// Copies bytes that others may read and write meanwhile.
///
/// # Safety
/// Both ranges are mapped, writable where they are written, and do not overlap.
#[inline]
pub unsafe fn copy_bytes(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's ranges; words first, then what is left.
    unsafe {
        core::arch::asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) bytes % 8,
            inout("rcx") bytes / 8 => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
}

/// Puts zeroes where others may read and write meanwhile.
///
/// # Safety
/// The range is mapped and writable.
#[inline]
pub unsafe fn clear_bytes(to: *mut u8, bytes: usize) {
    // SAFETY: the caller's range.
    unsafe {
        core::arch::asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") to => _, in("al") 0u8,
            options(nostack, preserves_flags));
    }
}

/// A device's registers, seen through the physmap.
pub fn device<T>(phys: u64) -> *mut T {
    debug_assert!(phys < FOUR_GIB);
    phys_to_virt(phys)
}
