//! Physical memory, 4 KiB at a time: a [`Magazine`] of frames per core over the global pool.
//!
//! Steady state touches this core's magazine only. An empty stack takes a batch from the pool, a full one
//! gives a batch back, so a frame may be freed on any core and used again on any other.

use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use percore::{MAX_CORES, Pinned};
use sync::{CachePadded, SetOnce, SpinGuard, SpinLock};
use vm::FrameNum;

use super::buddy::Buddy;
use super::descriptors;
use super::huge_frames;
use super::magazine::Magazine;
use super::memory_map::{FRAME, MemoryMap};
use super::owner::{Notes, Owner};
use super::scarcity;
use crate::arch::{self, phys_to_virt, virt_to_phys};
use crate::counters::{self, Counter};

static MAGAZINES: [CachePadded<Magazine>; MAX_CORES] =
    [const { CachePadded::new(Magazine::new()) }; MAX_CORES];
static POOL: CachePadded<SpinLock<Buddy>> = CachePadded::new(SpinLock::new(Buddy::new(Notes::NONE)));
static NOTES: SetOnce<Notes> = SetOnce::new();
/// Relaxed, like the next: written at boot.
static TOTAL: AtomicUsize = AtomicUsize::new(0);
static END: AtomicU64 = AtomicU64::new(0);
/// Whether less than [`RESERVE`] frames are in the pool. Relaxed: a hint.
static LOW: AtomicBool = AtomicBool::new(false);
/// Frames that clean pages of files leave to those who cannot wait for memory: the kernel's heap, writes.
const RESERVE: u64 = 256;

#[inline(always)]
pub(super) fn mine(pin: &Pinned) -> &'static Magazine {
    &MAGAZINES[pin.core().index()]
}

fn pool() -> SpinGuard<'static, Buddy> {
    POOL.lock()
}

/// Opens the pool with the memory below `limit` that the boot map shows; [`add_above`] brings the rest.
///
/// # Safety
/// Once, before anything allocates; the map is true and nobody uses the memory.
pub unsafe fn init(map: &mut MemoryMap, limit: u64) {
    let end = map.end_frame();
    assert!(end <= u64::from(u32::MAX), "magazines keep 32 bits of a frame's number");
    let states = map.carve(end, limit);
    descriptors::init(map);
    TOTAL.store(map.frames() as usize, Ordering::Relaxed);
    END.store(end, Ordering::Relaxed);
    // SAFETY: carved out for the notes.
    let notes = Notes::new(unsafe { slice::from_raw_parts(phys_to_virt(states), end as usize) });
    NOTES.set(notes);
    let mut buddy = Buddy::new(notes);
    for (start, end) in map.iter().filter(|(start, _)| *start < limit) {
        // SAFETY: free memory below the limit, which the boot map shows.
        unsafe { buddy.add(start / FRAME, end.min(limit) / FRAME) };
    }
    *pool() = buddy;
}

/// Adds the memory above `limit`.
///
/// # Safety
/// Once, after [`init`] with the same arguments, when the physmap shows all memory.
pub unsafe fn add_above(map: &MemoryMap, limit: u64) {
    for (start, end) in map.iter().filter(|(_, end)| *end > limit) {
        // SAFETY: free memory that the physmap shows now.
        unsafe { pool().add(start.max(limit) / FRAME, end / FRAME) };
    }
}

/// A frame of zeroes.
#[inline]
pub fn alloc_zeroed(pin: &Pinned) -> Option<FrameNum> {
    if scarcity::strikes() {
        return None;
    }
    let frame = match mine(pin).zeroed.pop() {
        Some(frame) => frame,
        None => zeroed_now(pin)?,
    };
    counters::add(pin, Counter::FramesUsed, 1);
    Some(FrameNum::new(frame))
}

/// A frame with the bytes of `from`, which the caller may read.
pub fn alloc_copy(pin: &Pinned, from: FrameNum) -> Option<FrameNum> {
    let frame = if scarcity::strikes() { None } else { alloc_raw(pin) }?;
    // SAFETY: nobody else has the new frame, and the caller keeps the other.
    unsafe { arch::copy_frame(phys_to_virt(frame * FRAME), phys_to_virt(from.get() * FRAME)) };
    counters::add(pin, Counter::FramesUsed, 1);
    Some(FrameNum::new(frame))
}

/// Fills a frame that the caller owns and nobody sees with the bytes of `from`, which he may read, or with zeroes.
pub fn fill(pin: &Pinned, frame: FrameNum, from: Option<FrameNum>) {
    let Some(from) = from else {
        zeroed(pin, frame.get());
        return;
    };
    // SAFETY: nobody else has the frame, and the caller keeps the other.
    unsafe { arch::copy_frame(phys_to_virt(frame.get() * FRAME), phys_to_virt(from.get() * FRAME)) };
}

/// Takes a frame back.
#[inline]
pub fn free(pin: &Pinned, frame: FrameNum) {
    counters::add(pin, Counter::FramesUsed, -1);
    free_raw(pin, frame.get());
}

/// A frame with anything in it, not counted as a program's.
#[inline]
pub(super) fn alloc_raw(pin: &Pinned) -> Option<u64> {
    dirty(pin).or_else(|| mine(pin).zeroed.pop())
}

/// A frame that is not kept ready.
#[inline]
fn dirty(pin: &Pinned) -> Option<u64> {
    let dirty = &mine(pin).dirty;
    dirty.pop().or_else(|| {
        let mut pool = pool();
        dirty.refill(&mut pool, 0);
        note_level(&pool);
        dirty.pop()
    })
}

