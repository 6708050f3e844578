//! One core's part of a domain.

use core::ptr::NonNull;

use percore::{CoreId, OwnerCell, Pinned};
use sync::CachePadded;
use sync::atomic::{AtomicUsize, Ordering};

use crate::cache::{DeltaCache, Evicted};
use crate::doze::DozeSlot;
use crate::header::{Header, Verdict};
use crate::review::Queue;

/// A core's own state, and the numbers that others may read.
#[derive(Debug)]
pub(crate) struct Core {
    local: OwnerCell<Local>,
    /// Kept on a line of its own: reading it does not disturb the owner's deltas.
    shown: CachePadded<Shown>,
    /// Kept on a line of its own: others read it, and it changes only when the core dozes or wakes.
    pub(crate) doze_slot: CachePadded<DozeSlot>,
}

/// Statistics that the core publishes for others.
#[derive(Debug)]
struct Shown {
    /// Length of the review queue, and one for an object that is being released. Release and Acquire: a
    /// length that lacks an object is published after the count that includes it, of released or of kept
    /// objects, so that a drain sees one of the two.
    waiting: AtomicUsize,
    /// Objects released so far. Relaxed everywhere.
    released: AtomicUsize,
    /// Objects so far whose release has kept them. Relaxed everywhere.
    kept: AtomicUsize,
    /// Reviews done so far by ticks that have ended. Relaxed everywhere.
    reviewed: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Local {
    cache: DeltaCache,
    pub(crate) queue: Queue,
    /// The last epoch in which this core flushed. The current epoch is this one or the next: it cannot turn
    /// twice without this core.
    pub(crate) flushed: u64,
    pub(crate) online: bool,
    loans: u64,
    /// Set while a dead object is being taken apart, which may run any code.
    releasing: bool,
    /// Set if that object is kept.
    keeps: bool,
}

impl Core {
    pub(crate) fn new(id: CoreId, slots: usize) -> Self {
        let local = Local {
            cache: DeltaCache::new(slots),
            queue: Queue::default(),
            flushed: 0,
            online: false,
            loans: 0,
            releasing: false,
            keeps: false,
        };
        let [waiting, released, kept, reviewed] = core::array::from_fn(|_| AtomicUsize::new(0));
        let shown = Shown { waiting, released, kept, reviewed };
        let doze_slot = CachePadded::new(DozeSlot::new());
        Self { local: OwnerCell::new(id, local), shown: CachePadded::new(shown), doze_slot }
    }

    /// Adds to a delta in the cache, if the object has one. Returns whether it did.
    #[inline(always)]
    pub(crate) fn add(&self, pin: &Pinned, object: NonNull<Header>, delta: i64) -> bool {
        // SAFETY: the closure does not access this cell again.
        unsafe { self.local.with(pin, |local| local.cache.add(object, delta)) }
    }

    /// Reads the core's state.
    #[inline]
    pub(crate) fn look<R>(&self, pin: &Pinned, f: impl FnOnce(&Local) -> R) -> R {
        // SAFETY: callers in this crate pass closures that do not access this cell again.
        unsafe { self.local.with(pin, |local| f(local)) }
    }

    /// Changes the core's state, and publishes the number of objects that wait on it.
    pub(crate) fn with<R>(&self, pin: &Pinned, f: impl FnOnce(&mut Local) -> R) -> R {
        // SAFETY: callers in this crate pass closures that do not access this cell again.
        unsafe {
            self.local.with(pin, |local| {
                let result = f(local);
                let waiting = local.queue.len() + usize::from(local.releasing);
                self.shown.waiting.store(waiting, Ordering::Release);
                result
            })
        }
    }

    /// Changes the core's state, except its queue.
    #[inline(always)]
    fn change(&self, pin: &Pinned, change: impl FnOnce(&mut Local)) {
        // SAFETY: the closures in this file do not access this cell again.
        unsafe { self.local.with(pin, change) }
    }

    /// Adds to a delta, unless this core is offline. Returns whether it did.
    #[cold]
    pub(crate) fn try_miss(&self, pin: &Pinned, object: NonNull<Header>, delta: i64) -> bool {
        self.with(pin, |local| {
            let online = local.online;
            if online {
                local.miss(object, delta);
            }
            online
        })
    }

    /// Takes the next ripe object off the queue and reviews it. A dead object waits until the caller has
    /// released it, under [`Releasing`].
    pub(crate) fn review(&self, pin: &Pinned, epoch: u64) -> Option<(NonNull<Header>, Verdict)> {
        self.with(pin, |local| {
            let judged = local.review(epoch);
            local.releasing = matches!(judged, Some((_, Verdict::Dead)));
            judged
        })
    }

    /// Counts the object that is being released as kept.
    ///
    /// # Panics
    /// Panics if none is.
    pub(crate) fn note_kept(&self, pin: &Pinned) {
        self.change(pin, |local| {
            assert!(local.releasing, "an object is kept by its release only");
            local.keeps = true;
        });
    }

    /// Ends the release of an object, and counts it.
    fn end_release(&self, pin: &Pinned) {
        self.with(pin, |local| {
            let Shown { released, kept, .. } = &*self.shown;
            let count = if local.keeps { kept } else { released };
            // Only the owner stores.
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            (local.releasing, local.keeps) = (false, false);
        });
    }

