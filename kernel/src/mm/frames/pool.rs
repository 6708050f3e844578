//! The pool behind the magazines: all free memory, under one lock.

use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use firmware::{FRAME, MemoryMap};
use sync::{CachePadded, SetOnce, SpinGuard, SpinLock};
use vm::FrameNum;

use super::depot;
use crate::arch::{self, phys_to_virt, virt_to_phys};
use crate::mm::buddy::Buddy;
use crate::mm::owner::{Notes, Owner};

static POOL: CachePadded<SpinLock<Buddy>> = CachePadded::new(SpinLock::new(Buddy::new(Notes::NONE)));
static NOTES: SetOnce<Notes> = SetOnce::new();
/// Relaxed, like the next: written at boot.
static TOTAL: AtomicUsize = AtomicUsize::new(0);
static END: AtomicU64 = AtomicU64::new(0);
/// How much is in the pool, as a [`Level`]. Relaxed: a hint.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Enough as u8);
/// Frames that clean pages of files, and pages of programs while others can be compressed, leave to those who cannot wait for
/// memory: the kernel's heap, writes.
const RESERVE: u64 = 256;
/// Whether pages of programs leave them. Relaxed: a hint.
static RESERVED: AtomicBool = AtomicBool::new(false);
/// While less than that part of all memory is in the pool, cores that sleep keep nothing, and no depot does.
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
/// Once, before anything allocates; the physmap shows the map's memory and the notes' place, which nobody uses.
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

/// Whether the pool has only the reserve left: what can do without memory now leaves that to the others.
pub fn is_low() -> bool {
    LEVEL.load(Ordering::Relaxed) == Level::Low as u8
}

/// Whether the pool has so little that frames which lie ready elsewhere should come back.
pub(super) fn is_scarce() -> bool {
    LEVEL.load(Ordering::Relaxed) < Level::Enough as u8
}

/// Whether that is so, and pages of programs are to leave it, too.
#[cold]
pub(super) fn is_reserved() -> bool {
    is_low() && RESERVED.load(Ordering::Relaxed)
}

/// From now on pages of programs leave the reserve, or not: whether they did. To be left by all there must be a way to have
/// memory without it.
pub fn reserve(leave: bool) -> bool {
    RESERVED.swap(leave, Ordering::Relaxed)
}

/// Called with the pool locked, once in a batch. Written when it changes, so that asking shares nothing.
pub(super) fn note_level(pool: &Buddy) {
    let level = Level::of(pool) as u8;
    if level != LEVEL.load(Ordering::Relaxed) {
        LEVEL.store(level, Ordering::Relaxed);
    }
}

/// 2^`order` frames side by side, straight from the pool.
pub(in crate::mm) fn alloc_block(order: usize) -> Option<u64> {
    let block = pool().alloc(order);
    block.or_else(|| {
        depot::empty_all();
        pool().alloc(order)
    })
}

/// The same, each frame for itself: if the pool has `left` frames then.
pub(in crate::mm) fn alloc_singles(order: usize, left: u64) -> Option<u64> {
    let block = alloc_leaving(order, left)?;
    // Not under the lock: what is inside a block means nothing to the pool, and the block's own note, the last, stays `held`.
    (block..block + (1 << order)).rev().for_each(|frame| note(frame, Owner::held(0)));
    Some(block)
}

fn alloc_leaving(order: usize, left: u64) -> Option<u64> {
    let mut pool = pool();
    let block = (pool.free_frames() >= left + (1 << order)).then(|| pool.alloc(order))?;
    note_level(&pool);
    block
}

/// Frames of usable memory at boot.
pub fn total() -> u64 {
    TOTAL.load(Ordering::Relaxed) as u64
}

/// Takes a block back.
///
/// # Safety
/// It came from [`alloc_block`] or [`alloc_singles`] with this order and nobody uses it.
pub(in crate::mm) unsafe fn free_block(block: u64, order: usize) {
    // SAFETY: the caller's promise.
    unsafe { pool().free(block, order) };
}

/// Notes what a frame of the caller's is for.
pub(in crate::mm) fn note(frame: u64, owner: Owner) {
    notes().set(frame, owner);
}

fn notes() -> Notes {
    *NOTES.get().expect("the pool is opened at boot")
}

/// One past the last frame.
pub(in crate::mm) fn end() -> u64 {
    END.load(Ordering::Relaxed)
}

/// Whether the machine has this frame.
pub(in crate::mm) fn exists(frame: FrameNum) -> bool {
    frame.get() < end()
}

/// Calls `visit`, which must not allocate, with the owner of every frame, in order.
pub(in crate::mm) fn each_owner(visit: impl FnMut(Owner)) {
    let _still = pool();
    notes().each(visit);
}

/// Where the pool's notes are: (start, end) in physical memory.
pub(in crate::mm) fn pool_notes() -> (u64, u64) {
    let start = virt_to_phys(notes().start());
    (start, start + end())
}
