//! Stopping and continuing: SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, and SIGCONT.
//!
//! A stopped process runs no user instruction: each of its threads parks on its way to user mode, and one
//! that sleeps in a call sleeps on. A SIGCONT may come after a thread has taken a signal that stops and
//! before it stops. So the thread reads the number of SIGCONTs before it takes the signal, and does not stop
//! if the number is higher when it is about to.
//!
//! 1. A thread that joins a process checks, under the lock of its threads, whether it is stopped. Either it
//!    sees the stop, or the task that stops the process finds it among the threads.
//! 2. News is written under the lock of the parent link, and only if it is still true there. If a stop and a
//!    SIGCONT meet, the later one is reported last.
//!
//! The first process does not stop, because no process could continue it.

use alloc::sync::Arc;

use sync::SpinLock;
use sync::atomic::Ordering;

use super::Process;
use crate::sched::{self, Task, attention};

/// A change of state that a parent may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A signal stopped it.
    Stopped(u32),
    /// SIGCONT continued it.
    Continued,
}

struct State {
    stopped: bool,
    /// The signal that stopped it last.
    signal: u32,
    /// The number of SIGCONTs sent.
    continued: u64,
}

/// The stop state of a process.
pub struct Stop(SpinLock<State>);

impl Stop {
    /// Creates the state of a process that is not stopped.
    pub fn new() -> Self {
        Self(SpinLock::new(State { stopped: false, signal: 0, continued: 0 }))
    }

    /// Returns the number of SIGCONTs sent so far.
    pub fn continued(&self) -> u64 {
        self.0.lock().continued
    }

    /// Returns whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.lock().stopped
    }

    /// Stops it unless more than `continued` SIGCONTs were sent, and returns whether this stopped it.
    fn begin(&self, signal: u32, continued: u64) -> bool {
        let mut state = self.0.lock();
        let stops = !state.stopped && state.continued == continued;
        if stops {
            (state.stopped, state.signal) = (true, signal);
        }
        stops
    }

    /// Counts a SIGCONT, ends a stop, and returns whether there was one.
    fn end(&self) -> bool {
        let mut state = self.0.lock();
        state.continued += 1;
        core::mem::take(&mut state.stopped)
    }
}

impl Process {
    /// Stops the process by `signal`, which was taken when SIGCONT had been sent `continued` times.
    pub(super) fn stop_by(self: &Arc<Self>, signal: u32, continued: u64) {
        if self.pid() != super::FIRST && self.stop.begin(signal, continued) {
            self.for_each_thread(|task| Task::notify(task, stop_reasons(task)));
            if !self.is_traced_by_parent() {
                self.notify_parent(News::Stopped(signal));
            }
        }
    }

    /// Returns the signal that stopped the process, if it is stopped.
    pub(super) fn stop_signal(&self) -> Option<u32> {
        let state = self.stop.0.lock();
        state.stopped.then_some(state.signal)
    }

    /// Notifies `task`, which has joined the process, if that is stopped. The lock of the threads is held.
    pub(super) fn stop_if_late(&self, task: &Task) {
        if self.stop.is_stopped() {
            task.attention.raise(attention::STOPPED);
        }
    }

    /// Handles a SIGCONT: continues the process if it is stopped.
    pub(super) fn go_on(self: &Arc<Self>) {
        let was_stopped = self.stop.end();
        if was_stopped {
            self.for_each_thread(|task| {
                Task::wake(task);
            });
            self.notify_parent(News::Continued);
        }
        if self.traced.load(Ordering::Relaxed) != 0 {
            self.tell_tracers_of_sigcont();
        }
    }
}

/// Returns the reasons by which `task` sees that its process is stopped. A traced thread leaves a call in
/// which it sleeps, because its tracer hears of the stop of each thread.
fn stop_reasons(task: &Task) -> u32 {
    let is_traced = task.attention.has(attention::TRACED);
    attention::STOPPED | if is_traced { attention::TRACE } else { 0 }
}

/// Parks the running thread while its process is stopped. SIGKILL ends that too, and a tracer.
pub fn park_while_stopped(task: &Task) {
    if !task.attention.has(attention::STOPPED) {
        return;
    }
    task.attention.clear(attention::STOPPED);
    while task.process().stop.is_stopped() && !task.attention.has(attention::KILLED | attention::TRACED) {
        sched::park();
    }
    if task.attention.has(attention::TRACED) && task.process().stop.is_stopped() {
        task.attention.raise(attention::STOPPED);
    }
}
