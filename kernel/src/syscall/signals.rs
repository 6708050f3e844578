//! Signal calls.

use alloc::borrow::Cow;
use alloc::sync::Arc;

use abi::Errno;
use abi::file::{O_CLOEXEC, O_NONBLOCK};
use abi::signal::*;
use abi::time::Timespec;
use abi::users::CAP_KILL;
use percore::pin;

use super::{Call, Outcome};
use crate::arch;
use crate::bytes::prefix;
use crate::mm::user;
use crate::process::signal::{self, Layout, Origin, UNSTOPPABLE, bit, checked, signalfd as files};
use crate::process::{FIRST, Process, fault, pid, pidfd, remote};
use crate::sched::{self, Task};
use crate::users::Credentials;

/// The bytes of a signal mask.
const MASK_BYTES: u64 = 8;

/// Checks the size of a mask.
///
/// # Errors
/// EINVAL if it is wrong.
pub fn check_size(size: u64) -> Result<(), Errno> {
    if size == MASK_BYTES { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Calls `wait` with the signal mask at `mask` in place, if there is one. A signal that ends the wait is
/// delivered under that mask first.
///
/// # Errors
/// EINVAL for a mask of another size, EFAULT, and those of `wait`.
pub fn under_mask(call: &Call<'_>, mask: u64, size: u64, wait: impl FnOnce() -> Outcome) -> Outcome {
    let signals = &call.task.thread.signals;
    if mask != 0 {
        check_size(size)?;
        signals.suspend(call.task, user::read(mask)?);
    }
    let outcome = wait();
    if outcome != Err(Errno::EINTR) {
        signals.resume(call.task);
    }
    outcome
}

/// Sets the action for a signal and writes the old one.
pub fn rt_sigaction(call: &mut Call<'_>) -> Outcome {
    check_size(call.arg(3))?;
    let signal = checked(call.arg(0))?;
    let process = call.task.process();
    let old = match call.arg(1) {
        0 => process.signals.action(signal),
        _ if UNSTOPPABLE & bit(signal) != 0 => return Err(Errno::EINVAL),
        at => process.set_action(signal, user::read(at)?),
    };
    if call.arg(2) != 0 {
        user::write(call.arg(2), &old)?;
    }
    Ok(0)
}

/// Sets the thread's mask and writes the old one.
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

/// Writes the pending signals that are blocked.
pub fn rt_sigpending(call: &mut Call<'_>) -> Outcome {
    if call.arg(1) > MASK_BYTES {
        return Err(Errno::EINVAL);
    }
    let signals = &call.task.thread.signals;
    let waiting = signals.pending(&call.task.process().signals) & signals.mask();
    user::copy_out(call.arg(0), prefix(&waiting.to_le_bytes(), call.arg(1)))?;
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
        if let Err(error) = task.check_interrupted() {
            task.thread.signals.allow_restart_without_handler();
            return Err(error);
        }
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
    // The mask stays: a signal that it blocks becomes pending even if its default is to be ignored.
    signals.want(call.task, wanted);
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

/// Opens a file of signals, or changes the signals of one.
pub fn signalfd4(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(3) as u32;
    open_signals(call, flags)
}

/// Does the same without flags.
pub fn signalfd(call: &mut Call<'_>) -> Outcome {
    open_signals(call, 0)
}

fn open_signals(call: &Call<'_>, flags: u32) -> Outcome {
    check_size(call.arg(2))?;
    let wanted: u64 = user::read(call.arg(1))?;
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    if call.int(0) != -1 {
        files::of(&*call.file(0)?)?.set(wanted);
        return Ok(call.arg(0) & 0xffff_ffff);
    }
    let file = files::open(wanted, flags & O_NONBLOCK)?;
    Ok(call.files().add(file, 0, flags & O_CLOEXEC != 0)? as u64)
}

/// Returns from a handler. The result is the interrupted code's rax.
pub fn rt_sigreturn(call: &mut Call<'_>) -> Outcome {
    let fate = signal::return_from_handler(call.task, call.frame);
    fault::carry_out(call.task, fate, call.frame);
    Ok(call.frame.result())
}

/// Sets the alternate stack for handlers and writes the old one.
pub fn sigaltstack(call: &mut Call<'_>) -> Outcome {
    let (signals, sp) = (&call.task.thread.signals, call.frame.sp());
    let old = signals.stack();
    if call.arg(0) != 0 {
        let new: SignalStack = user::read(call.arg(0))?;
        signals.set_stack(signal::replace_stack(&old, &new, sp)?);
    }
    if call.arg(1) != 0 {
        user::write(call.arg(1), &signal::reported_stack(&old, sp))?;
    }
    Ok(0)
}

/// Sends a signal to a process, a group, or all other processes.
pub fn kill(call: &mut Call<'_>) -> Outcome {
    let signal = || number(call.arg(1));
    match call.int(0) {
        i32::MIN => Err(Errno::ESRCH),
        0 => send_to_all(call, signal()?, |process| process.group() == call.task.process().group()),
        -1 => {
            let is_other =
                |process: &Arc<Process>| process.pid() != FIRST && !Arc::ptr_eq(process, call.task.process());
            // As on Linux, processes that may not get it are no error.
            send_to_all(call, signal()?, is_other).or_else(ignore_refusal)
        }
        group @ ..-1 => send_to_all(call, signal()?, |process| process.group() == group.unsigned_abs()),
        pid => {
            let process = process_of(call, pid as u32)?;
            let signal = signal()?;
            permit(call, &process, signal)?;
            send_to_process(&process, signal, origin(call, SI_USER));
            Ok(0)
        }
    }
}

/// Returns the process of which a thread has this number.
///
/// # Errors
/// ESRCH.
fn process_of<'a>(call: &Call<'a>, number: u32) -> Result<Cow<'a, Arc<Process>>, Errno> {
    process(call, number).or_else(|_| pid::owner(number).map(Cow::Owned).ok_or(Errno::ESRCH))
}

/// Returns the process with this number. The caller's own is not looked up, and not counted.
///
/// # Errors
/// ESRCH.
fn process<'a>(call: &Call<'a>, number: u32) -> Result<Cow<'a, Arc<Process>>, Errno> {
    let own = call.task.process();
    match own.pid() == number {
        true => Ok(Cow::Borrowed(own)),
        false => pid::process(number).map(Cow::Owned).ok_or(Errno::ESRCH),
    }
}

