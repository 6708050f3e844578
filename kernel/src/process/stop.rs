//! Stopping and going on: SIGSTOP and its like, SIGCONT.
//!
//! A stopped process runs no user instruction: each of its threads parks on its way to user mode, and one that sleeps in a
//! call sleeps on there. A thread that took a signal that stops may be overtaken by a SIGCONT before it stops; so it
//! counts those before it takes the signal, and if there is one more when it is about to stop, goes on.
//!
//! 1. Who joins a process looks, under the lock of its threads, whether it is stopped: either it does, or whoever stops the
//!    process finds it among the threads.
//! 2. News is written under the lock of the parent link, and only if it is still true there: of a stop and a
//!    SIGCONT that meet, the later one is told last.
//!
//! The first process does not stop: nobody could make it go on.

use alloc::sync::Arc;

use sync::SpinLock;

use super::Process;
use crate::sched::{self, Task, attention};

/// A change that a parent may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A signal stopped it.
    Stopped(u32),
    /// SIGCONT made it go on.
    Continued,
}

struct State {
    stopped: bool,
    /// How often SIGCONT was sent.
    continued: u64,
}

/// Whether a process may run.
pub struct Stop(SpinLock<State>);

impl Stop {
    /// It may.
    pub fn new() -> Self {
        Self(SpinLock::new(State { stopped: false, continued: 0 }))
    }

    /// How often SIGCONT was sent so far.
    pub fn continued(&self) -> u64 {
        self.0.lock().continued
    }

    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.lock().stopped
    }

    /// Whether this stopped it: not if SIGCONT came after the first `continued` ones.
    fn begin(&self, continued: u64) -> bool {
        let mut state = self.0.lock();
        let stops = !state.stopped && state.continued == continued;
        state.stopped |= stops;
        stops
    }

    /// Whether it was stopped.
    fn end(&self) -> bool {
        let mut state = self.0.lock();
        state.continued += 1;
        core::mem::take(&mut state.stopped)
    }
}

impl Process {
    /// `signal`, taken when SIGCONT had been sent `continued` times, stops the process.
    pub(super) fn stop_by(self: &Arc<Self>, signal: u32, continued: u64) {
        if self.pid() != super::FIRST && self.stop.begin(continued) {
            self.for_each_thread(|task| Task::notify(task, attention::STOPPED));
            self.notify_parent(News::Stopped(signal));
        }
    }

    /// `task` has joined the process; the lock of the threads is held.
    pub(super) fn stop_if_late(&self, task: &Task) {
        if self.stop.is_stopped() {
            task.attention.raise(attention::STOPPED);
        }
    }

    /// SIGCONT was sent.
    pub(super) fn go_on(self: &Arc<Self>) {
        if self.stop.end() {
            self.for_each_thread(|task| {
                Task::wake(task);
            });
            self.notify_parent(News::Continued);
        }
    }
}

/// Parks the running thread while its process is stopped; SIGKILL ends that too.
pub fn rest(task: &Task) {
    task.attention.clear(attention::STOPPED);
    while task.process().stop.is_stopped() && !task.attention.has(attention::KILLED) {
        sched::park();
    }
}
