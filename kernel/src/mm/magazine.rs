//! What one core keeps of the memory: stacks of block numbers, touched by their owner only.
//!
//! Kernel code is not preempted and interrupt handlers neither allocate nor free, so a pinned caller is alone
//! with its magazine. Other cores read the stacks' lengths only.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::buddy::Buddy;
use super::huge_frames;

const ZEROED: usize = 64;
const DIRTY: usize = 256;
const PAIRS: usize = 16;
const HUGE: usize = 2;

/// A stack of block numbers. Only its owner core pushes and pops; anybody may read the length.
pub(super) struct Stack<const N: usize> {
    length: AtomicUsize,
    items: UnsafeCell<[u32; N]>,
}

impl<const N: usize> Stack<N> {
    const fn new() -> Self {
        Self { length: AtomicUsize::new(0), items: UnsafeCell::new([0; N]) }
    }

    /// Relaxed throughout: the owner is the only writer, and readers want an estimate.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    /// Adds a block, unless the stack is full.
    #[inline(always)]
    pub fn push(&self, item: u64) -> bool {
        let length = self.len();
        if length == N {
            return false;
        }
        // SAFETY: the pinned owner; see the module's prose.
        unsafe { (*self.items.get())[length] = item as u32 };
        self.length.store(length + 1, Ordering::Relaxed);
        true
    }

    /// Takes the block that was added last.
    #[inline(always)]
    pub fn pop(&self) -> Option<u64> {
        let length = self.len();
        if length == 0 || length > N {
            return None;
        }
        self.length.store(length - 1, Ordering::Relaxed);
        // SAFETY: the pinned owner; see the module's prose.
        Some(u64::from(unsafe { (*self.items.get())[length - 1] }))
    }

    /// Takes blocks of 2^`order` frames from the pool until half full.
    pub fn refill(&self, pool: &mut Buddy, order: usize) {
        while !self.is_half_full() {
            let Some(block) = pool.alloc(order) else { return };
            self.push(block);
        }
    }

    /// Gives the upper half back to the pool.
    pub fn spill_half(&self, pool: &mut Buddy, order: usize) {
        self.spill(pool, order, N / 2);
    }

    /// Gives everything back to the pool.
    pub fn spill_all(&self, pool: &mut Buddy, order: usize) {
        self.spill(pool, order, 0);
    }

    fn spill(&self, pool: &mut Buddy, order: usize, keep: usize) {
        while self.len() > keep {
            let Some(block) = self.pop() else { return };
            // SAFETY: a magazine holds blocks of its order that nobody uses.
            unsafe { pool.free(block, order) };
        }
    }

    /// Whether half of what fits is there.
    pub fn is_half_full(&self) -> bool {
        self.len() >= N / 2
    }
}

/// One core's stacks.
pub(super) struct Magazine {
    /// Frames of zeroes, ready for a page fault. Filled in idle time.
    pub zeroed: Stack<ZEROED>,
    /// Any other frame.
    pub dirty: Stack<DIRTY>,
    /// Blocks of two frames, for heap objects of that size.
    pub pairs: Stack<PAIRS>,
    /// Blocks of the frames of a huge page.
    pub huge: Stack<HUGE>,
}

impl Magazine {
    /// An empty one.
    pub const fn new() -> Self {
        Self { zeroed: Stack::new(), dirty: Stack::new(), pairs: Stack::new(), huge: Stack::new() }
    }

    /// How many frames it holds. An estimate for anybody but the owner.
    pub fn frames(&self) -> usize {
        self.zeroed.len() + self.dirty.len() + 2 * self.pairs.len() + (self.huge.len() << huge_frames::ORDER)
    }
}

// SAFETY: the stacks' items are touched by the owner core only, as `mine` hands them to pinned callers.
unsafe impl Sync for Magazine {}
