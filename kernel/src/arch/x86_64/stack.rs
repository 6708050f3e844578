//! Kernel stacks, each above an unmapped hole: running over the end is a double fault, not silent corruption.
//!
//! A stack's pages stay mapped when it is given back (taking them away would need every core's TLB); a new
//! task gets a used stack before a new one is made. Each core keeps a few, so that making and ending tasks on one core is
//! nobody else's business.

use alloc::vec::Vec;
use percore::MAX_CORES;
use sync::{CachePadded, SpinLock};

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

/// Stacks that a core keeps.
const KEPT: usize = 8;

/// Tops of the stacks without a task that a core keeps; 0 is none.
static MINE: [CachePadded<SpinLock<[u64; KEPT]>>; MAX_CORES] =
    [const { CachePadded::new(SpinLock::new([0; KEPT])) }; MAX_CORES];

fn take_mine() -> Option<u64> {
    let mut mine = MINE[super::core().index()].lock();
    mine.iter_mut().find(|top| **top != 0).map(core::mem::take)
}

/// Whether there was room for it.
fn keep(top: u64) -> bool {
    let mut mine = MINE[super::core().index()].lock();
    let free = mine.iter_mut().find(|top| **top == 0);
    free.map(|free| *free = top).is_some()
}

/// A task's kernel stack; given back when dropped.
#[derive(Debug)]
pub struct KernelStack {
    top: u64,
}

impl KernelStack {
    /// A stack, unless memory is short.
    pub fn new() -> Option<Self> {
        take_mine().or_else(take_any).map(|top| Self { top })
    }

    /// The address just above it.
    pub fn top(&self) -> u64 {
        self.top
    }
}

fn take_any() -> Option<u64> {
    let mut all = ALL.lock();
    let used = all.unused.pop();
    used.or_else(|| all.make())
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
        if !keep(self.top) {
            ALL.lock().unused.push(self.top);
        }
    }
}
