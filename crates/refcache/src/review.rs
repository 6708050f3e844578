//! Review queues: objects whose global count became low, waiting until the count can be believed.
//!
//! A queue is a list through the objects' own headers, so that queueing allocates nothing. Each core has one,
//! and the domain has one more for *orphans*: the objects of cores that went offline, and of threads that
//! play no core. The next core that ticks adopts them all.
//!
//! 1. An object is on one queue at most (`QUEUED` in its header), and stays alive while it is.
//! 2. An object dated e is reviewed in epoch e+2 or later: every core has flushed in e+1, or was offline.
//! 3. A review takes the object off its queue. A dead object is released after the borrow of the core's own
//!    state has ended, so that a release may adjust other counts. A later flush finds the zeros that it
//!    makes: releasing never recurses.
//! 4. A dead object counts as waiting until its release has ended. Then it counts as released, or as kept if
//!    the release said so. A kept object is in the core's delta cache again.

use core::mem;
use core::ptr::NonNull;

use percore::Pinned;
use sync::SpinLock;
use sync::atomic::{AtomicUsize, Ordering};

use crate::Refcache;
use crate::header::{Header, Link, Verdict};
use crate::local::{Core, Releasing};

/// The work that one [`Refcache::tick`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Whether this core flushed its deltas.
    pub flushed: bool,
    /// The number of objects that it reviewed.
    pub reviewed: usize,
    /// The number of objects that it released, without those that their release has
    /// [kept](Refcache::note_kept).
    pub freed: usize,
}

impl Refcache {
    /// Does a core's regular work: reviews ripe objects, at most `review_budget` of them, and flushes unless
    /// the core has flushed in this epoch. In that case it takes the cores offline that [`doze`](Self::doze).
    /// Does nothing on a core that is offline.
    ///
    /// The flush comes last, so that the references of the released objects are flushed in the same epoch.
    ///
    /// # Panics
    /// Panics if the core has a [`Loan`](crate::Loan), or is inside a release. Panics if a value's `Drop`
    /// does: the value counts as released, and the next tick continues with the following objects.
    pub fn tick(&self, pin: &Pinned) -> Tick {
        let mut tick = Tick::default();
        if !self.is_online(pin) {
            return tick;
        }
        self.cores.mine(pin).with(pin, |local| {
            local.assert_idle();
            self.orphans.hand_to(&mut local.queue);
        });
        let core = self.cores.mine(pin);
        let before = core.released();
        while tick.reviewed < self.review_budget {
            let Some((object, verdict)) = self.review_one(pin) else { break };
            tick.reviewed += 1;
            if verdict == Verdict::Dead {
                let _releasing = Releasing::new(core, pin);
                // SAFETY: no reference to a dead object is left, and an object is found dead only once.
                unsafe { (object.as_ref().release)(self, pin, object) }
            }
        }
        if tick.reviewed > 0 {
            tick.freed = core.released().wrapping_sub(before);
            core.note_reviewed(tick.reviewed);
        }
        tick.flushed = self.flush_if_due(pin);
        if !tick.flushed {
            // This epoch has waited for other cores since the last tick.
            self.end_dozes();
        }
        tick
    }

    /// Tells the domain that the object whose release is running stays: the release has given it a reference
    /// again, and dropped that, so that it is called again some epochs later. The object then does not count
    /// as released, and a [`drain`](Self::drain) does not go on because of it.
    ///
    /// # Panics
    /// Panics unless this core is inside a release.
    pub fn note_kept(&self, pin: &Pinned) {
        self.cores.mine(pin).note_kept(pin);
    }

    /// Returns the number of objects that wait for review, in use or not, or are being released. It sums
    /// counters that each core publishes, so it does not disturb the cores.
    pub fn garbage(&self) -> usize {
        self.cores.iter().map(Core::waiting).sum::<usize>() + self.orphans.waiting()
    }

    /// Returns the number of objects that all cores have released so far. It wraps around.
    pub(crate) fn released(&self) -> usize {
        self.cores.iter().map(Core::released).fold(0, usize::wrapping_add)
    }

    /// Returns the number of objects so far whose release has kept them. It wraps around.
    pub(crate) fn kept(&self) -> usize {
        self.cores.iter().map(Core::kept).fold(0, usize::wrapping_add)
    }

    /// Returns the number of reviews that the ticks of all cores have done so far. It wraps around.
    pub(crate) fn reviewed(&self) -> usize {
        self.cores.iter().map(Core::reviewed).fold(0, usize::wrapping_add)
    }

    /// Returns the number of objects waiting for review that cores left when they went offline. The next core
    /// that ticks adopts them.
    pub fn orphaned(&self) -> usize {
        self.orphans.waiting()
    }

    fn review_one(&self, pin: &Pinned) -> Option<(NonNull<Header>, Verdict)> {
        let epoch = self.epoch();
        self.cores.mine(pin).review(pin, epoch)
    }
}

/// Objects that wait for review, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ends: Option<(NonNull<Header>, NonNull<Header>)>,
    len: usize,
}

// SAFETY: the queue owns the links of its objects, and all cores share the objects anyway.
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

    /// Appends another queue. Its objects may be older than those in front of them, and then wait a little
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

    /// Returns whether the first object may be reviewed in `epoch`.
    pub(crate) fn is_ripe(&self, epoch: u64) -> bool {
        self.ends.is_some_and(|(first, _)| epoch >= link(first).epoch + 2)
    }

    /// Takes the first object off, if it may be reviewed in `epoch`.
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

/// The queue of objects from cores that went offline, and from threads that play no core.
#[derive(Debug)]
pub(crate) struct Orphans {
    queue: SpinLock<Queue>,
    /// The queue's length, changed under the lock. Relaxed everywhere: a hint that the lock is worth taking,
    /// and a statistic.
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

    /// Changes the queue, under its lock.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Queue)) {
        let mut orphans = self.queue.lock();
        change(&mut orphans);
        self.waiting.store(orphans.len(), Ordering::Relaxed);
    }

    /// Gives all orphans to a core that ticks. Does nothing if another core has the lock, because that core
    /// takes them.
    pub(crate) fn hand_to(&self, queue: &mut Queue) {
        if self.waiting() > 0
            && let Some(mut orphans) = self.queue.try_lock()
        {
            queue.append(mem::take(&mut orphans));
            self.waiting.store(0, Ordering::Relaxed);
        }
    }
}
