//! A queue of tasks threaded through the tasks themselves, so that queueing never allocates.

use alloc::sync::Arc;
use core::marker::PhantomData;

use sync::SpinLock;

use super::Task;

/// A task's place in one kind of list: the task after it.
pub struct Link(SpinLock<Option<Arc<Task>>>);

impl Link {
    /// Creates a link that is in no list.
    pub const fn new() -> Self {
        Self(SpinLock::new(None))
    }

    fn get(&self) -> Option<Arc<Task>> {
        self.0.lock().clone()
    }

    fn replace(&self, next: Option<Arc<Task>>) -> Option<Arc<Task>> {
        core::mem::replace(&mut self.0.lock(), next)
    }
}

/// The link by which a task is in a list. A task is in at most one list of each kind.
pub trait Chain {
    /// Returns that link of `task`.
    fn link(task: &Task) -> &Link;
}

/// A first-in, first-out list. Its owner guards it by a lock. The links need no lock of their own, so their
/// locks are never contended.
pub struct TaskList<C> {
    head: Option<Arc<Task>>,
    tail: Option<Arc<Task>>,
    chain: PhantomData<fn() -> C>,
}

impl<C: Chain> TaskList<C> {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self { head: None, tail: None, chain: PhantomData }
    }

    /// Adds `task`, which is in no list of this kind, at the end.
    pub fn push(&mut self, task: Arc<Task>) {
        match self.tail.replace(task.clone()) {
            Some(last) => drop(C::link(&last).replace(Some(task))),
            None => self.head = Some(task),
        }
    }

    /// Takes the first task.
    pub fn pop(&mut self) -> Option<Arc<Task>> {
        self.remove_first(|_| true)
    }

    /// Takes the first task that `wanted` accepts.
    pub fn remove_first(&mut self, mut wanted: impl FnMut(&Arc<Task>) -> bool) -> Option<Arc<Task>> {
        let mut before: Option<Arc<Task>> = None;
        let mut at = self.head.clone();
        while let Some(task) = at {
            if wanted(&task) {
                self.unlink(before, &task);
                return Some(task);
            }
            at = C::link(&task).get();
            before = Some(task);
        }
        None
    }

    /// Returns whether `wanted` accepts a task.
    pub fn any(&self, mut wanted: impl FnMut(&Task) -> bool) -> bool {
        let mut at = self.head.clone();
        while let Some(task) = at {
            if wanted(&task) {
                return true;
            }
            at = C::link(&task).get();
        }
        false
    }

    /// Takes `task` out, if it is here.
    pub fn remove(&mut self, task: &Arc<Task>) -> bool {
        self.remove_first(|other| Arc::ptr_eq(other, task)).is_some()
    }

    fn unlink(&mut self, before: Option<Arc<Task>>, task: &Arc<Task>) {
        let after = C::link(task).replace(None);
        if after.is_none() {
            self.tail = before.clone();
        }
        match before {
            Some(before) => drop(C::link(&before).replace(after)),
            None => self.head = after,
        }
    }
}
