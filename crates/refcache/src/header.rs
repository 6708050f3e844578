//! A counted object's header: its global count, and the decision that a review makes from it.
//!
//! One atomic word holds the count and three flags, so that every change is one compare-and-swap and no core
//! waits. A count is *low* if a review may believe it: 0, and also 1 if the object is WATCHED. An object is
//! WATCHED from its creation to its end, or never.
//!
//! | count | QUEUED | DIRTY | the object |
//! |---|---|---|---|
//! | not low | | any | in use, as far as the flushed deltas tell |
//! | low | yes | | on a review queue, and not touched since it was put there, or last reviewed |
//! | not low | yes | any | on a review queue, and a reference was flushed since |
//! | low | yes | yes | on a review queue, and touched since: this count proves nothing |
//! | 1, low | | | *sole*: there is one reference, unless its holder has dropped it and not flushed that yet |
//! | 1, low | | yes | was sole, and its holder has added a reference that is not flushed yet |
//!
//! ```text
//!                evict leaves the count low: set DYING, join the evicting core's queue
//!     in use  --------------------------------------------------------------->  queued
//!      ^   ^                                                                    |    ^
//!      |   |   review, count not low: clear DYING, leave the queue              |    | review, count low, but DIRTY, or
//!      |   +--------------------------------------------------------------------+    | DYING was cleared: set DYING,
//!      |                                                                        |----+ wait two epochs more
//!      |                                                                        |
//!      +--- a reference is added, or dropped -- sole <------ review, 1, clean --+
//!                                                                               |
//!                                   review, count 0, clean, and the weak word's CAS succeeds --> released
//! ```
//!
//! 1. The evict that sets QUEUED owns `link` and puts the object on its own core's queue. While QUEUED, only
//!    the core whose queue holds the object clears that or DIRTY.
//! 2. While QUEUED, only that core sets DYING. Any core may clear it.
//! 3. An evict that finds a low count on a queue, and adds nothing, still sets DIRTY.
//! 4. A core that adds a reference to a watched object that is clean at 1 sets DIRTY, before it flushes and
//!    before it hands the reference on. So an object that was sole is not sole any more when the new holder
//!    asks, and an object that was about to become sole does not.
//! 5. An owner that uses the weak word for something else calls [`Header::unname`] first, which sets DIRTY
//!    before it removes the name if the object is QUEUED. A review that sees no name judges by the count
//!    alone, so it must not believe a zero that is older than the use.
//!
//! Orderings: the epoch barrier orders the words of different cores, not this file. The pairs in this file
//! hand over `link` from one queue to the next, a sole object to its holder, and a word that names something
//! else to the readers that come after the review.

use core::ptr::{self, NonNull};

use percore::Pinned;
use sync::UnsafeCell;
use sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::Refcache;
use crate::weak::{DYING, WeakWord};

const QUEUED: u64 = 1 << 0;
const DIRTY: u64 = 1 << 1;
const WATCHED: u64 = 1 << 2;
const COUNT_SHIFT: u32 = 3;
/// Stands in place of the weak word when a word named the object and now names something else.
const UNNAMED: *mut WeakWord = ptr::without_provenance_mut(1);
/// The state of a sole object: one reference, clean and not queued.
const SOLE: u64 = 1 << COUNT_SHIFT | WATCHED;

/// Takes a dead object apart. Called once, from [`Refcache::tick`], with no lock held and the weak word
/// already 0 or [`KEPT`](crate::KEPT). It may adjust other objects' counts. Calls of tick, drain or offline
/// from it panic. If it panics, it is not called again.
pub type Release = unsafe fn(&Refcache, &Pinned, NonNull<Header>);

/// The first field of a counted object.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// Global count (signed, from bit 3), `WATCHED`, `DIRTY`, `QUEUED`.
    state: AtomicU64,
    /// Belongs to the queue that holds the object.
    pub(crate) link: UnsafeCell<Link>,
    /// Null if no word has ever named the object. `UNNAMED` if a word did and does not any more.
    weak: AtomicPtr<WeakWord>,
    pub(crate) release: Release,
}

/// An object's link in a review queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) next: Option<NonNull<Header>>,
    /// The epoch in which the object was queued, or the one after it.
    pub(crate) epoch: u64,
}

// SAFETY: `link` is accessed by one core at a time (invariant 1), and handed over by Release and Acquire. The
// rest is atomic or constant, and the caller that passes a weak word promises that every core may use it.
unsafe impl Send for Header {}
// SAFETY: as for `Send`.
unsafe impl Sync for Header {}

/// The decision of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No reference is left, and the weak word no longer names the object.
    Dead,
    /// It stays on the queue for two epochs more.
    Again,
    /// The object is in use, and off the queue.
    InUse,
}

impl Header {
    sync::const_unless_loom! {
        /// Makes a header with `count` references. `weak` is the word that names the object, if there is one,
        /// and must outlive the object. `release` takes the object apart.
        pub fn new(count: i64, weak: Option<NonNull<WeakWord>>, release: Release) -> Self {
            Self::with_state((count as u64) << COUNT_SHIFT, weak, release)
        }

        /// Makes a header that can tell the holder of the last reference that there is no other
        /// ([`is_sole`](Self::is_sole)). No weak word names the object, and references are added by
        /// [`Refcache::add_references`] only.
        pub fn with_sole(count: i64, release: Release) -> Self {
            Self::with_state((count as u64) << COUNT_SHIFT | WATCHED, None, release)
        }

        fn with_state(state: u64, weak: Option<NonNull<WeakWord>>, release: Release) -> Self {
            Self {
                state: AtomicU64::new(state),
                link: UnsafeCell::new(Link { next: None, epoch: 0 }),
                weak: AtomicPtr::new(match weak {
                    Some(word) => word.as_ptr(),
                    None => ptr::null_mut(),
                }),
                release,
            }
        }
    }

