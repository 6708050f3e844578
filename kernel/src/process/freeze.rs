//! Freezing: while a memory is copied piece by piece, none of its other threads gets far.
//!
//! ```text
//!   the thread that forks                          another thread
//!   ---------------------                          --------------
//!   frozen := true                                 goes on: what it writes is not copied yet, so the child will have it
//!   each other task: attention |= FROZEN
//!   copy a piece, take back the rights to write    in user mode, with such a right: the interrupt takes it into the kernel
//!                                                  later: it has no right to write there, faults, and is in the kernel
//!   ...                                            on its way back to user mode it finds FROZEN, and waits
//!   frozen := false, wake all that wait            goes on
//! ```
//! The child has what each thread wrote before it froze, and nothing that it wrote later: a thread that writes A and then B
//! never has B alone in the child.
//!
//! 1. Before the first page is copied, every task of the memory has FROZEN, or is new (3).
//! 2. A thread that writes to a page after that was copied has been in the kernel since: it was interrupted, or it faults. It
//!    froze before it executed another instruction of the program, so it has not written to the page.
//! 3. A new task is among those that get FROZEN, or finds `frozen` set after it has joined them (fence F2), before it first
//!    runs: `frozen` is set before the others are looked for (fence F1).
//! 4. Nobody waits for a frozen task, which holds no lock, and the one that forks waits for nobody. It holds the heap's lock
//!    (`heap.rs`), so that no two tasks freeze one memory; a task that waits for that lock is in the kernel.
//! 5. A killed task is not held.
//!
//! A call that a thread is in, or makes before it freezes, goes on to its end, and the thread freezes before it sees the answer. Of
//! its effects the child has those on pages that are not copied yet, and no others.

use alloc::sync::Arc;

use sync::atomic::{AtomicBool, Ordering, fence};

use super::{Memory, pid};
use crate::sched::{Task, WaitQueue, attention};

/// Whether the tasks of a memory are frozen.
pub struct Freezer {
    frozen: AtomicBool,
    waiting: WaitQueue,
}

impl Freezer {
    /// They are not.
    pub const fn new() -> Self {
        Self { frozen: AtomicBool::new(false), waiting: WaitQueue::new() }
    }

    /// Acquire: pairs with the Release of the thaw. What was copied was copied before.
    fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }
}

impl Memory {
    /// Runs `f`, which copies pages, while every task here but `task`, which runs, freezes when it is in the kernel. The
    /// caller holds the heap's lock.
    pub fn with_others_frozen<R>(self: &Arc<Self>, task: &Task, f: impl FnOnce() -> R) -> R {
        self.freezer.frozen.store(true, Ordering::Relaxed);
        // F1, partner of F2: who joined before this is found below, who joins later finds `frozen`.
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
        // Each task has a reference: if there are more, other processes may share the memory (CLONE_VM).
        if Arc::strong_count(self) > found {
            pid::for_each(|process| process.for_each_thread(|other| _ = self.freeze(other, task)));
        }
    }

    /// Gives `other` FROZEN if it is another task than `task`, and here; how many tasks here it is.
    fn freeze(self: &Arc<Self>, other: &Task, task: &Task) -> usize {
        let is_here = Arc::ptr_eq(&other.shared().memory, self);
        if is_here && other.tid() != task.tid() {
            other.attention.raise(attention::FROZEN);
        }
        usize::from(is_here)
    }
}

/// The new `task` has joined its process, and is about to run for the first time.
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
    let _killed = freezer.waiting.wait_killable(|| !freezer.is_frozen());
}
