//! How much memory all writable files together may use: pages, taken one by one from a reserve of this core.
//!
//! A core takes a batch from what is left, and gives one back when it has two: writers on different cores meet once in a
//! batch. So a file may be refused a page (ENOSPC) though other cores have some in reserve.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use percore::{AllCores, MAX_CORES, Pinned};
use sync::CachePadded;

use crate::arch;

const BATCH: u64 = 64;

/// Pages that files may use, and those that cores took. Relaxed everywhere: the numbers guard no other memory.
static LIMIT: AtomicU64 = AtomicU64::new(0);
static TAKEN: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));
/// What each core took and no file uses. Written by the core alone.
static RESERVES: AllCores<AtomicU64> =
    AllCores::new([const { CachePadded::new(AtomicU64::new(0)) }; MAX_CORES]);

/// Lets all files together use `pages`.
pub fn set_limit(pages: u64) {
    LIMIT.store(pages, Ordering::Relaxed);
}

/// Pages that files may use, and pages they use, as far as is known.
pub fn numbers() -> (u64, u64) {
    let reserved: u64 =
        RESERVES.iter().take(arch::cores()).map(|reserve| reserve.load(Ordering::Relaxed)).sum();
    (LIMIT.load(Ordering::Relaxed), TAKEN.load(Ordering::Relaxed).saturating_sub(reserved))
}

/// Takes a page: ENOSPC if there is none.
pub fn take(pin: &Pinned) -> Result<(), Errno> {
    let reserve = RESERVES.mine(pin);
    let pages = match reserve.load(Ordering::Relaxed) {
        0 => take_batch()?,
        some => some,
    };
    reserve.store(pages - 1, Ordering::Relaxed);
    Ok(())
}

/// Gives a page back.
pub fn give(pin: &Pinned) {
    let reserve = RESERVES.mine(pin);
    let mut pages = reserve.load(Ordering::Relaxed) + 1;
    if pages == 2 * BATCH {
        pages -= BATCH;
        TAKEN.fetch_sub(BATCH, Ordering::Relaxed);
    }
    reserve.store(pages, Ordering::Relaxed);
}

/// A batch, or the last few.
fn take_batch() -> Result<u64, Errno> {
    let limit = LIMIT.load(Ordering::Relaxed);
    let take = |taken: u64| Some((taken + BATCH).min(limit)).filter(|&more| more > taken);
    let before = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Errno::ENOSPC)?;
    Ok(BATCH.min(limit - before))
}
