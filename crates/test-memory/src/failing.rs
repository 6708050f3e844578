use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Number of allocations that still succeed, or none for no limit.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    static OWNED: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which fails on demand, and counts what each thread owns.
#[derive(Debug)]
pub struct Failing;

// SAFETY: either the system's allocator, or a refusal.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if LEFT.get() == Some(0) {
            return std::ptr::null_mut();
        }
        LEFT.set(LEFT.get().map(|left| left - 1));
        OWNED.set(OWNED.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        OWNED.set(OWNED.get() - 1);
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Blocks that this thread has allocated and not freed.
pub fn owned() -> isize {
    OWNED.get()
}

/// Runs `operation` with room for `left` allocations of this thread.
pub fn with_allocations<T>(left: usize, operation: impl FnOnce() -> T) -> T {
    LEFT.set(Some(left));
    let result = operation();
    LEFT.set(None);
    result
}
