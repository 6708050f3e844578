//! The end of a process. It is decided once, each thread sees the decision on its way to user mode, and the
//! last one to leave carries it out.

use abi::Errno;
use sync::atomic::{AtomicU64, Ordering};

use super::Process;
use crate::sched::{Task, attention};

/// The way a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By `exit_group`, or by the last thread's exit.
    Status(u8),
    /// By a signal.
    Signal(u32),
}

/// The decision: empty, or an ending that no longer changes. The word is 0, or kind and number.
#[derive(Debug)]
pub struct EndingCell(AtomicU64);

const STATUS: u64 = 1 << 32;
const SIGNAL: u64 = 2 << 32;

impl EndingCell {
    /// Creates an empty decision.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Decides, unless that was done before. Returns whether this decided.
    pub fn set(&self, ending: Ending) -> bool {
        let word = match ending {
            Ending::Status(status) => STATUS | u64::from(status),
            Ending::Signal(signal) => SIGNAL | u64::from(signal),
        };
        // Release pairs with the Acquire in `get`.
        self.0.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Returns the decision.
    pub fn get(&self) -> Option<Ending> {
        let word = self.0.load(Ordering::Acquire);
        let kind = word & !0xffff_ffff;
        match kind {
            0 => None,
            STATUS => Some(Ending::Status(word as u8)),
            _ => Some(Ending::Signal(word as u32)),
        }
    }

    /// Returns whether it is made.
    pub fn is_set(&self) -> bool {
        self.get().is_some()
    }
}

impl Process {
    /// Ends the process, unless that was decided before, and returns whether this decided. Every thread exits
    /// before it runs another user instruction, wherever it is now.
    pub fn end(&self, ending: Ending) -> bool {
        let first = self.ending.set(ending);
        // After the decision: a thread that joins later sees the decision under this lock (see `add_thread`).
        self.for_each_thread(|task| Task::notify(task, attention::KILLED));
        first
    }

    /// Returns how it ends, if that is decided.
    pub fn ending(&self) -> Option<Ending> {
        self.ending.get()
    }

    /// Checks that threads may join.
    ///
    /// # Errors
    /// EAGAIN if the process ends, or is about to run another program with one thread.
    pub(super) fn refuse_if_ending(&self) -> Result<(), Errno> {
        let executes = self.executor.load(Ordering::Relaxed) != 0;
        if self.ending.is_set() || executes { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// Returns whether `task` is to go on: its process does not end, and no other thread of it runs another
    /// program.
    pub(super) fn wants(&self, task: &Task) -> bool {
        // Relaxed: it is set before the notification that makes the task look.
        let executor = self.executor.load(Ordering::Relaxed);
        !self.ending.is_set() && (executor == 0 || executor == task.tid())
    }
}
