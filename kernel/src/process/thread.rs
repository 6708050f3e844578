//! The part of a task that belongs to its process: how it joins, its state, how it leaves.

use alloc::boxed::Box;
use alloc::sync::Arc;

use abi::Errno;
use percore::CoreSet;
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering};

use super::futex::{self, Waiter, Word};
use super::signal::{ThreadSignals, retarget};
use super::usage::faults;
use super::vfork::Latch;
use super::{Ending, FIRST, Memory, Pid, Process, Usage, robust, shutdown, terminal};
use crate::above::Above;
use crate::arch::{self, FpuState, KernelStack, TrapFrame};
use crate::fs::{self, FdTable, FsContext};
use crate::mm::space::SpaceHandle;
use crate::mm::{self, user};
use crate::sched::{self, Start, Task, attention};

/// Bytes of a thread's name, the NUL included.
pub const NAME_BYTES: usize = 16;

/// The state that a task may share with others, each part on its own.
#[derive(Clone)]
pub struct Shared {
    /// CLONE_VM.
    pub memory: Arc<Memory>,
    /// CLONE_FILES. Counted by [`FdTable::join`] too.
    pub files: Arc<FdTable>,
    /// CLONE_FS.
    pub fs: Arc<FsContext>,
}

/// The state of a thread.
pub struct Thread {
    process: Arc<Process>,
    /// Its number, or `None` for the main thread, which has the process's number.
    number: Option<Pid>,
    /// The state that it shares.
    pub shared: Shared,
    /// Its mask, and the signals sent to it alone.
    pub signals: ThreadSignals,
    /// Its entry in a futex's queue.
    pub futex: Waiter,
    /// `set_robust_list`.
    pub robust_list: AtomicU64,
    /// `set_tid_address`: the address of a word to clear and wake when it exits, or 0.
    pub clear_tid: AtomicU64,
    /// CLONE_CHILD_SETTID: the address where it writes its number before anything else, or 0.
    set_tid: AtomicU64,
    /// `PR_SET_NAME`.
    pub name: SpinLock<[u8; NAME_BYTES]>,
    /// The latch of the parent that sleeps while this thread runs in its memory.
    latch: Option<Arc<Latch>>,
}

impl sched::Threads for Above {
    type Thread = Thread;
    #[inline(always)]
    fn handle_attention(frame: &mut TrapFrame) {
        super::handle_attention(frame);
    }
    fn take_input() {
        fs::input_arrived();
        terminal::take_input();
    }
}

impl sched::Thread for Thread {
    #[inline(always)]
    fn space(&self) -> &Arc<SpaceHandle> {
        &self.shared.memory.space
    }
    fn has_signal(&self) -> bool {
        self.signals.deliverable(&self.process.signals)
    }
}

impl Task {
    /// Returns the task's process.
    #[inline(always)]
    pub fn process(&self) -> &Arc<Process> {
        &self.thread.process
    }

    /// Returns the part that it shares with other threads.
    #[inline(always)]
    pub fn shared(&self) -> &Shared {
        &self.thread.shared
    }

    /// Returns the task's place in the tree of names.
    pub fn fs_context(&self) -> &FsContext {
        &self.thread.shared.fs
    }
}

impl mm::Watcher for Above {
    fn is_watcher() -> Option<bool> {
        arch::with_current(|task| task.process().pid() == FIRST)
    }
}

/// A thread that is about to be made.
pub struct NewThread {
    /// Its number, or `None` for the main thread.
    pub number: Option<Pid>,
    pub shared: Shared,
    pub name: [u8; NAME_BYTES],
    pub frame: TrapFrame,
    pub fpu: Box<FpuState>,
    pub fs_base: u64,
    pub affinity: CoreSet,
    pub signals: ThreadSignals,
    pub clear_tid: u64,
    pub set_tid: u64,
    pub latch: Option<Arc<Latch>>,
}

impl NewThread {
    /// Makes a task of `process`, which is not in the list of threads yet.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn make(self, process: &Arc<Process>) -> Result<Arc<Task>, Errno> {
        let stack = KernelStack::new().ok_or(Errno::ENOMEM)?;
        let tid = self.number.as_ref().unwrap_or(&process.number).get();
        let thread = Thread {
            process: process.clone(),
            number: self.number,
            shared: self.shared,
            signals: self.signals,
            futex: Waiter::new(),
            robust_list: AtomicU64::new(0),
            clear_tid: AtomicU64::new(self.clear_tid),
            set_tid: AtomicU64::new(self.set_tid),
            name: SpinLock::new(self.name),
            latch: self.latch,
        };
        let start =
            Start { frame: self.frame, fpu: self.fpu, fs_base: self.fs_base, affinity: self.affinity };
        let task = Task::new(tid, thread, stack, start)?;
        if self.set_tid != 0 {
            task.attention.raise(attention::BORN);
        }
        Ok(task)
    }
}

