//! One core's part of a domain.

use percore::{CoreId, OwnerCell, Pinned};
use sync::CachePadded;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::Domain;
use crate::epoch::{self, Scan};
use crate::queue::Queue;

/// What a core owns, and the two words that others may read.
#[derive(Debug)]
pub(crate) struct Core {
    local: OwnerCell<Local>,
    /// What the core tells about itself, see `epoch.rs`. Written once in an epoch.
    pub(crate) told: CachePadded<AtomicU64>,
    /// Length of the queue. Relaxed everywhere: a statistic. On a line of its own, so that deferring does not disturb
    /// those who read `told`.
    waiting: CachePadded<AtomicUsize>,
}

#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) queue: Queue,
    /// The epoch in which this core was last quiescent. The current epoch is this one or the next.
    pub(crate) seen: u64,
    pub(crate) online: bool,
    /// How far this core has come in its look at the others.
    pub(crate) scan: Scan,
    readers: u64,
    /// A callback runs, which may run anybody's code.
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

    /// Looks at the core's state.
    #[inline(always)]
    pub(crate) fn look<R>(&self, pin: &Pinned, f: impl FnOnce(&Local) -> R) -> R {
        // SAFETY: callers in this crate pass closures that do not come back here.
        unsafe { self.local.with(pin, |local| f(local)) }
    }

    /// Changes the core's state, but for its queue.
    #[inline(always)]
    pub(crate) fn with<R>(&self, pin: &Pinned, f: impl FnOnce(&mut Local) -> R) -> R {
        // SAFETY: callers in this crate pass closures that do not come back here.
        unsafe { self.local.with(pin, f) }
    }

    /// Changes the core's state, and publishes the length of its queue if that is another one.
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

    /// Length of the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Local {
    /// The core may say that it is quiescent: it takes part, and uses no object that was unlinked. Whoever says so asks this in
    /// the same look at the core's state, so that nobody's code runs in between. A callback must not, or the stack would end
    /// before the callbacks do.
    pub(crate) fn assert_quiescent(&self) {
        assert!(self.online, "a core that is offline cannot wait for a grace period");
        assert!(self.readers == 0, "a core is not quiescent inside a read section");
        assert!(!self.running, "a value's Drop, or a callback, must neither be quiescent nor go offline");
    }
}

/// A callback runs, until this is dropped.
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
    /// Also when the callback panics.
    fn drop(&mut self) {
        self.core.with(self.pin, |local| local.running = false);
    }
}

/// A read section: as long as it is held, this core stays online and is not quiescent, and what it finds by pointers
/// that it loads meanwhile is not freed. To [`quiesce`](Domain::quiesce) meanwhile is an error, and so is to keep a guard from
/// code that runs inside of [`synchronize`](Domain::synchronize): that panics. A guard that is forgotten stays for ever.
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
