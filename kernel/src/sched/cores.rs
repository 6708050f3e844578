//! The scheduler's state of each core.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use alloc::sync::Arc;
use percore::CoreId;
use sync::{CachePadded, SpinLock};

use super::attention::{Attention, REAP};
use super::list::{Chain, Link, TaskList};
use super::timers::Timers;
use super::{Departure, Task};
use crate::arch::per_core::all_cores;
use crate::arch::{self, Suspended};

/// The link of run queues.
#[derive(Debug)]
pub struct RunChain;

impl Chain for RunChain {
    fn link(task: &Task) -> &Link {
        &task.run_link
    }
}

/// One core's part of the scheduler.
pub struct Core {
    /// Fields that other cores write, too. On lines of their own: the rest changes whenever the core goes to
    /// sleep.
    shared: CachePadded<Shared>,
    /// Why the core should look up before it returns to user mode.
    pub attention: Attention,
    /// Sleepers whose time comes on this core.
    pub timers: SpinLock<Timers>,
    /// The time of this core's next tick. Only the core itself accesses it.
    pub next_tick: AtomicU64,
    /// Set if the core takes part in epochs. Only the core itself accesses it.
    pub online: AtomicBool,
    /// How the task that is being left leaves. Only the core itself accesses it, between a switch's two
    /// halves.
    pub departure: SpinLock<Departure>,
    /// The core's idle flow while a task runs.
    pub idle_flow: SpinLock<Option<Suspended>>,
    /// Tasks that have exited and wait to be freed.
    pub dead: SpinLock<TaskList<RunChain>>,
    /// Set while a task that frees what this core has left waits for its next turn.
    has_reaper: AtomicBool,
}

/// The fields that other cores read and write when they give this core tasks, or take some.
struct Shared {
    /// Runnable tasks that wait for this core.
    queue: SpinLock<TaskList<RunChain>>,
    /// Number of tasks in the queue. Written under the queue's lock.
    waiting: AtomicUsize,
    /// Set if the core idles, and no other core has claimed it.
    idle: AtomicBool,
}

all_cores! {
    static CORES: Core = Core::new();
}

/// Returns the state of `core`.
#[inline(always)]
pub fn of(core: CoreId) -> &'static Core {
    CORES.of(core)
}

/// Returns the state of this core.
#[inline(always)]
pub fn mine() -> &'static Core {
    of(arch::core())
}

/// Returns all cores of the machine.
pub fn all() -> impl Iterator<Item = CoreId> {
    (0..arch::cores()).map(CoreId::new)
}

impl Core {
    const fn new() -> Self {
        Self {
            shared: CachePadded::new(Shared::new()),
            attention: Attention::new(),
            timers: SpinLock::new(Timers::new()),
            next_tick: AtomicU64::new(0),
            online: AtomicBool::new(false),
            departure: SpinLock::new(Departure::Idle),
            idle_flow: SpinLock::new(None),
            dead: SpinLock::new(TaskList::new()),
            has_reaper: AtomicBool::new(false),
        }
    }

    /// Returns whether a task that waits for its next turn will free what this core has left.
    pub fn has_reaper(&self) -> bool {
        // SeqCst: see `resume_reaping`.
        self.has_reaper.load(Ordering::SeqCst)
    }

    /// Leaves what this core has to free to the caller, which waits for its next turn. Returns whether there
    /// is something that is not left to another task yet. Then the caller calls [`Self::resume_reaping`]
    /// afterwards.
    pub fn postpone_reaping(&self) -> bool {
        self.attention.has(REAP) && !self.has_reaper.swap(true, Ordering::SeqCst)
    }

    /// Makes this core free what it has left. Called by the task for which it waited, perhaps on another
    /// core.
    pub fn resume_reaping(&self) {
        // SeqCst, before the reason is raised: a core that takes the reason sees that no task frees it later.
        self.has_reaper.store(false, Ordering::SeqCst);
        self.attention.raise(REAP);
    }

    /// Returns the number of tasks that wait here. A hint for balancing, exact for a core that pushed before.
    pub fn waiting(&self) -> usize {
        // SeqCst: half of the argument in `place`.
        self.shared.waiting.load(Ordering::SeqCst)
    }

    /// Adds a runnable task at the end.
    pub fn push(&self, task: Arc<Task>) {
        let mut queue = self.shared.queue.lock();
        queue.push(task);
        self.shared.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether a task that `wanted` accepts waits here.
    pub fn offers(&self, wanted: impl FnMut(&Task) -> bool) -> bool {
        self.waiting() > 0 && self.shared.queue.lock().any(wanted)
    }

    /// Takes the first task that `wanted` accepts.
    pub fn take(&self, wanted: impl FnMut(&Arc<Task>) -> bool) -> Option<Arc<Task>> {
        if self.waiting() == 0 {
            return None;
        }
        let mut queue = self.shared.queue.lock();
        let task = queue.remove_first(wanted)?;
        self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(task)
    }

    /// Returns whether this core idles, and no other core has claimed it.
    pub fn idles(&self) -> bool {
        self.shared.idle.load(Ordering::SeqCst)
    }

    /// Marks the core idle. Called by the core itself.
    pub fn set_idle(&self) {
        self.shared.idle.store(true, Ordering::SeqCst);
    }

    /// Marks the core not idle. Returns whether it was idle: only one of several callers gets true.
    pub fn claim_idle(&self) -> bool {
        self.idles() && self.shared.idle.swap(false, Ordering::SeqCst)
    }
}

impl Shared {
    const fn new() -> Self {
        Self {
            queue: SpinLock::new(TaskList::new()),
            waiting: AtomicUsize::new(0),
            idle: AtomicBool::new(false),
        }
    }
}
