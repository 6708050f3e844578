//! One core's part of a domain.

use core::ptr::NonNull;

use percore::{CoreId, OwnerCell, Pinned};
use sync::CachePadded;
use sync::atomic::{AtomicUsize, Ordering};

use crate::cache::{DeltaCache, Evicted};
use crate::header::{Header, Verdict};
use crate::review::Queue;

/// What a core owns, and the two numbers that others may read.
#[derive(Debug)]
pub(crate) struct Core {
    local: OwnerCell<Local>,
    /// On a line of its own: reading it does not disturb the owner's deltas.
    shown: CachePadded<Shown>,
}

/// Statistics that the core keeps for others. Relaxed everywhere.
#[derive(Debug)]
struct Shown {
    /// Length of the review queue.
    waiting: AtomicUsize,
    /// Objects released so far.
    released: AtomicUsize,
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
}

impl Core {
    pub(crate) fn new(id: CoreId, slots: usize) -> Self {
        let local = Local {
            cache: DeltaCache::new(slots),
            queue: Queue::default(),
            flushed: 0,
            online: false,
            loans: 0,
        };
        let shown = Shown { waiting: AtomicUsize::new(0), released: AtomicUsize::new(0) };
        Self { local: OwnerCell::new(id, local), shown: CachePadded::new(shown) }
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
                self.shown.waiting.store(local.queue.len(), Ordering::Relaxed);
                result
            })
        }
    }

    #[inline(always)]
    fn count_loans(&self, pin: &Pinned, change: impl FnOnce(&mut Local)) {
        // SAFETY: `Loan`'s closures do not come back here.
        unsafe { self.local.with(pin, change) }
    }

    /// Length of the review queue.
    pub(crate) fn waiting(&self) -> usize {
        self.shown.waiting.load(Ordering::Relaxed)
    }

    /// Objects that this core released so far.
    pub(crate) fn released(&self) -> usize {
        self.shown.released.load(Ordering::Relaxed)
    }

    /// This core released `count` more. By the owner only.
    pub(crate) fn add_released(&self, _pin: &Pinned, count: usize) {
        self.shown.released.store(self.released().wrapping_add(count), Ordering::Relaxed);
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

    /// Applies every delta to its object.
    pub(crate) fn flush(&mut self) {
        let Self { cache, queue, flushed, .. } = self;
        cache.flush(|evicted| evict(queue, *flushed + 1, evicted));
    }

    /// Takes the next ripe object off the queue and judges it.
    pub(crate) fn review(&mut self, epoch: u64) -> Option<(NonNull<Header>, Verdict)> {
        let object = self.queue.pop_ripe(epoch)?;
        // SAFETY: an object on a queue lives, and nobody else judges it.
        let verdict = unsafe { object.as_ref() }.review();
        if verdict == Verdict::Again {
            self.queue.push(object, self.flushed + 1);
        }
        Some((object, verdict))
    }

    /// Objects found by weak words may be in use on this core: it must not let the epoch pass.
    pub(crate) fn assert_no_loans(&self) {
        assert!(self.loans == 0, "a core cannot flush while it uses objects that it has not counted");
    }
}

/// Applies a delta to its object. `epoch` is what a low count is dated: the epoch after this core's last flush,
/// which is the current one or, if the core has flushed in the current one, the next. It needs no look at the
/// barrier, and the epoch cannot pass it before this core has come to the barrier again.
fn evict(queue: &mut Queue, epoch: u64, (object, delta): Evicted) {
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
/// is an error.
#[derive(Debug)]
pub struct Loan<'a> {
    core: &'a Core,
    pin: &'a Pinned,
}

impl<'a> Loan<'a> {
    #[inline(always)]
    pub(crate) fn new(core: &'a Core, pin: &'a Pinned) -> Self {
        core.count_loans(pin, |local| {
            assert!(local.online, "objects were used on a core that is offline");
            local.loans += 1;
        });
        Self { core, pin }
    }
}

impl Drop for Loan<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.core.count_loans(self.pin, |local| local.loans -= 1);
    }
}
