//! CLONE_VFORK: the parent sleeps while its child runs in its memory.

use alloc::sync::Arc;

use abi::Errno;
use sync::atomic::{AtomicBool, Ordering};

use crate::fs::fallible;
use crate::sched::{self, Task, attention};

/// Opens once: when the child has left the memory for another program, or ended.
pub struct Latch {
    open: AtomicBool,
    parent: Arc<Task>,
}

impl Latch {
    /// A closed one, for the running task to wait at.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Arc<Self>, Errno> {
        fallible::arc(Self { open: AtomicBool::new(false), parent: sched::current() })
    }

    /// Lets the parent go on.
    pub fn open(&self) {
        // Release pairs with the Acquire in `wait`: what the child wrote is seen.
        self.open.store(true, Ordering::Release);
        Task::wake(&self.parent);
    }

    /// Sleeps until it is open. Only the end of the process comes between: a handler would run in the child's memory.
    pub fn wait(&self) {
        while !self.open.load(Ordering::Acquire) && !self.parent.attention.has(attention::KILLED) {
            sched::park();
        }
    }
}
