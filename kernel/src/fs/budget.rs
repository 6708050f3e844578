//! Limits the memory of all writable files together. Pages are charged one by one to a reserve of this core.
//!
//! A core takes a batch of pages from the limit when its reserve is empty, and gives a batch back when it has
//! two. So writers on different cores share a cache line once per batch. A file may be refused a page
//! (ENOSPC) although other cores have some in reserve.

mod turns;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::Errno;
use percore::{Pinned, pin};
use sync::CachePadded;

use self::turns::Turn;
use super::{host, page_cache};
use crate::arch;
use crate::arch::per_core::all_cores;
use crate::mm::epoch;
use crate::mm::remains::Rounds;
use crate::sched;

const BATCH: u64 = 64;

/// The pages that files may use, and the pages that cores have taken. Relaxed everywhere: the numbers guard
/// no other memory.
static LIMIT: AtomicU64 = AtomicU64::new(0);
static TAKEN: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

all_cores! {
    /// Per core, the pages that it has taken and that no file uses. Only that core writes it.
    static RESERVES: AtomicU64 = AtomicU64::new(0);
}

all_cores! {
    /// Per core, whether a page was refused. Only that core accesses it.
    static REFUSED: AtomicBool = AtomicBool::new(false);
}

/// Limits all files together to `pages`.
pub fn set_limit(pages: u64) {
    LIMIT.store(pages, Ordering::Relaxed);
}

/// Returns the pages that files may use and the pages that they use. The second is an estimate while other
/// cores run.
pub fn numbers() -> (u64, u64) {
    let reserved: u64 = RESERVES.first(arch::cores()).map(|reserve| reserve.load(Ordering::Relaxed)).sum();
    (LIMIT.load(Ordering::Relaxed), TAKEN.load(Ordering::Relaxed).saturating_sub(reserved))
}

/// Returns whether this core has been refused a page since it was asked last.
pub fn was_refused() -> bool {
    REFUSED.mine(&pin()).swap(false, Ordering::Relaxed)
}

/// The ways to make room that a call has tried.
#[derive(Default)]
pub struct Room {
    tried: usize,
    turn: Option<Turn>,
    /// The wait for what the cores free in pieces.
    rounds: Rounds,
}

impl Room {
    /// Waits for a [turn](turns) of the running task, which lasts until this is dropped. Then frees what
    /// look-ups of names kept, files without a name and a user, and the pages of mounted files that the host
    /// can have, one at each try. At last it waits for the files that other cores free. Returns whether there
    /// may be room now: if so, the caller tries its call again. The caller holds no lock. Returns false if
    /// the task is killed.
    pub fn make(&mut self) -> bool {
        if !epoch::may_reclaim() {
            return false;
        }
        self.tried += 1;
        match self.tried {
            1 => match self.begin_turn() {
                None => false,
                Some(waited) => waited || self.make(),
            },
            2 => epoch::free_removed() || self.make(),
            3 => page_cache::free_nameless() || self.make(),
            4 => host::make_room() || self.make(),
            5 => self.await_freeing(),
            _ => false,
        }
    }

    /// Waits until the cores have freed the files that they had found dead before, or there is room. Each
    /// frees them on its way to user mode or while it idles. Returns false if the task is killed.
    fn await_freeing(&mut self) -> bool {
        while !self.rounds.are_over() {
            if !sched::pause() {
                return false;
            }
            sched::give_way();
            percore::relax();
            if has_room() {
                // The wait goes on if that is not enough.
                self.tried -= 1;
                return true;
            }
        }
        true
    }

    /// Returns whether the task has waited for its turn, or `None` if it is killed.
    fn begin_turn(&mut self) -> Option<bool> {
        if turns::is_own() {
            return Some(false);
        }
        let (turn, waited) = Turn::begin()?;
        self.turn = Some(turn);
        Some(waited)
    }
}

/// Charges a page to this core's reserve.
///
/// # Errors
/// ENOSPC if no page is left, or another task has a turn: the caller makes [`Room`].
pub fn take(pin: &Pinned) -> Result<(), Errno> {
    let reserve = RESERVES.mine(pin);
    let pages = match reserve.load(Ordering::Relaxed) {
        0 => take_batch().inspect_err(|_| REFUSED.mine(pin).store(true, Ordering::Relaxed))?,
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

/// Returns whether the limit has a page.
fn has_room() -> bool {
    TAKEN.load(Ordering::Relaxed) < LIMIT.load(Ordering::Relaxed)
}

/// Takes a batch, or the last few pages, and returns how many. Refuses them while another task has a turn.
fn take_batch() -> Result<u64, Errno> {
    if !turns::may_take() {
        return Err(Errno::ENOSPC);
    }
    let limit = LIMIT.load(Ordering::Relaxed);
    let take = |taken: u64| Some((taken + BATCH).min(limit)).filter(|&more| more > taken);
    let before = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Errno::ENOSPC)?;
    Ok(BATCH.min(limit - before))
}