    /// Returns whether the caller's reference is the only one. The caller holds a reference, and no other
    /// code uses that reference meanwhile. If true, all accesses by former holders are over, and the domain
    /// has no record of the object: the header may stay as it is, be overwritten, or be freed. If false,
    /// there may be another reference, or it is too early to tell.
    #[inline]
    pub fn is_sole(&self) -> bool {
        // Acquire pairs with the Release in `leave_unless_low`, which follows all accesses by the former
        // holders.
        self.state.load(Ordering::Acquire) == SOLE
    }

    /// Tells the domain that the weak word is about to name something else. From then on the domain does not
    /// touch the word, and it releases the object when its references are gone.
    ///
    /// The caller holds references. After this call it changes the word by a read-modify-write (Release), and
    /// then drops the references, all under one [`Loan`](crate::Loan).
    pub fn unname(&self) {
        // Relaxed: a review that sees the word gone, by the store below, sees this.
        update(&self.state, Ordering::Relaxed, |state| (state & QUEUED != 0).then_some(state | DIRTY));
        // Release pairs with the Acquire in `word`.
        self.weak.store(UNNAMED, Ordering::Release);
    }

    /// Records that a reference is about to be added in this core's cache.
    #[inline]
    pub(crate) fn touch_sole(&self) {
        // Relaxed: the new reference travels by synchronisation, so its receiver sees this store. A
        // concurrent review either finds the mark, or has made the object sole before, which this change
        // undoes.
        update(&self.state, Ordering::Relaxed, |state| (state & !QUEUED == SOLE).then_some(state | DIRTY));
    }

    /// Adds an evicted delta to the global count. Returns true if the count is low and the caller must queue
    /// the object.
    pub(crate) fn apply(&self, delta: i64) -> bool {
        // Acquire pairs with the Release in `leave_unless_low`: the last queue is done with `link`. Release
        // pairs with the Acquire of the change that leaves the count low. Suppose that a word was taken away
        // from the object before a reference was dropped: every core that sees the epoch turn after that sees
        // the word gone. For this the owner's evict changes the state even if the delta is zero, or it would
        // not release.
        let tells = |state, next| next != state || self.is_unnamed();
        let change = |state| Some(applied(state, delta)).filter(|&next| tells(state, next));
        match update(&self.state, Ordering::AcqRel, change) {
            Some((before, after)) => after & !before & QUEUED != 0,
            None => false,
        }
    }

    /// Reviews the object. The caller took it off a queue that held it for two epochs.
    pub(crate) fn review(&self) -> Verdict {
        // The word is read first: see invariant 5.
        let word = self.word();
        let state = self.state.load(Ordering::Relaxed);
        if state & !WATCHED == QUEUED && word.is_none_or(|word| word.take(|| self.is_named())) {
            return Verdict::Dead;
        }
        if count(state) != 0 {
            self.change_word(|word| word & !DYING);
        }
        if self.leave_unless_low() {
            return Verdict::InUse;
        }
        self.mark_dying();
        Verdict::Again
    }

    /// Marks the weak word: a reader must clear the mark before it may use the object.
    pub(crate) fn mark_dying(&self) {
        self.change_word(|word| word | DYING);
    }

    /// Clears `DIRTY`, and `QUEUED` too if the review has decided. Returns whether the object left the queue.
    fn leave_unless_low(&self) -> bool {
        // Release pairs with the Acquire in `apply`, which gives `link` to the next queue, and in `is_sole`.
        // Acquire pairs with the Release in `apply`, also that of a change that leaves the count low.
        let change = |state| Some(reviewed(state));
        let (_, after) = update(&self.state, Ordering::AcqRel, change).expect("always a change");
        after & QUEUED == 0
    }

    /// Returns the word that names the object, if there is one.
    fn word(&self) -> Option<&WeakWord> {
        // Acquire pairs with the Release in `unname`.
        let word = NonNull::new(self.weak.load(Ordering::Acquire)).filter(|word| word.as_ptr() != UNNAMED);
        // SAFETY: a weak word outlives its object, even when it does not name it any more.
        word.map(|word| unsafe { word.as_ref() })
    }

    /// Returns whether a word named the object and now names something else.
    fn is_unnamed(&self) -> bool {
        // Relaxed: the core that took the word away reads its own store.
        self.weak.load(Ordering::Relaxed) == UNNAMED
    }

    fn is_named(&self) -> bool {
        self.word().is_some()
    }

    fn change_word(&self, change: impl Fn(u64) -> u64) {
        if let Some(word) = self.word() {
            word.change_while(|| self.is_named(), change);
        }
    }
}

fn count(state: u64) -> i64 {
    state as i64 >> COUNT_SHIFT
}

/// Returns whether a review may believe the count, if it is clean.
fn is_low(state: u64) -> bool {
    count(state) == 0 || state & !(QUEUED | DIRTY) == SOLE
}

/// Returns the state after an evict.
fn applied(state: u64, delta: i64) -> u64 {
    let moved = state.wrapping_add((delta as u64) << COUNT_SHIFT);
    match (is_low(moved), state & QUEUED) {
        (true, 0) => moved & !DIRTY | QUEUED,
        (true, _) => moved | DIRTY,
        (false, _) => moved,
    }
}

/// Returns the state after a review that releases nothing. An object that is clean at 1 leaves the queue: the
/// count is believed.
fn reviewed(state: u64) -> u64 {
    let stays = count(state) == 0 || is_low(state) && state & DIRTY != 0;
    state & !if stays { DIRTY } else { DIRTY | QUEUED }
}

/// Replaces the word by `change` of it, unless that is `None`. Returns the word before and after.
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
