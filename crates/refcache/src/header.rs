//! A counted object's header: its global count, and what a review makes of it.
//!
//! One atomic word holds the count and two flags, so that every change is one compare-and-swap and nobody
//! waits.
//!
//! | count | QUEUED | DIRTY | the object |
//! |---|---|---|---|
//! | not 0 | | | in use, as far as the flushed deltas tell |
//! | 0 | yes | | on a review queue; not touched since it was put there, or last reviewed |
//! | not 0 | yes | any | on a review queue, and somebody flushed a reference since |
//! | 0 | yes | yes | on a review queue, and touched since: this zero proves nothing |
//!
//! ```text
//!                     evict makes the count 0: set DYING, join the evicting core's queue
//!     in use  ------------------------------------------------------------->  queued
//!        ^                                                                    |    ^
//!        |   review, count not 0: clear DYING, leave the queue                |    | review, count 0, but DIRTY, or
//!        +--------------------------------------------------------------------+    | DYING was cleared: set DYING,
//!                                                                             |----+ wait two epochs more
//!                                                                             |
//!                                 review, count 0, clean, and the weak word's CAS succeeds --> released
//! ```
//!
//! 1. The evict that sets QUEUED owns `link` and puts the object on its own core's queue. Only the core whose
//!    queue holds the object clears QUEUED or DIRTY.
//! 2. While QUEUED, only that core sets DYING. Anybody may clear it.
//! 3. An evict that finds the count at zero on a queue, and adds nothing, still sets DIRTY.
//!
//! Orderings: the words of different cores are ordered by the epoch barrier, not here. The only pair in this
//! file is the hand-over of `link` from one queue to the next.

use core::ptr::NonNull;

use percore::Pinned;
use sync::UnsafeCell;
use sync::atomic::{AtomicU64, Ordering};

use crate::Refcache;
use crate::weak::WeakWord;

const QUEUED: u64 = 1 << 0;
const DIRTY: u64 = 1 << 1;
const COUNT_SHIFT: u32 = 2;

/// Takes a dead object apart. Called once, from [`Refcache::tick`], with no lock held and the weak word
/// already 0. It may adjust other objects' counts; it must neither tick nor go offline.
pub type Release = unsafe fn(&Refcache, &Pinned, NonNull<Header>);

/// What makes an object counted: its first field.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// Global count (signed, from bit 2), `DIRTY`, `QUEUED`.
    state: AtomicU64,
    /// Belongs to the queue that holds the object.
    pub(crate) link: UnsafeCell<Link>,
    weak: Option<NonNull<WeakWord>>,
    pub(crate) release: Release,
}

/// A place on a review queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) next: Option<NonNull<Header>>,
    /// The epoch in which the object was queued, or the one after it.
    pub(crate) epoch: u64,
}

// SAFETY: `link` is touched by one core at a time (invariant 1), handed over by Release and Acquire; the rest
// is atomic or constant, and whoever gives a weak word promises that it may be used from every core.
unsafe impl Send for Header {}
// SAFETY: as for `Send`.
unsafe impl Sync for Header {}

/// What a review decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody holds the object, and its weak word no longer names it.
    Dead,
    /// It stays on the queue for two epochs more.
    Again,
    /// It is in use, and off the queue.
    InUse,
}

impl Header {
    sync::const_unless_loom! {
        /// A header with `count` references. `weak` is the word that names the object, if there is one: it
        /// must outlive the object. `release` takes the object apart.
        pub fn new(count: i64, weak: Option<NonNull<WeakWord>>, release: Release) -> Self {
            Self {
                state: AtomicU64::new((count as u64) << COUNT_SHIFT),
                link: UnsafeCell::new(Link { next: None, epoch: 0 }),
                weak,
                release,
            }
        }
    }

    /// Adds an evicted delta to the global count. True: the count is zero, and the caller must queue the
    /// object.
    pub(crate) fn apply(&self, delta: i64) -> bool {
        // Acquire pairs with the Release in `leave_unless_zero`: the last queue is done with `link`.
        let change = |state| Some(applied(state, delta)).filter(|&next| next != state);
        match update(&self.state, Ordering::Acquire, change) {
            Some((before, after)) => after & !before & QUEUED != 0,
            None => false,
        }
    }

    /// Judges the object. The caller took it off a queue that held it for two epochs.
    pub(crate) fn review(&self) -> Verdict {
        let state = self.state.load(Ordering::Relaxed);
        if state == QUEUED && self.take_weak_word() {
            return Verdict::Dead;
        }
        if count(state) != 0 {
            self.with_weak_word(WeakWord::clear_dying);
        }
        if self.leave_unless_zero() {
            return Verdict::InUse;
        }
        self.mark_dying();
        Verdict::Again
    }

    /// From now on, a reader of the weak word must clear the mark before it may use the object.
    pub(crate) fn mark_dying(&self) {
        self.with_weak_word(WeakWord::set_dying);
    }

    /// Clears `DIRTY`, and `QUEUED` too if the count is not zero; tells whether it did.
    fn leave_unless_zero(&self) -> bool {
        let change = |state| match count(state) {
            0 => Some(state & !DIRTY),
            _ => Some(state & !(DIRTY | QUEUED)),
        };
        // Release pairs with the Acquire in `apply`, which gives `link` to the next queue.
        let (_, after) = update(&self.state, Ordering::Release, change).expect("always a change");
        after & QUEUED == 0
    }

    fn take_weak_word(&self) -> bool {
        // SAFETY: a weak word outlives its object.
        self.weak.is_none_or(|word| unsafe { word.as_ref() }.take())
    }

    fn with_weak_word(&self, act: impl FnOnce(&WeakWord)) {
        if let Some(word) = self.weak {
            // SAFETY: a weak word outlives its object.
            act(unsafe { word.as_ref() })
        }
    }
}

fn count(state: u64) -> i64 {
    state as i64 >> COUNT_SHIFT
}

/// The state after an evict.
fn applied(state: u64, delta: i64) -> u64 {
    let moved = state.wrapping_add((delta as u64) << COUNT_SHIFT);
    match (count(moved), state & QUEUED) {
        (0, 0) => moved | QUEUED,
        (0, _) => moved | DIRTY,
        _ => moved,
    }
}

/// Replaces the word by `change` of it, unless that is `None`; returns the word before and after.
fn update(word: &AtomicU64, order: Ordering, change: impl Fn(u64) -> Option<u64>) -> Option<(u64, u64)> {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let next = change(seen)?;
        match word.compare_exchange_weak(seen, next, order, Ordering::Relaxed) {
            Ok(_) => return Some((seen, next)),
            Err(now) => seen = now,
        }
    }
}
