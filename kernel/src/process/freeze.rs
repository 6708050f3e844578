//! Freezing: while an address space is copied piece by piece, its other threads stop on their way to user
//! mode.
//!
//! ```text
//!   the forking thread                     another thread
//!   ------------------                     --------------
//!   frozen := true                         goes on: its writes are not copied yet, so the child will have them
//!   each other task: attention |= FROZEN
//!   copy a piece, write-protect it         in user mode, may still write: the interrupt enters the kernel
//!                                          later: may not write, faults, and is in the kernel
//!   ...                                    on its way back to user mode it finds FROZEN, and waits
//!   frozen := false, wake all that wait    goes on
//! ```
//! The child has the writes of each thread from before it froze, and none from later. If a thread writes A
//! and then B, the child never has B alone.
//!
//! 1. Before the first page is copied, every task of the memory has FROZEN, or is new (3).
//! 2. If a thread writes to a page after that was copied, it has been in the kernel since the copy: it was
//!    interrupted, or it faulted. It froze before it executed another instruction of the program, so it has
//!    not written to the page.
//! 3. A new task gets FROZEN with the others, or it finds `frozen` set before it first runs: it looks after
//!    it has joined the others (fence F2), and `frozen` is set before the others are looked for (fence F1).
//! 4. A frozen task holds no lock, so no task waits for it, and the forking task waits for none. The forking
//!    task holds the heap's lock (`heap.rs`), so that no two tasks freeze one memory. A task that waits for
//!    that lock is in the kernel.
//! 5. A killed task does not stay frozen.
//!
//! A system call that a thread is in, or makes before it freezes, goes on to its end, and the thread freezes
//! before it sees the result. The child has the effects of the call on pages that are not copied yet, and no
//! others.

use alloc::sync::Arc;

use sync::atomic::{AtomicBool, Ordering, fence};

use super::{Memory, pid};
use crate::sched::{Task, WaitQueue, attention};

/// The state of freezing of a memory's tasks.
pub struct Freezer {
    frozen: AtomicBool,
    waiting: WaitQueue,
}

impl Freezer {
    /// Creates the state of tasks that are not frozen.
    pub const fn new() -> Self {
        Self { frozen: AtomicBool::new(false), waiting: WaitQueue::new() }
    }

    /// Returns whether the tasks are frozen. Acquire: pairs with the Release of the thaw, so the copy comes
    /// before a thread's next write.
    fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }
}

impl Memory {
    /// Calls `f`, which copies pages, while every task here but the running `task` freezes. The caller holds
    /// the heap's lock.
    pub fn with_others_frozen<R>(self: &Arc<Self>, task: &Task, f: impl FnOnce() -> R) -> R {
        self.freezer.frozen.store(true, Ordering::Relaxed);
        // F1, partner of F2: a task that joined before this is found below, and a task that joins later finds
        // `frozen` set.
        fence(Ordering::SeqCst);
        self.freeze_others(task);
        let result = f();
        self.freezer.frozen.store(false, Ordering::Release);
        self.freezer.waiting.wake_all();
        result
    }

    fn freeze_others(self: &Arc<Self>, task: &Task) {
        let mut found = 0;
        task.process().for_each_thread(|other| found += self.freeze(other, task));
        // Each task has a reference. If there are more than were found, other processes may share the memory
        // (CLONE_VM).
        if Arc::strong_count(self) > found {
            pid::for_each(|process| process.for_each_thread(|other| _ = self.freeze(other, task)));
        }
    }

    /// Sets FROZEN for `other` if it runs here and is not `task`. Returns 1 if it runs here, and 0 otherwise.
    fn freeze(self: &Arc<Self>, other: &Task, task: &Task) -> usize {
        let is_here = Arc::ptr_eq(&other.shared().memory, self);
        if is_here && other.tid() != task.tid() {
            other.attention.raise(attention::FROZEN);
        }
        usize::from(is_here)
    }
}

/// Freezes the new `task` if its memory is frozen. It has joined its process and is about to run for the
/// first time.
pub fn freeze_if_late(task: &Task) {
    // F2, partner of F1.
    fence(Ordering::SeqCst);
    if task.shared().memory.freezer.is_frozen() {
        task.attention.raise(attention::FROZEN);
    }
}

/// Parks the running task, which is on its way to user mode, while it is frozen.
pub fn wait_for_thaw(task: &Task) {
    task.attention.clear(attention::FROZEN);
    let freezer = &task.shared().memory.freezer;
    let _killed = freezer.waiting.wait_killable(|| (!freezer.is_frozen()).then_some(()));
}
