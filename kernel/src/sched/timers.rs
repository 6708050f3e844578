//! Sleepers of one core, and when its timer must ring.
//!
//! A busy core ticks every [`TICK_NS`]: that is the time slice, and it drives the epochs. Sleepers ring in
//! between. An idle core rings for its sleepers only.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use abi::Errno;

use super::cores::{self, Core};
use super::{Task, park, with_current};
use crate::arch;
use crate::counters::{Counter, bump};

/// The time slice, and the pace of epochs.
pub const TICK_NS: u64 = 10_000_000;

/// A core that looks up this much later than its timer was kept too long, by kernel work or by a host that
/// ran something else. If an instruction takes a nanosecond, it is the limit for one piece of a long call.
const LATE_NS: u64 = 1_000_000;

/// The sleepers and their deadlines, latest first, so that the next one is at the end.
pub struct Timers(Vec<Sleeper>);

struct Sleeper {
    deadline: u64,
    task: Arc<Task>,
}

impl Sleeper {
    /// Returns the key of a sleeper. It is unique, since a task sleeps once at a time.
    fn key(&self) -> (u64, u32) {
        (self.deadline, self.task.tid())
    }
}

impl Timers {
    /// Creates an empty list of sleepers.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    fn find(&self, deadline: u64, tid: u32) -> Result<usize, usize> {
        self.0.binary_search_by(|sleeper| (deadline, tid).cmp(&sleeper.key()))
    }

    fn add(&mut self, deadline: u64, task: Arc<Task>) -> Result<(), Errno> {
        self.0.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let at = self.find(deadline, task.tid()).unwrap_or_else(|at| at);
        self.0.insert(at, Sleeper { deadline, task });
        Ok(())
    }

    fn remove(&mut self, deadline: u64, tid: u32) -> Option<Sleeper> {
        self.find(deadline, tid).ok().map(|at| self.0.remove(at))
    }

    /// Returns the time when the next sleeper wakes.
    pub fn next(&self) -> Option<u64> {
        self.0.last().map(|sleeper| sleeper.deadline)
    }

    fn pop_due(&mut self, now: u64) -> Option<Sleeper> {
        self.next().filter(|&deadline| deadline <= now).and_then(|_| self.0.pop())
    }
}

/// Parks the current task until it is woken or until `deadline` (nanoseconds since boot). May return early.
///
/// # Errors
/// ENOMEM if there is no memory for the timer.
pub fn park_until(deadline: Option<u64>) -> Result<(), Errno> {
    let Some(deadline) = deadline else {
        park();
        return Ok(());
    };
    let (core, task) = (cores::mine(), super::current());
    let tid = task.tid();
    core.timers.lock().add(deadline, task)?;
    arm(core);
    park();
    drop(core.timers.lock().remove(deadline, tid));
    Ok(())
}

/// Sets this core's timer to the next thing that is due.
pub fn arm(core: &Core) {
    let _off = arch::interrupts::off();
    let tick = core.online.load(Ordering::Relaxed).then(|| core.next_tick.load(Ordering::Relaxed));
    let sleeper = core.timers.lock().next();
    arch::set_timer(tick.into_iter().chain(sleeper).min());
}

/// Wakes the sleepers that are due after the timer rang, and returns whether a tick is due too.
pub fn expire(core: &Core) -> bool {
    let now = arch::now_ns();
    // A core that slept was not kept by kernel work.
    let is_late = core.timers.lock().next().is_some_and(|deadline| deadline + LATE_NS < now);
    if is_late && arch::with_current(|_| ()).is_some() {
        bump(Counter::LateTimers);
    }
    loop {
        // The lock is released before the task is woken: waking takes other locks.
        let due = core.timers.lock().pop_due(now);
        let Some(sleeper) = due else { break };
        Task::wake(&sleeper.task);
    }
    let ticked = core.online.load(Ordering::Relaxed) && core.next_tick.load(Ordering::Relaxed) <= now;
    if ticked {
        core.next_tick.store(now + TICK_NS, Ordering::Relaxed);
    }
    ticked
}

/// Returns whether a sleeping thread's clock has passed `deadline`.
pub fn passed(deadline: u64) -> bool {
    arch::now_ns() >= deadline
}

/// Sleeps until `deadline`.
///
/// # Errors
/// EINTR if a signal or the end of the process comes first, ENOMEM without memory for the timer.
pub fn sleep_until(deadline: u64) -> Result<(), Errno> {
    while !passed(deadline) {
        with_current(|task| task.check_interrupted())?;
        park_until(Some(deadline))?;
    }
    Ok(())
}
