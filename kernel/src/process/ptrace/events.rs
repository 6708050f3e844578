//! Children, other programs and ends of tracees, and the end of a tracer.

use alloc::sync::Arc;

use abi::Errno;
use abi::process::{CLONE_PTRACE, CLONE_UNTRACED, CLONE_VFORK};
use abi::ptrace::*;
use abi::signal::{SI_KERNEL, SIGCHLD, SIGKILL, SIGSTOP};
use sync::atomic::Ordering;

use super::requests::link;
use super::{Phase, Report, Tracee, Tracer, count_task, of, want};
use crate::arch::TrapFrame;
use crate::fs::readiness;
use crate::process::signal::{self, Origin};
use crate::process::{Clone, Ending, Process, State};
use crate::sched::{Task, attention};

/// Returns the event that the making of such a child is, and its option.
fn event_of(wanted: &Clone) -> (u32, u32) {
    match () {
        () if wanted.flags & CLONE_VFORK != 0 => (PTRACE_EVENT_VFORK, PTRACE_O_TRACEVFORK),
        () if wanted.exit_signal != SIGCHLD => (PTRACE_EVENT_CLONE, PTRACE_O_TRACECLONE),
        () => (PTRACE_EVENT_FORK, PTRACE_O_TRACEFORK),
    }
}

/// Makes the tracer of the running, traced `task` trace `child`, too, if it wants that. The child has joined
/// its process, and does not run yet. If there is no memory, it runs untraced.
#[cold]
pub fn prepare_child(task: &Task, wanted: &Clone, child: &Arc<Task>) {
    if let Some(tracee) = of(task) {
        let _untraced = tracee.trace_child(wanted, child);
    }
}

/// Reports a child of the running, traced `task`, which goes on before a vfork waits.
#[cold]
pub fn after_clone(task: &Task, frame: &mut TrapFrame, wanted: &Clone, child: u32) {
    let Some(tracee) = of(task) else { return };
    let (event, option) = event_of(wanted);
    if tracee.has(option) && wanted.flags & CLONE_UNTRACED == 0 {
        tracee.stop(task, frame, Report::event(task, event, child.into()));
    }
}

/// Reports that the child of a vfork has left the memory.
#[cold]
pub fn after_vfork(task: &Task, frame: &mut TrapFrame, child: u32) {
    let Some(tracee) = of(task) else { return };
    if tracee.has(PTRACE_O_TRACEVFORKDONE) {
        tracee.stop(task, frame, Report::event(task, PTRACE_EVENT_VFORK_DONE, child.into()));
    }
}

/// Reports that the running, traced `task` is about to exit with the wait status `status`, unless it is
/// killed.
#[cold]
pub fn at_exit(task: &Task, frame: &mut TrapFrame, status: u32) {
    let Some(tracee) = of(task) else { return };
    tracee.state.lock().exit_status = (status >> 8) as u8;
    if tracee.has(PTRACE_O_TRACEEXIT) {
        tracee.stop(task, frame, Report::event(task, PTRACE_EVENT_EXIT, status.into()));
    }
}

/// Makes `new` what `old` was, a tracee or a tracer: `new` takes its place to run another program. The lock
/// of the threads is held.
#[cold]
pub fn after_exec(old: &Task, new: &Task) {
    let moved = {
        let mut place = old.thread.tracee.lock();
        old.attention.clear(attention::TRACED | attention::TRACE);
        place.take()
    };
    if let Some(tracee) = moved {
        tracee.tid.store(new.tid(), Ordering::Relaxed);
        {
            let mut state = tracee.state.lock();
            state.wanted |= want::EXEC;
            state.former_tid = old.tid();
            state.steps = false;
        }
        *new.thread.tracee.lock() = Some(tracee);
        new.attention.raise(attention::TRACED | attention::TRACE);
    }
    if old.attention.has(attention::TRACER) {
        new.attention.raise(attention::TRACER);
    }
}

/// Makes the thread `new` of `process` the tracer of all that its thread `old` traces, which it replaces to
/// run another program.
#[cold]
pub fn tracer_executes(process: &Process, old: u32, new: u32) {
    process.find_tracee(|tracee| {
        if tracee.is_traced_by_thread(old) {
            tracee.tracer_tid.store(new, Ordering::Relaxed);
        }
        None::<()>
    });
}

impl Tracee {
    fn trace_child(&self, wanted: &Clone, child: &Arc<Task>) -> Result<(), Errno> {
        let (_, option) = event_of(wanted);
        let is_wanted = self.has(option) && wanted.flags & CLONE_UNTRACED == 0;
        let Some(tracer) = self.tracer.upgrade() else { return Ok(()) };
        if !is_wanted && wanted.flags & CLONE_PTRACE == 0 {
            return Ok(());
        }
        let options = self.state.lock().options;
        let by = Tracer {
            tid: self.tracer_tid.load(Ordering::Relaxed),
            process: self.tracer.clone(),
            is_privileged: self.is_tracer_privileged,
        };
        let tracee = Self::new((child.tid(), child.process()), by, self.is_seized, options)?;
        link(&tracer, &tracee, Some(self), child.process(), |_| Ok(()))?;
        if self.is_seized {
            tracee.state.lock().wanted |= want::STOP;
            child.attention.raise(attention::TRACE);
        } else {
            signal::begin_with(child, SIGSTOP, Origin::new(SI_KERNEL, 0));
        }
        Ok(())
    }

    /// Notifies the tracer of its end.
    fn notify_of_end(&self, tracer: &Arc<Process>, ending: Ending) {
        let origin = Origin::of_child(self.tid(), self.real_user(), State::Ended(ending));
        signal::send_to_process(tracer, SIGCHLD, origin);
        tracer.relations.changed.wake_all();
        readiness::changed();
    }

