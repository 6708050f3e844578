//! The pool behind the magazines: all free memory, under one lock.

use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use firmware::{FRAME, MemoryMap};
use sync::{CachePadded, SetOnce, SpinGuard, SpinLock};
use vm::FrameNum;

use super::depot;
use crate::above::Above;
use crate::arch::{self, phys_to_virt, virt_to_phys};
use crate::mm::Watcher;
use crate::mm::buddy::Buddy;
use crate::mm::owner::{Notes, Owner};

static POOL: CachePadded<SpinLock<Buddy>> = CachePadded::new(SpinLock::new(Buddy::new(Notes::NONE)));
static NOTES: SetOnce<Notes> = SetOnce::new();
/// Frames of usable memory, and one past the last frame. Relaxed: written at boot.
static TOTAL: AtomicUsize = AtomicUsize::new(0);
static END: AtomicU64 = AtomicU64::new(0);
/// How much is in the pool, as a [`Level`]. Relaxed: a hint.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Enough as u8);
/// Frames that are reserved for allocations that cannot wait for memory: the kernel's heap, writes. Clean
/// pages of files leave them, and pages of programs too while others can be compressed.
const RESERVE: u64 = 256;
/// Frames that only the first process gets, so that it can stop what takes all memory however many tasks wait
/// for the same frames. It needs a page and its tables, on each core that it comes to.
pub(super) const EMERGENCY: u64 = 32;
/// Set if pages of programs leave the reserve. Relaxed: a hint.
static RESERVED: AtomicBool = AtomicBool::new(false);
/// While less than one part in `SCARCE` of all memory is in the pool, sleeping cores keep no frames, and
/// neither do depots.
const SCARCE: u64 = 8;

/// How much is in the pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Level {
    /// Only the reserve, or less.
    Low,
    /// Less than a [`SCARCE`] part of all memory.
    Scarce,
    /// More.
    Enough,
}

impl Level {
    fn of(pool: &Buddy) -> Self {
        match pool.free_frames() {
            ..RESERVE => Self::Low,
            free if free < total() / SCARCE => Self::Scarce,
            _ => Self::Enough,
        }
    }
}

pub(super) fn pool() -> SpinGuard<'static, Buddy> {
    POOL.lock()
}

/// Opens the pool with all memory of `map`. The notes on its frames, those below `end`, are at `notes_at`.
///
/// # Safety
/// Called once, before anything allocates. The physmap shows the map's memory and the notes' place, which are
/// not in use.
pub unsafe fn init(map: &MemoryMap, notes_at: u64, end: u64) {
    TOTAL.store(map.frames() as usize, Ordering::Relaxed);
    END.store(end, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    let notes = unsafe {
        arch::clear_bytes(phys_to_virt(notes_at), end as usize);
        Notes::new(slice::from_raw_parts(phys_to_virt(notes_at), end as usize))
    };
    NOTES.set(notes);
    let mut buddy = Buddy::new(notes);
    for (start, end) in map.iter() {
        // SAFETY: free memory that the physmap shows.
        unsafe { buddy.add(start / FRAME, end / FRAME) };
    }
    *pool() = buddy;
}

/// Adds the frames from `start` to `end` to the pool at boot. The caller owns them, and the physmap shows
/// them.
pub(super) fn add(start: u64, end: u64) {
    TOTAL.fetch_add((end - start) as usize, Ordering::Relaxed);
    // SAFETY: memory of the image that is in no use, and that was never in the pool.
    unsafe { pool().add(start, end) };
}

/// Returns whether the pool has only the reserve left, which allocations that can do without memory leave to
/// the others.
pub fn is_low() -> bool {
    LEVEL.load(Ordering::Relaxed) == Level::Low as u8
}

/// Returns whether the pool has so little that frames should come back from magazines and depots.
pub(super) fn is_scarce() -> bool {
    LEVEL.load(Ordering::Relaxed) < Level::Enough as u8
}

/// Returns whether the pool is low and pages of programs are to leave the reserve, too.
#[cold]
pub(super) fn is_reserved() -> bool {
    is_low() && RESERVED.load(Ordering::Relaxed)
}

/// Sets whether pages of programs leave the reserve, and returns whether they did before. If all allocations
/// leave it, there must be a way to get memory without it.
pub fn reserve(leave: bool) -> bool {
    RESERVED.swap(leave, Ordering::Relaxed)
}

/// Notes the pool's level. Called with the pool locked, once in a batch. Written when it changes, so that
/// readers share the line.
pub(super) fn note_level(pool: &Buddy) {
    let level = Level::of(pool) as u8;
    if level != LEVEL.load(Ordering::Relaxed) {
        LEVEL.store(level, Ordering::Relaxed);
    }
}

/// Allocates 2^`order` contiguous frames directly from the pool.
pub(in crate::mm) fn alloc_block(order: usize) -> Option<u64> {
    let block = alloc_leaving(order, emergency());
    block.or_else(|| {
        depot::empty_all();
        alloc_leaving(order, emergency())
    })
}

/// Does the same with each frame as a block of its own, if the pool has `left` frames then.
pub(in crate::mm) fn alloc_singles(order: usize, left: u64) -> Option<u64> {
    let block = alloc_leaving(order, left)?;
    // Not under the lock: the notes inside a block mean nothing to the pool, and the block's own note, the
    // last, stays `held`.
    (block..block + (1 << order)).rev().for_each(|frame| note(frame, Owner::held(0)));
    Some(block)
}

fn alloc_leaving(order: usize, left: u64) -> Option<u64> {
    let mut pool = pool();
    let block = pool.alloc_leaving(order, left);
    note_level(&pool);
    block
}

/// Allocates one of the last frames, if the running task may have them.
pub(super) fn alloc_emergency() -> Option<u64> {
    alloc_leaving(0, emergency())
}

/// Returns the frames that the running task leaves in the pool.
pub(super) fn emergency() -> u64 {
    if Above::is_watcher() == Some(true) { 0 } else { EMERGENCY }
}

/// Returns the number of frames of usable memory at boot.
pub fn total() -> u64 {
    TOTAL.load(Ordering::Relaxed) as u64
}

/// Takes a block back.
///
/// # Safety
/// The block came from [`alloc_block`] or [`alloc_singles`] with this order and is not in use.
pub(in crate::mm) unsafe fn free_block(block: u64, order: usize) {
    // SAFETY: the caller's promise.
    unsafe { pool().free(block, order) };
}

/// Notes the purpose of a frame that the caller has.
pub(in crate::mm) fn note(frame: u64, owner: Owner) {
    notes().set(frame, owner);
}

fn notes() -> Notes {
    *NOTES.get().expect("the pool is opened at boot")
}

/// Returns one past the last frame.
pub fn end() -> u64 {
    END.load(Ordering::Relaxed)
}

/// Returns whether the machine has this frame.
pub(in crate::mm) fn exists(frame: FrameNum) -> bool {
    frame.get() < end()
}

/// Calls `visit`, which must not allocate, with the owner of every frame, in order.
pub(in crate::mm) fn each_owner(visit: impl FnMut(Owner)) {
    let _still = pool();
    notes().each(visit);
}

/// Returns the physical addresses of the pool's notes: (start, end).
pub(in crate::mm) fn pool_notes() -> (u64, u64) {
    let start = virt_to_phys(notes().start());
    (start, start + end())
}
