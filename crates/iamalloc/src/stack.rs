//! Blocks that other threads have freed, for the thread whose sub-heap has them.

use core::fmt;
use core::ptr;

use sync::atomic::{AtomicPtr, Ordering};

/// A free block. Its first word leads to the next one.
#[repr(C)]
#[derive(Debug)]
pub struct Block {
    next: *mut Block,
}

impl Block {
    /// Makes free memory a block that leads to `next`.
    ///
    /// # Safety
    /// The memory is aligned for a pointer and has room for one, and is the caller's alone.
    pub unsafe fn write(memory: *mut u8, next: *mut Block) -> *mut Block {
        let block: *mut Block = memory.cast();
        // SAFETY: by this function's contract.
        unsafe { block.write(Block { next }) };
        block
    }

    /// Returns the next block.
    ///
    /// # Safety
    /// `block` was made by [`Self::write`], and is the caller's alone.
    pub unsafe fn next(block: *mut Block) -> *mut Block {
        // SAFETY: by this function's contract.
        unsafe { (*block).next }
    }
}

/// A stack to which every thread adds blocks, and of which one thread takes all.
pub struct Stack(AtomicPtr<Block>);

impl Stack {
    /// Creates an empty stack.
    pub fn new() -> Self {
        Stack(AtomicPtr::new(ptr::null_mut()))
    }

    /// Adds a block.
    ///
    /// # Safety
    /// As for [`Block::write`]. The memory is the stack's from now on.
    pub unsafe fn push(&self, memory: *mut u8) {
        let mut top = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: by this function's contract, until the exchange succeeds.
            let block = unsafe { Block::write(memory, top) };
            // Release: the owner sees the link, and what this thread did with the memory comes before its
            // next use. Pairs with the Acquire in `take`. No block leaves except with all others, so the same
            // top means the same stack.
            match self.0.compare_exchange_weak(top, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all blocks, linked, or null. They are the caller's.
    pub fn take(&self) -> *mut Block {
        if self.0.load(Ordering::Relaxed).is_null() {
            return ptr::null_mut();
        }
        // Acquire: pairs with the Release in `push`. Later pushes read the null, so no earlier push needs
        // this exchange to release.
        self.0.swap(ptr::null_mut(), Ordering::Acquire)
    }
}

impl Default for Stack {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").finish_non_exhaustive()
    }
}
