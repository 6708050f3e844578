//! Taking signals on the way to user mode, and forcing those of faults.

use abi::Errno;
use abi::signal::{SA_NODEFER, SA_RESETHAND, SA_RESTART, SI_KERNEL, SIG_DFL, SIG_IGN, SIGSEGV, Sigaction};
use vm::Access;

use super::frame::{self, Trouble};
use super::{IGNORED, Origin, STOPPING, bit};
use crate::arch::TrapFrame;
use crate::sched::Task;

/// What becomes of a process when it gets a signal.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It goes on, perhaps in a handler.
    Lives,
    /// It ends by this signal.
    Dies(u32),
    /// It ends by its own fault, of which it cannot be told.
    Crashes(Fault),
}

/// A thread's own fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What it raises.
    pub signal: u32,
    /// What the handler is told.
    pub origin: Origin,
    /// What the thread touched, for who looks for the mistake.
    pub address: u64,
    /// And how.
    pub access: Access,
}

/// Delivers what is deliverable to the running thread, whose user registers are `frame`.
pub fn deliver(task: &Task, frame: &mut TrapFrame) -> Fate {
    while let Some((signal, origin, continued)) = next(task) {
        let fate = act(task, frame, signal, origin, continued);
        if !matches!(fate, Fate::Lives) {
            return fate;
        }
    }
    restart(task, frame, None);
    task.thread.signals.resume(task);
    Fate::Lives
}

/// A signal to deliver, and how many times SIGCONT had been sent before it was taken.
fn next(task: &Task) -> Option<(u32, Origin, u64)> {
    let (signals, process) = (&task.thread.signals, task.process());
    let continued = process.stop.continued();
    let (signal, origin) = signals.take(&process.signals, !signals.mask())?;
    Some((signal, origin, continued))
}

fn act(task: &Task, frame: &mut TrapFrame, signal: u32, origin: Origin, continued: u64) -> Fate {
    let action = task.process().signals.action(signal);
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
    let signals = &task.thread.signals;
    // The handler's return restores the mask before rt_sigsuspend, if that is what delivers.
    if let Err(trouble) = frame::enter(task, frame, signal, origin, action, signals.lasting_mask()) {
        return suffer(task, frame, Some(signal), trouble);
    }
    *signals.suspended.lock() = None;
    let own = if action.flags & SA_NODEFER == 0 { bit(signal) } else { 0 };
    signals.set_mask(task, signals.mask() | action.mask | own);
    if action.flags & SA_RESETHAND != 0 {
        task.process().signals.set_action(signal, Sigaction::default());
    }
    Fate::Lives
}

/// Makes an interrupted call again, unless a handler that does not ask for it comes first.
fn restart(task: &Task, frame: &mut TrapFrame, handler: Option<&Sigaction>) {
    let interrupted = frame.is_syscall() && frame.result() == Errno::EINTR.to_result();
    let wished = handler.is_none_or(|action| action.flags & SA_RESTART != 0);
    if task.thread.signals.take_restart() && interrupted && wished {
        frame.repeat_syscall();
    }
}

/// A fault of the running thread, which cannot be blocked or ignored: it is handled now, or the process
/// dies of it.
pub fn force(task: &Task, frame: &mut TrapFrame, fault: Fault) -> Fate {
    let action = task.process().signals.action(fault.signal);
    let blocked = task.thread.signals.mask() & bit(fault.signal) != 0;
    if blocked || matches!(action.handler, SIG_DFL | SIG_IGN) {
        return Fate::Crashes(fault);
    }
    handle(task, frame, fault.signal, fault.origin, &action)
}

/// `rt_sigreturn`: goes on where the handler was entered.
pub fn return_from_handler(task: &Task, frame: &mut TrapFrame) -> Fate {
    match frame::restore(task, frame) {
        Ok(()) => Fate::Lives,
        Err(trouble) => suffer(task, frame, None, trouble),
    }
}

/// A frame that cannot be made, for the handler of `signal`, or be read is a fault of the program, of which it is
/// told by SIGSEGV; unless that is what it could not be told.
fn suffer(task: &Task, frame: &mut TrapFrame, signal: Option<u32>, trouble: Trouble) -> Fate {
    if task.is_killed() {
        // It may be for that only that there was no memory, and it never sees user mode again.
        return Fate::Lives;
    }
    let origin = Origin::new(SI_KERNEL, 0);
    let fault = Fault { signal: SIGSEGV, origin, address: trouble.address, access: trouble.access };
    if signal == Some(SIGSEGV) { Fate::Crashes(fault) } else { force(task, frame, fault) }
}
