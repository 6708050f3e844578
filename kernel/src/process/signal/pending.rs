//! Signals that were sent and not taken yet.

use abi::signal::{CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, NSIG, SIGCONT};
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering};

use super::actions::place;
use super::bit;
use crate::process::{Ending, News, Process, State};

/// The origin of a signal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// `si_code`.
    pub code: i32,
    /// `si_addr` of a fault, or `si_pid` of a sender or a child.
    pub value: u64,
    /// `si_status` of a child.
    pub status: i32,
}

impl Origin {
    /// Creates the origin of a signal from a fault or from the kernel.
    pub const fn new(code: i32, value: u64) -> Self {
        Self { code, value, status: 0 }
    }

    /// Creates the origin of a signal that `process` sends.
    pub fn sent_by(process: &Process, code: i32) -> Self {
        Self::new(code, process.pid().into())
    }

    /// Creates the origin of the signal that the child `pid` sends its parent.
    pub fn of_child(pid: u32, state: State) -> Self {
        let (code, status) = match state {
            State::Ended(Ending::Status(status)) => (CLD_EXITED, i32::from(status)),
            State::Ended(Ending::Signal(signal)) => (CLD_KILLED, signal as i32),
            State::Changed(News::Stopped(signal)) => (CLD_STOPPED, signal as i32),
            State::Changed(News::Continued) => (CLD_CONTINUED, SIGCONT as i32),
        };
        Self { status, ..Self::new(code, pid.into()) }
    }
}

/// A set of signals with their origins.
pub struct Pending {
    set: AtomicU64,
    origins: SpinLock<[Origin; NSIG as usize]>,
}

impl Pending {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { set: AtomicU64::new(0), origins: SpinLock::new([Origin::new(0, 0); NSIG as usize]) }
    }

    /// Returns the pending signals as a mask.
    pub fn set(&self) -> u64 {
        // SeqCst: paired with the sender's notification (see `ThreadSignals::mask`).
        self.set.load(Ordering::SeqCst)
    }

    /// Adds `signal`, and returns whether it is new. If it is there already, the first origin stays.
    pub fn add(&self, signal: u32, origin: Origin) -> bool {
        let mut origins = self.origins.lock();
        let is_new = self.set() & bit(signal) == 0;
        if is_new && let Some(place) = origins.get_mut(place(signal)) {
            *place = origin;
            self.set.fetch_or(bit(signal), Ordering::SeqCst);
        }
        is_new
    }

    /// Takes the lowest of `wanted` that is pending.
    pub fn take(&self, wanted: u64) -> Option<(u32, Origin)> {
        if self.set() & wanted == 0 {
            return None;
        }
        let origins = self.origins.lock();
        let there = self.set() & wanted;
        let signal = (there != 0).then(|| there.trailing_zeros() + 1)?;
        self.set.fetch_and(!bit(signal), Ordering::SeqCst);
        Some((signal, origins.get(place(signal)).copied().unwrap_or_default()))
    }

    /// Removes `signals`.
    pub fn discard(&self, signals: u64) {
        while self.take(signals).is_some() {}
    }

    /// Moves all pending signals of `other` here.
    pub fn take_over(&self, other: &Pending) {
        while let Some((signal, origin)) = other.take(u64::MAX) {
            self.add(signal, origin);
        }
    }
}
