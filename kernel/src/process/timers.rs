//! The timers of a process, which send it signals: those of `setitimer` and of `timer_create`.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use abi::process::RLIMIT_SIGPENDING;
use abi::signal::{SI_KERNEL, SIGALRM, SIGPROF, SIGVTALRM};
use sync::SpinLock;

use super::Process;
use super::cpu_timers::{CpuClock, CpuTimer, CpuTimers};
use super::signal::{self, Origin, Sent, waiting_count};
use crate::mm::fallible;
use crate::sched::{Alarm, Ring, Setting};

/// The most timers of one process.
const MOST: usize = 512;

/// A signal that a timer sends.
pub struct Notice {
    /// The process that gets it. It may have ended.
    pub process: Weak<Process>,
    /// The thread that gets it, if it is for one alone.
    pub thread: Option<u32>,
    /// The signal, or 0 for none.
    pub signal: u32,
    /// Its origin.
    pub origin: Origin,
    /// Set if times of the wall clock are meant.
    pub is_wall: bool,
    /// The times that the timer was due after the signal's own, at the last signal. Relaxed: a number.
    pub overruns: AtomicU32,
}

/// A timer that sends a signal.
#[derive(Clone)]
pub enum Timer {
    /// Of time that passes.
    Real(Arc<Alarm<Notice>>),
    /// Of CPU time.
    Cpu(Arc<CpuTimer>),
}

impl Timer {
    /// Returns its action.
    pub fn action(&self) -> &Notice {
        match self {
            Timer::Real(alarm) => &alarm.action,
            Timer::Cpu(timer) => &timer.action,
        }
    }

    /// Sets it, or stops it if there is no deadline. Returns the setting before. `process` has it.
    ///
    /// # Errors
    /// EINVAL if it was removed. ENOMEM: it is stopped.
    pub fn set(&self, process: &Process, new: Setting) -> Result<Setting, Errno> {
        match self {
            Timer::Real(alarm) => alarm.set(new),
            Timer::Cpu(timer) => {
                let old = timer.set(new)?;
                process.timers.cpu.note_set();
                Ok(old)
            }
        }
    }

    /// Returns the setting.
    pub fn setting(&self) -> Setting {
        match self {
            Timer::Real(alarm) => alarm.setting(),
            Timer::Cpu(timer) => timer.setting(),
        }
    }

    /// Waits for its rings.
    pub fn wait(&self) {
        match self {
            Timer::Real(alarm) => alarm.wait(),
            Timer::Cpu(timer) => timer.wait(),
        }
    }

    /// Returns the clock that its deadlines are on, if that is one of CPU time.
    pub fn cpu_clock(&self) -> Option<CpuClock> {
        match self {
            Timer::Real(_) => None,
            Timer::Cpu(timer) => Some(timer.clock),
        }
    }
}

/// An interval timer of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// ITIMER_VIRTUAL.
    Virtual,
    /// ITIMER_PROF.
    Prof,
}

impl Notice {
    /// Creates the notice of an interval timer.
    fn of_interval(process: &Arc<Process>, signal: u32) -> Self {
        Self {
            process: Arc::downgrade(process),
            thread: None,
            signal,
            origin: Origin::new(SI_KERNEL, 0),
            is_wall: false,
            overruns: AtomicU32::new(0),
        }
    }
}

impl Ring for Notice {
    fn ring(&self, count: u64) {
        let at_most = |overruns: u64| overruns.min(i32::MAX as u64) as u32;
        let more = at_most(count.saturating_sub(1));
        let process = self.process.upgrade().filter(|_| self.signal != 0);
        let Some(process) = process else { return self.overruns.store(more, Ordering::Relaxed) };
        let origin = self.origin.with_overruns(more);
        let sent = match self.thread {
            // A thread that has ended gets none.
            Some(tid) => signal::send_to_thread(&process, tid, self.signal, origin),
            None => signal::queue_to_process(&process, self.signal, origin),
        };
        let before = u64::from(self.overruns.load(Ordering::Relaxed));
        let all = if sent == Ok(Sent::Before) { at_most(before.saturating_add(count)) } else { more };
        self.overruns.store(all, Ordering::Relaxed);
    }
}

/// The timers of a process.
pub struct Timers {
    real: SpinLock<Option<Arc<Alarm<Notice>>>>,
    intervals: SpinLock<[Option<Arc<CpuTimer>>; 2]>,
    created: SpinLock<Vec<Option<Timer>>>,
    /// Those of CPU time.
    pub cpu: CpuTimers,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            real: SpinLock::new(None),
            intervals: SpinLock::new([None, None]),
            created: SpinLock::new(Vec::new()),
            cpu: CpuTimers::new(),
        }
    }
}

