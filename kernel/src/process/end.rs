//! The end of a process: decided once, seen by every thread on its way to user mode, done when the last one leaves.

use abi::Errno;
use sync::atomic::{AtomicU64, Ordering};

use super::Process;
use crate::sched::{Task, attention};

/// Why a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `exit_group`, or the last thread's exit.
    Status(u8),
    /// A signal.
    Signal(u32),
}

/// The decision: empty, or an ending that no longer changes. A packed word: 0, or kind and number.
#[derive(Debug)]
pub struct EndingCell(AtomicU64);

const STATUS: u64 = 1 << 32;
const SIGNAL: u64 = 2 << 32;

impl EndingCell {
    /// Not decided.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Decides, if nobody has; whether this decided.
    pub fn set(&self, ending: Ending) -> bool {
        let word = match ending {
            Ending::Status(status) => STATUS | u64::from(status),
            Ending::Signal(signal) => SIGNAL | u64::from(signal),
        };
        // Release pairs with the Acquire in `get`.
        self.0.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// The decision.
    pub fn get(&self) -> Option<Ending> {
        let word = self.0.load(Ordering::Acquire);
        let kind = word & !0xffff_ffff;
        match kind {
            0 => None,
            STATUS => Some(Ending::Status(word as u8)),
            _ => Some(Ending::Signal(word as u32)),
        }
    }

    /// Whether it is made.
    pub fn is_set(&self) -> bool {
        self.get().is_some()
    }
}

impl Process {
    /// Ends the process, unless that was decided already; whether this decided. Every thread exits before
    /// it runs another user instruction, wherever it is now.
    pub fn end(&self, ending: Ending) -> bool {
        let first = self.ending.set(ending);
        // After the decision: a thread that joins later looks at it under this lock (see `add_thread`).
        self.for_each_thread(|task| Task::notify(task, attention::KILLED));
        first
    }

    /// How it ends, if that is decided.
    pub fn ending(&self) -> Option<Ending> {
        self.ending.get()
    }

    /// # Errors
    /// EAGAIN when the process ends, or shall have one thread only.
    pub(super) fn refuse_if_ending(&self) -> Result<(), Errno> {
        let executes = self.executor.load(Ordering::Relaxed) != 0;
        if self.ending.is_set() || executes { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// Whether `task` is to go on: its process does not end, nor run another program by another thread.
    pub(super) fn wants(&self, task: &Task) -> bool {
        // Relaxed: set before the notification that makes the task look.
        let executor = self.executor.load(Ordering::Relaxed);
        !self.ending.is_set() && (executor == 0 || executor == task.tid())
    }
}
