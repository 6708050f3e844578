//! The tracee's side: where it stops, and how it goes on.

use alloc::sync::Arc;

use abi::Errno;
use abi::ptrace::*;
use abi::signal::{SI_USER, SIGTRAP, TRAP_BRKPT};

use super::{Mode, Phase, Report, State, Tracee, count_task, of, want};
use crate::arch::{self, TrapFrame};
use crate::mm::user;
use crate::process::signal::{self, Fault, Origin, Restart, bit};
use crate::process::{fault, stop};
use crate::sched::{self, Task, attention};

/// The values that Linux shows as the result of a call that a signal interrupted: restarted as the handler
/// says, or only if no handler runs, or then for the rest of its time.
const RESTART: u64 = -512_i64 as u64;
const RESTART_WITHOUT_HANDLER: u64 = -514_i64 as u64;
const RESTART_FOR_THE_REST: u64 = -516_i64 as u64;
/// The mark of stops at calls (PTRACE_O_TRACESYSGOOD).
const CALL_MARK: u32 = 0x80;
/// The number of execve.
const EXECVE: u64 = 59;
const INTERRUPTED: u64 = Errno::EINTR.to_result();

impl Tracee {
    /// Stops the running `task`, whose registers are `frame`, until its tracer lets it go on. Returns the
    /// signal that the tracer gives it, or 0, or `None` if it did not stop.
    pub(super) fn stop(self: &Arc<Self>, task: &Task, frame: &mut TrapFrame, report: Report) -> Option<u32> {
        if !self.begin_stop(task, frame, report) {
            return None;
        }
        self.notify_tracer(report.code, report.origin.is_none());
        while self.state.lock().phase == Phase::Stopped && !task.is_killed() {
            sched::park();
        }
        Some(self.end_stop(task, frame))
    }

    fn begin_stop(&self, task: &Task, frame: &mut TrapFrame, report: Report) -> bool {
        let mut state = self.state.lock();
        if state.phase != Phase::Runs || task.is_killed() {
            return false;
        }
        if core::mem::take(&mut state.steps) {
            frame.set_stepping(false);
        }
        state.saved.frame = *frame;
        show_restart(task, &mut state.saved.frame);
        state.saved.fs_base = arch::fs_base();
        state.saved.fpu.save();
        state.saved.fpu_is_changed = false;
        state.message = report.message.unwrap_or(state.message);
        (state.report, state.is_reported, state.listens) = (report, false, false);
        state.wanted &= match report.code >> 8 {
            PTRACE_EVENT_STOP => !(want::STOP | want::CONTINUED),
            _ => !want::STOP,
        };
        (state.injected, state.mask) = (0, None);
        state.phase = Phase::Stopped;
        true
    }

    /// Takes back the registers, and returns the signal that the tracer gives.
    fn end_stop(&self, task: &Task, frame: &mut TrapFrame) -> u32 {
        let (signal, mask, phase) = {
            let mut state = self.state.lock();
            if state.phase == Phase::Stopped {
                // It is killed.
                (state.phase, state.is_reported) = (Phase::Runs, true);
            }
            *frame = state.saved.frame;
            arch::set_fs_base(state.saved.fs_base);
            if state.saved.fpu_is_changed {
                state.saved.fpu.restore();
            }
            (state.injected, state.mask.take(), state.phase)
        };
        take_restart(task, frame);
        if phase == Phase::Gone {
            leave(task, self);
        } else {
            self.begin_step(frame);
        }
        if let Some(mask) = mask {
            task.thread.signals.set_mask(task, mask);
        }
        signal
    }

    /// Sets the trap flag if it goes on for one step. The program's own is left to it.
    fn begin_step(&self, frame: &mut TrapFrame) {
        let wants_step = self.state.lock().mode == Mode::OneStep;
        if wants_step && !frame.is_stepping() {
            let is_its_own = sets_flags(frame.rip);
            frame.set_stepping(true);
            self.state.lock().steps = !is_its_own;
        }
    }

    /// Returns whether one of `wanted` is to be reported, and forgets them.
    fn take_wanted(&self, wanted: u32) -> bool {
        let mut state = self.state.lock();
        let is_wanted = state.wanted & wanted != 0;
        state.wanted &= !wanted;
        is_wanted
    }

    fn mode(&self) -> Mode {
        self.state.lock().mode
    }

    /// Stops `task` at the beginning or the end of a call, and sends itself the signal that it is given.
    fn stop_at_call(self: &Arc<Self>, task: &Task, frame: &mut TrapFrame, message: u32) {
        let mark = if self.has(PTRACE_O_TRACESYSGOOD) { CALL_MARK } else { 0 };
        let report = Report::of_event(task, SIGTRAP | mark, Some(message.into()));
        if let Some(signal @ 1..) = self.stop(task, frame, report) {
            self.send(task, signal);
        }
    }

