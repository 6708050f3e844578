//! The memory of freed nodes is not used again, and what is read there is nonsense.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Overwrites the slots and sides of freed nodes and never gives them out again: a model that touches one goes astray at
/// once. Counts those that were not freed: loom runs a model's threads on one.
struct Poison;

thread_local! {
    pub static FRAMES: Cell<isize> = const { Cell::new(0) };
}

const FRAME_ALIGN: usize = 64;

// SAFETY: the system's allocator, but for blocks that it gets back never.
unsafe impl GlobalAlloc for Poison {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        FRAMES.set(FRAMES.get() + isize::from(layout.align() == FRAME_ALIGN));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.align() == FRAME_ALIGN {
            FRAMES.set(FRAMES.get() - 1);
            // SAFETY: the block is the caller's to dispose of.
            return unsafe { memory.write_bytes(0xa5, layout.size()) };
        }
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Poison = Poison;
