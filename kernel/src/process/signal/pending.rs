//! Signals that were sent and not taken yet.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use abi::signal::{
    CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, NSIG, SI_TIMER, SI_USER, SIGCONT, SIGRTMIN, Siginfo,
};
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering};

use super::actions::place;
use super::bit;
use crate::mm::fallible;
use crate::process::{Ending, News, Process, State};

/// The origin of a signal: what its `siginfo_t` says after the number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// `si_code`.
    pub code: i32,
    /// `si_errno`.
    pub errno: i32,
    /// The words after it. The first is `si_addr` of a fault, or `si_pid` and `si_uid` of a sender or a
    /// child, or `si_timerid`. The second is `si_status` of a child, or `si_value`.
    pub fields: [u64; 4],
}

impl Origin {
    /// Creates the origin of a signal from a fault or from the kernel.
    pub const fn new(code: i32, value: u64) -> Self {
        Self::of_two(code, value, 0)
    }

    /// Creates the origin of a signal that says two words.
    pub const fn of_two(code: i32, first: u64, second: u64) -> Self {
        Self { code, errno: 0, fields: [first, second, 0, 0] }
    }

    /// Creates the origin of a signal that `process` sends.
    pub fn sent_by(process: &Process, code: i32) -> Self {
        Self::new(code, process.pid().into())
    }

    /// Returns the origin that a program gives to the signal that it sends.
    pub fn given(info: &Siginfo) -> Self {
        let [first, second, third, fourth, ..] = info.fields;
        Self { code: info.code, errno: info.errno, fields: [first, second, third, fourth] }
    }

    /// Returns the first word.
    pub fn first(&self) -> u64 {
        self.fields[0]
    }

    /// Returns the second word.
    pub fn second(&self) -> u64 {
        self.fields[1]
    }

    /// Returns what becomes of a real-time signal for which there is no room.
    fn without_room(&self) -> Added {
        // As on Linux: `kill` succeeds.
        if self.code < SI_USER && self.code != SI_TIMER { Added::Refused } else { Added::WithoutOrigin }
    }

    /// Returns whether both signals are of one timer.
    fn is_of_same_timer(&self, other: &Self) -> bool {
        self.code == SI_TIMER && other.code == SI_TIMER && self.first() == other.first()
    }

    /// Creates the origin of the signal that the child `pid` sends its parent.
    pub fn of_child(pid: u32, state: State) -> Self {
        let (code, status) = match state {
            State::Ended(Ending::Status(status)) => (CLD_EXITED, i32::from(status)),
            State::Ended(Ending::Signal(signal)) => (CLD_KILLED, signal as i32),
            State::Changed(News::Stopped(signal)) => (CLD_STOPPED, signal as i32),
            State::Changed(News::Continued) => (CLD_CONTINUED, SIGCONT as i32),
        };
        Self::of_two(code, pid.into(), u64::from(status as u32))
    }
}

/// Signals that were sent and not taken yet: one of each number below [`SIGRTMIN`], and a queue of each of
/// the others.
pub struct Pending {
    /// The numbers. Changed with `waiting` locked.
    set: AtomicU64,
    waiting: SpinLock<Waiting>,
}

/// The origins of the signals.
struct Waiting {
    standard: [Origin; STANDARD],
    /// Made with the first real-time signal.
    queues: Option<Box<[VecDeque<Origin>; REAL_TIME]>>,
    /// The length of all queues.
    queued: u64,
}

const STANDARD: usize = SIGRTMIN as usize - 1;
const REAL_TIME: usize = NSIG as usize - STANDARD;

/// The result of adding a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is pending.
    New,
    /// Only one with its number can be pending, and is.
    Before,
    /// There was no room for its origin, so that is lost. The number is pending.
    WithoutOrigin,
    /// There was no room for its origin, and its sender is told.
    Refused,
}

impl Pending {
    /// Creates an empty set.
    pub const fn new() -> Self {
        let waiting = Waiting { standard: [Origin::new(0, 0); STANDARD], queues: None, queued: 0 };
        Self { set: AtomicU64::new(0), waiting: SpinLock::new(waiting) }
    }

    /// Returns the pending signals as a mask.
    pub fn set(&self) -> u64 {
        // SeqCst: paired with the sender's notification (see `ThreadSignals::mask`).
        self.set.load(Ordering::SeqCst)
    }

    /// Adds `signal`. At most `most` real-time signals wait here. If a standard one is there already, its
    /// origin stays.
    pub fn add(&self, signal: u32, origin: Origin, most: u64) -> Added {
        let mut waiting = self.waiting.lock();
        let added = if signal < SIGRTMIN {
            let is_new = self.set() & bit(signal) == 0;
            waiting.standard.get_mut(place(signal)).filter(|_| is_new).map_or(Added::Before, |place| {
                *place = origin;
                Added::New
            })
        } else {
            waiting.queue(signal, origin, most)
        };
        if matches!(added, Added::New | Added::WithoutOrigin) {
            self.set.fetch_or(bit(signal), Ordering::SeqCst);
        }
        added
    }

    /// Takes the lowest of `wanted` that is pending, of those with its number the first that was sent.
    pub fn take(&self, wanted: u64) -> Option<(u32, Origin)> {
        if self.set() & wanted == 0 {
            return None;
        }
        let mut waiting = self.waiting.lock();
        let there = self.set() & wanted;
        let signal = (there != 0).then(|| there.trailing_zeros() + 1)?;
        let (origin, is_last) = waiting.take(signal);
        if is_last {
            self.set.fetch_and(!bit(signal), Ordering::SeqCst);
        }
        Some((signal, origin))
    }

    /// Removes `signals`.
    pub fn discard(&self, signals: u64) {
        while self.take(signals).is_some() {}
    }

    /// Moves all pending signals of `other` here.
    pub fn take_over(&self, other: &Pending) {
        while let Some((signal, origin)) = other.take(u64::MAX) {
            self.add(signal, origin, u64::MAX);
        }
    }
}

impl Waiting {
    /// Appends a real-time signal to its queue.
    fn queue(&mut self, signal: u32, origin: Origin, most: u64) -> Added {
        if self.queued >= most {
            return origin.without_room();
        }
        if self.queues.is_none() {
            self.queues = fallible::boxed([const { VecDeque::new() }; REAL_TIME]).ok();
        }
        let Some(queue) = self.queue_of(signal) else { return origin.without_room() };
        if queue.iter().any(|other| other.is_of_same_timer(&origin)) {
            return Added::Before;
        }
        if queue.try_reserve(1).is_err() {
            return origin.without_room();
        }
        queue.push_back(origin);
        self.queued += 1;
        Added::New
    }

    fn queue_of(&mut self, signal: u32) -> Option<&mut VecDeque<Origin>> {
        self.queues.as_mut()?.get_mut(place(signal).checked_sub(STANDARD)?)
    }

    /// Takes the first signal with a number that is pending. Returns whether it was the last.
    fn take(&mut self, signal: u32) -> (Origin, bool) {
        if let Some(origin) = self.standard.get(place(signal)) {
            return (*origin, true);
        }
        let Some(queue) = self.queue_of(signal) else { return (Origin::default(), true) };
        let (taken, is_last) = (queue.pop_front(), queue.is_empty());
        if is_last {
            *queue = VecDeque::new();
        }
        self.queued -= u64::from(taken.is_some());
        (taken.unwrap_or_default(), is_last)
    }
}
