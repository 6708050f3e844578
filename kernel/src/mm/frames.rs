//! Physical memory, 4 KiB at a time: a [`Magazine`] of frames per core over the global pool.
//!
//! In the steady state a core touches its own magazine only. An empty stack takes a batch and a full one
//! gives a batch back: batches of single frames from and to the [`depot`] of a group of cores, or the pool
//! where the depot is empty or full. So a frame may be freed on any core and used again on any other. The
//! stack of single frames holds most of the frames that come free when an epoch turns.
//!
//! A core that sleeps keeps its magazine, unless the pool has little left. A core that is short of memory
//! collects the magazines of others (`epoch::reclaim`).

mod depot;
mod pool;

use percore::Pinned;
use vm::FrameNum;

use self::pool::{EMERGENCY, add, alloc_emergency, emergency, is_reserved, is_scarce, note_level, pool};
pub(super) use self::pool::{alloc_block, alloc_singles, each_owner, exists, free_block, note, pool_notes};
pub use self::pool::{end, init, is_low, reserve, total};
use super::FRAME;
use super::fault_injection;
use super::huge_frames;
use super::magazine::{Dirty, Magazine, Stack};
use super::owner::Owner;
use super::read_refs;
use crate::above::Above;
use crate::arch::per_core::all_cores;
use crate::arch::{self, KernelFrames, phys_to_virt};
use crate::counters::{self, Counter};

/// As long as one part in `PLENTY` of all memory is free in the pool, it does not matter which frames are
/// handed out.
const PLENTY: u64 = 2;

/// With this many free frames, an allocation failed only because they are not contiguous, or for a moment.
/// Then another try is worthwhile.
pub const SOME: u64 = 64;

all_cores! {
    static MAGAZINES: Magazine = Magazine::new();
}

#[inline(always)]
pub(super) fn mine(pin: &Pinned) -> &'static Magazine {
    MAGAZINES.mine(pin)
}

/// Allocates a frame of zeroes.
#[inline]
pub fn alloc_zeroed(pin: &Pinned) -> Option<FrameNum> {
    zeroed_of(pin, alloc_raw)
}

/// Allocates a frame of zeroes for a page of a program, which can wait. Returns `None` while the rest is
/// reserved for the kernel.
#[inline]
pub fn alloc_page(pin: &Pinned) -> Option<FrameNum> {
    zeroed_of(pin, beyond_reserve)
}

#[inline(always)]
fn zeroed_of(pin: &Pinned, raw: impl FnOnce(&Pinned) -> Option<u64>) -> Option<FrameNum> {
    if fault_injection::should_fail() {
        return None;
    }
    let frame = match mine(pin).zeroed.pop() {
        Some(frame) => frame,
        None => zeroed(pin, raw(pin)?),
    };
    counters::add(pin, Counter::FramesUsed, 1);
    Some(FrameNum::new(frame))
}

/// Allocates a frame with the bytes of `from`, which the caller may read, for a page as [`alloc_page`]
/// returns one.
pub fn alloc_copy(pin: &Pinned, from: FrameNum) -> Option<FrameNum> {
    let frame = if fault_injection::should_fail() { None } else { beyond_reserve(pin) }?;
    // SAFETY: only this caller has the new frame, and it keeps the other.
    unsafe { arch::copy_frame(phys_to_virt(frame * FRAME), phys_to_virt(from.get() * FRAME)) };
    counters::add(pin, Counter::FramesUsed, 1);
    Some(FrameNum::new(frame))
}

/// Fills a frame that the caller owns and that no one else sees with the bytes of `from`, which the caller
/// may read, or with zeroes.
pub fn fill(pin: &Pinned, frame: FrameNum, from: Option<FrameNum>) {
    let Some(from) = from else {
        zeroed(pin, frame.get());
        return;
    };
    // SAFETY: only the caller has the frame, and it keeps the other.
    unsafe { arch::copy_frame(phys_to_virt(frame.get() * FRAME), phys_to_virt(from.get() * FRAME)) };
}

/// Takes a frame back.
#[inline]
pub fn free(pin: &Pinned, frame: FrameNum) {
    counters::add(pin, Counter::FramesUsed, -1);
    free_raw(pin, frame.get());
}

