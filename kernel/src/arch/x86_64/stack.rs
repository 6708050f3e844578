//! Kernel stacks, each above an unmapped hole: running over the end is a double fault, not silent corruption.
//!
//! A stack's pages stay mapped when it is given back (taking them away would need every core's TLB); a new
//! task gets a used stack before a new one is made.

use alloc::vec::Vec;
use sync::SpinLock;

use super::kernel_map::{STACKS, map_new_page};

const PAGE: u64 = 4096;
/// Bytes of a stack, and of the hole below it.
const BYTES: u64 = 4 * PAGE;
const STRIDE: u64 = 2 * BYTES;

/// As many as the one entry of the top tables that all spaces share can hold.
const MOST: u64 = (512 << 30) / STRIDE;

/// All stacks.
struct Stacks {
    /// Tops of those without a task. Has room for all that were made, so that `drop` never allocates.
    unused: Vec<u64>,
    made: u64,
    /// Bytes that the next one to be made has already: memory was short when it was tried last.
    begun: u64,
}

static ALL: SpinLock<Stacks> = SpinLock::new(Stacks { unused: Vec::new(), made: 0, begun: 0 });

/// A task's kernel stack; given back when dropped.
#[derive(Debug)]
pub struct KernelStack {
    top: u64,
}

impl KernelStack {
    /// A stack, unless memory is short.
    pub fn new() -> Option<Self> {
        let mut all = ALL.lock();
        let used = all.unused.pop();
        used.or_else(|| all.make()).map(|top| Self { top })
    }

    /// The address just above it.
    pub fn top(&self) -> u64 {
        self.top
    }
}

impl Stacks {
    /// Makes one, or goes on with the one that was begun.
    fn make(&mut self) -> Option<u64> {
        if self.made == MOST {
            return None;
        }
        self.unused.try_reserve(self.made as usize + 1).ok()?;
        let top = STACKS + (self.made + 1) * STRIDE;
        let pin = percore::pin();
        while self.begun < BYTES {
            map_new_page(&pin, top - BYTES + self.begun)?;
            self.begun += PAGE;
        }
        (self.made, self.begun) = (self.made + 1, 0);
        Some(top)
    }
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        ALL.lock().unused.push(self.top);
    }
}
