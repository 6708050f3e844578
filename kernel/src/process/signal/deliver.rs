//! Delivering signals on the way to user mode, and forcing those of faults.

use abi::Errno;
use abi::signal::{SA_NODEFER, SA_RESTART, SI_KERNEL, SIG_DFL, SIG_IGN, SIGSEGV, Sigaction};
use vm::Access;

use super::frame::{self, FrameError};
use super::{IGNORED, Origin, Restart, STOPPING, bit};
use crate::arch::TrapFrame;
use crate::process::ptrace;
use crate::sched::{Task, attention};

/// The number of the call that goes on with a sleep.
const RESTART_SYSCALL: u64 = 219;

/// The effect of a signal on a process.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It goes on, perhaps in a handler.
    Lives,
    /// It ends by this signal.
    Dies(u32),
    /// It ends by its own fault, because no handler can run.
    Crashes(Fault),
}

/// A fault of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The signal that it raises.
    pub signal: u32,
    /// The origin that the handler gets.
    pub origin: Origin,
    /// The address that the thread accessed, for the crash report.
    pub address: u64,
    /// The kind of access.
    pub access: Access,
}

/// Delivers all deliverable signals to the running thread, whose user registers are `frame`.
pub fn deliver(task: &Task, frame: &mut TrapFrame) -> Fate {
    while let Some((signal, origin, continued)) = next(task) {
        let Some((signal, origin)) = shown(task, frame, (signal, origin), false) else { continue };
        let fate = act(task, frame, signal, origin, continued);
        if !matches!(fate, Fate::Lives) {
            return fate;
        }
    }
    restart(task, frame, None);
    task.thread.signals.resume(task);
    Fate::Lives
}

/// Shows a signal to the tracer, if there is one, and returns the signal that it gives instead.
fn shown(
    task: &Task,
    frame: &mut TrapFrame,
    signal: (u32, Origin),
    is_forced: bool,
) -> Option<(u32, Origin)> {
    match task.attention.has(attention::TRACED) {
        true => ptrace::on_signal(task, frame, signal, is_forced),
        false => Some(signal),
    }
}

/// Takes a signal to deliver, and returns how many SIGCONTs had been sent before.
fn next(task: &Task) -> Option<(u32, Origin, u64)> {
    let (signals, process) = (&task.thread.signals, task.process());
    let continued = process.stop.continued();
    let (signal, origin) = signals.take(&process.signals, !signals.mask())?;
    Some((signal, origin, continued))
}

fn act(task: &Task, frame: &mut TrapFrame, signal: u32, origin: Origin, continued: u64) -> Fate {
    let action = task.process().signals.action_for_delivery(signal);
    match action.handler {
        SIG_IGN => Fate::Lives,
        SIG_DFL if IGNORED & bit(signal) != 0 => Fate::Lives,
        SIG_DFL if STOPPING & bit(signal) != 0 => {
            task.process().stop_by(signal, continued);
            Fate::Lives
        }
        SIG_DFL => Fate::Dies(signal),
        _ => handle(task, frame, signal, origin, &action),
    }
}

fn handle(task: &Task, frame: &mut TrapFrame, signal: u32, origin: Origin, action: &Sigaction) -> Fate {
    restart(task, frame, Some(action));
    let steps = task.attention.has(attention::TRACED) && ptrace::before_handler(task, frame);
    let signals = &task.thread.signals;
    // The handler's return restores the mask before rt_sigsuspend, if this delivery ends that.
    if let Err(error) = frame::enter(task, frame, signal, origin, action, signals.lasting_mask()) {
        return raise_frame_fault(task, frame, Some(signal), error);
    }
    *signals.suspended.lock() = None;
    let own = if action.flags & SA_NODEFER == 0 { bit(signal) } else { 0 };
    signals.set_mask(task, signals.mask() | action.mask | own);
    if steps {
        ptrace::handler_entered(task, frame);
    }
    Fate::Lives
}

/// Restarts an interrupted call, unless a handler comes first that does not ask for it (SA_RESTART).
fn restart(task: &Task, frame: &mut TrapFrame, handler: Option<&Sigaction>) {
    let interrupted = frame.is_syscall() && frame.result() == Errno::EINTR.to_result();
    let handler = handler.map(|action| action.flags & SA_RESTART != 0);
    match task.thread.signals.take_restart(handler) {
        _ if !interrupted => {}
        Restart::Never => {}
        Restart::ForTheRest => frame.make_call(RESTART_SYSCALL),
        Restart::AsHandlerSays | Restart::WithoutHandler => frame.make_call(frame.number()),
    }
}

/// Forces a fault of the running thread, which cannot be blocked or ignored: it is handled now, or the
/// process dies of it.
pub fn force(task: &Task, frame: &mut TrapFrame, mut fault: Fault) -> Fate {
    let continued = task.process().stop.continued();
    match shown(task, frame, (fault.signal, fault.origin), true) {
        Some((signal, origin)) if signal == fault.signal => fault.origin = origin,
        Some((signal, origin)) => return act(task, frame, signal, origin, continued),
        None => return Fate::Lives,
    }
    if task.thread.signals.mask() & bit(fault.signal) != 0 {
        return Fate::Crashes(fault);
    }
    let action = task.process().signals.action_for_delivery(fault.signal);
    if matches!(action.handler, SIG_DFL | SIG_IGN) {
        return Fate::Crashes(fault);
    }
    handle(task, frame, fault.signal, fault.origin, &action)
}

/// Handles `rt_sigreturn`: continues where the handler was entered.
pub fn return_from_handler(task: &Task, frame: &mut TrapFrame) -> Fate {
    match frame::restore(task, frame) {
        Ok(()) => Fate::Lives,
        Err(error) => raise_frame_fault(task, frame, None, error),
    }
}

/// Raises SIGSEGV because a frame cannot be read, or cannot be made for the handler of `signal`. If that is
/// SIGSEGV itself, the process crashes.
fn raise_frame_fault(task: &Task, frame: &mut TrapFrame, signal: Option<u32>, error: FrameError) -> Fate {
    if task.is_killed() {
        // The frame may have failed for lack of memory only because the task is killed. It never sees user
        // mode again.
        return Fate::Lives;
    }
    let origin = Origin::new(SI_KERNEL, 0);
    let fault = Fault { signal: SIGSEGV, origin, address: error.address, access: error.access };
    if signal == Some(SIGSEGV) { Fate::Crashes(fault) } else { force(task, frame, fault) }
}
