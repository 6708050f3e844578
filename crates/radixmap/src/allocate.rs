//! Memory for the parts of a node.

#[cfg(not(loom))]
use alloc::alloc::alloc_zeroed;
use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::fmt;
use core::mem;
use core::ptr::NonNull;

use crate::levels::FANOUT;

/// The error of an allocation of a node that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for a node of the map")
    }
}

impl core::error::Error for OutOfMemory {}

/// Allocates a `T` that consists of words, with the value that `word` returns for each index.
pub(crate) fn allocate_words<T, W>(word: impl Fn(usize) -> W) -> Result<NonNull<T>, OutOfMemory> {
    const { assert!(size_of::<T>() >= FANOUT * size_of::<W>()) };
    let fresh = Fresh(allocate::<T>()?);
    for index in 0..FANOUT {
        // SAFETY: inside the allocation, which is ours alone.
        unsafe { fresh.0.cast::<W>().add(index).write(word(index)) };
    }
    let memory = fresh.0;
    mem::forget(fresh);
    Ok(memory)
}

/// Memory that is freed if the caller's code panics.
struct Fresh<T>(NonNull<T>);

impl<T> Drop for Fresh<T> {
    fn drop(&mut self) {
        // SAFETY: from `allocate`, and no other core has seen it. The words written so far need no drop.
        unsafe { free(self.0) }
    }
}

/// Allocates a `T`, which is not initialised.
pub(crate) fn allocate<T>() -> Result<NonNull<T>, OutOfMemory> {
    const { assert!(size_of::<T>() > 0) };
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc(Layout::new::<T>()) }.cast()).ok_or(OutOfMemory)
}

/// Allocates a `T` that consists of zeroes.
///
/// # Safety
/// A `T` may be zeroes.
#[cfg(not(loom))]
pub(crate) unsafe fn allocate_zeroes<T>() -> Result<NonNull<T>, OutOfMemory> {
    const { assert!(size_of::<T>() > 0) };
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc_zeroed(Layout::new::<T>()) }.cast()).ok_or(OutOfMemory)
}

/// Frees memory.
///
/// # Safety
/// It was allocated here as a `T`, and no core uses it any more.
pub(crate) unsafe fn free<T>(memory: NonNull<T>) {
    // SAFETY: allocated with this layout. The caller promises that it is unused.
    unsafe { dealloc(memory.as_ptr().cast(), Layout::new::<T>()) }
}
