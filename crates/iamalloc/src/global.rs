//! The allocator of a program on Linux.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::heap::{Heaps, SubHeap};
use crate::source::Source;

/// The size of a cache line, in bytes.
const LINE: usize = 64;

/// Memory of Linux: anonymous private mappings.
#[derive(Debug)]
pub struct Linux {
    /// Whether the kernel populates ranges: from 5.14 on. Relaxed: a hint.
    populates: AtomicBool,
}

impl Linux {
    /// Creates the source.
    pub const fn new() -> Self {
        Linux { populates: AtomicBool::new(true) }
    }
}

impl Default for Linux {
    fn default() -> Self {
        Self::new()
    }
}

/// Maps `bytes` anywhere.
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping replaces none.
    let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, kind, -1, 0) };
    if memory == libc::MAP_FAILED { None } else { NonNull::new(memory.cast()) }
}

/// Calls Linux where the program's `errno` must stay, for instance in `free`.
fn with_errno_kept<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the word is the thread's.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { errno.read() };
    let result = f();
    // SAFETY: as above.
    unsafe { errno.write(kept) };
    result
}

/// Advises Linux about a range. Returns whether it did what was asked for.
///
/// # Safety
/// The advice is right for all that the range has.
unsafe fn advise(start: NonNull<u8>, bytes: usize, advice: libc::c_int) -> bool {
    // SAFETY: by this function's contract.
    with_errno_kept(|| unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) == 0 })
}

// SAFETY: `mmap` gives zeroed memory that is no other's, and `map` cuts it to the alignment.
unsafe impl Source for Linux {
    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        // Mappings of whole segments mostly follow each other.
        if bytes.is_multiple_of(align) {
            let first = map(bytes)?;
            if first.addr().get().is_multiple_of(align) {
                return Some(first);
            }
            // SAFETY: the mapping is this function's.
            unsafe { self.unmap(first, bytes) };
        }
        let first = map(bytes.checked_add(align)?)?;
        let before = first.addr().get().wrapping_neg() % align;
        // SAFETY: the parts lie in the mapping, which is this function's.
        unsafe {
            let start = first.add(before);
            if before > 0 {
                self.unmap(first, before);
            }
            self.unmap(start.add(bytes), align - before);
            Some(start)
        }
    }

    unsafe fn unmap(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: by this function's contract.
        let done = with_errno_kept(|| unsafe { libc::munmap(start.as_ptr().cast(), bytes) == 0 });
        if !done {
            // The process has too many mappings to split one. At least the memory goes back.
            // SAFETY: as above.
            unsafe { advise(start, bytes, libc::MADV_DONTNEED) };
        }
    }

    unsafe fn discard(&self, start: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: by this function's contract.
        unsafe { advise(start, bytes, libc::MADV_DONTNEED) }
    }

    unsafe fn populate(&self, start: NonNull<u8>, bytes: usize) {
        if self.populates.load(Ordering::Relaxed) {
            // SAFETY: it changes nothing that the program can see.
            let done = unsafe { advise(start, bytes, libc::MADV_POPULATE_WRITE) };
            if !done {
                self.populates.store(false, Ordering::Relaxed);
            }
        }
    }

    unsafe fn resize(&self, start: NonNull<u8>, old: usize, new: usize, align: usize) -> Option<NonNull<u8>> {
        let from: *mut c_void = start.as_ptr().cast();
        with_errno_kept(|| {
            // SAFETY: by this function's contract. It does not move.
            if unsafe { libc::mremap(from, old, new, 0) } != libc::MAP_FAILED {
                return Some(start);
            }
            let place = self.map(new, align)?;
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: as above, and it replaces the new mapping alone.
            let moved = unsafe { libc::mremap(from, old, new, flags, place.as_ptr()) };
            if moved == libc::MAP_FAILED {
                // SAFETY: the new mapping is this function's.
                unsafe { self.unmap(place, new) };
                return None;
            }
            Some(place)
        })
    }
}

static HEAPS: Heaps<Linux> = Heaps::new(Linux::new());