/// Allocates a frame with any contents, not counted as a program's.
#[inline]
pub(super) fn alloc_raw(pin: &Pinned) -> Option<u64> {
    dirty(pin).or_else(|| mine(pin).zeroed.pop())
}

/// Does the same, but not from a pool whose rest is reserved for the kernel.
#[inline]
fn beyond_reserve(pin: &Pinned) -> Option<u64> {
    let magazine = mine(pin);
    magazine.dirty.pop().or_else(|| if is_reserved() { magazine.zeroed.pop() } else { alloc_raw(pin) })
}

/// Allocates a frame that is not known to be zeroed.
#[inline]
fn dirty(pin: &Pinned) -> Option<u64> {
    let dirty = &mine(pin).dirty;
    dirty.pop().or_else(|| {
        refill(pin, dirty);
        dirty.pop()
    })
}

/// Fetches a batch from the depot of this group of cores, or from the pool. While the pool has plenty, the
/// batch is one block, so that the pool is locked for a moment only. With less in the pool it is made of
/// scattered frames, so that the blocks that are left stay whole. When the pool is empty, the batch comes
/// from any depot.
fn refill(pin: &Pinned, dirty: &Dirty) {
    if depot::take(pin.core(), dirty) {
        return;
    }
    if let Some(block) = alloc_singles(Dirty::BATCH.ilog2() as usize, total() / PLENTY) {
        return (block..block + Dirty::BATCH as u64).rev().for_each(|frame| _ = dirty.push(frame));
    }
    fill_from_pool(dirty);
    if dirty.len() == 0 && !depot::take_any(dirty) {
        alloc_emergency().map(|frame| dirty.push(frame));
    }
}

fn fill_from_pool(dirty: &Dirty) {
    let mut pool = pool();
    dirty.refill(&mut pool, 0, EMERGENCY);
    note_level(&pool);
}

/// Takes back what [`alloc_raw`] gave.
#[inline]
pub(super) fn free_raw(pin: &Pinned, frame: u64) {
    let dirty = &mine(pin).dirty;
    if !dirty.push(frame) {
        make_room(pin, dirty);
        dirty.push(frame);
    }
}

/// Gives a batch of a full stack away: to the depot, unless that is full or the pool has little.
#[cold]
fn make_room(pin: &Pinned, dirty: &Dirty) {
    if is_scarce() || !depot::put(pin.core(), dirty) {
        spill(dirty, 0);
    }
}

/// Gives a batch of `stack` back to the pool.
fn spill<const N: usize>(stack: &Stack<N>, order: usize) {
    let mut pool = pool();
    stack.spill_batch(&mut pool, order);
    note_level(&pool);
}

/// Allocates two contiguous frames, aligned to 8 KiB.
pub(super) fn alloc_pair(pin: &Pinned) -> Option<u64> {
    let pairs = &mine(pin).pairs;
    pairs.pop().or_else(|| {
        pairs.refill(&mut pool(), 1, EMERGENCY);
        pairs.pop().or_else(|| alloc_block(1))
    })
}

/// Takes a pair back.
pub(super) fn free_pair(pin: &Pinned, block: u64) {
    let pairs = &mine(pin).pairs;
    if !pairs.push(block) {
        spill(pairs, 1);
        pairs.push(block);
    }
}

impl KernelFrames for Above {
    fn alloc_table(pin: &Pinned) -> Option<u64> {
        if fault_injection::should_fail() {
            return None;
        }
        let frame = mine(pin).zeroed.pop().or_else(|| zeroed_now(pin))?;
        counters::add(pin, Counter::TablePages, 1);
        Some(frame)
    }
    fn free_table(pin: &Pinned, frame: u64) {
        counters::add(pin, Counter::TablePages, -1);
        free_raw(pin, frame);
    }
    fn alloc_kernel_table(pin: &Pinned) -> Option<u64> {
        alloc_kernel(pin, Owner::KERNEL_TABLE)
    }
    fn alloc_stack(pin: &Pinned) -> Option<u64> {
        alloc_kernel(pin, Owner::STACK)
    }
    fn free_stack(pin: &Pinned, frame: u64) {
        note(frame, Owner::held(0));
        free_raw(pin, frame);
    }
    fn take_image(start: u64, end: u64) {
        add(start, end);
    }
    fn add_reads(frame: u64, reads: i64) {
        read_refs::add(FrameNum::new(frame), reads);
    }
}

