//! Sleepers and alarms of one core, and when its timer must ring.
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

/// The sleepers and alarms with their deadlines, latest first, so that the next one is at the end.
pub struct Timers(Vec<Timer>);

struct Timer {
    deadline: u64,
    due: Due,
}

/// The thing that happens at a deadline.
enum Due {
    /// The task wakes. It sleeps once at a time.
    Sleeper(Arc<Task>),
    /// The alarm with this number rings. It is set once at a time.
    Alarm(u64, Arc<dyn Rung>),
}

/// The key of a timer beside its deadline: a task's or an alarm's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Number {
    Task(u32),
    Alarm(u64),
}

/// A timer with an action.
pub trait Rung: Send + Sync {
    /// Called without a lock when its deadline has passed.
    fn rung(self: Arc<Self>, deadline: u64);
}

impl Timer {
    /// Returns its key, which is unique.
    fn key(&self) -> (u64, Number) {
        let number = match &self.due {
            Due::Sleeper(task) => Number::Task(task.tid()),
            Due::Alarm(id, _) => Number::Alarm(*id),
        };
        (self.deadline, number)
    }
}

impl Timers {
    /// Creates an empty list of sleepers.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    fn find(&self, key: (u64, Number)) -> Result<usize, usize> {
        self.0.binary_search_by(|timer| key.cmp(&timer.key()))
    }

    fn add(&mut self, timer: Timer) -> Result<(), Errno> {
        self.0.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let at = self.find(timer.key()).unwrap_or_else(|at| at);
        self.0.insert(at, timer);
        Ok(())
    }

    fn remove(&mut self, deadline: u64, number: Number) -> Option<Timer> {
        self.find((deadline, number)).ok().map(|at| self.0.remove(at))
    }

    /// Returns the time when the next sleeper wakes.
    pub fn next(&self) -> Option<u64> {
        self.0.last().map(|timer| timer.deadline)
    }

    fn pop_due(&mut self, now: u64) -> Option<Timer> {
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
    core.timers.lock().add(Timer { deadline, due: Due::Sleeper(task) })?;
    arm(core);
    park();
    let _left = core.timers.lock().remove(deadline, Number::Task(tid));
    Ok(())
}

/// Adds an alarm to the timers of this core. It is not in any.
///
/// # Errors
/// ENOMEM.
pub fn add_alarm(deadline: u64, id: u64, alarm: Arc<dyn Rung>) -> Result<(), Errno> {
    let core = cores::mine();
    core.timers.lock().add(Timer { deadline, due: Due::Alarm(id, alarm) })?;
    arm(core);
    Ok(())
}

/// Removes an alarm from the timers of `core`, unless it is about to ring.
pub fn remove_alarm(core: &Core, deadline: u64, id: u64) {
    let _left = core.timers.lock().remove(deadline, Number::Alarm(id));
}

/// Sets this core's timer to the next thing that is due.
pub fn arm(core: &Core) {
    let _off = arch::interrupts::off();
    let tick = core.online.load(Ordering::Relaxed).then(|| core.next_tick.load(Ordering::Relaxed));
    let sleeper = core.timers.lock().next();
    arch::set_timer(tick.into_iter().chain(sleeper).min());
}

/// Wakes the sleepers and rings the alarms that are due after the timer rang, and returns whether a tick is
/// due too.
pub fn expire(core: &Core) -> bool {
    let now = arch::now_ns();
    wake_due(core, now);
    let ticked = core.online.load(Ordering::Relaxed) && core.next_tick.load(Ordering::Relaxed) <= now;
    if ticked {
        core.next_tick.store(now + TICK_NS, Ordering::Relaxed);
    }
    ticked
}

/// Wakes the sleepers and rings the alarms that are due by `now`.
pub fn wake_due(core: &Core, now: u64) {
    // A core that slept was not kept by kernel work.
    let is_late = core.timers.lock().next().is_some_and(|deadline| deadline + LATE_NS < now);
    if is_late && arch::with_current(|_| ()).is_some() {
        bump(Counter::LateTimers);
    }
    loop {
        // The lock is released first: waking and ringing take other locks.
        let due = core.timers.lock().pop_due(now);
        let Some(timer) = due else { break };
        match timer.due {
            Due::Sleeper(task) => {
                Task::wake(&task);
            }
            Due::Alarm(_, alarm) => alarm.rung(timer.deadline),
        }
    }
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