    fn send(&self, task: &Task, signal: u32) {
        let process = task.process();
        let sender = self.tracer.upgrade().map_or(0, |tracer| tracer.pid());
        let _gone = signal::send_to_thread(process, task.tid(), signal, Origin::new(SI_USER, sender.into()));
    }

    /// Reports that it runs another program. The new task has not run yet.
    fn report_exec(self: &Arc<Self>, task: &Task, frame: &mut TrapFrame) {
        frame.set_call(Some(EXECVE));
        let former = self.state.lock().former_tid;
        if self.has(PTRACE_O_TRACEEXEC) {
            self.stop(task, frame, Report::event(task, PTRACE_EVENT_EXEC, former.into()));
        } else if !self.is_seized {
            let origin = Origin::sent_by(task.process(), SI_USER);
            let _gone = signal::send_to_thread(task.process(), task.tid(), SIGTRAP, origin);
        }
        if self.mode() == Mode::ToCall {
            self.stop_at_call(task, frame, PTRACE_EVENTMSG_SYSCALL_EXIT);
        }
    }
}

/// Shows a call that will be restarted as Linux does.
fn show_restart(task: &Task, frame: &mut TrapFrame) {
    if frame.is_syscall() && frame.result() == INTERRUPTED {
        match task.thread.signals.allowed_restart() {
            Restart::AsHandlerSays => frame.set_result(RESTART),
            Restart::WithoutHandler => frame.set_result(RESTART_WITHOUT_HANDLER),
            Restart::ForTheRest => frame.set_result(RESTART_FOR_THE_REST),
            Restart::Never => {}
        }
    }
}

/// Takes that back. A tracer may have set it, too.
fn take_restart(task: &Task, frame: &mut TrapFrame) {
    let restart = match frame.result() {
        _ if !frame.is_syscall() => return,
        RESTART => Restart::AsHandlerSays,
        RESTART_WITHOUT_HANDLER => Restart::WithoutHandler,
        RESTART_FOR_THE_REST => Restart::ForTheRest,
        _ => return,
    };
    task.thread.signals.allow(restart);
    frame.set_result(INTERRUPTED);
}

/// Returns whether the instruction at `at` sets the flags from memory: `popf` or `iret`.
fn sets_flags(at: u64) -> bool {
    const LONGEST: u64 = 15;
    for offset in 0..LONGEST {
        match user::read::<u8>(at.wrapping_add(offset)) {
            Ok(0x9d | 0xcf) => return true,
            // Prefixes of segments, sizes, repetition and REX.
            Ok(0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 | 0x40..=0x4f) => {}
            _ => return false,
        }
    }
    false
}

/// Takes the tracee, which is gone, out of the place of `task`, unless another one has it by now.
fn leave(task: &Task, gone: &Tracee) {
    let taken = {
        let mut place = task.thread.tracee.lock();
        let is_there = place.as_ref().is_some_and(|tracee| core::ptr::eq(&raw const **tracee, gone));
        if is_there {
            task.attention.clear(attention::TRACED | attention::TRACE);
        }
        if is_there { place.take() } else { None }
    };
    if taken.is_some() {
        count_task(task.process(), -1);
        if task.process().is_stopped() {
            task.attention.raise(attention::STOPPED);
        }
    }
}

/// Returns the tracee of the running task. If it is gone, the task leaves it.
fn of_running(task: &Task) -> Option<Arc<Tracee>> {
    let found = of(task);
    if found.is_none() {
        let gone = task.thread.tracee.lock().clone();
        if let Some(gone) = gone.filter(|gone| gone.state.lock().phase == Phase::Gone) {
            leave(task, &gone);
        }
    }
    found
}

/// Stops the running, traced `task`, which is on its way to user mode, for all that is to be reported.
#[cold]
pub fn at_return(task: &Task, frame: &mut TrapFrame) {
    while let Some(tracee) = of_running(task) {
        task.attention.clear(attention::TRACE);
        if tracee.take_wanted(want::EXEC) {
            tracee.report_exec(task, frame);
        }
        let group_stop = task.attention.has(attention::STOPPED);
        task.attention.clear(attention::STOPPED);
        let wants_stop = tracee.take_wanted(want::STOP | want::CONTINUED);
        match task.process().stop_signal() {
            Some(signal) if group_stop || wants_stop => {
                tracee.stop(task, frame, Report::of_group(task, &tracee, signal));
            }
            None if wants_stop => {
                let code = SIGTRAP | PTRACE_EVENT_STOP << 8;
                tracee.stop(task, frame, Report::of_event(task, code, None));
            }
            _ if task.attention.has(attention::TRACE) && !task.is_killed() => {}
            _ => return,
        }
    }
    stop::park_while_stopped(task);
}