impl Timers {
    /// Sets ITIMER_REAL of `process`, whose timers these are, and returns the setting before.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn set_real(&self, process: &Arc<Process>, new: Setting) -> Result<Setting, Errno> {
        let timer = self.real.lock().clone();
        let timer = match timer {
            Some(timer) => timer,
            None if new.deadline.is_none() => return Ok(Setting::default()),
            None => {
                let made = fallible::arc(Alarm::new(Notice::of_interval(process, SIGALRM)))?;
                self.real.lock().get_or_insert(made).clone()
            }
        };
        timer.set(new)
    }

    /// Sets an interval timer of CPU time of `process`, whose timers these are, and returns the setting
    /// before. The deadline is in CPU time.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn set_interval(
        &self,
        process: &Arc<Process>,
        interval: Interval,
        new: Setting,
    ) -> Result<Setting, Errno> {
        let signal = if interval == Interval::Virtual { SIGVTALRM } else { SIGPROF };
        let timer = {
            let mut all = self.intervals.lock();
            let place = all.get_mut(interval as usize).ok_or(Errno::EINVAL)?;
            match place {
                Some(timer) => timer.clone(),
                None if new.deadline.is_none() => return Ok(Setting::default()),
                None => {
                    let made = CpuTimer::new(CpuClock::Process, Notice::of_interval(process, signal))?;
                    self.cpu.add(&made)?;
                    place.insert(made).clone()
                }
            }
        };
        let old = timer.set(new)?;
        self.cpu.note_set();
        Ok(old)
    }

    /// Returns the setting of an interval timer of CPU time.
    pub fn interval(&self, interval: Interval) -> Setting {
        let timer = self.intervals.lock().get(interval as usize).cloned().flatten();
        timer.map(|timer| timer.setting()).unwrap_or_default()
    }

    /// Returns the setting of ITIMER_REAL.
    pub fn real(&self) -> Setting {
        let timer = self.real.lock().clone();
        timer.map(|timer| timer.setting()).unwrap_or_default()
    }

    /// Creates a timer, of CPU time if it has a clock of that, with the notice that `make` returns for its
    /// number. Returns the number.
    ///
    /// # Errors
    /// EAGAIN if there are too many, or as many signals wait as may, ENOMEM.
    pub fn create(
        &self,
        process: &Process,
        clock: Option<CpuClock>,
        make: impl FnOnce(u32) -> Notice,
    ) -> Result<u32, Errno> {
        let mut all = self.created.lock();
        let free = all.iter().position(Option::is_none);
        let number = free.unwrap_or(all.len());
        if number >= MOST || waiting_count::is_at(process.limits.current(RLIMIT_SIGPENDING)) {
            return Err(Errno::EAGAIN);
        }
        all.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let notice = make(number as u32);
        let timer = match clock {
            None => Timer::Real(fallible::arc(Alarm::new(notice))?),
            Some(clock) => {
                let timer = CpuTimer::new(clock, notice)?;
                self.cpu.add(&timer)?;
                Timer::Cpu(timer)
            }
        };
        match all.get_mut(number) {
            Some(place) => *place = Some(timer),
            None => all.push(Some(timer)),
        }
        // The place of its signal, as on Linux.
        waiting_count::add(1);
        Ok(number as u32)
    }

    /// Returns the timer with this number.
    ///
    /// # Errors
    /// EINVAL if there is none.
    pub fn get(&self, number: u64) -> Result<Timer, Errno> {
        let all = self.created.lock();
        usize::try_from(number).ok().and_then(|number| all.get(number)?.clone()).ok_or(Errno::EINVAL)
    }

    /// Removes the timer with this number.
    ///
    /// # Errors
    /// EINVAL if there is none.
    pub fn remove(&self, number: u64) -> Result<(), Errno> {
        let taken = {
            let mut all = self.created.lock();
            usize::try_from(number).ok().and_then(|number| all.get_mut(number)?.take())
        };
        let timer = taken.ok_or(Errno::EINVAL)?;
        self.stop(&timer);
        timer.wait();
        Ok(())
    }

    /// Removes those of `timer_create`: another program begins.
    pub fn clear(&self) {
        let all = self.stop_all();
        all.iter().flatten().for_each(Timer::wait);
    }

    /// Stops and returns those of `timer_create`.
    fn stop_all(&self) -> Vec<Option<Timer>> {
        let all = core::mem::take(&mut *self.created.lock());
        all.iter().flatten().for_each(|timer| self.stop(timer));
        all
    }

    /// Stops a timer of `timer_create` that is removed. May ring meanwhile.
    fn stop(&self, timer: &Timer) {
        waiting_count::add(-1);
        match timer {
            Timer::Real(alarm) => alarm.retire(),
            Timer::Cpu(timer) => {
                timer.retire();
                self.cpu.remove(timer);
            }
        }
    }
}

/// The number of the next timer among all. Relaxed: only uniqueness matters.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Returns the origin of the signal of a new timer with this `number`, with the value that its creator chose.
pub fn origin(number: u32, value: u64) -> Origin {
    Origin::of_timer(NEXT.fetch_add(1, Ordering::Relaxed), number, value)
}

impl Drop for Timers {
    fn drop(&mut self) {
        // The last reference to the process may be that of a ring.
        self.stop_all();
        let real = self.real.lock().take();
        // Stopping takes no memory.
        real.iter().for_each(|alarm| _ = alarm.set_while_it_rings(Setting::default()));
    }
}
