//! IAmalloc as the `malloc` of unmodified programs: the dynamic linker loads this library first (LD_PRELOAD),
//! so the program's calls come here. `radixvm native --malloc` does that.
//!
//! The functions are those of C and POSIX, and glibc's `memalign`, `pvalloc` and `malloc_usable_size`. With
//! `IAMALLOC_PAD=1` in the environment each block has whole cache lines.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};

use iamalloc::IaMalloc;

/// The alignment of a block for which none is asked for, in bytes.
const ALIGN: usize = 16;
const PAGE: usize = 4096;

/// The kind of memory, once it is known. Relaxed: each thread finds the same.
static KIND: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const PLAIN: u8 = 1;
const PADDED: u8 = 2;

#[inline(always)]
fn memory() -> IaMalloc {
    match KIND.load(Ordering::Relaxed) {
        PLAIN => IaMalloc::new(),
        PADDED => IaMalloc::padded(),
        _ => find_kind(),
    }
}

/// Looks for the variable. The program's first call comes when its environment is there.
#[cold]
fn find_kind() -> IaMalloc {
    // SAFETY: the name is a string. The result is read before the program can change it.
    let is_padded = unsafe {
        let value = libc::getenv(c"IAMALLOC_PAD".as_ptr());
        !value.is_null() && *value as u8 == b'1'
    };
    KIND.store(if is_padded { PADDED } else { PLAIN }, Ordering::Relaxed);
    if is_padded { IaMalloc::padded() } else { IaMalloc::new() }
}

/// Returns a block, or sets ENOMEM.
#[inline(always)]
fn checked(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        set_errno(libc::ENOMEM);
    }
    block.cast()
}

#[cold]
fn set_errno(error: c_int) {
    // SAFETY: the word is the thread's.
    unsafe { *libc::__errno_location() = error };
}

/// Allocates `size` bytes. Returns null and sets ENOMEM if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    checked(memory().allocate(size, ALIGN))
}

/// Allocates `count` elements of `size` zeroed bytes.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) => checked(memory().allocate_zeroed(bytes, ALIGN)),
        None => checked(ptr::null_mut()),
    }
}

/// Frees a block. Null is none.
///
/// # Safety
/// It was allocated here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if !block.is_null() {
        // SAFETY: by this function's contract. Like C's, it changes no `errno`.
        unsafe { memory().free(block.cast()) };
    }
}

/// Changes the size of a block, which may move. A null block is a new one. A size of 0 frees it, as glibc
/// does.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return malloc(size);
    }
    if size == 0 {
        // SAFETY: by this function's contract.
        unsafe { free(block) };
        return ptr::null_mut();
    }
    // SAFETY: by this function's contract.
    checked(unsafe { memory().reallocate(block.cast(), size, ALIGN) })
}

/// Allocates `size` bytes at a multiple of `align`. Returns the error: EINVAL if `align` is no power of two
/// times the size of a pointer, else ENOMEM, also for an alignment of more than 2 MiB.
///
/// # Safety
/// `place` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    let block = memory().allocate(size, align);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: by this function's contract.
    unsafe { place.write(block.cast()) };
    0
}

/// Allocates `size` bytes at a multiple of `align`, which is rounded up to a power of two as in glibc.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => checked(memory().allocate(size, align)),
        None => checked(ptr::null_mut()),
    }
}

/// Does the same as [`aligned_alloc`].
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    aligned_alloc(align, size)
}

/// Allocates `size` bytes at a page.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    aligned_alloc(PAGE, size)
}

/// Allocates whole pages for `size` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE) {
        Some(bytes) => aligned_alloc(PAGE, bytes),
        None => checked(ptr::null_mut()),
    }
}

/// Returns the bytes that a block has. Null has none.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: by this function's contract.
    if block.is_null() { 0 } else { unsafe { memory().usable_size(block.cast()) } }
}
