//! Waits for conditions that other tasks make true: pipes, input, anything with a queue.

use alloc::sync::Arc;

use abi::Errno;
use sync::SpinLock;
use sync::atomic::Ordering;

use super::list::{Chain, Link, TaskList};
use super::{Task, current, park, park_until, with_current};

/// The link of lists that a sleeping task waits in.
#[derive(Debug)]
pub struct WaitChain;

impl Chain for WaitChain {
    fn link(task: &Task) -> &Link {
        &task.wait_link
    }
}

/// Tasks that wait for one thing.
pub struct WaitQueue(SpinLock<TaskList<WaitChain>>);

impl WaitQueue {
    /// Creates a queue without waiters.
    pub const fn new() -> Self {
        Self(SpinLock::new(TaskList::new()))
    }

    /// Sleeps until `ready` returns a value.
    ///
    /// # Errors
    /// EINTR if a signal or the end of the process comes first.
    pub fn wait_until<R>(&self, ready: impl FnMut() -> Option<R>) -> Result<R, Errno> {
        let value = self.wait_until_or(None, ready)?;
        Ok(value.expect("without a deadline there is a value"))
    }

    /// Calls `attempt`, and if it returns `None`, waits and calls it again if `wait` allows it.
    ///
    /// # Errors
    /// EAGAIN if it does not, or if the time of [`wait_at_most`] is over. EINTR as above.
    pub fn attempt<R>(&self, wait: bool, mut attempt: impl FnMut() -> Option<R>) -> Result<R, Errno> {
        match attempt() {
            Some(value) => Ok(value),
            None if wait => self.wait_until_or(limit(), attempt)?.ok_or(Errno::EAGAIN),
            None => Err(Errno::EAGAIN),
        }
    }

    /// Does the same as `wait_until` with a deadline (nanoseconds since boot), after which it returns `None`.
    ///
    /// # Errors
    /// EINTR as above, ENOMEM if there is no memory for a timer.
    pub fn wait_until_or<R>(
        &self,
        deadline: Option<u64>,
        ready: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Errno> {
        self.wait_once(deadline, ready).inspect_err(|_| with_current(|task| allow_restart(task, deadline)))
    }

    /// Does the same without a deadline for a call that is restarted only if no handler runs.
    ///
    /// # Errors
    /// As above.
    pub fn wait_until_handler<R>(&self, ready: impl FnMut() -> Option<R>) -> Result<Option<R>, Errno> {
        let allow = |_: &Errno| with_current(|task| task.thread.signals.allow_restart_without_handler());
        self.wait_once(None, ready).inspect_err(allow)
    }

    /// Does the same for a call that no signal restarts.
    ///
    /// # Errors
    /// As above.
    pub fn wait_once<R>(
        &self,
        deadline: Option<u64>,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Errno> {
        if let Some(value) = ready() {
            return Ok(Some(value));
        }
        let task = current();
        loop {
            let entry = WaitEntry::take(self, &task);
            // Registered first, checked second: see invariant 1 of `sync::Parking`.
            if let Some(value) = ready() {
                return Ok(Some(value));
            }
            task.check_interrupted()?;
            if deadline.is_some_and(|at| at <= crate::arch::now_ns()) {
                return Ok(None);
            }
            park_until(deadline)?;
            drop(entry);
        }
    }

    /// Sleeps until `ready` returns a value. Signals wait until then.
    ///
    /// # Errors
    /// EINTR if the task is killed.
    pub fn wait_killable<R>(&self, mut ready: impl FnMut() -> Option<R>) -> Result<R, Errno> {
        loop {
            // First without the lock of the queue, since a waiter that was woken may be one of many.
            if let Some(value) = ready() {
                return Ok(value);
            }
            let task = current();
            let entry = WaitEntry::take(self, &task);
            // Registered first, checked second, as above.
            if let Some(value) = ready() {
                return Ok(value);
            }
            if task.is_killed() {
                return Err(Errno::EINTR);
            }
            park();
            drop(entry);
        }
    }

    /// Wakes all waiters. The condition was made true before.
    pub fn wake_all(&self) {
        // Under the lock throughout, so that no task comes back to the list while it is emptied.
        let mut waiting = self.0.lock();
        while let Some(task) = waiting.pop() {
            Task::wake(&task);
        }
    }
}

/// Calls `f`, in which an [attempt](WaitQueue::attempt) of the running task waits for `ns` nanoseconds at
/// most.
pub fn wait_at_most<R>(ns: u64, f: impl FnOnce() -> R) -> R {
    let set = |until| with_current(|task| task.wait_limit.store(until, Ordering::Relaxed));
    set(crate::arch::now_ns().saturating_add(ns).max(1));
    let result = f();
    set(0);
    result
}

fn limit() -> Option<u64> {
    let until = with_current(|task| task.wait_limit.load(Ordering::Relaxed));
    (until != 0).then_some(until)
}

/// Allows a wait without a deadline to be restarted after a signal. The rest of a wait with a deadline is not
/// known then.
fn allow_restart(task: &Task, deadline: Option<u64>) {
    if deadline.is_none() {
        task.thread.signals.allow_restart();
    }
}

/// An entry in the queue, which is removed when it is dropped.
struct WaitEntry<'a>(&'a WaitQueue, &'a Arc<Task>);

impl<'a> WaitEntry<'a> {
    fn take(queue: &'a WaitQueue, task: &'a Arc<Task>) -> Self {
        queue.0.lock().push(task.clone());
        Self(queue, task)
    }
}

impl Drop for WaitEntry<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(self.1);
    }
}
