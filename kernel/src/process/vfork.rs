//! CLONE_VFORK: the parent sleeps while its child runs in its memory.

use alloc::sync::Arc;

use abi::Errno;
use sync::SpinLock;

use crate::mm::fallible;
use crate::sched::{self, Task, attention};

/// A latch that opens once, when the child has left the memory for another program or has ended.
///
/// A closed latch holds a reference to the parent. An open one holds none. A task that exits has opened its
/// own, so freeing a task frees no others, however long the chain of tasks that waited for one another was.
pub struct Latch(SpinLock<Option<Arc<Task>>>);

impl Latch {
    /// Creates a closed latch, for the running task to wait at.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Arc<Self>, Errno> {
        fallible::arc(Self(SpinLock::new(Some(sched::current()))))
    }

    /// Opens it and wakes the parent, which sees the child's writes because of the lock.
    pub fn open(&self) {
        let parent = self.0.lock().take();
        if let Some(parent) = parent {
            Task::wake(&parent);
        }
    }

    /// Sleeps until it is open. Only the end of the process ends that earlier, because a handler would run in
    /// the child's memory.
    pub fn wait(&self, parent: &Task) {
        while self.0.lock().is_some() && !parent.attention.has(attention::KILLED) {
            sched::park();
        }
    }
}