/// The thread's sub-heap: the word that the thread has of `iamalloc_mine`, which lies at a fixed distance
/// from the thread's pointer. A word that is found by a call of the dynamic linker would not do: that
/// allocates memory.
mod mine {
    use super::SubHeap;
    use core::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tbss.iamalloc_mine, \"awT\", @nobits",
        ".balign 8",
        ".hidden iamalloc_mine",
        ".globl iamalloc_mine",
        ".type iamalloc_mine, @object",
        ".size iamalloc_mine, 8",
        "iamalloc_mine:",
        ".zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub fn get() -> *const SubHeap {
        let mine;
        // SAFETY: it reads the thread's word.
        unsafe {
            asm!(
                "mov {0}, qword ptr [rip + iamalloc_mine@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) mine,
                options(nostack, preserves_flags, readonly),
            );
        }
        mine
    }

    pub fn set(heap: *const SubHeap) {
        // SAFETY: it writes the thread's word, which nothing else writes.
        unsafe {
            asm!(
                "mov {0}, qword ptr [rip + iamalloc_mine@GOTTPOFF]",
                "mov qword ptr fs:[{0}], {1}",
                out(reg) _,
                in(reg) heap,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// The key whose destructor leaves a thread's sub-heap, plus one. 0 before the first thread has made it.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Leaves the sub-heap of a thread that ends. If the thread allocates once more it claims another one, and
/// Linux calls this again.
unsafe extern "C" fn leave(heap: *mut c_void) {
    mine::set(ptr::null());
    if let Some(heap) = NonNull::new(heap.cast()) {
        // SAFETY: the thread claimed it, and has just forgotten it.
        unsafe { HEAPS.leave(heap) };
    }
}

/// Returns the key, or `None` if the program has all keys there are. Then sub-heaps of threads that have
/// ended stay unused.
fn key() -> Option<libc::pthread_key_t> {
    // Acquire: pairs with the AcqRel below. The key was made.
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        return Some(key);
    }
    let mut new = 0;
    // SAFETY: `new` is there to be written, and `leave` takes what `claim` stores.
    if unsafe { libc::pthread_key_create(&mut new, Some(leave)) } != 0 {
        return None;
    }
    match KEY.compare_exchange(0, new + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(new),
        Err(first) => {
            // SAFETY: no other thread has seen this key.
            unsafe { libc::pthread_key_delete(new) };
            Some(first - 1)
        }
    }
}

/// Claims a sub-heap for this thread.
#[cold]
fn claim() -> Option<NonNull<SubHeap>> {
    let heap = HEAPS.claim()?;
    // First: the call below may allocate.
    mine::set(heap.as_ptr());
    if let Some(key) = key() {
        // SAFETY: the key is there. If it fails, the sub-heap stays claimed when the thread has ended.
        unsafe { libc::pthread_setspecific(key, heap.as_ptr().cast()) };
    }
    Some(heap)
}

#[inline(always)]
fn own() -> Option<NonNull<SubHeap>> {
    NonNull::new(mine::get().cast_mut()).or_else(claim)
}

/// IAmalloc as the allocator of a program: `#[global_allocator]`, or `malloc` itself.
#[derive(Clone, Copy, Debug)]
pub struct IaMalloc {
    is_padded: bool,
}

impl IaMalloc {
    /// Creates the allocator.
    pub const fn new() -> Self {
        IaMalloc { is_padded: false }
    }

    /// Creates an allocator whose blocks have whole cache lines, against false sharing. Small blocks take
    /// more memory.
    pub const fn padded() -> Self {
        IaMalloc { is_padded: true }
    }

    /// Allocates `size` bytes, aligned to `align`, a power of two of at most [`MAX_ALIGN`](crate::MAX_ALIGN).
    /// Returns null if there is no memory.
    #[inline(always)]
    pub fn allocate(&self, size: usize, align: usize) -> *mut u8 {
        self.with_zeroes(size, align).0
    }

    /// Allocates zeroed memory, as [`Self::allocate`] does.
    pub fn allocate_zeroed(&self, size: usize, align: usize) -> *mut u8 {
        let (block, is_zeroed) = self.with_zeroes(size, align);
        if !block.is_null() && !is_zeroed {
            // SAFETY: the block has this size.
            unsafe { block.write_bytes(0, size) };
        }
        block
    }

    #[inline(always)]
    fn with_zeroes(&self, size: usize, align: usize) -> (*mut u8, bool) {
        let Some(mine) = own() else { return (ptr::null_mut(), false) };
        let padding = if self.is_padded { size.wrapping_neg() % LINE } else { 0 };
        // SAFETY: this thread has claimed the sub-heap.
        unsafe { HEAPS.alloc(mine, size.saturating_add(padding), align) }
    }

    /// Frees a block.
    ///
    /// # Safety
    /// It was allocated by an [`IaMalloc`] of this program and not freed, and nothing refers to it.
    #[inline]
    pub unsafe fn free(&self, block: *mut u8) {
        // SAFETY: by this function's contract.
        unsafe { HEAPS.free(mine::get(), block) };
    }

    /// Returns the bytes that a block has, at least those that were asked for.
    ///
    /// # Safety
    /// It was allocated by an [`IaMalloc`] of this program and not freed.
    pub unsafe fn usable_size(&self, block: *mut u8) -> usize {
        // SAFETY: by this function's contract.
        unsafe { HEAPS.usable(block) }
    }

    /// Changes the size of a block, which may move. Returns null if there is no memory: then the block is as
    /// it was.
    ///
    /// # Safety
    /// As for [`Self::free`], if the result is not null and another address.
    pub unsafe fn reallocate(&self, block: *mut u8, size: usize, align: usize) -> *mut u8 {
        // SAFETY: by this function's contract.
        let has = unsafe { self.usable_size(block) };
        // A block that is more than half empty is exchanged for a smaller one.
        if size <= has && (size >= has / 2 || has <= LINE) {
            return block;
        }
        // SAFETY: by this function's contract.
        if let Some(resized) = unsafe { HEAPS.resize_huge(block, size) } {
            return resized;
        }
        let new = self.allocate(size, align);
        if new.is_null() {
            return if size <= has { block } else { new };
        }
        // SAFETY: both blocks have these bytes, and the old one is not used any more.
        unsafe {
            ptr::copy_nonoverlapping(block, new, has.min(size));
            self.free(block);
        }
        new
    }
}

impl Default for IaMalloc {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: blocks have the size and alignment of their layout, and are no other's until they are freed.
unsafe impl GlobalAlloc for IaMalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.allocate(layout.size(), layout.align())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.allocate_zeroed(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: by the trait's contract.
        unsafe { self.free(block) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the trait's contract.
        unsafe { self.reallocate(block, size, layout.align()) }
    }
}
