//! Shutdown. The machine ends with the first process. The other processes are killed, all memory is freed,
//! and the report tells how the first process ended.
//!
//! ```text
//!   first process: ENDING := true   look at all numbers: kill, wait
//!   fork: publish the child's number   ENDING? → kill it
//! ```
//! SeqCst on both sides: if the scan misses a child, the child was published after it, so its parent sees
//! ENDING.

use alloc::sync::Arc;

use sync::SpinLock;
use sync::atomic::{AtomicBool, Ordering};

use super::{Ending, FIRST, Process, ipc, mqueue, pid};
use crate::arch;
use crate::control::{self, Ended};
use crate::counters::Counter;
use crate::fs;
use crate::mm;
use crate::mm::statistics::sum;
use crate::options;
use crate::sched::{self, Task};

static ENDING: AtomicBool = AtomicBool::new(false);
/// The last thread of the first process, while it waits for the others.
static WAITING: SpinLock<Option<Arc<Task>>> = SpinLock::new(None);

/// Returns whether the machine is about to end. See the module.
pub fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

/// Wakes the last thread of the first process if it waits for others: a process is gone.
pub fn note_process_gone() {
    if is_ending()
        && let Some(task) = &*WAITING.lock()
    {
        Task::wake(task);
    }
}

/// Ends the machine. The caller is the last thread of the first process, on its way out.
pub fn shut_down(task: &Task, ending: Ending) -> ! {
    *WAITING.lock() = Some(sched::current());
    ENDING.store(true, Ordering::SeqCst);
    while kill_others() {
        sched::park();
    }
    *WAITING.lock() = None;
    ipc::remove_all();
    mqueue::remove_all();
    fs::network::finish();
    write_back();
    wait_for_memory(task);
    report(task);
    control::exit(match ending {
        Ending::Status(status) => Ended::Status(status),
        Ending::Signal(signal) => Ended::Signal(signal),
    });
    arch::exit(0)
}

/// Writes the changed files of mounted directories back, and reports those for which that fails.
fn write_back() {
    let done = fs::host::write_back(true, &mut control::unwritten);
    done.unwrap_or_else(|error| control::unwritten(b"some", error));
    let taken = fs::host::overlay_out::write(&mut control::unwritten);
    taken.unwrap_or_else(|error| control::unwritten(b"--overlay-out", error));
}

/// Kills all other processes, and returns whether there were any that had not ended yet.
fn kill_others() -> bool {
    let mut found = false;
    pid::for_each(|process| {
        if process.pid() != FIRST && !process.has_ended() {
            found = true;
            process.end(Ending::Signal(abi::signal::SIGKILL));
        }
    });
    found
}

/// Waits until every other task is freed. Each core frees the tasks that exited on it. This core lets tasks
/// run that still free the memory that they had before an exec, and that are in no table.
fn wait_for_memory(task: &Task) {
    while sum(Counter::Spaces) > 1 || Arc::strong_count(&task.shared().memory) > 1 {
        sched::give_way();
        percore::relax();
    }
}

fn report(task: &Task) {
    let space = task.space();
    mm::space::settle(space);
    while Arc::strong_count(space) > 1 {
        percore::relax();
    }
    arch::marker::stop();
    if options::get().meter {
        mm::owners::report(space, &[("process", arch::place_of(&**task.process()))]);
    }
    mm::space::retire(space);
    if options::get().stats {
        mm::report(space);
    }
}

impl Process {
    /// Ends a child that was made while the machine or its parent is ending.
    pub(super) fn end_if_late(&self, parent: &Process) {
        if is_ending() || parent.ending.is_set() {
            self.end(Ending::Signal(abi::signal::SIGKILL));
        }
    }
}
