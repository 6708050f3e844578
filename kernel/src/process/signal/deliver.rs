//! Taking signals on the way to user mode, and forcing those of faults.

use abi::Errno;
use abi::signal::{SA_NODEFER, SA_RESETHAND, SA_RESTART, SIG_DFL, SIG_IGN, SIGSEGV, Sigaction};

use super::{IGNORED, Origin, bit, frame};
use crate::arch::TrapFrame;
use crate::process::Ending;
use crate::sched::{self, Task};

/// What becomes of a process when it gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on, perhaps in a handler.
    Lives,
    /// It ends by this signal.
    Dies(u32),
}

/// Delivers what is deliverable to the running thread, whose user registers are `frame`.
pub fn deliver(frame: &mut TrapFrame) {
    sched::with_current(|task| {
        while let Some((signal, origin)) = next(task) {
            if let Fate::Dies(signal) = act(task, frame, signal, origin) {
                task.process().end(Ending::Signal(signal));
                return;
            }
        }
        restart(task, frame, None);
        let suspended = task.thread.signals.suspended.lock().take();
        if let Some(mask) = suspended {
            task.thread.signals.set_mask(task, mask);
        }
    });
}

fn next(task: &Task) -> Option<(u32, Origin)> {
    let signals = &task.thread.signals;
    signals.take(&task.process().signals, !signals.mask())
}

fn act(task: &Task, frame: &mut TrapFrame, signal: u32, origin: Origin) -> Fate {
    let action = task.process().signals.action(signal);
    match action.handler {
        SIG_IGN => Fate::Lives,
        SIG_DFL if IGNORED & bit(signal) != 0 => Fate::Lives,
        SIG_DFL => Fate::Dies(signal),
        _ => handle(task, frame, signal, origin, &action),
    }
}

fn handle(task: &Task, frame: &mut TrapFrame, signal: u32, origin: Origin, action: &Sigaction) -> Fate {
    restart(task, frame, Some(action));
    let signals = &task.thread.signals;
    // The mask that the handler's return restores: the one before rt_sigsuspend, if that is what delivers.
    let before = signals.suspended.lock().take().unwrap_or(signals.mask());
    if frame::enter(task, frame, signal, origin, action, before).is_err() {
        return Fate::Dies(SIGSEGV);
    }
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
pub fn force(task: &Task, frame: &mut TrapFrame, signal: u32, origin: Origin) -> Fate {
    let action = task.process().signals.action(signal);
    let blocked = task.thread.signals.mask() & bit(signal) != 0;
    if blocked || matches!(action.handler, SIG_DFL | SIG_IGN) {
        return Fate::Dies(signal);
    }
    handle(task, frame, signal, origin, &action)
}
