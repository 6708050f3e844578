//! CLONE_VFORK: the parent sleeps while its child runs in its memory.

use alloc::sync::Arc;

use abi::Errno;
use sync::SpinLock;

use crate::fs::fallible;
use crate::sched::{self, Task, attention};

/// Opens once: when the child has left the memory for another program, or ended.
///
/// A closed one holds the parent. An open one holds nobody: a task that exits has opened its own, so tasks that are freed
/// free no others, however long the chain of those that wait for one another was.
pub struct Latch(SpinLock<Option<Arc<Task>>>);

impl Latch {
    /// A closed one, for the running task to wait at.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Arc<Self>, Errno> {
        fallible::arc(Self(SpinLock::new(Some(sched::current()))))
    }

    /// Lets the parent go on, which sees what the child wrote: by the lock.
    pub fn open(&self) {
        let parent = self.0.lock().take();
        if let Some(parent) = parent {
            Task::wake(&parent);
        }
    }

    /// Sleeps until it is open. Only the end of the process comes between: a handler would run in the child's memory.
    pub fn wait(&self, parent: &Task) {
        while self.0.lock().is_some() && !parent.attention.has(attention::KILLED) {
            sched::park();
        }
    }
}
