//! The regions that this member had as recorded a moment ago. A thread that waits in few places touches these
//! again and again, and need not have all else mapped.
//!
//! 1. *A region that can be read and written is remembered until this member has less of it* ([`forget`]).
//!    There is no right that it could get and this member would lack. A right or memory that goes is a
//!    request to this member, or is done by it, or becomes stale, which is looked at before ([`stale::is_new`](super::stale::is_new)).
//! 2. *Any other region is remembered until something is announced*: a new right disturbs no member. The same
//!    holds for this member's own blocks and reservations. It opens and closes them itself, and another one
//!    may make them ordinary meanwhile and change their rights.
//! 3. *A request may come while the words are read.* Then the call is prepared once more (`calls::IS_ASKED`).

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pathreads::block;
use pathreads::member_reservation;
use pathreads::record::Region;

use super::mapped::NEVER;
use super::{control, fork, me};
use crate::sys::{PROT_READ, PROT_WRITE};

/// A region that this member had as recorded when the version was this, or has ([`ALWAYS`]).
struct Remembered {
    version: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
}

/// Stands for all versions.
const ALWAYS: u64 = NEVER - 1;

static REMEMBERED: [Remembered; 8] = [const {
    Remembered { version: AtomicU64::new(NEVER), start: AtomicU64::new(0), end: AtomicU64::new(0) }
}; 8];

/// The one that is replaced next.
static OLDEST: AtomicUsize = AtomicUsize::new(0);

/// Remembers a region. The lock is held, so no handler comes between.
pub fn add(region: &Region) {
    let oldest = OLDEST.fetch_add(1, Ordering::Relaxed) % REMEMBERED.len();
    let Remembered { version, start, end } = &REMEMBERED[oldest];
    let now = control().version.load(Ordering::Relaxed);
    version.store(if stays(region) { ALWAYS } else { now }, Ordering::Relaxed);
    start.store(region.start, Ordering::Relaxed);
    end.store(region.end, Ordering::Relaxed);
}

/// Returns whether a region stays as it is until this member has less of it. A child of `vfork` is not asked.
fn stays(region: &Region) -> bool {
    const BOTH: u64 = PROT_READ | PROT_WRITE;
    let is_in = |(start, end): (u64, u64)| start <= region.start && region.start < end;
    region.rights & BOTH == BOTH
        && !fork::is_sharing()
        && ![block::part(me()), member_reservation::addresses(me())].into_iter().any(is_in)
}

/// Forgets the regions that touch a range, of which this member is about to have less.
pub fn forget(from: u64, to: u64) {
    for Remembered { version, start, end } in &REMEMBERED {
        if start.load(Ordering::Relaxed) < to && from < end.load(Ordering::Relaxed) {
            version.store(NEVER, Ordering::Relaxed);
        }
    }
}

/// Returns whether this member has a range as recorded, because it was remembered.
#[inline(never)]
pub fn has(from: u64, length: u64) -> bool {
    let now = control().version.load(Ordering::Relaxed);
    REMEMBERED.iter().any(|Remembered { version, start, end }| {
        [now, ALWAYS].contains(&version.load(Ordering::Relaxed))
            && start.load(Ordering::Relaxed) <= from
            && from.saturating_add(length) <= end.load(Ordering::Relaxed)
    })
}
