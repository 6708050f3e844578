//! The timers of a process, which send it signals: ITIMER_REAL and those of `timer_create`.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use abi::signal::{SI_KERNEL, SIGALRM};
use sync::SpinLock;

use super::Process;
use super::signal::{self, Origin, Sent};
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
pub type Timer = Alarm<Notice>;

impl Ring for Notice {
    fn ring(&self, count: u64) {
        let at_most = |overruns: u64| overruns.min(i32::MAX as u64) as u32;
        let before = self.overruns.swap(at_most(count.saturating_sub(1)), Ordering::Relaxed);
        let Some(process) = self.process.upgrade().filter(|_| self.signal != 0) else { return };
        let sent = match self.thread {
            // A thread that has ended gets none.
            Some(tid) => signal::send_to_thread(&process, tid, self.signal, self.origin),
            None => signal::queue_to_process(&process, self.signal, self.origin),
        };
        if sent == Ok(Sent::Before) {
            self.overruns.store(at_most(u64::from(before).saturating_add(count)), Ordering::Relaxed);
        }
    }
}

/// The timers of a process.
pub struct Timers {
    real: SpinLock<Option<Arc<Timer>>>,
    created: SpinLock<Vec<Option<Arc<Timer>>>>,
}

impl Default for Timers {
    fn default() -> Self {
        Self { real: SpinLock::new(None), created: SpinLock::new(Vec::new()) }
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
                let notice = Notice {
                    process: Arc::downgrade(process),
                    thread: None,
                    signal: SIGALRM,
                    origin: Origin::new(SI_KERNEL, 0),
                    is_wall: false,
                    overruns: AtomicU32::new(0),
                };
                let made = fallible::arc(Alarm::new(notice))?;
                self.real.lock().get_or_insert(made).clone()
            }
        };
        timer.set(new)
    }

    /// Returns the setting of ITIMER_REAL.
    pub fn real(&self) -> Setting {
        self.real.lock().as_ref().map(|timer| timer.setting()).unwrap_or_default()
    }

    /// Creates a timer, with the notice that `make` returns for its number, and returns the number.
    ///
    /// # Errors
    /// EAGAIN if there are too many, ENOMEM.
    pub fn create(&self, make: impl FnOnce(u32) -> Notice) -> Result<u32, Errno> {
        let mut all = self.created.lock();
        let free = all.iter().position(Option::is_none);
        let number = free.unwrap_or(all.len());
        if number >= MOST {
            return Err(Errno::EAGAIN);
        }
        let timer = Some(fallible::arc(Alarm::new(make(number as u32)))?);
        match all.get_mut(number) {
            Some(place) => *place = timer,
            None => fallible::push(&mut all, timer)?,
        }
        Ok(number as u32)
    }

    /// Returns the timer with this number.
    ///
    /// # Errors
    /// EINVAL if there is none.
    pub fn get(&self, number: u64) -> Result<Arc<Timer>, Errno> {
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
        taken.ok_or(Errno::EINVAL)?.set(Setting::default()).map(drop)
    }

    /// Removes all but ITIMER_REAL: another program begins.
    pub fn clear(&self) {
        let all = core::mem::take(&mut *self.created.lock());
        all.iter().flatten().for_each(stop);
    }
}

fn stop(timer: &Arc<Timer>) {
    // Stopping takes no memory.
    let _stopped = timer.set(Setting::default());
}

/// The number of the next timer among all. Relaxed: only uniqueness matters.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Returns the origin of the signal of a new timer with this `number`, with the value that its creator chose.
pub fn origin(number: u32, value: u64) -> Origin {
    Origin::of_timer(NEXT.fetch_add(1, Ordering::Relaxed), number, value)
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.clear();
        let real = self.real.lock().take();
        real.iter().for_each(stop);
    }
}
