//! Refcache: reference counts that cores change without sharing a cache line.
#![cfg_attr(not(loom), no_std)]

extern crate alloc;

mod cache;
mod epoch;
mod object;
mod review;
mod weak;

use core::ptr::NonNull;

use percore::{OwnerCell, PerCore, Pinned};
use sync::atomic::{AtomicUsize, Ordering};
use sync::{CachePadded, SpinLock};

use cache::DeltaCache;
use epoch::Barrier;
pub use object::{Header, Release};
use object::Verdict;
use review::Queue;
pub use weak::{DYING, WeakWord};

/// The sizes of a [`Refcache`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many cores there are.
    pub cores: usize,
    /// Entries of each core's delta cache; a power of two.
    pub cache_slots: usize,
    /// The most objects that one `tick` reviews.
    pub review_budget: usize,
}

/// What one [`Refcache::tick`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Whether this core flushed its deltas.
    pub flushed: bool,
    /// How many objects it reviewed.
    pub reviewed: usize,
    /// How many of them it released.
    pub freed: usize,
}

/// One domain of counted objects.
#[derive(Debug)]
pub struct Refcache {
    cores: PerCore<Core>,
    barrier: CachePadded<Barrier>,
    orphans: CachePadded<Orphans>,
    review_budget: usize,
}

#[derive(Debug)]
struct Core {
    local: OwnerCell<Local>,
    /// Length of the review queue, for others to read.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Local {
    cache: DeltaCache,
    queue: Queue,
    /// The last epoch in which this core flushed.
    flushed: u64,
    online: bool,
}

#[derive(Debug)]
struct Orphans {
    queue: SpinLock<Queue>,
    waiting: AtomicUsize,
}

impl Refcache {
    /// A domain with all cores offline.
    pub fn new(config: Config) -> Self {
        let local = || Local { cache: DeltaCache::new(config.cache_slots), queue: Queue::default(), flushed: 0, online: false };
        Self {
            cores: PerCore::new(config.cores, |core| Core {
                local: OwnerCell::new(core, local()),
                waiting: AtomicUsize::new(0),
            }),
            barrier: CachePadded::new(Barrier::new()),
            orphans: CachePadded::new(Orphans { queue: SpinLock::new(Queue::default()), waiting: AtomicUsize::new(0) }),
            review_budget: config.review_budget,
        }
    }

    /// This core takes part from now on. Needed before it touches a count or reads a weak word.
    pub fn online(&self, pin: &Pinned) {
        self.with(pin, |local| {
            if !local.online {
                local.online = true;
                local.flushed = self.barrier.join();
            }
        });
    }

    /// This core flushes, hands its review queue on and takes no part any more.
    pub fn offline(&self, pin: &Pinned) {
        self.with(pin, |local| {
            if local.online {
                local.flush();
                self.abandon(core::mem::take(&mut local.queue));
                local.online = false;
                self.barrier.leave(local.flushed);
            }
        });
    }

    /// Whether this core takes part.
    pub fn is_online(&self, pin: &Pinned) -> bool {
        self.with(pin, |local| local.online)
    }

    /// How many cores the domain was made for.
    pub fn cores(&self) -> usize {
        self.cores.cores()
    }

    /// The current epoch.
    pub fn epoch(&self) -> u64 {
        self.barrier.epoch()
    }

    /// Reviews at most `review_budget` ripe objects, and flushes if this core has not flushed in this epoch.
    pub fn tick(&self, pin: &Pinned) -> Tick {
        let mut tick = Tick::default();
        if !self.is_online(pin) {
            return tick;
        }
        self.adopt(pin);
        while tick.reviewed < self.review_budget {
            let Some((object, verdict)) = self.review_one(pin) else { break };
            tick.reviewed += 1;
            if verdict == Verdict::Dead {
                tick.freed += 1;
                // SAFETY: the object is dead: nobody holds it, and it is on no queue.
                unsafe { (object.as_ref().release)(self, pin, object) }
            }
        }
        tick.flushed = self.flush_if_due(pin);
        tick
    }

