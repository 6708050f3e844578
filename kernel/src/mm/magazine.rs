//! The memory that one core keeps: stacks of block numbers, accessed by their owner only.
//!
//! Kernel code is not preempted, and interrupt handlers neither allocate nor free, so a pinned caller is
//! alone with its magazine. Other cores read the stacks' lengths only.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::buddy::Buddy;
use super::huge_frames;

const ZEROED: usize = 64;
/// A larger stack would keep cores that create and end processes off the pool also when an epoch has turned,
/// but would cost small machines memory: the stack is reserved for every possible core.
const DIRTY: usize = 512;
const PAIRS: usize = 16;
const HUGE: usize = 2;
/// log2 of the largest batch, so that no core has the pool's lock for long.
const LARGEST_BATCH: usize = 7;

/// A stack of block numbers. Only its owner core pushes and pops. Any core may read the length.
pub(super) struct Stack<const N: usize> {
    length: AtomicUsize,
    items: UnsafeCell<[u32; N]>,
}

impl<const N: usize> Stack<N> {
    /// Number of blocks that the pool gives or takes at once.
    pub const BATCH: usize = if N > 2 << LARGEST_BATCH { 1 << LARGEST_BATCH } else { N / 2 };

    const fn new() -> Self {
        Self { length: AtomicUsize::new(0), items: UnsafeCell::new([0; N]) }
    }

    /// Returns the number of blocks in the stack. Relaxed throughout: the owner is the only writer, and
    /// readers need an estimate.
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
        // SAFETY: the caller is the pinned owner, see the module.
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
        // SAFETY: the caller is the pinned owner, see the module.
        Some(u64::from(unsafe { (*self.items.get())[length - 1] }))
    }

    /// Takes blocks of 2^`order` frames from the pool, a batch if it is empty, and leaves `left` frames.
    pub fn refill(&self, pool: &mut Buddy, order: usize, left: u64) {
        while self.len() < Self::BATCH {
            let Some(block) = pool.alloc_leaving(order, left) else { return };
            self.push(block);
        }
    }

    /// Gives a batch to the pool, or what there is if that is less.
    pub fn spill_batch(&self, pool: &mut Buddy, order: usize) {
        for _ in 0..Self::BATCH {
            let Some(block) = self.pop() else { return };
            // SAFETY: a magazine holds blocks of its order that are not in use.
            unsafe { pool.free(block, order) };
        }
    }

    /// Returns whether the stack is at least half full.
    pub fn is_half_full(&self) -> bool {
        self.len() >= N / 2
    }
}

/// The stack that batches of single frames come to.
pub(super) type Dirty = Stack<DIRTY>;

/// One core's stacks.
pub(super) struct Magazine {
    /// Frames of zeroes, ready for a page fault. Filled in idle time.
    pub zeroed: Stack<ZEROED>,
    /// Any other frame.
    pub dirty: Dirty,
    /// Blocks of two frames, for heap objects of that size.
    pub pairs: Stack<PAIRS>,
    /// Blocks of the frames of a huge page.
    pub huge: Stack<HUGE>,
}

impl Magazine {
    /// Creates an empty magazine.
    pub const fn new() -> Self {
        Self { zeroed: Stack::new(), dirty: Stack::new(), pairs: Stack::new(), huge: Stack::new() }
    }

    /// Returns the number of frames in the magazine. An estimate for any core but the owner.
    pub fn frames(&self) -> usize {
        self.zeroed.len() + self.dirty.len() + 2 * self.pairs.len() + (self.huge.len() << huge_frames::ORDER)
    }
}

// SAFETY: the stacks' items are touched by the owner core only, as `mine` hands them to pinned callers.
unsafe impl Sync for Magazine {}
