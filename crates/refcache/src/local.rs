//! One core's part of a domain.

use core::ptr::NonNull;

use percore::{CoreId, OwnerCell, Pinned};
use sync::CachePadded;
use sync::atomic::{AtomicUsize, Ordering};

use crate::cache::{DeltaCache, Evicted};
use crate::doze::DozeSlot;
use crate::header::{Header, Verdict};
use crate::review::Queue;

/// What a core owns, and the numbers that others may read.
#[derive(Debug)]
pub(crate) struct Core {
    local: OwnerCell<Local>,
    /// On a line of its own: reading it does not disturb the owner's deltas.
    shown: CachePadded<Shown>,
    /// On a line of its own: others look at it, and it changes only when the core dozes or wakes.
    pub(crate) doze_slot: CachePadded<DozeSlot>,
}

/// Statistics that the core keeps for others.
#[derive(Debug)]
struct Shown {
    /// Length of the review queue. Release and Acquire: a length without an object that was released comes after the count
    /// with it, so that a drain sees one of the two.
    waiting: AtomicUsize,
    /// Objects released so far. Relaxed everywhere.
    released: AtomicUsize,
    /// Reviews done so far, by ticks that have ended. Relaxed everywhere.
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
    /// A dead object is being taken apart, which may run anybody's code.
    releasing: bool,
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
        };
        let [waiting, released, reviewed] = core::array::from_fn(|_| AtomicUsize::new(0));
        let shown = Shown { waiting, released, reviewed };
        let doze_slot = CachePadded::new(DozeSlot::new());
        Self { local: OwnerCell::new(id, local), shown: CachePadded::new(shown), doze_slot }
    }

    /// Adds to a delta in the cache, if the object has one.
    #[inline(always)]
    pub(crate) fn add(&self, pin: &Pinned, object: NonNull<Header>, delta: i64) -> bool {
        // SAFETY: the closure does not come back here.
        unsafe { self.local.with(pin, |local| local.cache.add(object, delta)) }
    }

    /// Looks at the core's state.
    #[inline]
    pub(crate) fn look<R>(&self, pin: &Pinned, f: impl FnOnce(&Local) -> R) -> R {
        // SAFETY: callers in this crate pass closures that do not come back here.
        unsafe { self.local.with(pin, |local| f(local)) }
    }

    /// Changes the core's state, and publishes the length of its queue.
    pub(crate) fn with<R>(&self, pin: &Pinned, f: impl FnOnce(&mut Local) -> R) -> R {
        // SAFETY: callers in this crate pass closures that do not come back here.
        unsafe {
            self.local.with(pin, |local| {
                let result = f(local);
                self.shown.waiting.store(local.queue.len(), Ordering::Release);
                result
            })
        }
    }

    /// Changes the core's state, but for its queue.
    #[inline(always)]
    fn change(&self, pin: &Pinned, change: impl FnOnce(&mut Local)) {
        // SAFETY: the closures in this file do not come back here.
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

    /// Takes the next ripe object off the queue and judges it. A dead one counts as released.
    pub(crate) fn review(&self, pin: &Pinned, epoch: u64) -> Option<(NonNull<Header>, Verdict)> {
        self.with(pin, |local| {
            let judged = local.review(epoch);
            if let Some((_, Verdict::Dead)) = judged {
                // By the owner only.
                self.shown.released.store(self.released().wrapping_add(1), Ordering::Relaxed);
            }
            judged
        })
    }

    /// Length of the review queue, wherever it is.
    pub(crate) fn waiting(&self) -> usize {
        self.shown.waiting.load(Ordering::Acquire) + self.doze_slot.waiting()
    }

    /// Objects that this core released so far.
    pub(crate) fn released(&self) -> usize {
        self.shown.released.load(Ordering::Relaxed)
    }

    /// Reviews that this core's ticks have done so far.
    pub(crate) fn reviewed(&self) -> usize {
        self.shown.reviewed.load(Ordering::Relaxed)
    }

    /// Adds the reviews of a tick. By the owner only.
    pub(crate) fn note_reviewed(&self, reviews: usize) {
        self.shown.reviewed.store(self.reviewed().wrapping_add(reviews), Ordering::Relaxed);
    }
}

