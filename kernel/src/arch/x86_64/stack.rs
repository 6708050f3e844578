//! Kernel stacks, each above an unmapped hole: running over the end is a double fault, not silent corruption.
//!
//! A stack's pages stay mapped when it is given back (taking them away would need every core's TLB); a new
//! task gets a used stack before a new one is made.

use core::sync::atomic::{AtomicU64, Ordering};

use alloc::vec::Vec;
use sync::SpinLock;

use super::kernel_map::{STACKS, map_new_page};

const PAGE: u64 = 4096;
/// Bytes of a stack, and of the hole below it.
const BYTES: u64 = 4 * PAGE;
const STRIDE: u64 = 2 * BYTES;

/// Tops of stacks without a task.
static UNUSED: SpinLock<Vec<u64>> = SpinLock::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A task's kernel stack; given back when dropped.
#[derive(Debug)]
pub struct KernelStack {
    top: u64,
}

impl KernelStack {
    /// A stack, unless memory is short.
    pub fn new() -> Option<Self> {
        let used = UNUSED.lock().pop();
        used.or_else(map_stack).map(|top| Self { top })
    }

    /// The address just above it.
    pub fn top(&self) -> u64 {
        self.top
    }
}

fn map_stack() -> Option<u64> {
    // Room to give every stack back, so that `drop` never allocates.
    UNUSED.lock().try_reserve(NEXT.load(Ordering::Relaxed) as usize + 1).ok()?;
    // Relaxed: only uniqueness matters.
    let top = STACKS + (NEXT.fetch_add(1, Ordering::Relaxed) + 1) * STRIDE;
    let pin = percore::pin();
    (top - BYTES..top).step_by(PAGE as usize).try_for_each(|at| map_new_page(&pin, at))?;
    Some(top)
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        UNUSED.lock().push(self.top);
    }
}
