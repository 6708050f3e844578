//! One core's part of a domain.

use percore::{CoreId, OwnerCell, Pinned};
use sync::CachePadded;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::Domain;
use crate::epoch::{self, Scan};
use crate::queue::Queue;

/// A core's own state, and the two words that others may read.
#[derive(Debug)]
pub(crate) struct Core {
    local: OwnerCell<Local>,
    /// The core's announcement, see `epoch.rs`. Written once in an epoch.
    pub(crate) told: CachePadded<AtomicU64>,
    /// Length of the queue. Relaxed everywhere: a statistic. Kept on a line of its own, so that deferring
    /// does not disturb the cores that read `told`.
    waiting: CachePadded<AtomicUsize>,
}

#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) queue: Queue,
    /// The epoch in which this core was last quiescent. The current epoch is this one or the next.
    pub(crate) seen: u64,
    pub(crate) online: bool,
    /// This core's progress in its scan of the others.
    pub(crate) scan: Scan,
    readers: u64,
    /// Set while a callback runs, which may run any code.
    running: bool,
}

impl Core {
    pub(crate) fn new(id: CoreId) -> Self {
        let local = Local {
            queue: Queue::default(),
            seen: 0,
            online: false,
            scan: Scan::default(),
            readers: 0,
            running: false,
        };
        Self {
            local: OwnerCell::new(id, local),
            told: CachePadded::new(AtomicU64::new(epoch::OFFLINE)),
            waiting: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// Reads the core's state.
    #[inline(always)]
    pub(crate) fn look<R>(&self, pin: &Pinned, f: impl FnOnce(&Local) -> R) -> R {
        // SAFETY: callers in this crate pass closures that do not access this cell again.
        unsafe { self.local.with(pin, |local| f(local)) }
    }

    /// Changes the core's state, except its queue.
    #[inline(always)]
    pub(crate) fn with<R>(&self, pin: &Pinned, f: impl FnOnce(&mut Local) -> R) -> R {
        // SAFETY: callers in this crate pass closures that do not access this cell again.
        unsafe { self.local.with(pin, f) }
    }

    /// Changes the core's state, and publishes the length of its queue if that has changed.
    pub(crate) fn with_queue<R>(&self, pin: &Pinned, f: impl FnOnce(&mut Local) -> R) -> R {
        self.with(pin, |local| {
            let before = local.queue.len();
            let result = f(local);
            if local.queue.len() != before {
                self.waiting.store(local.queue.len(), Ordering::Relaxed);
            }
            result
        })
    }

    /// Returns the length of the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Local {
    /// Checks that the core may announce that it is quiescent: it takes part, and uses no object that was
    /// unlinked. The caller checks and announces in the same access to the core's state, so that no foreign
    /// code runs in between. A callback must not announce, or the recursion could overflow the stack.
    pub(crate) fn assert_quiescent(&self) {
        assert!(self.online, "a core that is offline cannot wait for a grace period");
        assert!(self.readers == 0, "a core is not quiescent inside a read section");
        assert!(!self.running, "a value's Drop, or a callback, must neither be quiescent nor go offline");
    }

    /// Checks that no callback is running, so that the stack is bounded.
    pub(crate) fn assert_runs_no_callback(&self) {
        assert!(!self.running, "a value's Drop, or a callback, must not run others");
    }
}

/// Marks the core as running a callback, until this is dropped.
pub(crate) struct Running<'a> {
    core: &'a Core,
    pin: &'a Pinned,
}

impl<'a> Running<'a> {
    pub(crate) fn begin(core: &'a Core, pin: &'a Pinned) -> Self {
        core.with(pin, |local| local.running = true);
        Self { core, pin }
    }
}

impl Drop for Running<'_> {
    /// Runs also when the callback panics.
    fn drop(&mut self) {
        self.core.with(self.pin, |local| local.running = false);
    }
}

/// A read section. As long as it is held, this core stays online and is not quiescent, and no object is freed
/// that the core finds by pointers that it loads meanwhile. Calling [`quiesce`](Domain::quiesce) meanwhile is
/// an error, and so is a guard that code run inside [`synchronize`](Domain::synchronize) keeps: both panic. A
/// guard that is leaked stays for ever.
#[derive(Debug)]
pub struct Guard<'a> {
    core: &'a Core,
    pin: &'a Pinned,
}

impl Domain {
    /// Begins a read section. It writes to a line that only this core uses.
    ///
    /// # Panics
    /// If this core is offline.
    #[inline(always)]
    pub fn read<'a>(&'a self, pin: &'a Pinned) -> Guard<'a> {
        let core = self.cores.mine(pin);
        core.with(pin, |local| {
            assert!(local.online, "a read section on a core that is offline");
            local.readers += 1;
        });
        Guard { core, pin }
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.core.with(self.pin, |local| local.readers -= 1);
    }
}
