//! Making threads and processes.

use alloc::sync::Arc;

use abi::Errno;
use abi::process::*;
use percore::pin;
use sync::SpinLock;
use sync::atomic::Ordering;

use super::freeze::freeze_if_late;
use super::reclaim::retry;
use super::thread::{NewThread, Shared};
use super::vfork::Latch;
use super::{EndingCell, Groups, NAME_BYTES, Pid, Process, Relations, Stop, Undoing, pid, ptrace};
use crate::arch::{FpuState, TrapFrame};
use crate::counters::Counter;
use crate::fs::{FdTable, FsContext};
use crate::mm::fallible;
use crate::mm::statistics::sum;
use crate::sched::{self, Task, attention};

/// The arguments of a `clone`, with consistent flags.
#[derive(Clone, Copy, Debug)]
pub struct Clone {
    /// `CLONE_*`.
    pub flags: u64,
    /// The child's registers.
    pub frame: TrapFrame,
    /// The child's thread-local storage.
    pub fs_base: u64,
    /// The address where the child first writes its number, or 0.
    pub set_tid: u64,
    /// The address of the word to clear when the child exits, or 0.
    pub clear_tid: u64,
    /// The signal that a child process sends its parent when it ends, or 0.
    pub exit_signal: u32,
}

impl Clone {
    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

/// Makes a thread or a process like the running `task`. Calls `on_made` with it while
/// the call may still fail. Calls the result of `on_made` when the call cannot fail any more, before the
/// child runs. For CLONE_VFORK the caller waits for the child.
///
/// # Errors
/// EAGAIN beyond a limit or if the caller is ending, ENOMEM, and those of `on_made`. There is no child then.
pub fn clone<Then: FnOnce()>(
    task: &Task,
    wanted: &Clone,
    on_made: impl FnOnce(&Arc<Process>, u32) -> Result<Then, Errno>,
) -> Result<Made, Errno> {
    check_limit(task)?;
    let latch = if wanted.has(CLONE_VFORK) { Some(retry(Latch::new)?) } else { None };
    let child = retry(|| make(task, wanted, latch.clone()))?;
    let tid = child.tid();
    let then = on_made(child.process(), tid)?;
    retry(|| join(task, wanted, &child))?;
    then();
    freeze_if_late(&child);
    if task.attention.has(attention::TRACED) {
        ptrace::prepare_child(task, wanted, &child);
    }
    sched::enqueue(child);
    Ok(Made { tid, latch })
}

/// A child that runs.
pub struct Made {
    /// Its number.
    pub tid: u32,
    latch: Option<Arc<Latch>>,
}

impl Made {
    /// Waits until the child has left the memory of the running `task`, for CLONE_VFORK. Returns whether it
    /// is that.
    pub fn wait(&self, task: &Task) -> bool {
        let Some(latch) = &self.latch else { return false };
        latch.wait(task);
        true
    }
}

/// Checks RLIMIT_NPROC against the tasks of the user of `task`. Those of all users are counted only if there
/// is a limit, and each is looked at only if all together reach it.
fn check_limit(task: &Task) -> Result<(), Errno> {
    let limit = task.process().limits.current(RLIMIT_NPROC);
    let within = limit == RLIM_INFINITY
        || (sum(Counter::Tasks).max(0) as u64) < limit
        || tasks_of(task.process().real_user()) < limit;
    if within { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// Counts the tasks of a user.
fn tasks_of(user: u32) -> u64 {
    let mut tasks = 0;
    pid::for_each(|process| {
        process.for_each_thread(|task| {
            tasks += u64::from(task.thread.credentials.peek(&pin()).users.real == user);
        });
    });
    tasks
}

fn make(task: &Task, wanted: &Clone, latch: Option<Arc<Latch>>) -> Result<Arc<Task>, Errno> {
    let is_thread = wanted.has(CLONE_THREAD);
    let mut fpu = fallible::boxed(FpuState::new())?;
    fpu.save();
    let new = NewThread {
        number: if is_thread { Some(Pid::new()?) } else { None },
        shared: share(task, wanted)?,
        name: *task.thread.name.lock(),
        frame: wanted.frame,
        fpu,
        fs_base: wanted.fs_base,
        affinity: task.affinity(),
        signals: task.thread.signals.inherit(wanted.flags & (CLONE_VM | CLONE_VFORK) != CLONE_VM),
        clear_tid: wanted.clear_tid,
        set_tid: wanted.set_tid,
        latch,
        credentials: task.thread.credentials.copy()?,
        personality: task.thread.personality.load(Ordering::Relaxed),
    };
    match is_thread {
        true => new.make(task.process()),
        false => new.make(&task.process().make_child(wanted)?),
    }
}

/// Returns the shared state of the child: the parent's own for the flags in `wanted`, copies of the rest.
fn share(task: &Task, wanted: &Clone) -> Result<Shared, Errno> {
    let parent = task.shared();
    Ok(Shared {
        memory: if wanted.has(CLONE_VM) { parent.memory.clone() } else { parent.memory.fork(task)? },
        files: if wanted.has(CLONE_FILES) { parent.files.clone() } else { FdTable::copy(&parent.files)? },
        fs: if wanted.has(CLONE_FS) { parent.fs.clone() } else { FsContext::copy(&parent.fs)? },
    })
}

impl Process {
    /// Creates a process like this one. It is not in any table yet.
    fn make_child(&self, wanted: &Clone) -> Result<Arc<Process>, Errno> {
        fallible::arc(Process {
            number: Pid::new()?,
            relations: Relations::new(wanted.exit_signal),
            groups: Groups::new(self.group(), self.session()),
            signals: self.signals.inherit(wanted.flags)?,
            stop: Stop::new(),
            limits: self.limits.copy(),
            threads: SpinLock::new(fallible::empty(1)?),
            ending: EndingCell::new(),
            executor: Default::default(),
            executed: Default::default(),
            main_status: Default::default(),
            last_name: SpinLock::new([0; NAME_BYTES]),
            last_user: Default::default(),
            past: Default::default(),
            children_usage: Default::default(),
            traced: Default::default(),
            main_tracee: ptrace::Place::new(None),
            timers: Default::default(),
            undoing: Undoing::new(),
        })
    }
}

/// Makes the child known to the other tasks. Changes nothing if it fails.
fn join(task: &Task, wanted: &Clone, child: &Arc<Task>) -> Result<(), Errno> {
    let process = child.process();
    if wanted.has(CLONE_THREAD) {
        return process.add_thread(child);
    }
    adopt(task.process(), wanted, process)?;
    // Its list has room, and no task knows the process and could end it.
    process.add_thread(child)?;
    if wanted.has(CLONE_VM) {
        child.shared().memory.attachments.join();
    }
    process.number.publish(process, true);
    process.end_if_late(task.process());
    Ok(())
}

/// Makes `child` a child of `process`, or its sibling for CLONE_PARENT.
fn adopt(process: &Arc<Process>, wanted: &Clone, child: &Arc<Process>) -> Result<(), Errno> {
    if !wanted.has(CLONE_PARENT) {
        return process.adopt(child).map(drop);
    }
    child
        .relations
        .exit_signal
        .store(process.relations.exit_signal.load(Ordering::Relaxed), Ordering::Relaxed);
    process.parent().ok_or(Errno::EAGAIN)?.adopt(child).map(drop)
}