/// Shows the running, traced `task`'s signal to its tracer. Returns the signal that it gets instead.
/// `is_forced` tells that it cannot be blocked.
#[cold]
pub fn on_signal(
    task: &Task,
    frame: &mut TrapFrame,
    (signal, origin): (u32, Origin),
    is_forced: bool,
) -> Option<(u32, Origin)> {
    let Some(tracee) = of_running(task) else { return Some((signal, origin)) };
    let report = Report::of_signal(signal, origin);
    let Some(given) = tracee.stop(task, frame, report) else { return Some((signal, origin)) };
    if given == 0 {
        return None;
    }
    let origin = match given == signal {
        true => tracee.state.lock().report.origin.unwrap_or(origin),
        false => Origin::new(SI_USER, tracee.tracer.upgrade().map_or(0, |tracer| tracer.pid().into())),
    };
    let is_blocked = task.thread.signals.mask() & bit(given) != 0;
    if given == abi::signal::SIGKILL || is_blocked && !(is_forced && given == signal) {
        let _lost = signal::send_to_thread(task.process(), task.tid(), given, origin);
        return None;
    }
    Some((given, origin))
}

/// Prepares the running, traced `task` for a handler, which begins without the trap flag of a step. Returns
/// whether it makes a step.
#[cold]
pub fn before_handler(task: &Task, frame: &mut TrapFrame) -> bool {
    let Some(tracee) = of(task) else { return false };
    let mut state = tracee.state.lock();
    if core::mem::take(&mut state.steps) {
        frame.set_stepping(false);
    }
    state.mode == Mode::OneStep
}

/// Takes the trap flag of a step of the running `task` out of a copy of its registers, for a child.
#[cold]
pub fn without_step(task: &Task, copy: &mut TrapFrame) {
    if of(task).is_some_and(|tracee| tracee.state.lock().steps) {
        copy.set_stepping(false);
    }
}

/// Ends the step of the running `task` at the first instruction of a handler.
#[cold]
pub fn handler_entered(task: &Task, frame: &mut TrapFrame) {
    if let Some(tracee) = of_running(task) {
        tracee.stop(task, frame, Report::of_event(task, SIGTRAP, None));
    }
}

/// Returns whether a trap after an instruction is left of a tracer that is gone, and takes the flag away
/// then.
#[cold]
pub fn step_is_stale(task: &Task, frame: &mut TrapFrame) -> bool {
    let found = task.thread.tracee.lock().clone();
    let Some(tracee) = found else { return false };
    let is_stale = {
        let State { phase, steps, .. } = &mut *tracee.state.lock();
        *phase == Phase::Gone && core::mem::take(steps)
    };
    if is_stale {
        frame.set_stepping(false);
        leave(task, &tracee);
    }
    is_stale
}

/// Handles a system call of the running, traced task: stops before and after `call`, which handles it, if
/// the tracer wants that. It holds no reference meanwhile, because a call may not return.
pub fn traced_call(frame: &mut TrapFrame, call: impl FnOnce(&mut TrapFrame)) {
    if sched::with_current(|task| begin_call(task, frame)) {
        call(frame);
    }
    sched::with_current(|task| end_call(task, frame));
}

/// Returns whether the call is to be made.
fn begin_call(task: &Task, frame: &mut TrapFrame) -> bool {
    let Some(tracee) = of_running(task) else { return true };
    if tracee.mode() == Mode::ToCall {
        frame.set_result(Errno::ENOSYS.to_result());
        tracee.stop_at_call(task, frame, PTRACE_EVENTMSG_SYSCALL_ENTRY);
    }
    frame.is_syscall() && !task.is_killed()
}

fn end_call(task: &Task, frame: &mut TrapFrame) {
    let Some(tracee) = of_running(task) else { return };
    match tracee.mode() {
        Mode::ToCall => tracee.stop_at_call(task, frame, PTRACE_EVENTMSG_SYSCALL_EXIT),
        Mode::OneStep => {
            let origin = Origin::new(TRAP_BRKPT, frame.rip);
            let trap = Fault { signal: SIGTRAP, origin, address: frame.rip, access: vm::Access::Exec };
            let fate = signal::force(task, frame, trap);
            fault::carry_out(task, fate, frame);
        }
        Mode::Freely => {}
    }
}
