//! Timers of CPU time: ITIMER_VIRTUAL, ITIMER_PROF, `timer_create` with a clock of CPU time, and RLIMIT_CPU.
//!
//! Each tick of a core that runs a thread of the process looks at them, so they ring up to a tick late. All
//! CPU time counts as time in user mode, as `getrusage` says too, so ITIMER_VIRTUAL and ITIMER_PROF differ in
//! their signals only. A process without such timers reads one flag at a tick.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::process::RLIM_INFINITY;
use abi::signal::{SIGKILL, SIGXCPU};
use sync::SpinLock;
use sync::atomic::{AtomicBool, Ordering};

use super::Process;
use super::signal::{self, Origin};
use super::timers::Notice;
use crate::mm::fallible;
use crate::sched::{self, Ring, Rings, Setting, Task};

const SECOND: u64 = 1_000_000_000;

/// A clock of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuClock {
    /// That of the whole process.
    Process,
    /// That of a thread of it. It stands still when the thread has ended.
    Thread(u32),
}

impl CpuClock {
    /// Returns the time, in nanoseconds.
    pub fn now(self, process: &Process) -> u64 {
        match self {
            CpuClock::Process => process.cpu_ns(),
            CpuClock::Thread(tid) => process.thread(tid).map_or(0, |thread| thread.cpu_ns()),
        }
    }
}

/// A timer of CPU time.
pub struct CpuTimer {
    /// Its clock.
    pub clock: CpuClock,
    /// None once it is stopped for good.
    setting: SpinLock<Option<Setting>>,
    rings: Rings,
    /// Its action.
    pub action: Notice,
}

impl CpuTimer {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(clock: CpuClock, action: Notice) -> Result<Arc<Self>, Errno> {
        let setting = SpinLock::new(Some(Setting::default()));
        fallible::arc(Self { clock, setting, rings: Rings::new(), action })
    }

    /// Sets it, with a deadline in CPU time, or stops it, and waits for its rings. Returns the old setting.
    ///
    /// # Errors
    /// EINVAL if it is retired.
    pub fn set(&self, new: Setting) -> Result<Setting, Errno> {
        let old = {
            let mut setting = self.setting.lock();
            core::mem::replace(setting.as_mut().ok_or(Errno::EINVAL)?, new)
        };
        self.rings.wait();
        Ok(old)
    }

    /// Stops it for good, and does not wait.
    pub fn retire(&self) {
        *self.setting.lock() = None;
    }

    /// Returns the setting, and waits for its rings.
    pub fn setting(&self) -> Setting {
        let setting = *self.setting.lock();
        self.rings.wait();
        setting.unwrap_or_default()
    }

    /// Waits for its rings.
    pub fn wait(&self) {
        self.rings.wait();
    }

    /// Rings if it is due. Returns whether it is still set.
    fn look(&self, process: &Process) -> bool {
        let count = {
            let mut setting = self.setting.lock();
            let Some(setting) = setting.as_mut() else { return false };
            let Some(deadline) = setting.deadline else { return false };
            let now = self.clock.now(process);
            if now < deadline {
                return true;
            }
            let (count, next) = sched::due(deadline, setting.interval, now);
            setting.deadline = next;
            self.rings.begin();
            count
        };
        self.action.ring(count);
        self.rings.end();
        self.setting.lock().is_some_and(|setting| setting.deadline.is_some())
    }
}

/// The timers of CPU time of one process that may be set.
pub struct CpuTimers {
    /// Set if there may be one. Relaxed: a timer that is set while a tick looks is seen at the next one.
    any: AtomicBool,
    all: SpinLock<Vec<Arc<CpuTimer>>>,
}

impl CpuTimers {
    /// Creates an empty list. The first tick finds out whether there is a limit.
    pub const fn new() -> Self {
        Self { any: AtomicBool::new(true), all: SpinLock::new(Vec::new()) }
    }

    /// Adds a timer, which is in no list.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn add(&self, timer: &Arc<CpuTimer>) -> Result<(), Errno> {
        fallible::push(&mut self.all.lock(), timer.clone())
    }

    /// Removes a timer.
    pub fn remove(&self, timer: &Arc<CpuTimer>) {
        let removed = {
            let mut all = self.all.lock();
            all.iter().position(|other| Arc::ptr_eq(other, timer)).map(|at| all.swap_remove(at))
        };
        drop(removed);
        // A tick that goes over the list may have missed the one that was moved.
        self.note_set();
    }

    /// Notes that a timer was set, or a limit.
    pub fn note_set(&self) {
        self.any.store(true, Ordering::Relaxed);
    }

    fn get(&self, index: usize) -> Option<Arc<CpuTimer>> {
        self.all.lock().get(index).cloned()
    }
}

/// Looks at the timers of CPU time of the process of `task`, which runs at a tick of its core.
#[inline]
pub fn on_tick(task: &Task) {
    let timers = &task.process().timers.cpu;
    if timers.any.load(Ordering::Relaxed) {
        look(task.process());
    }
}

#[cold]
fn look(process: &Arc<Process>) {
    let timers = &process.timers.cpu;
    timers.any.store(false, Ordering::Relaxed);
    let mut is_any = enforce_limit(process);
    // A timer that is moved in the list meanwhile may be looked at twice, or at the next tick (`remove`).
    for timer in (0..).map_while(|index| timers.get(index)) {
        is_any |= timer.look(process);
    }
    if is_any {
        timers.note_set();
    }
}

/// Enforces RLIMIT_CPU, as Linux does: SIGXCPU for each second beyond the limit, SIGKILL at the maximum.
/// Returns whether there is a limit.
fn enforce_limit(process: &Arc<Process>) -> bool {
    let limit = process.limits.cpu();
    if limit.current == RLIM_INFINITY && limit.maximum == RLIM_INFINITY {
        return false;
    }
    let used = process.cpu_ns();
    let is_over = |seconds: u64| used >= seconds.saturating_mul(SECOND);
    if is_over(limit.maximum) {
        signal::send_to_process(process, SIGKILL, Origin::default());
    } else if is_over(limit.current) {
        process.limits.raise_cpu(limit.current + 1);
        signal::send_to_process(process, SIGXCPU, Origin::new(abi::signal::SI_KERNEL, 0));
    }
    true
}
