//! The kernel's own half of every address space: physmap, image, kernel stacks. No page is both writable and
//! executable. The image's read-only part is read-only in the physmap too.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use firmware::{FRAME, GIB, MIB_2, MemoryMap, Page, Pages};
use percore::Pinned;
use sync::SpinLock;

use super::above::KernelFrames;
use super::boot::{KERNEL_BASE, boot_pml4};
use super::cpu::{self, cpuid_if_known};
use super::page_table::{ENTRIES, TOP, Table, bits};
use super::physmap::{PHYSMAP, phys_to_virt};
use crate::above::Above;
use crate::arch::per_core;

/// The address of the first kernel stack.
pub const STACKS: u64 = 0xffff_c000_0000_0000;
const FOUR_GIB: u64 = 4 << 30;

unsafe extern "C" {
    static __text_start: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __kernel_end: u8;
}

/// The kernel's top table, complete for the upper half after `init`. Starting cores load it.
pub static ROOT: AtomicU64 = AtomicU64::new(0);
/// Serialises changes to the kernel half below the top.
static CHANGES: SpinLock<()> = SpinLock::new(());

/// Returns the physical addresses of an object: (start, end).
pub fn place_of<T: ?Sized>(object: &T) -> (u64, u64) {
    let at = (&raw const *object).cast::<u8>() as u64;
    let start = if at >= KERNEL_BASE { at - KERNEL_BASE } else { at - PHYSMAP };
    (start, start + size_of_val(object) as u64)
}

/// Returns the physical addresses of the kernel's image: (start, end).
pub fn kernel_image() -> (u64, u64) {
    let phys = |symbol: *const u8| symbol as u64 - KERNEL_BASE;
    (phys(&raw const __text_start), phys(&raw const __kernel_end))
}

/// Returns the physical address of the kernel's own top table, which has no user pages.
#[inline(always)]
pub fn kernel_root() -> u64 {
    // Relaxed: written once, before other cores start.
    ROOT.load(Ordering::Relaxed)
}

/// Returns the kernel's top table, to copy its upper half.
pub fn kernel_table() -> &'static Table {
    // SAFETY: `init` made it, and it is never freed.
    unsafe { Table::at(kernel_root()) }
}

/// Builds the final map in tables from `new_frame`, and loads it.
pub fn init(memory: &MemoryMap, new_frame: &mut dyn FnMut() -> u64) {
    let mut new_table = || {
        let frame = new_frame();
        // SAFETY: a fresh frame, which the boot map shows.
        unsafe { zero_frames(phys_to_virt(frame), 1) };
        Some(frame)
    };
    ROOT.store(new_table().unwrap_or_default(), Ordering::Relaxed);
    for top in [PHYSMAP, STACKS, KERNEL_BASE] {
        let _made = below_or_new(kernel_table().toward(top >> 12, TOP), &mut new_table);
    }
    let has_gib = cpuid_if_known(0x8000_0001, 0).edx & 1 << 26 != 0;
    Pages::new(memory, has_gib).for_each(|page| map_physical(page, &mut new_table));
    map_image(&mut new_table);
    load();
}

/// Loads the kernel's map on this core.
pub fn load() {
    // SAFETY: the map shows the running code, its stack and all data, as before.
    unsafe { cpu::set_cr3(kernel_root()) };
}

/// Returns the physical address of the map that starting cores pass through.
pub fn boot_root() -> u64 {
    (&raw const boot_pml4) as u64 - KERNEL_BASE
}

fn map_physical(page: Page, new_table: NewTable<'_>) {
    let device = if page.is_memory { 0 } else { bits::DEVICE };
    let read_only = kernel_image().0..(&raw const __data_start) as u64 - KERNEL_BASE;
    let level = if page.bytes == GIB { 2 } else { 1 };
    // Small pages where the read-only part of the image ends.
    let is_split = page.at < read_only.end && read_only.end < page.at + page.bytes;
    let (level, bytes, large) = if is_split { (0, FRAME, 0) } else { (level, page.bytes, bits::LARGE) };
    for at in (page.at..page.at + page.bytes).step_by(bytes as usize) {
        let write = if read_only.contains(&at) { 0 } else { bits::WRITE };
        map(PHYSMAP + at, level, at | large | device | write | bits::NO_EXECUTE, new_table);
    }
}

/// Maps the large page with physical address `phys` read-only, if the physmap does not show it yet: firmware
/// may leave its tables where there is no memory. Called only while this core is alone and no program has a
/// table. Returns false if the page cannot be mapped.
pub fn show(pin: &Pinned, phys: u64) -> bool {
    show_with(pin, phys, 0)
}

/// Does the same for the registers of a device, which can be written.
pub fn show_device(pin: &Pinned, phys: u64) -> bool {
    show_with(pin, phys, bits::WRITE)
}

