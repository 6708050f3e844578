//! A value in a block that has room for its own callback, so that retiring it needs no memory.

use alloc::alloc::alloc;
use alloc::boxed::Box;
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, offset_of};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use percore::Pinned;

use crate::Domain;
use crate::queue::Head;

/// The error of an allocation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for a value and its callback")
    }
}

impl core::error::Error for OutOfMemory {}

/// The value comes first, so that its address is the block's.
#[repr(C)]
struct Block<T> {
    value: T,
    head: Head,
}

/// Like `Box`, but made to be published by a pointer and [retired](Domain::retire) later.
#[derive(Debug)]
pub struct Owned<T> {
    block: NonNull<Block<T>>,
    _owns: PhantomData<T>,
}

// SAFETY: it owns its value, and nothing else.
unsafe impl<T: Send> Send for Owned<T> {}
// SAFETY: a shared `Owned` gives `&T`.
unsafe impl<T: Sync> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Moves `value` into a block of its own.
    ///
    /// # Errors
    /// Returns [`OutOfMemory`], and drops `value`.
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        // SAFETY: a block has a head, so its size is not 0.
        let memory = unsafe { alloc(Layout::new::<Block<T>>()) };
        let block = NonNull::new(memory.cast::<Block<T>>()).ok_or(OutOfMemory)?;
        // SAFETY: just allocated with this layout.
        unsafe { block.write(Block { value, head: Head::new(reclaim::<T>) }) };
        Ok(Self { block, _owns: PhantomData })
    }

    /// Releases ownership of the value, so that the caller can publish it. [`from_raw`](Self::from_raw) takes
    /// it back.
    pub fn into_raw(self) -> NonNull<T> {
        mem::ManuallyDrop::new(self).block.cast()
    }

    /// Takes back a value that [`into_raw`](Self::into_raw) released.
    ///
    /// # Safety
    /// The pointer comes from `into_raw`, and was not taken back yet. As long as others may use the value,
    /// the caller only retires the result, under the conditions of [`Domain::defer`].
    pub unsafe fn from_raw(value: NonNull<T>) -> Self {
        Self { block: value.cast(), _owns: PhantomData }
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the block is ours.
        unsafe { &self.block.as_ref().value }
    }
}

impl<T> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the block is ours alone.
        unsafe { &mut self.block.as_mut().value }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the block is ours alone, and is not used after this.
        unsafe { free(self.block) }
    }
}

impl Domain {
    /// Drops the value after a grace period, on some core.
    ///
    /// # Panics
    /// Panics if this core is offline. The value is leaked then, because others may be using it.
    pub fn retire<T: Send + 'static>(&self, pin: &Pinned, value: Owned<T>) {
        let block = mem::ManuallyDrop::new(value).block;
        // SAFETY: the pointer stays within the block.
        let head = unsafe { NonNull::new_unchecked(&raw mut (*block.as_ptr()).head) };
        // SAFETY: only its owner can retire the value, so this is the first time. `reclaim` frees this block.
        unsafe { self.defer(pin, head) }
    }
}

/// Frees a block after its grace period.
///
/// # Safety
/// Called once, with the head of a `Block<T>` that was retired.
unsafe fn reclaim<T>(head: NonNull<Head>) {
    // SAFETY: the head lies in a block of ours, and its pointer is good for all of it. No reader is left.
    unsafe { free(head.byte_sub(offset_of!(Block<T>, head)).cast::<Block<T>>()) }
}

/// Frees a block and drops its value.
///
/// # Safety
/// The block is the caller's alone, and is not used again.
unsafe fn free<T>(block: NonNull<Block<T>>) {
    // SAFETY: the caller owns the block, which was allocated as a box is. A box is freed even if its value's
    // drop panics.
    drop(unsafe { Box::from_raw(block.as_ptr()) });
}