/// Returns the number of a signal. It is `None` for 0, with which a program checks whether a process exists.
fn number(number: u64) -> Result<Option<u32>, Errno> {
    if number as u32 == 0 { Ok(None) } else { checked(number).map(Some) }
}

fn send_to_process(process: &Arc<Process>, signal: Option<u32>, origin: Origin) {
    if let Some(signal) = signal {
        signal::send_to_process(process, signal, origin);
    }
}

/// Sends a signal to every process that is `wanted`. A process that forks meanwhile does not escape SIGKILL:
/// each round finds the children of processes that were not killed before, until a round finds none.
fn send_to_all(call: &Call<'_>, signal: Option<u32>, wanted: impl Fn(&Arc<Process>) -> bool) -> Outcome {
    let (mut outcome, mut new) = (Err(Errno::ESRCH), true);
    while new {
        new = false;
        pid::for_each(|process| {
            if !wanted(process) {
                return;
            }
            match permit(call, process, signal) {
                Err(error) => outcome = outcome.or(Err(error)),
                Ok(()) => {
                    outcome = Ok(0);
                    new |= signal == Some(SIGKILL) && process.ending().is_none();
                    send_to_process(process, signal, origin(call, SI_USER));
                }
            }
        });
    }
    outcome
}

/// Returns 0 for the error that no process may get a signal.
fn ignore_refusal(error: Errno) -> Outcome {
    if error == Errno::EPERM { Ok(0) } else { Err(error) }
}

/// Returns an error unless the caller may send `signal` to a process.
///
/// # Errors
/// EPERM.
fn permit(call: &Call<'_>, process: &Arc<Process>, signal: Option<u32>) -> Result<(), Errno> {
    if may_always(call, process, signal) {
        return Ok(());
    }
    // There is no error if it has ended.
    process.any_thread().map_or(Ok(()), |thread| remote::permit_other(&thread, Credentials::may_signal))
}

/// Returns an error unless the caller may send `signal` to the thread `tid` of a process.
///
/// # Errors
/// EPERM, ESRCH if there is none.
fn permit_thread(
    call: &Call<'_>,
    process: &Arc<Process>,
    tid: u32,
    signal: Option<u32>,
) -> Result<(), Errno> {
    if may_always(call, process, signal) {
        return Ok(());
    }
    remote::permit_other(&*process.thread(tid).ok_or(Errno::ESRCH)?, Credentials::may_signal)
}

/// Returns whether the caller may send `signal` to a process of any user.
fn may_always(call: &Call<'_>, process: &Arc<Process>, signal: Option<u32>) -> bool {
    let own = call.task.process();
    Arc::ptr_eq(own, process)
        || call.task.thread.credentials.peek(&pin()).can(CAP_KILL)
        || signal == Some(SIGCONT) && own.session() == process.session()
}

/// Sends a signal with information to a process.
pub fn rt_sigqueueinfo(call: &mut Call<'_>) -> Outcome {
    let info = GivenInfo::read(call.arg(2), |_| call.arg(1))?;
    info.allow_for(call, call.arg(0))?;
    let process = process_of(call, call.arg(0) as u32)?;
    queue_to_process(call, &process, number(call.arg(1))?, info.origin)
}