    /// Returns the number of objects that wait for review or are being released, wherever the queue is.
    pub(crate) fn waiting(&self) -> usize {
        self.shown.waiting.load(Ordering::Acquire) + self.doze_slot.waiting()
    }

    /// Returns the number of objects that this core has released so far.
    pub(crate) fn released(&self) -> usize {
        self.shown.released.load(Ordering::Relaxed)
    }

    /// Returns the number of objects so far whose release on this core has kept them.
    pub(crate) fn kept(&self) -> usize {
        self.shown.kept.load(Ordering::Relaxed)
    }

    /// Returns the number of reviews that this core's ticks have done so far.
    pub(crate) fn reviewed(&self) -> usize {
        self.shown.reviewed.load(Ordering::Relaxed)
    }

    /// Adds the reviews of a tick. Called by the owner only.
    pub(crate) fn note_reviewed(&self, reviews: usize) {
        self.shown.reviewed.store(self.reviewed().wrapping_add(reviews), Ordering::Relaxed);
    }
}

impl Local {
    /// Makes an entry for an object that has none. `cold` keeps the hit small where it is inlined.
    #[cold]
    pub(crate) fn miss(&mut self, object: NonNull<Header>, delta: i64) {
        // Going offline empties the cache, so that the first access afterwards comes here.
        assert!(self.online, "a count was adjusted on a core that is offline");
        if let Some(evicted) = self.cache.insert(object, delta) {
            evict(&mut self.queue, self.flushed + 1, evicted);
        }
    }

    /// Applies every delta to its object. A flush would break a loan, because it lets the epoch pass. So the
    /// check is here, and no foreign code runs between it and the change of the barrier.
    pub(crate) fn flush(&mut self) {
        self.assert_no_loans();
        let Self { cache, queue, flushed, .. } = self;
        cache.flush(|evicted| evict(queue, *flushed + 1, evicted));
    }

    /// Takes the next ripe object off the queue and reviews it.
    fn review(&mut self, epoch: u64) -> Option<(NonNull<Header>, Verdict)> {
        let object = self.queue.pop_ripe(epoch)?;
        // SAFETY: an object on a queue lives, and no other core reviews it.
        let verdict = unsafe { object.as_ref() }.review();
        if verdict == Verdict::Again {
            self.queue.push(object, self.flushed + 1);
        }
        Some((object, verdict))
    }

    /// Returns whether the core may flush, and take objects apart.
    pub(crate) fn is_idle(&self) -> bool {
        self.loans == 0 && !self.releasing
    }

    /// Checks that the core may flush, and take objects apart. A release must not do either, or the recursion
    /// could overflow the stack.
    pub(crate) fn assert_idle(&self) {
        self.assert_no_loans();
        assert!(!self.releasing, "a value's Drop, or a release, must neither tick nor drain nor go offline");
    }

    /// Checks that no object found by a weak word can be in use on this core, which must not let the epoch
    /// pass while one is.
    fn assert_no_loans(&self) {
        assert!(
            self.loans == 0,
            "a core with a Loan must not flush: it may use objects that it has not counted"
        );
    }
}

/// The release of the object that a [review](Core::review) found dead. Dropping this counts the object as
/// released, or as kept.
pub(crate) struct Releasing<'a> {
    core: &'a Core,
    pin: &'a Pinned,
}

impl<'a> Releasing<'a> {
    pub(crate) fn new(core: &'a Core, pin: &'a Pinned) -> Self {
        Self { core, pin }
    }
}

impl Drop for Releasing<'_> {
    /// Runs also when the release panics.
    fn drop(&mut self) {
        self.core.end_release(self.pin);
    }
}

/// Applies a delta to its object. `epoch` is the date of an object that becomes low: the epoch after this
/// core's last flush. That is the current epoch or, if the core has flushed in the current one, the next. It
/// can be computed without reading the barrier, and the epoch cannot pass it before this core has come to the
/// barrier again.
pub(crate) fn evict(queue: &mut Queue, epoch: u64, (object, delta): Evicted) {
    // SAFETY: an object in a delta cache lives: it is released only after a whole epoch without an entry for
    // it.
    let header = unsafe { object.as_ref() };
    if header.apply(delta) {
        header.mark_dying();
        queue.push(object, epoch);
    }
}

/// Permission to use objects found by weak words without counting them. As long as it is held, this core
/// stays online and does not flush, so no object that was alive when it was read is released. Calling `tick`
/// meanwhile is an error, and so is a value's `Drop` that keeps a loan while it runs in a tick: the flush
/// panics. A loan that is leaked stays for ever.
#[derive(Debug)]
pub struct Loan<'a> {
    core: &'a Core,
    pin: &'a Pinned,
}

impl<'a> Loan<'a> {
    #[inline(always)]
    pub(crate) fn new(core: &'a Core, pin: &'a Pinned) -> Self {
        core.change(pin, |local| {
            assert!(local.online, "objects were used on a core that is offline");
            local.loans += 1;
        });
        Self { core, pin }
    }
}

impl Drop for Loan<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.core.change(self.pin, |local| local.loans -= 1);
    }
}