impl Process {
    /// Adds `task` to its threads.
    ///
    /// # Errors
    /// ENOMEM, EAGAIN if the process is ending.
    pub(super) fn add_thread(self: &Arc<Self>, task: &Arc<Task>) -> Result<(), Errno> {
        let mut threads = self.threads.lock();
        // Under the lock that `end` takes after its decision: either `end` finds this task, or this task sees
        // the decision.
        self.refuse_if_ending()?;
        let at = threads.partition_point(|other| other.tid() < task.tid());
        crate::mm::fallible::insert(&mut threads, at, task.clone())?;
        self.stop_if_late(task);
        task.shared().files.join();
        if let Some(number) = &task.thread.number {
            number.publish(self, false);
        }
        Ok(())
    }

    /// Removes `leaving` from its threads, and returns whether it was the last one.
    fn remove_thread(&self, leaving: &Task) -> bool {
        let mut threads = self.threads.lock();
        let at = threads.iter().position(|task| core::ptr::eq(&raw const **task, leaving));
        let gone = at.map(|at| threads.remove(at));
        let is_last = threads.is_empty();
        // One lock at a time: a guard is dropped at the end of its statement.
        let name = *leaving.thread.name.lock();
        *self.last_name.lock() = name;
        let faults = if is_last { faults(leaving.space()) } else { 0 };
        self.past.add(&Usage { cpu_ns: leaving.cpu_ns(), faults });
        if let ([left], true) = (&threads[..], self.executor.load(Ordering::Relaxed) != 0) {
            Task::wake(left);
        }
        drop(threads);
        drop(gone);
        is_last
    }

    /// Ends all threads but the running one, `task`, and refuses new ones.
    ///
    /// # Errors
    /// EINTR if the process, or the thread, ends instead.
    pub(super) fn end_others(&self, task: &Task) -> Result<(), Errno> {
        {
            let threads = self.threads.lock();
            self.refuse_if_ending().map_err(|_| Errno::EINTR)?;
            // Relaxed: this is under the lock, and `notify` orders it for the threads that are notified.
            self.executor.store(task.tid(), Ordering::Relaxed);
            let others = threads.iter().filter(|other| other.tid() != task.tid());
            others.for_each(|other| Task::notify(other, attention::KILLED));
        }
        while self.threads.lock().len() > 1 && !self.ending.is_set() {
            sched::park();
        }
        if self.ending.is_set() { Err(Errno::EINTR) } else { Ok(()) }
    }

    /// Replaces its only thread `old` by `new`, which has the process's number.
    ///
    /// # Errors
    /// EINTR if the process ends.
    pub(super) fn replace_thread(&self, old: &Task, new: &Arc<Task>) -> Result<(), Errno> {
        let mut threads = self.threads.lock();
        if self.ending.is_set() {
            return Err(Errno::EINTR);
        }
        self.past.add(&Usage { cpu_ns: old.cpu_ns(), faults: faults(old.space()) });
        let gone = threads.first_mut().map(|only| core::mem::replace(only, new.clone()));
        self.executor.store(0, Ordering::Relaxed);
        drop(threads);
        drop(gone);
        Ok(())
    }
}

/// Ends the running thread. The process ends with its last one. No counted reference is held here at the end,
/// because this function never returns to drop it.
pub fn exit_thread() -> ! {
    sched::with_current(|task| {
        leave_memory(task);
        let process = task.process();
        // The memory of the first process is still needed for the report.
        if process.pid() != FIRST {
            task.shared().memory.release();
        }
        task.shared().files.leave();
        if process.remove_thread(task) {
            end_process(task, process);
        }
        retarget(process, !task.thread.signals.mask());
    });
    sched::exit()
}

/// Ends the process after its last thread has left.
fn end_process(task: &Task, process: &Arc<Process>) {
    process.ending.set(Ending::Status(process.main_status.load(Ordering::Relaxed)));
    let Some(ending) = process.ending.get() else { return };
    task.shared().memory.attachments.leave();
    process.undoing.undo_all(process.pid());
    if process.pid() == FIRST {
        shutdown::shut_down(task, ending);
    }
    process.notify_exit(ending);
    shutdown::note_process_gone();
}

/// Leaves the memory: the running thread will not touch it again, because it exits or runs another program.
pub(super) fn leave_memory(task: &Task) {
    robust::release(task);
    clear_child_tid(task);
    if let Some(number) = &task.thread.number {
        number.retire();
    }
    if let Some(latch) = &task.thread.latch {
        latch.open();
    }
}

/// Clears and wakes the word for which `pthread_join` waits (CLONE_CHILD_CLEARTID). As on Linux, only if
/// other threads use the memory. A bad address is ignored.
fn clear_child_tid(task: &Task) {
    let at = task.thread.clear_tid.load(Ordering::Relaxed);
    if at == 0 || task.shared().memory.is_mine_alone() {
        return;
    }
    if let (Ok(()), Ok(word)) = (user::write(at, &0u32), Word::new(at, false)) {
        futex::wake(task, word, 1, u32::MAX);
    }
}

/// Writes the thread's number for CLONE_CHILD_SETTID, before it first runs in user mode.
pub fn write_child_tid(task: &Task) {
    task.attention.clear(attention::BORN);
    let at = task.thread.set_tid.swap(0, Ordering::Relaxed);
    if at != 0 {
        let _bad_address = user::write(at, &task.tid());
    }
}
