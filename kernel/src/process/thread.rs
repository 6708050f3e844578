//! The part of a task that belongs to its process: how it joins, its state, how it leaves.

use alloc::boxed::Box;
use alloc::sync::Arc;

use abi::Errno;
use abi::process::ADDR_NO_RANDOMIZE;
use percore::{CoreSet, pin};
use sync::SpinLock;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::futex::{self, Waiter, Word};
use super::signal::{Inherited, ThreadSignals, retarget};
use super::usage::faults;
use super::vfork::Latch;
use super::{Ending, FIRST, Memory, Pid, Process, Usage, ptrace, robust, shutdown, terminal};
use crate::above::Above;
use crate::arch::{self, FpuState, KernelStack, TrapFrame};
use crate::fs::{self, FdTable, FsContext};
use crate::mm::space::SpaceHandle;
use crate::mm::{self, user};
use crate::sched::{self, Start, Task, attention};
use crate::users::{Ready, Slot, Unseen};

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
    pub signals: Arc<ThreadSignals>,
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
    /// Its tracee, if it is traced.
    pub tracee: ptrace::Place,
    /// Its users, groups and capabilities.
    pub credentials: Slot,
    /// `personality`. Relaxed: the thread alone uses it.
    pub personality: AtomicU32,
}

impl Thread {
    /// Returns whether its programs and children have random addresses.
    pub fn has_random_addresses(&self) -> bool {
        self.personality.load(Ordering::Relaxed) & ADDR_NO_RANDOMIZE == 0
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.process.signals.states.give_back(&self.signals);
    }
}

impl sched::Threads for Above {
    type Thread = Thread;
    #[inline(always)]
    fn handle_attention(frame: &mut TrapFrame) {
        super::handle_attention(frame);
    }
    fn on_tick(task: &Task) {
        super::cpu_timers::on_tick(task);
    }
    fn take_input() {
        fs::input_arrived();
        terminal::take_input();
    }
    fn serve_network() {
        fs::network::serve();
    }
    fn choose_entry() {
        ptrace::choose_entry();
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
    fn pid(&self) -> u32 {
        self.process.pid()
    }
    #[inline(always)]
    fn credentials(&self) -> &Slot {
        &self.credentials
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
    pub signals: Inherited,
    pub clear_tid: u64,
    pub set_tid: u64,
    pub latch: Option<Arc<Latch>>,
    pub credentials: Slot,
    pub personality: u32,
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
            signals: self.signals.state_in(&process.signals)?,
            futex: Waiter::new(),
            robust_list: AtomicU64::new(0),
            clear_tid: AtomicU64::new(self.clear_tid),
            set_tid: AtomicU64::new(self.set_tid),
            name: SpinLock::new(self.name),
            latch: self.latch,
            tracee: ptrace::Place::new(None),
            credentials: self.credentials,
            personality: AtomicU32::new(self.personality),
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
        task.thread.signals.enter(task.tid());
        self.stop_if_late(task);
        task.shared().files.join();
        task.shared().fs.join();
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
        if leaving.attention.has(attention::TRACED) && leaving.tid() == self.pid() {
            ptrace::main_thread_leaves(leaving);
        }
        // One lock at a time: a guard is dropped at the end of its statement.
        let name = *leaving.thread.name.lock();
        *self.last_name.lock() = name;
        self.last_user.store(leaving.thread.credentials.peek(&pin()).users.real, Ordering::Relaxed);
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

    /// Replaces its only thread `old` by `new`, which has the process's number. If `old` is traced by then,
    /// or `is_shared`, `new` gets the `plain` credentials, if there are such.
    ///
    /// # Errors
    /// EINTR if the process ends.
    pub(super) fn replace_thread(
        &self,
        old: &Task,
        new: &Arc<Task>,
        plain: Option<Ready>,
        is_shared: bool,
    ) -> Result<(), Errno> {
        let mut threads = self.threads.lock();
        if self.ending.is_set() {
            return Err(Errno::EINTR);
        }
        // Under the lock under which a tracer asks for its rights and begins to trace.
        let plain = plain.filter(|_| is_shared || ptrace::withholds_rights(old));
        let unseen = plain.and_then(|plain| new.thread.credentials.replace_unseen(plain));
        self.past.add(&Usage { cpu_ns: old.cpu_ns(), faults: faults(old.space()) });
        let gone = threads.first_mut().map(|only| core::mem::replace(only, new.clone()));
        new.thread.signals.enter(new.tid());
        old.thread.signals.leave();
        if old.attention.has(attention::TRACED | attention::TRACER) {
            ptrace::after_exec(old, new);
        }
        self.executor.store(0, Ordering::Relaxed);
        drop(threads);
        drop(gone);
        unseen.into_iter().for_each(Unseen::discard);
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
        task.shared().fs.leave();
        if task.attention.has(attention::TRACER) {
            ptrace::tracer_leaves(task);
        }
        let is_last = process.remove_thread(task);
        if task.attention.has(attention::TRACED) {
            ptrace::thread_leaves(task);
        }
        let mask = task.thread.signals.leave();
        if is_last {
            end_process(task, process);
        }
        retarget(process, !mask);
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
        ptrace::release_all(process);
        shutdown::shut_down(task, ending);
    }
    if process.session() == process.pid() {
        terminal::leader_ended(process.session());
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