/// Allocates a frame of zeroes that the kernel keeps for this purpose.
fn alloc_kernel(pin: &Pinned, owner: Owner) -> Option<u64> {
    zeroed_now(pin).inspect(|&frame| note(frame, owner))
}

/// Allocates a frame of zeroes for a node of a file's tree.
pub(super) fn alloc_node(pin: &Pinned) -> Option<u64> {
    if fault_injection::should_fail() { None } else { zeroed_now(pin) }
}

fn zeroed_now(pin: &Pinned) -> Option<u64> {
    alloc_raw(pin).map(|frame| zeroed(pin, frame))
}

/// Fills a frame that the caller owns with zeroes.
#[inline]
fn zeroed(pin: &Pinned, frame: u64) -> u64 {
    // SAFETY: only this caller has the frame.
    unsafe { arch::zero_frames(phys_to_virt(frame * FRAME), 1) };
    counters::add(pin, Counter::FramesZeroed, 1);
    frame
}

/// Zeroes one frame ahead, in idle time. Returns whether there was anything to do.
pub fn prepare_one(pin: &Pinned) -> bool {
    let magazine = mine(pin);
    if magazine.zeroed.is_half_full() {
        return false;
    }
    // Not `zeroed_now`, which falls back on the very frames that are ready.
    dirty(pin).is_some_and(|frame| magazine.zeroed.push(zeroed(pin, frame)))
}

/// Zeroes frames ahead before this core sleeps. The core keeps its magazine, since it would fetch the same
/// frames again when it wakes, by a lock that others take. If the pool has little, it keeps only zeroed
/// frames.
pub fn rest(pin: &Pinned) {
    while prepare_one(pin) {}
    if is_scarce() {
        spill_raw(pin);
    }
}

/// Gives back to the pool all that this core keeps ready, and what is in depots.
pub fn give_back(pin: &Pinned) {
    spill_raw(pin);
    spill_all(&mine(pin).zeroed, 0);
    depot::empty_all();
}

/// Gives back what is beyond this core's zeroed frames.
fn spill_raw(pin: &Pinned) {
    let magazine = mine(pin);
    spill_all(&magazine.dirty, 0);
    spill_all(&magazine.pairs, 1);
    spill_all(&magazine.huge, huge_frames::ORDER);
}

/// Empties a stack, a batch at a time, so that the pool is not locked for long.
fn spill_all<const N: usize>(stack: &Stack<N>, order: usize) {
    while stack.len() > 0 {
        spill(stack, order);
    }
}

/// The amounts of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Returns the number of frames of usable memory at boot.
    pub total: u64,
    /// Frames that have no owner.
    pub free: u64,
    /// Free frames that the running task can have at once, on any core.
    pub pooled: u64,
}

/// Returns the current amounts. Approximate while other cores run.
pub fn stats() -> Stats {
    let magazines: usize = MAGAZINES.first(arch::cores()).map(|magazine| magazine.frames()).sum();
    let (pool, depots) = (pool().free_frames(), depot::frames() as u64);
    let pooled = pool.saturating_sub(emergency()) + depots;
    Stats { total: total(), free: pool + depots + magazines as u64, pooled }
}

/// Returns whether any core can have some frames at once, so that an allocation that fails does not fail for
/// lack of frames.
pub fn has_plenty() -> bool {
    stats().pooled >= SOME
}

/// Calls `f` with the bytes of a frame that the caller owns and no program sees yet.
///
/// # Panics
/// If there is no such frame.
pub fn with_bytes<R>(frame: FrameNum, f: impl FnOnce(&mut [u8; FRAME as usize]) -> R) -> R {
    assert!(exists(frame), "no such frame");
    // SAFETY: memory that the pool once handed out, and the caller is its owner.
    f(unsafe { &mut *phys_to_virt(frame.get() * FRAME) })
}
