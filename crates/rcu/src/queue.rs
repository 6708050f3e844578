//! Callbacks that wait for their epoch.
//!
//! A queue is a list through the heads themselves, so that deferring allocates nothing. Each core has one,
//! and the domain has one more for *orphans*: the callbacks of cores that went offline. The next core that is
//! quiescent adopts them all.
//!
//! 1. A head is on one queue at most, and its link belongs to that queue.
//! 2. A head is dated by the epoch in which its callback may run, see `epoch.rs`.

use core::mem;
use core::ptr::NonNull;

use sync::atomic::{AtomicUsize, Ordering};
use sync::{SpinLock, UnsafeCell};

/// Runs a deferred action. [`Domain::quiesce`](crate::Domain::quiesce) calls it once, and holds no lock of
/// the domain meanwhile. It may read and defer. Calls of `quiesce` or `offline` from it panic. If it
/// panics, it is not called again.
pub type Callback = unsafe fn(NonNull<Head>);

/// The field of an object that lets it be deferred.
#[derive(Debug)]
pub struct Head {
    link: UnsafeCell<Link>,
    callback: Callback,
}

/// A head's link in a queue.
#[derive(Clone, Copy, Debug)]
struct Link {
    next: Option<NonNull<Head>>,
    /// The epoch in which the callback may run.
    date: u64,
}

// SAFETY: the link belongs to one queue at a time, and queues are handed over by a lock. The rest is
// constant.
unsafe impl Send for Head {}
// SAFETY: as for `Send`.
unsafe impl Sync for Head {}

impl Head {
    sync::const_unless_loom! {
        /// Makes a head that is on no queue.
        pub fn new(callback: Callback) -> Self {
            Self { link: UnsafeCell::new(Link { next: None, date: 0 }), callback }
        }
    }

    /// Runs the callback.
    ///
    /// # Safety
    /// The head was on a queue, and is not any more. Its date has come.
    pub(crate) unsafe fn run(this: NonNull<Self>) {
        // SAFETY: the caller of `defer` promised that the head lives until its callback.
        unsafe { (this.as_ref().callback)(this) }
    }
}

/// Heads in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ends: Option<(NonNull<Head>, NonNull<Head>)>,
    len: usize,
    /// The greatest date of all heads that came since the queue was empty. Adopted orphans may be older than
    /// the heads in front of them.
    latest: u64,
}

// SAFETY: the queue owns the links of its heads, and the caller of `defer` allowed any core to run them.
unsafe impl Send for Queue {}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends a head that is on no queue.
    pub(crate) fn push(&mut self, head: NonNull<Head>, date: u64) {
        set_link(head, Link { next: None, date });
        self.append(Queue { ends: Some((head, head)), len: 1, latest: date });
    }

    /// Appends another queue. Its heads may be older than those in front of them, and then wait a little
    /// longer.
    pub(crate) fn append(&mut self, other: Queue) {
        self.ends = match (self.ends, other.ends) {
            (Some((first, middle)), Some((next, last))) => {
                set_link(middle, Link { next: Some(next), ..link(middle) });
                Some((first, last))
            }
            (mine, theirs) => mine.or(theirs),
        };
        self.len += other.len;
        self.latest = self.latest.max(other.latest);
    }

    /// Returns whether the first callback may run in `epoch`.
    pub(crate) fn is_ripe(&self, epoch: u64) -> bool {
        self.ends.is_some_and(|(first, _)| link(first).date <= epoch)
    }

    /// Returns an epoch in which all callbacks may run, or 0 if there are none.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// Takes the first head off, if it is ripe in `epoch`.
    pub(crate) fn pop_ripe(&mut self, epoch: u64) -> Option<NonNull<Head>> {
        if self.is_ripe(epoch) { self.pop() } else { None }
    }

    /// Takes the first head off.
    pub(crate) fn pop(&mut self) -> Option<NonNull<Head>> {
        let (first, last) = self.ends?;
        self.ends = link(first).next.map(|second| (second, last));
        self.len -= 1;
        if self.len == 0 {
            self.latest = 0;
        }
        Some(first)
    }
}

fn link(head: NonNull<Head>) -> Link {
    // SAFETY: the head is on the caller's queue, so it lives and its link is the caller's.
    unsafe { head.as_ref().link.with(|link| *link) }
}

fn set_link(head: NonNull<Head>, new: Link) {
    // SAFETY: as in `link`.
    unsafe { head.as_ref().link.with_mut(|link| *link = new) }
}

/// The queue of callbacks from cores that went offline.
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

    /// Takes the callbacks of a core that goes offline.
    pub(crate) fn adopt_from(&self, queue: &mut Queue) {
        if queue.len() > 0 {
            let mut orphans = self.queue.lock();
            orphans.append(mem::take(queue));
            self.waiting.store(orphans.len(), Ordering::Relaxed);
        }
    }

    /// Gives all orphans to a core. Does nothing if another core has the lock, because that core takes them.
    pub(crate) fn hand_to(&self, queue: &mut Queue) {
        if self.waiting() > 0
            && let Some(mut orphans) = self.queue.try_lock()
        {
            queue.append(mem::take(&mut orphans));
            self.waiting.store(0, Ordering::Relaxed);
        }
    }
}
