//! The counted object's header.

use core::ptr::NonNull;

use percore::Pinned;
use sync::UnsafeCell;
use sync::atomic::{AtomicU64, Ordering};

use crate::weak::WeakWord;
use crate::Refcache;

/// The object is on a review queue.
const QUEUED: u64 = 1 << 0;
/// Some core touched the object since it was put on the queue, and the count is zero again.
const DIRTY: u64 = 1 << 1;
const COUNT_SHIFT: u32 = 2;

/// What happens to an object whose count is truly zero. Called from `tick`, once.
pub type Release = unsafe fn(&Refcache, &Pinned, NonNull<Header>);

/// The intrusive part of a counted object: its first field.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// Global count (signed, from bit 2) | `DIRTY` | `QUEUED`.
    state: AtomicU64,
    /// Belongs to the queue that the object is on.
    pub(crate) link: UnsafeCell<Link>,
    weak: Option<NonNull<WeakWord>>,
    pub(crate) release: Release,
}

/// A place on a review queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) next: Option<NonNull<Header>>,
    pub(crate) epoch: u64,
}

// SAFETY: `link` belongs to one queue at a time (`QUEUED` is the claim); the rest is atomic or never written.
unsafe impl Send for Header {}
// SAFETY: as above.
unsafe impl Sync for Header {}

/// What a review found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody holds the object, and the weak word no longer names it.
    Dead,
    /// The object was touched: look again two epochs later.
    Again,
    /// The count is not zero: off the queue.
    Alive,
}

impl Header {
    sync::const_unless_loom! {
        /// A header with `count` references; `weak` is the word that names the object, if one does; `release` is called
        /// from a `tick` when nobody holds the object any more.
        pub fn new(count: i64, weak: Option<NonNull<WeakWord>>, release: Release) -> Self {
            Self {
                state: AtomicU64::new((count as u64) << COUNT_SHIFT),
                link: UnsafeCell::new(Link { next: None, epoch: 0 }),
                weak,
                release,
            }
        }
    }

    /// Adds an evicted delta to the global count; whether the caller must put the object on its review queue.
    pub(crate) fn apply(&self, delta: i64) -> bool {
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            let next = applied(seen, delta);
            if next == seen {
                return false;
            }
            // Acquire pairs with the Release in `leave_or_stay`: the link is free to be written.
            match self.state.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return next & !seen & QUEUED != 0,
                Err(now) => seen = now,
            }
        }
    }

    /// Judges the object; the caller's queue held it for two epochs.
    pub(crate) fn review(&self) -> Verdict {
        let state = self.state.load(Ordering::Relaxed);
        if count(state) == 0 && state & DIRTY == 0 && self.kill() {
            return Verdict::Dead;
        }
        if count(state) != 0 {
            self.with_weak(WeakWord::unset_dying);
        }
        let verdict = self.leave_or_stay();
        if verdict == Verdict::Again {
            self.mark_dying();
        }
        verdict
    }

    /// Sets the dying bit: from now on a reader of the weak word must clear it first.
    pub(crate) fn mark_dying(&self) {
        self.with_weak(WeakWord::set_dying);
    }

    fn leave_or_stay(&self) -> Verdict {
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            let (next, verdict) = match count(seen) {
                0 => (seen & !DIRTY, Verdict::Again),
                _ => (seen & !(DIRTY | QUEUED), Verdict::Alive),
            };
            // Release pairs with the Acquire in `apply`.
            match self.state.compare_exchange(seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return verdict,
                Err(now) => seen = now,
            }
        }
    }

    fn kill(&self) -> bool {
        // SAFETY: a weak word outlives its object.
        self.weak.is_none_or(|word| unsafe { word.as_ref() }.kill())
    }

    fn with_weak(&self, act: impl FnOnce(&WeakWord)) {
        if let Some(word) = self.weak {
            // SAFETY: a weak word outlives its object.
            act(unsafe { word.as_ref() })
        }
    }
}

fn count(state: u64) -> i64 {
    state as i64 >> COUNT_SHIFT
}

fn applied(state: u64, delta: i64) -> u64 {
    let moved = state.wrapping_add((delta as u64) << COUNT_SHIFT);
    match (count(moved), state & QUEUED) {
        (0, 0) => moved | QUEUED,
        (0, _) => moved | DIRTY,
        _ => moved,
    }
}