/// Whether the pool has only the reserve left: what can do without memory now leaves that to the others.
pub fn is_low() -> bool {
    LOW.load(Ordering::Relaxed)
}

/// Called with the pool locked, once in a batch. Written when it changes, so that asking shares nothing.
fn note_level(pool: &Buddy) {
    let low = pool.free_frames() < RESERVE;
    if low != is_low() {
        LOW.store(low, Ordering::Relaxed);
    }
}

/// Takes back what [`alloc_raw`] gave.
#[inline]
pub(super) fn free_raw(pin: &Pinned, frame: u64) {
    let magazine = mine(pin);
    if !magazine.dirty.push(frame) {
        magazine.dirty.spill_half(&mut pool(), 0);
        magazine.dirty.push(frame);
    }
}

/// Two frames side by side, aligned to 8 KiB.
pub(super) fn alloc_pair(pin: &Pinned) -> Option<u64> {
    let pairs = &mine(pin).pairs;
    pairs.pop().or_else(|| {
        pairs.refill(&mut pool(), 1);
        pairs.pop()
    })
}

/// Takes a pair back.
pub(super) fn free_pair(pin: &Pinned, block: u64) {
    let pairs = &mine(pin).pairs;
    if !pairs.push(block) {
        pairs.spill_half(&mut pool(), 1);
        pairs.push(block);
    }
}

/// 2^`order` frames side by side, straight from the pool.
pub(super) fn alloc_block(order: usize) -> Option<u64> {
    pool().alloc(order)
}

/// The same, each frame for itself: if the pool has `left` frames then.
pub(super) fn alloc_singles(order: usize, left: u64) -> Option<u64> {
    let mut pool = pool();
    if pool.free_frames() < left + (1 << order) {
        return None;
    }
    let block = pool.alloc(order)?;
    (block..block + (1 << order)).for_each(|frame| note(frame, Owner::held(0)));
    Some(block)
}

/// Frames of usable memory at boot.
pub(super) fn total() -> u64 {
    TOTAL.load(Ordering::Relaxed) as u64
}

/// Takes a block back.
///
/// # Safety
/// It came from [`alloc_block`] or [`alloc_singles`] with this order and nobody uses it.
pub(super) unsafe fn free_block(block: u64, order: usize) {
    // SAFETY: the caller's promise.
    unsafe { pool().free(block, order) };
}

/// A frame of zeroes for a page table; counted as such.
pub fn alloc_table(pin: &Pinned) -> Option<u64> {
    if scarcity::strikes() {
        return None;
    }
    let frame = mine(pin).zeroed.pop().or_else(|| zeroed_now(pin))?;
    counters::add(pin, Counter::TablePages, 1);
    Some(frame)
}

/// Takes a page table's frame back.
pub fn free_table(pin: &Pinned, frame: u64) {
    counters::add(pin, Counter::TablePages, -1);
    free_raw(pin, frame);
}

/// A frame of zeroes for a node of a file's tree.
pub(super) fn alloc_node(pin: &Pinned) -> Option<u64> {
    if scarcity::strikes() { None } else { zeroed_now(pin) }
}

/// A frame of zeroes that the kernel keeps for ever, for this purpose.
pub fn alloc_kernel(pin: &Pinned, owner: Owner) -> Option<u64> {
    zeroed_now(pin).inspect(|&frame| note(frame, owner))
}

/// Notes what a frame of the caller's is for.
pub(super) fn note(frame: u64, owner: Owner) {
    notes().set(frame, owner);
}

fn notes() -> Notes {
    *NOTES.get().expect("the pool is opened at boot")
}

/// One past the last frame.
pub(super) fn end() -> u64 {
    END.load(Ordering::Relaxed)
}

/// Whether the machine has this frame.
pub(super) fn exists(frame: FrameNum) -> bool {
    frame.get() < end()
}

/// Calls `visit`, which must not allocate, with the owner of every frame, in order.
pub(super) fn each_owner(visit: impl FnMut(Owner)) {
    let _still = pool();
    notes().each(visit);
}

/// Where the pool's notes are: (start, end) in physical memory.
pub(super) fn pool_notes() -> (u64, u64) {
    let start = virt_to_phys(notes().start());
    (start, start + end())
}

fn zeroed_now(pin: &Pinned) -> Option<u64> {
    alloc_raw(pin).map(|frame| zeroed(pin, frame))
}

/// Fills a frame that the caller owns with zeroes.
fn zeroed(pin: &Pinned, frame: u64) -> u64 {
    // SAFETY: nobody else has the frame.
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

/// Gives back to the pool what this core keeps ready: `all` of it, or what is beyond its zeroed frames.
pub fn give_back(pin: &Pinned, all: bool) {
    let (magazine, pool) = (mine(pin), &mut pool());
    magazine.dirty.spill_all(pool, 0);
    magazine.pairs.spill_all(pool, 1);
    magazine.huge.spill_all(pool, huge_frames::ORDER);
    if all {
        magazine.zeroed.spill_all(pool, 0);
    }
    note_level(pool);
}

/// How much memory there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Frames of usable memory at boot.
    pub total: u64,
    /// Frames that nobody owns.
    pub free: u64,
    /// Those of them that any core can have at once.
    pub pooled: u64,
}

/// Memory now. Approximate while other cores run.
pub fn stats() -> Stats {
    let magazines: usize = MAGAZINES[..arch::cores()].iter().map(|magazine| magazine.frames()).sum();
    let pooled = pool().free_frames();
    Stats { total: total(), free: pooled + magazines as u64, pooled }
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
