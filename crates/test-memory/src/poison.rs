use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static POISONABLE: Cell<isize> = const { Cell::new(0) };
}

/// Overwrites the blocks aligned to 64 bytes, which are nodes, when they are freed, and never gives them out
/// again: a model that touches one goes astray at once.
#[derive(Debug)]
pub struct Poison;

const NODE_ALIGN: usize = 64;

// SAFETY: the system's allocator, but for blocks that it never gets back.
unsafe impl GlobalAlloc for Poison {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        POISONABLE.set(POISONABLE.get() + isize::from(layout.align() == NODE_ALIGN));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.align() == NODE_ALIGN {
            POISONABLE.set(POISONABLE.get() - 1);
            // SAFETY: the caller does not use the block again.
            return unsafe { memory.write_bytes(0x5a, layout.size()) };
        }
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Blocks that will be poisoned and are not freed yet, of this thread: loom runs a model's threads on one.
pub fn poisonable() -> isize {
    POISONABLE.get()
}
