//! The OOM kill: if no memory is left for a page that a program may touch, the program with the highest
//! badness (`oom_badness.rs`) is killed, and no other.
//!
//! The task that asked faults again, and finds the memory that was freed. Or it waits once more for the
//! victim, until its space is gone and enough Refcache epochs have passed. Otherwise another program would be
//! killed for nothing. A call that finds no memory for a page of a program waits in the kernel in the same
//! way, unless it holds a lock.

use alloc::sync::{Arc, Weak};

use abi::signal::SIGKILL;
use sync::SpinLock;

use super::reclaim::note_progress;
use super::{Ending, FIRST, Memory, Process, pid};
use crate::mm::space::SpaceHandle;
use crate::mm::{epoch, frames};
use crate::sched::{self, Task};
use crate::{arch, control};

/// The epochs after which all memory that a program released is free. They may not turn if there is nothing
/// to free.
const EPOCHS: u64 = 4;
/// The time after which the memory counts as free even if no epoch turned.
const SETTLED_NS: u64 = 10_000_000_000;

/// The last victim. Locked by the task that selects the next one. No task waits for this lock.
static LAST_VICTIM: SpinLock<Option<Victim>> = SpinLock::new(None);

struct Victim {
    process: Weak<Process>,
    space: Weak<SpaceHandle>,
    /// The epoch and the time by which all memory is free, once it has released everything.
    back: Option<(u64, u64)>,
}

impl Victim {
    /// Returns whether some of its memory is still to be freed.
    fn has_more(&mut self) -> bool {
        let runs = self.process.upgrade().is_some_and(|process| process.count_threads() > 0);
        if runs || self.space.strong_count() > 0 {
            return true;
        }
        let (epoch, now) = (epoch::domain().epoch(), arch::now_ns());
        let back = self.back.get_or_insert((epoch + EPOCHS, now + SETTLED_NS));
        epoch < back.0 && now < back.1
    }
}

/// Kills the program with the highest badness because there is no memory for the page of the running `task`
/// at `address`. If a program was killed just before, lets other tasks run instead.
pub fn handle_oom(task: &Task, address: u64) {
    if !kill_largest(task, address) {
        sched::give_way();
    }
}

/// Does the same in the middle of a call of `task`, and returns whether to try again. It returns false if the
/// caller holds a lock or the task is killed.
pub fn wait_for_oom(task: &Task, address: u64) -> bool {
    let may_wait = epoch::may_reclaim() && !task.is_killed();
    if may_wait {
        handle_oom(task, address);
    }
    may_wait
}

/// Returns whether a victim's memory is still to be freed, or a victim is being selected.
pub fn is_kill_pending() -> bool {
    LAST_VICTIM.try_lock().is_none_or(|mut last| last.as_mut().is_some_and(Victim::has_more))
}

/// Kills the program with the highest badness, unless memory is still to come from the last victim. Returns
/// whether it did.
fn kill_largest(task: &Task, address: u64) -> bool {
    let Some(mut last) = LAST_VICTIM.try_lock() else { return false };
    if last.as_mut().is_some_and(Victim::has_more) {
        return false;
    }
    let Some((largest, pages)) = select_victim(task) else { return false };
    *last = Some(oom_kill(&largest, pages, address));
    note_progress();
    true
}

/// Returns the process with the highest badness, and its pages. The process of `task` is preferred among
/// equals. Returns `None` if a process is being killed already, or `task` is.
fn select_victim(task: &Task) -> Option<(Arc<Process>, u64)> {
    let mut largest = candidate(task.process());
    let mut dying = false;
    pid::for_each(|process| {
        if dying || !sched::pause() {
            dying = true;
            return;
        }
        let candidate = candidate(process);
        dying = process.ending().is_some() && candidate.pages > 0;
        if candidate.rank > largest.rank {
            largest = candidate;
        }
    });
    if dying { None } else { Some((largest.process, largest.pages)) }
}

struct Candidate {
    process: Arc<Process>,
    pages: u64,
    /// The badness, or 0 for a process that is spared.
    rank: u64,
}

/// Returns `process` as a candidate. The machine ends with the first process, so that is spared as long as it
/// has less than half of all memory.
fn candidate(process: &Arc<Process>) -> Candidate {
    let pages = process.oom_badness();
    let is_spared = process.pid() == FIRST && pages < frames::total() / 2;
    Candidate { process: process.clone(), pages, rank: if is_spared { 0 } else { pages } }
}

/// Kills `victim` and all processes that share its memory, because that is freed only with the last.
fn oom_kill(victim: &Arc<Process>, pages: u64, address: u64) -> Victim {
    let memory = victim.memory();
    let shares = |other: &Option<Arc<Memory>>| match (&memory, other) {
        (Some(memory), Some(other)) => Arc::ptr_eq(memory, other),
        _ => false,
    };
    if victim.end(Ending::Signal(SIGKILL)) {
        let (pid, kib) = (victim.pid(), pages * (vm::PAGE_SIZE / 1024));
        control::oom(format_args!(
            "out of memory: no frame for a page at {address:#x}; process {pid} with {kib} KiB is killed"
        ));
    }
    pid::for_each(|process| {
        if shares(&process.memory()) {
            process.end(Ending::Signal(SIGKILL));
        }
    });
    let space = memory.map_or(Weak::new(), |memory| Arc::downgrade(&memory.space));
    Victim { process: Arc::downgrade(victim), space, back: None }
}
