//! Batches of single frames between the magazines and the pool: each group of cores keeps a few.
//!
//! A core that frees what another core allocates passes frames on through its group's depot. That takes one
//! lock per batch, which only the group's cores take, and the lines that list the batch: the frames
//! themselves are not touched. A batch is listed in the first of its frames. When the pool has no frame left,
//! any core takes batches from all depots.

use percore::{CoreId, MAX_CORES};
use sync::{CachePadded, SpinLock};

use super::pool::{note_level, pool};
use crate::arch::{self, phys_to_virt};
use crate::mm::FRAME;
use crate::mm::magazine::Dirty;

/// Cores that share a depot.
const GROUP: usize = 8;
/// Batches that a depot keeps: 4 MiB.
const KEPT: usize = 8;
/// The list of a batch names all of its frames but the one that it is in.
const LISTED: usize = Dirty::BATCH - 1;

/// The layout of the first frame of a batch.
#[repr(C)]
struct Batch {
    /// The depot's next batch.
    next: Option<u64>,
    frames: [u32; LISTED],
}

/// Batches, the one that came last first.
struct Depot {
    first: Option<u64>,
    batches: usize,
}

static DEPOTS: [CachePadded<SpinLock<Depot>>; MAX_CORES.div_ceil(GROUP)] =
    [const { CachePadded::new(SpinLock::new(Depot { first: None, batches: 0 })) }; MAX_CORES.div_ceil(GROUP)];

/// Returns the depots of the machine's cores.
fn all() -> &'static [CachePadded<SpinLock<Depot>>] {
    &DEPOTS[..arch::cores().div_ceil(GROUP)]
}

fn of(core: CoreId) -> &'static SpinLock<Depot> {
    &DEPOTS[core.index() / GROUP]
}

/// Returns the list in a batch's first frame.
///
/// # Safety
/// The caller has the batch: it took it from a depot or makes it of frames that it owns, or holds the lock of
/// its depot.
unsafe fn list<'a>(first: u64) -> &'a mut Batch {
    // SAFETY: the physmap shows all frames, and only the caller uses this one.
    unsafe { &mut *phys_to_virt(first * FRAME) }
}

/// Moves a batch from `stack`, which has one, to the depot of `core`'s group. Returns false if that is full.
pub fn put(core: CoreId, stack: &Dirty) -> bool {
    let depot = of(core);
    // Not locked while the list is written: a depot may end up with one batch more for each core of the
    // group.
    if depot.lock().batches >= KEPT {
        return false;
    }
    let Some(first) = stack.pop() else { return false };
    // SAFETY: the stack held frames that are not in use.
    let batch = unsafe { list(first) };
    batch.frames = core::array::from_fn(|_| stack.pop().expect("a batch is on the stack") as u32);
    let mut depot = depot.lock();
    batch.next = depot.first.replace(first);
    depot.batches += 1;
    true
}

/// Moves a batch from the depot of `core`'s group to `stack`, which has room for one. Returns false if there
/// is none.
pub fn take(core: CoreId, stack: &Dirty) -> bool {
    take_from(of(core), stack)
}

/// Does the same from any depot.
pub fn take_any(stack: &Dirty) -> bool {
    all().iter().any(|depot| take_from(depot, stack))
}

fn take_from(depot: &SpinLock<Depot>, stack: &Dirty) -> bool {
    remove(depot).inspect(|&first| each(first, |frame| _ = stack.push(frame))).is_some()
}

/// Takes the last batch out of `depot`: its first frame.
fn remove(depot: &SpinLock<Depot>) -> Option<u64> {
    let mut depot = depot.lock();
    let first = depot.first?;
    // SAFETY: the depot has the batch, and its lock is held.
    depot.first = unsafe { list(first) }.next;
    depot.batches -= 1;
    Some(first)
}

/// Calls `visit` with every frame of a batch that the caller has removed, the listing one last.
fn each(first: u64, mut visit: impl FnMut(u64)) {
    // SAFETY: the batch is the caller's.
    unsafe { list(first) }.frames.iter().for_each(|&frame| visit(frame.into()));
    visit(first);
}

/// Gives the batches of all depots to the pool, which is locked for one batch at a time.
pub fn empty_all() {
    for depot in all() {
        while let Some(first) = remove(depot) {
            let mut pool = pool();
            // SAFETY: the frames of a batch are not in use, and each is a block of its own.
            each(first, |frame| unsafe { pool.free(frame, 0) });
            note_level(&pool);
        }
    }
}

/// Returns the number of frames in all depots, now.
pub fn frames() -> usize {
    all().iter().map(|depot| depot.lock().batches * Dirty::BATCH).sum()
}