/// Sends a signal with information to a thread of a process.
pub fn rt_tgsigqueueinfo(call: &mut Call<'_>) -> Outcome {
    let info = GivenInfo::read(call.arg(3), |_| call.arg(2))?;
    if call.int(0) <= 0 || call.int(1) <= 0 {
        return Err(Errno::EINVAL);
    }
    info.allow_for(call, call.arg(1))?;
    let process = process(call, call.arg(0) as u32)?;
    send_to_thread(call, &process, call.arg(1) as u32, call.arg(2), info.origin)
}

/// The information that a program sends with a signal.
struct GivenInfo {
    signo: u32,
    origin: Origin,
}

impl GivenInfo {
    /// Reads it. `signal` is called with the number in it, and returns that of the signal.
    ///
    /// # Errors
    /// EFAULT. E2BIG if the code is unknown, and the fields after those of known ones are not zero.
    fn read(at: u64, signal: impl FnOnce(u32) -> u64) -> Result<Self, Errno> {
        // As on Linux: no more is read if the code is known.
        let [numbers, code, fields @ ..]: [u64; 6] = user::read(at)?;
        let (signo, errno, code) = (numbers as u32, (numbers >> 32) as i32, code as i32);
        if !Layout::is_known(signal(signo) as u32, code) {
            let rest: [u64; 10] = user::read(at.wrapping_add(size_of::<[u64; 6]>() as u64))?;
            if rest != [0; 10] {
                return Err(Errno::E2BIG);
            }
        }
        Ok(Self { signo, origin: Origin::given(code, errno, fields) })
    }

    /// Returns an error unless the caller may send it to the thread `tid`.
    ///
    /// # Errors
    /// EPERM if that is another, and it could be the kernel's information, or that of `kill`.
    fn allow_for(&self, call: &Call<'_>, tid: u64) -> Result<(), Errno> {
        let is_own = call.task.tid() == tid as u32;
        if is_own || self.origin.code < 0 && self.origin.code != SI_TKILL {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }
}

fn queue_to_process(call: &Call<'_>, process: &Arc<Process>, signal: Option<u32>, origin: Origin) -> Outcome {
    permit(call, process, signal)?;
    if let Some(signal) = signal {
        signal::queue_to_process(process, signal, origin)?;
    }
    Ok(0)
}

/// Sends a signal to a thread of a process.
pub fn tgkill(call: &mut Call<'_>) -> Outcome {
    if call.int(0) <= 0 || call.int(1) <= 0 {
        return Err(Errno::EINVAL);
    }
    let process = process(call, call.arg(0) as u32)?;
    send_to_thread(call, &process, call.arg(1) as u32, call.arg(2), origin(call, SI_TKILL))
}

/// Sends a signal to a thread.
pub fn tkill(call: &mut Call<'_>) -> Outcome {
    if call.int(0) <= 0 {
        return Err(Errno::EINVAL);
    }
    let process = pid::owner(call.arg(0) as u32).ok_or(Errno::ESRCH)?;
    send_to_thread(call, &process, call.arg(0) as u32, call.arg(1), origin(call, SI_TKILL))
}

fn send_to_thread(call: &Call<'_>, process: &Arc<Process>, tid: u32, signal: u64, origin: Origin) -> Outcome {
    match number(signal) {
        Ok(Some(signal)) => {
            permit_thread(call, process, tid, Some(signal))?;
            signal::send_to_thread(process, tid, signal, origin).map(|_| 0)
        }
        none => {
            process.thread(tid).ok_or(Errno::ESRCH)?;
            permit_thread(call, process, tid, none?).map(|()| 0)
        }
    }
}

/// Opens a descriptor that stands for a process.
pub fn pidfd_open(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(1) as u32;
    if call.int(0) <= 0 || flags & !O_NONBLOCK != 0 {
        return Err(Errno::EINVAL);
    }
    let process = pid::process(call.arg(0) as u32).ok_or(Errno::ESRCH)?;
    Ok(call.files().add(pidfd::open(process, flags)?, 0, true)? as u64)
}

/// Sends a signal to the process that a descriptor stands for.
pub fn pidfd_send_signal(call: &mut Call<'_>) -> Outcome {
    if call.arg(3) as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let file = call.file(0)?;
    let process = pidfd::process(&file)?;
    let origin = match call.arg(2) {
        0 => origin(call, SI_USER),
        at => {
            let info = GivenInfo::read(at, u64::from)?;
            if info.signo != call.arg(1) as u32 {
                return Err(Errno::EINVAL);
            }
            info.allow_for(call, process.pid().into())?;
            info.origin
        }
    };
    if process.is_reaped() {
        return Err(Errno::ESRCH);
    }
    queue_to_process(call, process, number(call.arg(1))?, origin)
}

fn origin(call: &Call<'_>, code: i32) -> Origin {
    Origin::sent_by(call.task.process(), code)
}
