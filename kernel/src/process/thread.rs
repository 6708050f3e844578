//! A task as its process sees it: how it joins, what it carries, how it leaves.

use alloc::boxed::Box;
use alloc::sync::Arc;

use abi::Errno;
use percore::CoreSet;
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering};

use super::futex::{self, Waiter};
use super::signal::{ThreadSignals, retarget};
use super::{Ending, Process, next_tid, robust};
use crate::arch::{FpuState, KernelStack, TrapFrame};
use crate::fs::fallible;
use crate::mm::user;
use crate::sched::{self, Start, Task};

/// What a thread has of its own.
pub struct Thread {
    /// Its mask and what was sent to it alone.
    pub signals: ThreadSignals,
    /// Its place in a futex's queue.
    pub futex: Waiter,
    /// `set_robust_list`.
    pub robust_list: AtomicU64,
    /// `set_tid_address`: a word to clear and wake when it exits; 0 for none.
    pub clear_tid: AtomicU64,
    /// `PR_SET_NAME`.
    pub name: SpinLock<[u8; 16]>,
}

/// A thread to be.
pub struct NewThread {
    pub tid: u32,
    pub frame: TrapFrame,
    pub fpu: Box<FpuState>,
    pub fs_base: u64,
    pub affinity: CoreSet,
    pub signal_mask: u64,
    pub clear_tid: u64,
}

impl NewThread {
    /// Makes it one of `process`; it runs when it is enqueued.
    ///
    /// # Errors
    /// EAGAIN without memory, or if the process is ending.
    pub fn make(self, process: &Arc<Process>) -> Result<Arc<Task>, Errno> {
        let stack = KernelStack::new().ok_or(Errno::EAGAIN)?;
        let thread = Thread {
            signals: ThreadSignals::new(self.signal_mask),
            futex: Waiter::new(),
            robust_list: AtomicU64::new(0),
            clear_tid: AtomicU64::new(self.clear_tid),
            name: SpinLock::new([0; 16]),
        };
        let start =
            Start { frame: self.frame, fpu: self.fpu, fs_base: self.fs_base, affinity: self.affinity };
        let task = Task::new(self.tid, process.clone(), thread, stack, start).map_err(|_| Errno::EAGAIN)?;
        process.add_thread(task.clone())?;
        Ok(task)
    }
}

impl Process {
    fn add_thread(&self, task: Arc<Task>) -> Result<(), Errno> {
        let mut threads = self.threads.lock();
        // Under the lock that `end` takes after its decision: it sees us, or we see it.
        self.refuse_if_ending()?;
        let at = threads.partition_point(|other| other.tid() < task.tid());
        threads.try_reserve(1).map_err(|_| Errno::EAGAIN)?;
        threads.insert(at, task);
        Ok(())
    }

    /// Whether that was the last one.
    fn remove_thread(&self, leaving: &Task) -> bool {
        let mut threads = self.threads.lock();
        threads.retain(|task| task.tid() != leaving.tid());
        // Relaxed: a statistic, and the lock orders it for who sums under it.
        self.past_cpu_ns.fetch_add(leaving.cpu_ns(), Ordering::Relaxed);
        threads.is_empty()
    }
}

/// Ends the running thread; its process ends with the last one. Holds no counted reference across the end,
/// which never returns to drop it.
pub fn exit_thread() -> ! {
    sched::with_current(|task| {
        robust::release(task);
        announce(task);
        let process = task.process();
        if process.remove_thread(task) {
            process.ending.set(Ending::Status(process.main_status.load(Ordering::Relaxed)));
        }
        retarget(process, !task.thread.signals.mask());
    });
    sched::exit()
}

/// CLONE_CHILD_CLEARTID: what `pthread_join` waits for. A bad address is the program's problem.
fn announce(task: &Task) {
    let at = task.thread.clear_tid.load(Ordering::Relaxed);
    if at != 0 && user::write(at, &0u32).is_ok() {
        let _nobody = futex::wake(task.process(), at, 1, u32::MAX);
    }
}

/// `clone` for a thread: another thread of the caller's process, which starts with `frame` and the caller's
/// vector registers.
///
/// # Errors
/// EAGAIN without memory, or if the process is ending.
pub fn spawn(parent: &Task, frame: TrapFrame, fs_base: u64, clear_tid: u64) -> Result<Arc<Task>, Errno> {
    let mut fpu = fallible::boxed(FpuState::new()).map_err(|_| Errno::EAGAIN)?;
    fpu.save();
    let new = NewThread {
        tid: next_tid(),
        frame,
        fpu,
        fs_base,
        affinity: parent.affinity(),
        signal_mask: parent.thread.signals.mask(),
        clear_tid,
    };
    new.make(parent.process())
}