    /// Notes that it is gone, and takes it out of its tracer's list.
    fn vanish(&self) {
        self.state.lock().phase = Phase::Gone;
        if let Some(tracer) = self.tracer.upgrade() {
            tracer.remove_tracee(self);
        }
    }

    /// Lets the tracee go because its tracer ends.
    fn lose_tracer(&self) {
        if self.has(PTRACE_O_EXITKILL)
            && let Some(process) = self.process()
        {
            process.end(Ending::Signal(SIGKILL));
        }
        self.release(0);
    }
}

/// Keeps the tracee of the main thread, the running `task`, for the end of its process. The lock of the
/// threads is held: a thread that then finds itself the last one, or alone to run another program, finds the
/// tracee there.
#[cold]
pub fn main_thread_leaves(task: &Task) {
    let process = task.process();
    let taken = task.thread.tracee.lock().take();
    if let Some(tracee) = taken {
        process.traced.fetch_add(1, Ordering::Relaxed);
        *process.main_tracee.lock() = Some(tracee);
        count_task(process, -1);
    }
}

/// Lets the tracees of the running `task` go, which traces and is about to leave the threads of its process.
/// It is among them still: another one that runs another program, and gets its number, waits for that.
#[cold]
pub fn tracer_leaves(task: &Task) {
    let is_mine = |tracee: &Tracee| tracee.is_traced_by_thread(task.tid());
    while let Some(tracee) = task.process().take_tracee(is_mine) {
        tracee.lose_tracer();
    }
}

/// Handles that the running `task`, which is traced, has left the threads of its process.
#[cold]
pub fn thread_leaves(task: &Task) {
    let process = task.process();
    // That of the main thread is not there any more: its end is that of the process.
    let taken = task.thread.tracee.lock().take();
    let Some(tracee) = taken else { return };
    count_task(process, -1);
    let own = Ending::Status(tracee.state.lock().exit_status);
    let ending = process.ending().unwrap_or(own);
    {
        let mut state = tracee.state.lock();
        if state.phase == Phase::Gone {
            return;
        }
        state.phase = Phase::Ended(ending);
    }
    if let Some(tracer) = tracee.tracer.upgrade() {
        tracee.notify_of_end(&tracer, ending);
    }
}

/// Returns whether the parent of `process`, whose main thread was traced, is not to hear of its end before
/// the tracer has.
#[cold]
pub fn end_is_held(process: &Arc<Process>, ending: Ending) -> bool {
    let Some(tracee) = process.take_main_tracee() else { return false };
    let Some(tracer) = tracee.tracer.upgrade() else { return false };
    if process.parent().is_some_and(|parent| Arc::ptr_eq(&parent, &tracer)) {
        tracee.vanish();
        return false;
    }
    {
        let mut state = tracee.state.lock();
        if state.phase == Phase::Gone {
            return false;
        }
        state.phase = Phase::Ended(ending);
        state.ended = Some(process.clone());
    }
    tracee.notify_of_end(&tracer, ending);
    true
}

/// Lets all tracees of `process` go, which ends.
pub fn release_all(process: &Process) {
    while let Some(tracee) = process.take_tracee(|_| true) {
        tracee.lose_tracer();
    }
}

impl Process {
    fn take_main_tracee(&self) -> Option<Arc<Tracee>> {
        let taken = self.main_tracee.lock().take();
        if taken.is_some() {
            self.traced.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// Forgets the former main thread, if it was traced: another thread runs another program as the main
    /// one.
    pub fn forget_main_tracee(&self) {
        if self.traced.load(Ordering::Relaxed) != 0
            && let Some(tracee) = self.take_main_tracee()
        {
            tracee.vanish();
        }
    }

    /// Returns whether one of its threads is traced by its parent, which hears of stops as a tracer then.
    pub fn is_traced_by_parent(&self) -> bool {
        let is_mine = |tracee: &Arc<Tracee>| core::ptr::eq(tracee.process.as_ptr(), self);
        let traces =
            |parent: Arc<Process>| parent.find_tracee(|tracee| is_mine(tracee).then_some(())).is_some();
        self.traced.load(Ordering::Relaxed) != 0 && self.parent().is_some_and(traces)
    }

    /// Tells the tracers of seized threads of a SIGCONT.
    #[cold]
    pub fn tell_tracers_of_sigcont(&self) {
        let mut next = self.first_thread_from(0);
        while let Some(task) = next {
            if let Some(tracee) = of(&task).filter(|tracee| tracee.is_seized) {
                tracee.want(&task, want::CONTINUED);
            }
            next = self.first_thread_from(task.tid() + 1);
        }
    }
}

impl Tracee {
    fn is_traced_by_thread(&self, tid: u32) -> bool {
        self.tracer_tid.load(Ordering::Relaxed) == tid
    }

    /// Takes over the tracer's thread of `other`, which may have another number by an exec since this was
    /// made. The caller holds the lock of the tracer's list.
    pub fn follow(&self, other: &Self) {
        self.tracer_tid.store(other.tracer_tid.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Reports another stop of a tracee whose tracer listens. Returns whether it does.
    pub(super) fn stop_again(&self, task: &Task) -> bool {
        let report = Report::of_event(task, abi::signal::SIGTRAP | PTRACE_EVENT_STOP << 8, None);
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Stopped || !state.listens {
                return false;
            }
            (state.report, state.is_reported, state.listens) = (report, false, false);
            state.wanted &= !(want::STOP | want::CONTINUED);
        }
        self.notify_tracer(report.code, false);
        true
    }
}