fn show_with(pin: &Pinned, phys: u64, write: u64) -> bool {
    let width = cpuid_if_known(0x8000_0008, 0).eax & 0xff;
    let exists = phys < STACKS - PHYSMAP && phys.checked_shr(width) == Some(0);
    let at = exists.then_some(PHYSMAP + (phys & !(MIB_2 - 1)));
    let shown = at.and_then(|at| {
        let place = place(at, 1, &mut || alloc_table(pin))?;
        if place.load(Ordering::Relaxed) == 0 {
            set(place, (at - PHYSMAP) | bits::LARGE | bits::DEVICE | write | bits::NO_EXECUTE);
        }
        Some(())
    });
    shown.is_some()
}

fn map_image(new_table: NewTable<'_>) {
    let (text, rodata, data) = (
        (&raw const __text_start) as u64,
        (&raw const __rodata_start) as u64,
        (&raw const __data_start) as u64,
    );
    let end = (&raw const __kernel_end) as u64;
    let parts =
        [(text, rodata, 0), (rodata, data, bits::NO_EXECUTE), (data, end, bits::NO_EXECUTE | bits::WRITE)];
    for (start, end, rights) in parts {
        (start..end)
            .step_by(FRAME as usize)
            .for_each(|at| map(at, 0, (at - KERNEL_BASE) | rights, new_table));
    }
}

/// Unmaps the pages of the image that only values of cores beyond the first `cores` lie in, and frees their
/// frames. Called once, at boot, while only this core runs.
pub fn free_beyond(cores: usize) {
    for array in per_core::all() {
        let Range { start, end } = array.beyond(cores);
        let (start, end) = ((start as u64).next_multiple_of(FRAME), end as u64 / FRAME * FRAME);
        for at in (start..end).step_by(FRAME as usize) {
            with_page(at, |place| place.store(0, Ordering::Relaxed));
            cpu::flush_page(at);
        }
        if start < end {
            Above::take_image((start - KERNEL_BASE) / FRAME, (end - KERNEL_BASE) / FRAME);
        }
    }
}

/// Maps a new page of memory for a kernel stack at `at`, which had none. Returns `None` without memory.
pub fn map_new_page(pin: &Pinned, at: u64) -> Option<()> {
    let _changing = CHANGES.lock();
    // Tables first: they stay for the next try, but a frame would be lost.
    let place = place(at, 0, &mut || alloc_table(pin))?;
    let frame = Above::alloc_stack(pin)?;
    set(place, (frame << 12) | bits::WRITE | bits::NO_EXECUTE);
    Some(())
}

/// Unmaps the page of a kernel stack at `at`, which is not in use. The entry keeps the frame until no TLB has
/// the translation.
pub fn unmap(at: u64) {
    with_page(at, |place| place.fetch_and(!bits::PRESENT, Ordering::Relaxed));
}

/// Frees the frame of the page at `at`, which was unmapped, and whose translation no TLB has any more.
pub fn free_unmapped(pin: &Pinned, at: u64) {
    with_page(at, |place| {
        // Relaxed: the stack is the caller's alone.
        let entry = place.swap(0, Ordering::Relaxed);
        Above::free_stack(pin, (entry & bits::ADDRESS) >> 12);
    });
}

/// Returns the offset of the first word that is not zero in the page of a kernel stack at `at`. `None` if all
/// are zero, or there is no page.
pub fn first_written(at: u64) -> Option<u64> {
    with_page(at, |place| {
        let entry = place.load(Ordering::Relaxed);
        let frame: *const u64 = phys_to_virt(entry & bits::ADDRESS);
        let is_written = |&word: &usize| {
            // SAFETY: the entry shows the frame, which is not freed before this caller releases the lock. A
            // task may write to it meanwhile, so the read is volatile; any value will do.
            entry & bits::PRESENT != 0 && unsafe { frame.add(word).read_volatile() } != 0
        };
        (0..ENTRIES).find(is_written).map(|word| (word * size_of::<u64>()) as u64)
    })?
}

/// Stores `note`, the address of a page or 0, for the page at `at`, which was unmapped and freed.
pub fn note_at_unmapped(at: u64, note: u64) {
    with_page(at, |place| place.store(note & !bits::PRESENT, Ordering::Relaxed));
}

/// Returns the note stored there, or 0 if there is none.
pub fn note_of_unmapped(at: u64) -> u64 {
    with_page(at, |place| place.load(Ordering::Relaxed)).unwrap_or(0)
}

/// Calls `f` with the entry for a page that has been mapped once, so that all of its tables exist.
fn with_page<R>(at: u64, f: impl FnOnce(&AtomicU64) -> R) -> Option<R> {
    let _changing = CHANGES.lock();
    place(at, 0, &mut || None).map(f)
}

