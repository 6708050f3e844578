//! The memory that the allocator is made of.

use core::ptr::NonNull;

/// Gives whole pages of memory.
///
/// # Safety
/// A mapping is zeroed, is aligned as asked for, and is no other's until it is unmapped.
pub unsafe trait Source: Sync {
    /// Maps `bytes` of zeroed memory, a multiple of 4 KiB, aligned to `align`, a power of two of at least
    /// 4 KiB. Returns `None` if there is no memory.
    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>>;

    /// Gives a mapping back.
    ///
    /// # Safety
    /// It is a whole mapping of [`Self::map`] with these bytes, and nothing refers to it.
    unsafe fn unmap(&self, start: NonNull<u8>, bytes: usize);

    /// Gives back the memory of pages that stay mapped, and zeroes them. Returns false if they are as they
    /// were.
    ///
    /// # Safety
    /// The pages are part of a mapping, and nothing refers to what is in them.
    unsafe fn discard(&self, start: NonNull<u8>, bytes: usize) -> bool;

    /// Gives memory to pages that are about to be used, all at once. It may do nothing.
    ///
    /// # Safety
    /// The pages are part of a mapping.
    unsafe fn populate(&self, start: NonNull<u8>, bytes: usize);

    /// Changes the size of a mapping, which may move. The bytes that both have stay, and others are zeroed.
    /// Returns the start, aligned as before, or `None` if the mapping is as it was.
    ///
    /// # Safety
    /// It is a whole mapping of [`Self::map`] with `old` bytes and this alignment. If it moves, nothing
    /// refers to it. `new` is a multiple of 4 KiB.
    unsafe fn resize(&self, start: NonNull<u8>, old: usize, new: usize, align: usize) -> Option<NonNull<u8>> {
        let _ = (start, old, new, align);
        None
    }
}