    /// Whether `tick` has something to do: a flush is due in this epoch, or a ripe object waits.
    pub fn wants_tick(&self, pin: &Pinned) -> bool {
        let epoch = self.epoch();
        self.with(pin, |local| local.online && (local.flushed != epoch || local.queue.is_ripe(epoch)))
    }

    /// How many objects wait for review.
    pub fn garbage(&self) -> usize {
        let orphans = self.orphans.waiting.load(Ordering::Relaxed);
        self.cores.iter().map(|core| core.waiting.load(Ordering::Relaxed)).sum::<usize>() + orphans
    }

    /// Adds `delta` to the object's count, in this core's delta cache.
    ///
    /// # Safety
    /// The core is online; the object lives, and the caller holds a reference (or got the object from a weak word under
    /// this pin), which a negative delta gives up.
    #[inline(always)]
    pub unsafe fn adjust(&self, pin: &Pinned, object: NonNull<Header>, delta: i64) {
        self.with(pin, |local| {
            if !local.cache.add(object, delta) {
                local.miss(object, delta);
            }
        });
    }

    /// Forces epochs until nothing waits for review, or nothing moves any more. Waits for the other online cores to tick.
    pub fn drain(&self, pin: &Pinned) -> usize {
        let mut freed = 0;
        let mut until = self.epoch() + 4;
        while self.epoch() < until {
            let tick = self.tick(pin);
            if tick.freed > 0 {
                freed += tick.freed;
                until = self.epoch() + 4;
            }
            percore::relax();
        }
        freed
    }

    fn review_one(&self, pin: &Pinned) -> Option<(NonNull<Header>, Verdict)> {
        let epoch = self.epoch();
        self.with(pin, |local| local.review_one(epoch))
    }

    fn flush_if_due(&self, pin: &Pinned) -> bool {
        let epoch = self.epoch();
        self.with(pin, |local| {
            let due = local.flushed != epoch;
            if due {
                local.flush();
                local.flushed = epoch;
                self.barrier.arrive();
            }
            due
        })
    }

    fn abandon(&self, queue: Queue) {
        if queue.len() > 0 {
            let mut orphans = self.orphans.queue.lock();
            orphans.append(queue);
            self.orphans.waiting.store(orphans.len(), Ordering::Relaxed);
        }
    }

    fn adopt(&self, pin: &Pinned) {
        if self.orphans.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(mut orphans) = self.orphans.queue.try_lock() else { return };
        self.with(pin, |local| local.queue.append(core::mem::take(&mut orphans)));
        self.orphans.waiting.store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    fn with<R>(&self, pin: &Pinned, f: impl FnOnce(&mut Local) -> R) -> R {
        let core = self.cores.mine(pin);
        // SAFETY: no closure in this file calls `with` again.
        unsafe {
            core.local.with(pin, |local| {
                let result = f(local);
                core.waiting.store(local.queue.len(), Ordering::Relaxed);
                result
            })
        }
    }
}

impl Local {
    #[cold]
    #[inline(never)]
    fn miss(&mut self, object: NonNull<Header>, delta: i64) {
        assert!(self.online, "a count was touched on a core that is offline");
        if let Some((old, delta)) = self.cache.insert(object, delta) {
            evict(&mut self.queue, old, delta, self.flushed + 1);
        }
    }

    fn flush(&mut self) {
        let Self { cache, queue, flushed, .. } = self;
        cache.flush(|object, delta| evict(queue, object, delta, *flushed + 1));
    }

    fn review_one(&mut self, epoch: u64) -> Option<(NonNull<Header>, Verdict)> {
        let object = self.queue.pop_ripe(epoch)?;
        // SAFETY: the object was on our queue, so it lives.
        let verdict = unsafe { object.as_ref() }.review();
        if verdict == Verdict::Again {
            self.queue.push(object, self.flushed + 1);
        }
        Some((object, verdict))
    }
}

/// Applies a delta that leaves a cache.
fn evict(queue: &mut Queue, object: NonNull<Header>, delta: i64, epoch: u64) {
    // SAFETY: an object with an entry in a cache lives.
    let header = unsafe { object.as_ref() };
    if header.apply(delta) {
        header.mark_dying();
        queue.push(object, epoch);
    }
}
