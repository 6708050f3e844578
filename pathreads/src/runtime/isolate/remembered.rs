//! The regions that this member had as recorded a moment ago.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pathreads::record::Region;

use super::{NEVER, control};

/// A region that this member had as recorded when the version was this. A thread that waits in few places
/// touches these again and again, and need not have all else mapped.
struct Remembered {
    version: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
}

static REMEMBERED: [Remembered; 4] = [const {
    Remembered { version: AtomicU64::new(NEVER), start: AtomicU64::new(0), end: AtomicU64::new(0) }
}; 4];

/// The one that is replaced next.
static OLDEST: AtomicUsize = AtomicUsize::new(0);

/// Remembers a region. The lock is held, so no handler comes between.
pub fn add(region: &Region) {
    let oldest = OLDEST.fetch_add(1, Ordering::Relaxed) % REMEMBERED.len();
    let Remembered { version, start, end } = &REMEMBERED[oldest];
    version.store(control().version.load(Ordering::Relaxed), Ordering::Relaxed);
    start.store(region.start, Ordering::Relaxed);
    end.store(region.end, Ordering::Relaxed);
}

/// Returns whether this member has a range as recorded, because nothing was announced since it was
/// remembered. A lost right is asked for by a request.
#[inline(never)]
pub fn has(from: u64, length: u64) -> bool {
    let now = control().version.load(Ordering::Relaxed);
    REMEMBERED.iter().any(|Remembered { version, start, end }| {
        version.load(Ordering::Relaxed) == now
            && start.load(Ordering::Relaxed) <= from
            && from.saturating_add(length) <= end.load(Ordering::Relaxed)
    })
}
