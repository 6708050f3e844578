//! Alarms: timers that do something when they are due, once or again and again.
//!
//! An alarm is in the timers of the core that set it last, and runs there when that core looks up from a
//! program or idles, as sleepers wake. Lock order: an alarm's state, then a core's timers. Neither is held
//! while the alarm rings, so a program could see that a timer is over, or stop it, and get its signal later.
//! As on Linux it does not: those who set an alarm, or ask for its setting, wait for its [`Rings`].

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use percore::{CoreId, pin};
use sync::SpinLock;

use super::cores;
use super::timers::{self, Rung};
use crate::arch;

/// The least time between two rings. An alarm with a shorter interval counts several at once, so that its
/// program gets to run.
const LEAST_NS: u64 = 100_000;

/// The action of an alarm.
pub trait Ring: Send + Sync + 'static {
    /// Called when the alarm is due, with the number of times that it was due since the last call.
    fn ring(&self, count: u64);
}

/// The number of rings of a timer that are in progress.
pub struct Rings(AtomicU32);

impl Rings {
    /// Creates it with none in progress.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Notes that one begins. The caller holds the lock under which it has changed the setting.
    pub fn begin(&self) {
        // Relaxed: the lock orders it for `wait`.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one is over.
    pub fn end(&self) {
        // Release, for `wait`: its caller sees what the ring has done.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Waits until none is in progress, so that all are over that began before the caller held the lock. It
    /// has released that. Not for those who hold a lock, nor for destructors: a ring may drop the last
    /// reference.
    pub fn wait(&self) {
        while self.0.load(Ordering::Acquire) != 0 {
            percore::relax();
        }
    }
}

/// A timer with an action.
pub struct Alarm<R> {
    /// Unique among all alarms.
    id: u64,
    state: SpinLock<State>,
    rings: Rings,
    /// The action.
    pub action: R,
}

/// The setting of an alarm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// The time when it is due, in nanoseconds since boot.
    pub deadline: Option<u64>,
    /// The nanoseconds from then to the next time, or 0 for once.
    pub interval: u64,
}

#[derive(Default)]
struct State {
    setting: Setting,
    /// The core that has it in its timers, if it is set.
    core: Option<CoreId>,
    /// Set once it is stopped for good.
    is_retired: bool,
}

/// Relaxed: only uniqueness matters.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl<R: Ring> Alarm<R> {
    /// Creates an alarm that is not set.
    pub fn new(action: R) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { id, state: SpinLock::new(State::default()), rings: Rings::new(), action }
    }

    /// Sets it, or stops it if there is no deadline, and waits for its rings. Returns the setting before.
    ///
    /// # Errors
    /// EINVAL if it is retired. ENOMEM: it is stopped.
    pub fn set(self: &Arc<Self>, new: Setting) -> Result<Setting, Errno> {
        let old = self.set_while_it_rings(new);
        self.rings.wait();
        old
    }

    /// Does the same, but does not wait. It may ring once more as it was set before.
    ///
    /// # Errors
    /// The same.
    pub fn set_while_it_rings(self: &Arc<Self>, new: Setting) -> Result<Setting, Errno> {
        let mut state = self.state.lock();
        if state.is_retired {
            return Err(Errno::EINVAL);
        }
        let old = core::mem::take(&mut state.setting);
        self.leave(&mut state, old.deadline);
        if let Some(deadline) = new.deadline {
            self.enter(&mut state, deadline)?;
            state.setting = new;
        }
        Ok(old)
    }

    /// Stops it for good: a thread that found it before may not set it again. Does not wait for its rings.
    pub fn retire(&self) {
        let mut state = self.state.lock();
        let old = core::mem::take(&mut state.setting);
        self.leave(&mut state, old.deadline);
        state.is_retired = true;
    }

    /// Returns the setting, and waits for its rings.
    pub fn setting(&self) -> Setting {
        let setting = self.state.lock().setting;
        self.rings.wait();
        setting
    }

    /// Waits for its rings.
    pub fn wait(&self) {
        self.rings.wait();
    }

    /// Adds it to the timers of this core.
    fn enter(self: &Arc<Self>, state: &mut State, deadline: u64) -> Result<(), Errno> {
        let pin = pin();
        timers::add_alarm(deadline, self.id, self.clone())?;
        state.core = Some(pin.core());
        Ok(())
    }

    fn leave(&self, state: &mut State, deadline: Option<u64>) {
        if let (Some(core), Some(deadline)) = (state.core.take(), deadline) {
            timers::remove_alarm(cores::of(core), deadline, self.id);
        }
    }
}

impl<R: Ring> Rung for Alarm<R> {
    fn rung(self: Arc<Self>, deadline: u64) {
        let count = {
            let mut state = self.state.lock();
            if state.setting.deadline != Some(deadline) {
                // It was set again meanwhile.
                return;
            }
            let (count, next) = due(deadline, state.setting.interval, arch::now_ns());
            state.core = None;
            // Without memory it stops.
            state.setting.deadline = next.filter(|next| self.enter(&mut state, *next).is_ok());
            self.rings.begin();
            count
        };
        self.action.ring(count);
        self.rings.end();
    }
}

/// Returns how often an alarm was due from `deadline` to `now`, and when it is due next.
pub fn due(deadline: u64, interval: u64, now: u64) -> (u64, Option<u64>) {
    if interval == 0 {
        return (1, None);
    }
    let until = if interval < LEAST_NS { now + LEAST_NS } else { now };
    let count = until.saturating_sub(deadline) / interval + 1;
    (count, count.checked_mul(interval).and_then(|passed| deadline.checked_add(passed)))
}
