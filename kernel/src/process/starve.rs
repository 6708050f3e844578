//! No memory is left for a page that a program may touch: the program that has most (`weight`) is killed, and only that.
//!
//! The one that asked faults again, and finds what comes back; or waits once more for the one that was killed: until its
//! space is gone and Refcache has seen the epochs go by that it needs, or another one would be killed for nothing. A call
//! that finds no memory for a page of a program waits in the kernel in the same way, unless it holds a lock.

use alloc::sync::{Arc, Weak};

use abi::signal::SIGKILL;
use sync::SpinLock;

use super::patience::hope;
use super::{Ending, FIRST, Memory, Process, numbers};
use crate::mm::space::SpaceHandle;
use crate::mm::{epoch, frames};
use crate::sched::{self, Task};
use crate::{arch, control};

/// Epochs after which whatever a program gave up is free; they may not turn if there is nothing to free.
const EPOCHS: u64 = 4;
/// Long enough, whatever the epochs do.
const SETTLED_NS: u64 = 1_000_000_000;

/// The last one that was killed. Locked by who chooses: one at a time, and nobody waits for that.
static LAST: SpinLock<Option<Victim>> = SpinLock::new(None);

struct Victim {
    process: Weak<Process>,
    space: Weak<SpaceHandle>,
    /// The epoch and the time by which all is back, once it has let go of everything.
    back: Option<(u64, u64)>,
}

impl Victim {
    /// Whether some of its memory is still to come.
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

/// There is no memory for the page of the running `task` at `address`.
pub fn starve(task: &Task, address: u64) {
    if !kill_one(task, address) {
        sched::give_way();
    }
}

/// There is none either in the middle of a call of `task`: waits a while. Whether to try again: not under a lock, nor for
/// who is killed.
pub fn outlast(task: &Task, address: u64) -> bool {
    let may_wait = epoch::may_reclaim() && !task.is_killed();
    if may_wait {
        starve(task, address);
    }
    may_wait
}

/// Whether memory is to come from somebody who was killed, or somebody is being chosen.
pub fn is_awaited() -> bool {
    LAST.try_lock().is_none_or(|mut last| last.as_mut().is_some_and(Victim::has_more))
}

/// Whether somebody is killed now; not if memory is to come from another one.
fn kill_one(task: &Task, address: u64) -> bool {
    let Some(mut last) = LAST.try_lock() else { return false };
    if last.as_mut().is_some_and(Victim::has_more) {
        return false;
    }
    let Some((heaviest, weight)) = choose(task) else { return false };
    *last = Some(kill(&heaviest, weight, address));
    hope();
    true
}

/// The process with most memory, that of `task` if others have as much, and how many pages that is; none if one is being
/// killed already, or `task` is.
fn choose(task: &Task) -> Option<(Arc<Process>, u64)> {
    let mut heaviest = weigh(task.process());
    let mut dying = false;
    numbers::for_each(|process| {
        if dying || !sched::pause() {
            dying = true;
            return;
        }
        let weighed = weigh(process);
        dying = process.ending().is_some() && weighed.pages > 0;
        if weighed.rank > heaviest.rank {
            heaviest = weighed;
        }
    });
    if dying { None } else { Some((heaviest.process, heaviest.pages)) }
}

struct Weighed {
    process: Arc<Process>,
    pages: u64,
    /// By which they are compared.
    rank: u64,
}

/// The machine ends with the first process: as long as that has less than half of all memory, it is the last to go.
fn weigh(process: &Arc<Process>) -> Weighed {
    let pages = process.weight();
    let is_spared = process.pid() == FIRST && pages < frames::total() / 2;
    Weighed { process: process.clone(), pages, rank: if is_spared { 0 } else { pages } }
}

/// With all that share its memory, or that would not come back.
fn kill(victim: &Arc<Process>, weight: u64, address: u64) -> Victim {
    let memory = victim.memory();
    let shares = |other: &Option<Arc<Memory>>| match (&memory, other) {
        (Some(memory), Some(other)) => Arc::ptr_eq(memory, other),
        _ => false,
    };
    if victim.end(Ending::Signal(SIGKILL)) {
        let (pid, kib) = (victim.pid(), weight * (vm::PAGE_SIZE / 1024));
        control::oom(format_args!(
            "out of memory: no frame for a page at {address:#x}; process {pid} with {kib} KiB is killed"
        ));
    }
    numbers::for_each(|process| {
        if shares(&process.memory()) {
            process.end(Ending::Signal(SIGKILL));
        }
    });
    let space = memory.map_or(Weak::new(), |memory| Arc::downgrade(&memory.space));
    Victim { process: Arc::downgrade(victim), space, back: None }
}
