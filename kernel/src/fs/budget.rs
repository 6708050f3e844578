//! Limits the memory of all writable files together. Pages are charged one by one to a reserve of this core.
//!
//! A core takes a batch of pages from the limit when its reserve is empty, and gives a batch back when it has
//! two. So writers on different cores share a cache line once per batch. A file may be refused a page
//! (ENOSPC) although other cores have some in reserve.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use percore::{AllCores, MAX_CORES, Pinned};
use sync::CachePadded;

use super::{host, page_cache};
use crate::arch;
use crate::mm::epoch;

const BATCH: u64 = 64;

/// The pages that files may use, and the pages that cores have taken. Relaxed everywhere: the numbers guard
/// no other memory.
static LIMIT: AtomicU64 = AtomicU64::new(0);
static TAKEN: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));
/// Per core, the pages that it has taken and that no file uses. Only that core writes it.
static RESERVES: AllCores<AtomicU64> =
    AllCores::new([const { CachePadded::new(AtomicU64::new(0)) }; MAX_CORES]);

/// Limits all files together to `pages`.
pub fn set_limit(pages: u64) {
    LIMIT.store(pages, Ordering::Relaxed);
}

/// Returns the pages that files may use and the pages that they use. The second is an estimate while other
/// cores run.
pub fn numbers() -> (u64, u64) {
    let reserved: u64 =
        RESERVES.iter().take(arch::cores()).map(|reserve| reserve.load(Ordering::Relaxed)).sum();
    (LIMIT.load(Ordering::Relaxed), TAKEN.load(Ordering::Relaxed).saturating_sub(reserved))
}

/// Returns whether files may have more pages than those that cores have taken.
pub fn has_room() -> bool {
    TAKEN.load(Ordering::Relaxed) < LIMIT.load(Ordering::Relaxed)
}

/// The ways to make room that a call has tried.
#[derive(Default)]
pub struct Room {
    tried: usize,
}

impl Room {
    /// Frees what look-ups of names kept, at the second try files without a name and a user, and at the third
    /// the pages of mounted files that the host can have. Returns whether there may be room now: if so, the
    /// caller tries its call again. The caller holds no lock.
    pub fn make(&mut self) -> bool {
        self.tried += 1;
        match self.tried {
            1 => epoch::free_removed() || self.make(),
            2 => page_cache::free_nameless() || self.make(),
            3 => host::make_room(),
            _ => false,
        }
    }
}

/// Charges a page to this core's reserve.
///
/// # Errors
/// ENOSPC if no page is left.
pub fn take(pin: &Pinned) -> Result<(), Errno> {
    let reserve = RESERVES.mine(pin);
    let pages = match reserve.load(Ordering::Relaxed) {
        0 => take_batch()?,
        some => some,
    };
    reserve.store(pages - 1, Ordering::Relaxed);
    Ok(())
}

/// Gives a page back to this core's reserve.
pub fn give(pin: &Pinned) {
    let reserve = RESERVES.mine(pin);
    let mut pages = reserve.load(Ordering::Relaxed) + 1;
    if pages == 2 * BATCH {
        pages -= BATCH;
        TAKEN.fetch_sub(BATCH, Ordering::Relaxed);
    }
    reserve.store(pages, Ordering::Relaxed);
}

/// Takes a batch, or the last few pages, and returns how many.
fn take_batch() -> Result<u64, Errno> {
    let limit = LIMIT.load(Ordering::Relaxed);
    let take = |taken: u64| Some((taken + BATCH).min(limit)).filter(|&more| more > taken);
    let before = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Errno::ENOSPC)?;
    Ok(BATCH.min(limit - before))
}
