//! No memory is left for a page that a program may touch: the program that uses most is killed, and only that.
//!
//! The one that asked faults again, and finds what comes back; or waits once more for the one that is being killed.

use alloc::sync::Arc;

use abi::signal::SIGKILL;

use super::{Ending, Memory, Process, numbers};
use crate::control;
use crate::sched::{self, Task};

/// There is no memory for the page of the running `task` at `address`.
pub fn starve(task: &Task, address: u64) {
    match choose(task) {
        Some(victim) => kill(&victim, address),
        None => sched::yield_now(),
    }
}

/// The process with most pages in memory, that of `task` if others have as many; none if one is being killed already.
fn choose(task: &Task) -> Option<Arc<Process>> {
    let mut largest = (task.process().pages().resident, task.process().clone());
    let mut dying = false;
    numbers::for_each(|process| {
        let resident = process.pages().resident;
        dying |= process.ending().is_some() && resident > 0;
        if resident > largest.0 {
            largest = (resident, process.clone());
        }
    });
    if dying { None } else { Some(largest.1) }
}

/// With all that share its memory, or that would not come back.
fn kill(victim: &Process, address: u64) {
    let (memory, resident) = (victim.memory(), victim.pages().resident);
    let shares = |other: &Option<Arc<Memory>>| match (&memory, other) {
        (Some(memory), Some(other)) => Arc::ptr_eq(memory, other),
        _ => false,
    };
    if victim.end(Ending::Signal(SIGKILL)) {
        let (pid, kib) = (victim.pid(), resident * (vm::PAGE_SIZE / 1024));
        control::oom(format_args!(
            "out of memory: no frame for a page at {address:#x}; process {pid} with {kib} KiB is killed"
        ));
    }
    numbers::for_each(|process| {
        if shares(&process.memory()) {
            process.end(Ending::Signal(SIGKILL));
        }
    });
}
