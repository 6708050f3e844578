//! The signal calls.

use alloc::sync::Arc;

use abi::Errno;
use abi::signal::*;
use abi::time::Timespec;

use super::{Call, Outcome};
use crate::arch;
use crate::mm::user;
use crate::process::fault;
use crate::process::signal::{self, Origin, UNSTOPPABLE, bit, checked};
use crate::sched::{self, Task};

/// Bytes of a signal mask.
const MASK_BYTES: u64 = 8;

/// # Errors
/// EINVAL unless `size` is that of a mask.
pub fn check_size(size: u64) -> Result<(), Errno> {
    if size == MASK_BYTES { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Sets and tells what is done about a signal.
pub fn rt_sigaction(call: &mut Call<'_>) -> Outcome {
    check_size(call.arg(3))?;
    let signal = checked(call.arg(0))?;
    let signals = &call.task.process().signals;
    let old = match call.arg(1) {
        0 => signals.action(signal),
        _ if UNSTOPPABLE & bit(signal) != 0 => return Err(Errno::EINVAL),
        at => signals.set_action(signal, user::read(at)?),
    };
    if call.arg(2) != 0 {
        user::write(call.arg(2), &old)?;
    }
    Ok(0)
}

/// Sets and tells the thread's mask.
pub fn rt_sigprocmask(call: &mut Call<'_>) -> Outcome {
    check_size(call.arg(3))?;
    let signals = &call.task.thread.signals;
    let old = signals.mask();
    if call.arg(1) != 0 {
        let set: u64 = user::read(call.arg(1))?;
        let new = match call.arg(0) as u32 as u64 {
            SIG_BLOCK => old | set,
            SIG_UNBLOCK => old & !set,
            SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        };
        signals.set_mask(call.task, new);
    }
    if call.arg(2) != 0 {
        user::write(call.arg(2), &old)?;
    }
    Ok(0)
}

/// Which blocked signals wait.
pub fn rt_sigpending(call: &mut Call<'_>) -> Outcome {
    if call.arg(1) > MASK_BYTES {
        return Err(Errno::EINVAL);
    }
    let signals = &call.task.thread.signals;
    let waiting = signals.pending(&call.task.process().signals) & signals.mask();
    user::copy_out(call.arg(0), &waiting.to_le_bytes()[..call.arg(1) as usize])?;
    Ok(0)
}

/// Sleeps with another mask until a signal is delivered.
pub fn rt_sigsuspend(call: &mut Call<'_>) -> Outcome {
    check_size(call.arg(1))?;
    let mask = user::read(call.arg(0))?;
    call.task.thread.signals.suspend(call.task, mask);
    sleep_until_signal(call.task)
}

/// Sleeps until a signal is delivered.
pub fn pause(call: &mut Call<'_>) -> Outcome {
    sleep_until_signal(call.task)
}

fn sleep_until_signal(task: &Task) -> Outcome {
    loop {
        task.check_interrupted()?;
        sched::park();
    }
}

/// Takes a signal without its handler, sleeping until there is one.
pub fn rt_sigtimedwait(call: &mut Call<'_>) -> Outcome {
    check_size(call.arg(3))?;
    let wanted: u64 = user::read::<u64>(call.arg(0))? & !UNSTOPPABLE;
    let deadline = match call.arg(2) {
        0 => None,
        at => Some(arch::now_ns().saturating_add(user::read::<Timespec>(at)?.to_ns().ok_or(Errno::EINVAL)?)),
    };
    let signals = &call.task.thread.signals;
    // The mask stays: what it blocks is kept for us though it be ignored by default.
    signals.want(wanted);
    let taken = take_until(call.task, wanted, deadline);
    signals.want_nothing(call.task);
    let (signal, origin) = taken?;
    if call.arg(1) != 0 {
        user::write(call.arg(1), &signal::info(signal, origin))?;
    }
    Ok(signal.into())
}

fn take_until(task: &Task, wanted: u64, deadline: Option<u64>) -> Result<(u32, Origin), Errno> {
    loop {
        if let Some(taken) = task.thread.signals.take(&task.process().signals, wanted) {
            return Ok(taken);
        }
        task.check_interrupted()?;
        if deadline.is_some_and(sched::passed) {
            return Err(Errno::EAGAIN);
        }
        sched::park_until(deadline)?;
    }
}

/// Back from a handler. The result is the interrupted code's rax, whatever that was.
pub fn rt_sigreturn(call: &mut Call<'_>) -> Outcome {
    let fate = signal::return_from_handler(call.task, call.frame);
    fault::meet(call.task, fate, call.frame);
    Ok(call.frame.result())
}

/// Sets and tells the stack that handlers may run on.
pub fn sigaltstack(call: &mut Call<'_>) -> Outcome {
    let (signals, sp) = (&call.task.thread.signals, call.frame.sp());
    let old = signals.stack();
    if call.arg(0) != 0 {
        let new: SignalStack = user::read(call.arg(0))?;
        signals.set_stack(signal::replace_stack(&old, &new, sp)?);
    }
    if call.arg(1) != 0 {
        user::write(call.arg(1), &signal::told(&old, sp))?;
    }
    Ok(0)
}

/// Sends a signal to the process.
pub fn kill(call: &mut Call<'_>) -> Outcome {
    let process = call.task.process();
    let (target, own) = (call.int(0), process.pid() as i32);
    // Itself, its group, or everybody, which on Linux leaves out the caller.
    if ![own, 0, -own].contains(&target) {
        return Err(Errno::ESRCH);
    }
    if call.arg(1) as u32 != 0 {
        signal::send_to_process(process, checked(call.arg(1))?, origin(call, SI_USER));
    }
    Ok(0)
}

/// Sends a signal to a thread of a process.
pub fn tgkill(call: &mut Call<'_>) -> Outcome {
    if call.int(0) <= 0 || call.int(1) <= 0 {
        return Err(Errno::EINVAL);
    }
    if call.arg(0) as u32 != call.task.process().pid() {
        return Err(Errno::ESRCH);
    }
    send(call, call.arg(1), call.arg(2))
}

/// Sends a signal to a thread.
pub fn tkill(call: &mut Call<'_>) -> Outcome {
    if call.int(0) <= 0 { Err(Errno::EINVAL) } else { send(call, call.arg(0), call.arg(1)) }
}

fn send(call: &Call<'_>, tid: u64, number: u64) -> Outcome {
    let task: Arc<Task> = call.task.process().thread(tid as u32).ok_or(Errno::ESRCH)?;
    if number as u32 != 0 {
        signal::send_to_thread(&task, checked(number)?, origin(call, SI_TKILL));
    }
    Ok(0)
}

fn origin(call: &Call<'_>, code: i32) -> Origin {
    Origin { code, value: call.task.process().pid().into() }
}
