//! Review queues: objects whose global count became low, waiting until it can be believed.
//!
//! A queue is a list through the objects' own headers, so that queueing allocates nothing. Each core has one,
//! and the domain has one more for *orphans*, the objects of cores that went offline, and of threads that play
//! none. The next core that ticks adopts them all.
//!
//! 1. An object is on one queue at most (`QUEUED` in its header), and stays alive while it is.
//! 2. An object dated e is judged in epoch e+2 or later: every core has flushed in e+1, or was offline.
//! 3. Judging takes the object off; what is dead is released after the core's own state has been let go of,
//!    so that a release may adjust other counts. Their zeros are found in a later flush: releasing never
//!    recurses.

use core::mem;
use core::ptr::NonNull;

use percore::Pinned;
use sync::SpinLock;
use sync::atomic::{AtomicUsize, Ordering};

use crate::Refcache;
use crate::header::{Header, Link, Verdict};
use crate::local::{Core, Releasing};

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

impl Refcache {
    /// A core's regular duty: reviews ripe objects, at most `review_budget` of them, and flushes, unless it
    /// has flushed in this epoch: then it takes those offline that [`doze`](Self::doze). Does nothing on a core that is offline.
    ///
    /// The flush comes last, so that what the released objects referred to is on its way in the same epoch.
    ///
    /// # Panics
    /// If the core has a [`Loan`](crate::Loan), or is inside of a release. If a value's `Drop` panics: the value counts as
    /// released, and the next tick goes on with those after it.
    pub fn tick(&self, pin: &Pinned) -> Tick {
        let mut tick = Tick::default();
        if !self.is_online(pin) {
            return tick;
        }
        self.cores.mine(pin).with(pin, |local| {
            local.assert_idle();
            self.orphans.hand_to(&mut local.queue);
        });
        while tick.reviewed < self.review_budget {
            let Some((object, verdict)) = self.review_one(pin) else { break };
            tick.reviewed += 1;
            if verdict == Verdict::Dead {
                tick.freed += 1;
                let _releasing = Releasing::begin(self.cores.mine(pin), pin);
                // SAFETY: nobody refers to a dead object, and this is the only time that it is found dead.
                unsafe { (object.as_ref().release)(self, pin, object) }
            }
        }
        if tick.reviewed > 0 {
            self.cores.mine(pin).note_reviewed(tick.reviewed);
        }
        tick.flushed = self.flush_if_due(pin);
        if !tick.flushed {
            // This epoch has waited for others since the last tick.
            self.end_dozes();
        }
        tick
    }

    /// How many objects wait for review, in use or not: a sum over counters that the cores keep for it, read without
    /// disturbing them.
    pub fn garbage(&self) -> usize {
        self.cores.iter().map(Core::waiting).sum::<usize>() + self.orphans.waiting()
    }

    /// How many objects all cores have released so far; it wraps around.
    pub(crate) fn released(&self) -> usize {
        self.cores.iter().map(Core::released).fold(0, usize::wrapping_add)
    }

    /// How many reviews the ticks of all cores have done so far; it wraps around.
    pub(crate) fn reviewed(&self) -> usize {
        self.cores.iter().map(Core::reviewed).fold(0, usize::wrapping_add)
    }

    /// How many objects wait for review that were left by cores that went offline: the next core that ticks adopts them.
    pub fn orphaned(&self) -> usize {
        self.orphans.waiting()
    }

    fn review_one(&self, pin: &Pinned) -> Option<(NonNull<Header>, Verdict)> {
        let epoch = self.epoch();
        self.cores.mine(pin).review(pin, epoch)
    }
}

/// Objects that wait for review, in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ends: Option<(NonNull<Header>, NonNull<Header>)>,
    len: usize,
}

// SAFETY: the queue owns the links of its objects, and objects are shared by all cores anyway.
unsafe impl Send for Queue {}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends an object that the caller has claimed, dated `epoch`.
    pub(crate) fn push(&mut self, object: NonNull<Header>, epoch: u64) {
        set_link(object, Link { next: None, epoch });
        self.append(Queue { ends: Some((object, object)), len: 1 });
    }

    /// Appends another queue. Its objects may be older than those in front of them: they wait a little
    /// longer.
    fn append(&mut self, other: Queue) {
        self.ends = match (self.ends, other.ends) {
            (Some((first, middle)), Some((next, last))) => {
                set_link(middle, Link { next: Some(next), ..link(middle) });
                Some((first, last))
            }
            (mine, theirs) => mine.or(theirs),
        };
        self.len += other.len;
    }

    /// Whether the first object may be judged in `epoch`.
    pub(crate) fn is_ripe(&self, epoch: u64) -> bool {
        self.ends.is_some_and(|(first, _)| epoch >= link(first).epoch + 2)
    }

    /// Takes the first object off, if it may be judged in `epoch`.
    pub(crate) fn pop_ripe(&mut self, epoch: u64) -> Option<NonNull<Header>> {
        let (first, last) = self.ends.filter(|_| self.is_ripe(epoch))?;
        self.ends = link(first).next.map(|second| (second, last));
        self.len -= 1;
        Some(first)
    }
}

fn link(object: NonNull<Header>) -> Link {
    // SAFETY: the object is on the caller's queue, so it lives and its link is the caller's.
    unsafe { object.as_ref().link.with(|link| *link) }
}

fn set_link(object: NonNull<Header>, new: Link) {
    // SAFETY: as in `link`.
    unsafe { object.as_ref().link.with_mut(|link| *link = new) }
}

/// The queue of cores that went offline, and of threads that play none.
#[derive(Debug)]
pub(crate) struct Orphans {
    queue: SpinLock<Queue>,
    /// Its length, changed under the lock. Relaxed everywhere: a hint that the lock is worth taking, and a
    /// statistic.
    waiting: AtomicUsize,
}

impl Orphans {
    pub(crate) fn new() -> Self {
        Self { queue: SpinLock::new(Queue::default()), waiting: AtomicUsize::new(0) }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes the objects of a core that goes offline.
    pub(crate) fn adopt_from(&self, queue: &mut Queue) {
        if queue.len() > 0 {
            self.with(|orphans| orphans.append(mem::take(queue)));
        }
    }

    /// Changes the queue. One caller at a time.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Queue)) {
        let mut orphans = self.queue.lock();
        change(&mut orphans);
        self.waiting.store(orphans.len(), Ordering::Relaxed);
    }

    /// Gives all orphans to a core that ticks; if another core is busy with them, it is welcome.
    pub(crate) fn hand_to(&self, queue: &mut Queue) {
        if self.waiting() > 0
            && let Some(mut orphans) = self.queue.try_lock()
        {
            queue.append(mem::take(&mut orphans));
            self.waiting.store(0, Ordering::Relaxed);
        }
    }
}
