//! The end of a process: decided once, seen by every thread on its way to user mode, done when the last one
//! is freed.

use alloc::sync::Arc;

use abi::Errno;
use sync::atomic::{AtomicU64, Ordering, fence};

use super::Process;
use crate::arch;
use crate::control::{self, Ended};
use crate::mm::{self, space::SpaceHandle};
use crate::options;
use crate::sched::{self, Task, attention};

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

    /// # Errors
    /// EAGAIN when the process ends.
    pub(super) fn refuse_if_ending(&self) -> Result<(), Errno> {
        if self.ending.is_set() { Err(Errno::EAGAIN) } else { Ok(()) }
    }
}

/// Waits until no core runs `space`: none has a task of it, so each stops on its way to sleep.
fn stop_running(space: &Arc<SpaceHandle>) {
    let off = arch::interrupts::off();
    mm::space::deactivate();
    drop(off);
    while Arc::strong_count(space) > 1 {
        percore::relax();
    }
    // Acquire, partner of the Release with which an `Arc` is dropped: what the others did in the space is done.
    fence(Ordering::Acquire);
}

/// The last task is freed: gives the memory back, reports, and ends the machine. Runs in a core's idle
/// flow, where tasks are freed. A process that never had a thread just goes away.
impl Drop for Process {
    fn drop(&mut self) {
        let Some(ending) = self.ending.get() else { return };
        sched::come_online();
        self.files.close_all();
        stop_running(&self.space);
        arch::marker::stop();
        if options::get().meter {
            mm::owners::report(&self.space, &[("process", arch::place_of(self))]);
        }
        mm::space::retire(&self.space);
        if options::get().stats {
            mm::report();
        }
        control::exit(match ending {
            Ending::Status(status) => Ended::Status(status),
            Ending::Signal(signal) => Ended::Signal(signal),
        });
        arch::exit(0)
    }
}