fn alloc_table(pin: &Pinned) -> Option<u64> {
    Above::alloc_kernel_table(pin).map(|frame| frame << 12)
}

/// A function that returns the physical address of a new table of zeroes.
type NewTable<'a> = &'a mut dyn FnMut() -> Option<u64>;

fn map(at: u64, level: u32, entry: u64, new_table: NewTable<'_>) {
    set(place(at, level, new_table).expect("memory for the kernel's tables"), entry);
}

/// Returns the entry for `at`, in its table of level `level`, or above if a larger page shows it.
fn place(at: u64, level: u32, new_table: NewTable<'_>) -> Option<&'static AtomicU64> {
    let mut table = kernel_table();
    for above in (level + 1..=TOP).rev() {
        let entry = table.toward(at >> 12, above);
        if entry.load(Ordering::Relaxed) & bits::LARGE != 0 {
            return Some(entry);
        }
        table = below_or_new(entry, new_table)?;
    }
    Some(table.toward(at >> 12, level))
}

/// Sets an entry that was empty, so no TLB has its translation.
fn set(place: &AtomicU64, entry: u64) {
    // Release: a core that learns of the address sees the page.
    place.store(entry | bits::PRESENT | bits::GLOBAL, Ordering::Release);
}

fn below_or_new(entry: &AtomicU64, new_table: NewTable<'_>) -> Option<&'static Table> {
    if entry.load(Ordering::Relaxed) == 0 {
        entry.store(new_table()? | bits::PRESENT | bits::WRITE, Ordering::Release);
    }
    // SAFETY: kernel tables are never freed, and no large page is mapped twice.
    unsafe { Table::below(entry.load(Ordering::Relaxed)) }
}

/// Fills adjacent frames with zeroes.
///
/// # Safety
/// `at` is the first of `count` frames in the physmap that no one else uses.
#[inline(always)]
pub unsafe fn zero_frames(at: *mut u8, count: usize) {
    // SAFETY: the caller's frames, of 512 words of 8 bytes each.
    unsafe {
        core::arch::asm!("rep stosq", inout("rcx") count * ENTRIES => _, inout("rdi") at => _, in("rax") 0,
            options(nostack, preserves_flags));
    }
}

/// Copies a frame. If programs write the source meanwhile, the copy has a mixture of old and new bytes.
///
/// # Safety
/// Both are frames in the physmap, and only the caller uses `to`.
#[inline(always)]
pub unsafe fn copy_frame(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's frames, of 512 words of 8 bytes.
    unsafe {
        core::arch::asm!("rep movsq", inout("rcx") ENTRIES => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
}

/// Copies `edx` bytes from `rsi` to `rdi`, of which `rcx` is an eighth, rounded down. Changes the flags.
///
/// The last 4, 2 and 1 bytes are an instruction each: `rep movsb` would copy a program's word of 4 bytes byte
/// by byte, and a read beside a write could return a value that no call wrote.
macro_rules! copy_by_words {
    () => {
        "rep movsq
        test dl, 4
        jz 2f
        movsd
    2:
        test dl, 2
        jz 3f
        movsw
    3:
        test dl, 1
        jz 4f
        movsb
    4:"
    };
}
pub(super) use copy_by_words;

/// Copies bytes that others may read and write meanwhile.
///
/// Words of 8 bytes are copied whole if both ranges begin at such words. So are 1, 2, 4 or 8 bytes in all, if
/// both places are aligned to their number.
///
/// # Safety
/// Both ranges are mapped, writable where they are written, and do not overlap.
#[inline]
pub unsafe fn copy_bytes(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's ranges.
    unsafe {
        core::arch::asm!(copy_by_words!(), in("rdx") bytes, inout("rcx") bytes / 8 => _, inout("rdi") to => _,
            inout("rsi") from => _, options(nostack));
    }
}

/// Writes zeroes to bytes that others may read and write meanwhile, whole words as [`copy_bytes`] does.
///
/// # Safety
/// The range is mapped and writable.
#[inline]
pub unsafe fn clear_bytes(to: *mut u8, bytes: usize) {
    // SAFETY: the caller's range.
    unsafe {
        core::arch::asm!(
            "rep stosq",
            "test dl, 4",
            "jz 2f",
            "stosd",
            "2:",
            "test dl, 2",
            "jz 3f",
            "stosw",
            "3:",
            "test dl, 1",
            "jz 4f",
            "stosb",
            "4:",
            in("rdx") bytes, inout("rcx") bytes / 8 => _, inout("rdi") to => _, in("rax") 0u64, options(nostack));
    }
}

/// Returns the address of a device's registers in the physmap.
pub fn device<T>(phys: u64) -> *mut T {
    debug_assert!(phys < FOUR_GIB);
    phys_to_virt(phys)
}
