use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Number of blocks of nodes that are still given out, or `usize::MAX` for no limit.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Size and alignment of a node's blocks (header, slots, second words) and of a tree's node. Per-core objects
/// are larger, or less aligned.
const BLOCKS: [(usize, usize); 4] = [(128, 128), (4096, 4096), (4096, 64), (192, 64)];

/// The system's allocator, which on demand has no memory for the nodes of maps and trees. All other
/// allocations succeed.
#[derive(Debug)]
pub struct FailingNodes;

fn refuses(layout: Layout) -> bool {
    let left = LEFT.get();
    if !BLOCKS.contains(&(layout.size(), layout.align())) || left == usize::MAX {
        return false;
    }
    LEFT.set(left.saturating_sub(1));
    left == 0
}

// SAFETY: either the system's allocator, or a refusal.
unsafe impl GlobalAlloc for FailingNodes {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        if refuses(layout) { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs `operation` with memory for `left` more blocks of nodes, for this thread. There is enough again when
/// it is over, also by a panic.
pub fn with_blocks<T>(left: usize, operation: impl FnOnce() -> T) -> T {
    struct Enough;
    impl Drop for Enough {
        fn drop(&mut self) {
            LEFT.set(usize::MAX);
        }
    }
    let _enough = Enough;
    LEFT.set(left);
    operation()
}