impl Local {
    /// The object has no entry: makes one. `cold`, so that the hit stays small where it is inlined.
    #[cold]
    pub(crate) fn miss(&mut self, object: NonNull<Header>, delta: i64) {
        // Going offline empties the cache, so that the first touch afterwards comes here.
        assert!(self.online, "a count was adjusted on a core that is offline");
        if let Some(evicted) = self.cache.insert(object, delta) {
            evict(&mut self.queue, self.flushed + 1, evicted);
        }
    }

    /// Applies every delta to its object. This is where a loan would be broken: its core lets the epoch pass. So the check
    /// is here, and nobody's code runs between it and the change of the barrier.
    pub(crate) fn flush(&mut self) {
        self.assert_no_loans();
        let Self { cache, queue, flushed, .. } = self;
        cache.flush(|evicted| evict(queue, *flushed + 1, evicted));
    }

    /// Takes the next ripe object off the queue and judges it.
    fn review(&mut self, epoch: u64) -> Option<(NonNull<Header>, Verdict)> {
        let object = self.queue.pop_ripe(epoch)?;
        // SAFETY: an object on a queue lives, and nobody else judges it.
        let verdict = unsafe { object.as_ref() }.review();
        if verdict == Verdict::Again {
            self.queue.push(object, self.flushed + 1);
        }
        Some((object, verdict))
    }

    /// Whether the core may flush, and take objects apart.
    pub(crate) fn is_idle(&self) -> bool {
        self.loans == 0 && !self.releasing
    }

    /// The core may flush, and take objects apart: what is taken apart must not do so in turn, or the stack would end before the
    /// objects do.
    pub(crate) fn assert_idle(&self) {
        self.assert_no_loans();
        assert!(!self.releasing, "a value's Drop, or a release, must neither tick nor drain nor go offline");
    }

    /// Objects found by weak words may be in use on this core: it must not let the epoch pass.
    fn assert_no_loans(&self) {
        assert!(
            self.loans == 0,
            "a core with a Loan must not flush: it may use objects that it has not counted"
        );
    }
}

/// A dead object is being taken apart, until this is dropped.
pub(crate) struct Releasing<'a> {
    core: &'a Core,
    pin: &'a Pinned,
}

impl<'a> Releasing<'a> {
    pub(crate) fn begin(core: &'a Core, pin: &'a Pinned) -> Self {
        core.change(pin, |local| local.releasing = true);
        Self { core, pin }
    }
}

impl Drop for Releasing<'_> {
    /// Also when the release panics.
    fn drop(&mut self) {
        self.core.change(self.pin, |local| local.releasing = false);
    }
}

/// Applies a delta to its object. `epoch` is what a low count is dated: the epoch after this core's last flush,
/// which is the current one or, if the core has flushed in the current one, the next. It needs no look at the
/// barrier, and the epoch cannot pass it before this core has come to the barrier again.
pub(crate) fn evict(queue: &mut Queue, epoch: u64, (object, delta): Evicted) {
    // SAFETY: an object in a delta cache lives: it is not released before a whole epoch without an entry for
    // it.
    let header = unsafe { object.as_ref() };
    if header.apply(delta) {
        header.mark_dying();
        queue.push(object, epoch);
    }
}

/// Leave to use objects found by weak words, without counting them: as long as it is held, this core stays
/// online and does not flush, and so nothing that was alive when it was read is released. To `tick` meanwhile
/// is an error, and so is a value's `Drop` that keeps a loan while it runs in a tick: the flush panics. A loan that is
/// forgotten stays for ever.
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
