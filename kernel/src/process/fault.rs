//! Exceptions of programs: page faults, and those that raise a signal.

use abi::signal::*;
use percore::pin;
use vm::{Access, FaultError, VirtAddr};

use super::oom::{handle_oom, wait_for_oom};
use super::reclaim::Reclaim;
use super::signal::{self, Fate, Fault, Origin};
use super::{Ending, FIRST, pid, ptrace};
use crate::arch::{self, TrapFrame, complaint};
use crate::control::{self, Crash};
use crate::fs::{self, Room};
use crate::mm::{epoch, user};
use crate::sched::{self, Task, attention};

/// Handles a page fault in user mode.
#[inline]
pub fn from_user(frame: &mut TrapFrame, address: VirtAddr, access: Access) {
    let resolved = sched::with_current(|task| resolve(task, address, access));
    if let Err(error) = resolved {
        unresolved(frame, address, access, error);
    }
}

/// Handles a page fault inside a copy to or from user memory, and returns whether to try again. If memory is
/// short, waits for it unless the caller holds a lock.
pub fn from_kernel(address: VirtAddr, access: Access) -> bool {
    let resolved = arch::with_current(|task| resolve_or_wait(task, address, access));
    matches!(resolved, Some(Ok(())))
}

fn resolve_or_wait(task: &Task, address: VirtAddr, access: Access) -> Result<(), FaultError> {
    loop {
        match resolve(task, address, access) {
            Err(FaultError::OutOfMemory) if wait_for_oom(task, address.get()) => {}
            resolved => return resolved,
        }
    }
}

#[inline(always)]
fn resolve(task: &Task, address: VirtAddr, access: Access) -> Result<(), FaultError> {
    let fault = task.space().fault(&pin(), address, access);
    match fault {
        Ok(_) => Ok(()),
        Err(FaultError::OutOfMemory) => reclaim_and_retry(task, address, access),
        Err(FaultError::BeyondEnd) => retry_without_removed(task, address, access),
        Err(error) => retry_if_moving(task, address, access, error),
    }
}

/// Handles an access to a page that a file does not have, or for which there was no room. Removed files may
/// have the room. Tries again in any case, since other cores may have made room.
#[cold]
fn retry_without_removed(task: &Task, address: VirtAddr, access: Access) -> Result<(), FaultError> {
    match with_room(|| task.space().fault(&pin(), address, access)) {
        Err(FaultError::OutOfMemory) => reclaim_and_retry(task, address, access),
        fault => fault.map(drop),
    }
}

/// Calls `fault`, and again whenever it fails because a file was refused a page and there may be room by now.
/// The caller holds no lock.
///
/// # Errors
/// Returns the errors of `fault`.
pub fn with_room<R>(mut fault: impl FnMut() -> Result<R, FaultError>) -> Result<R, FaultError> {
    let mut room = Room::default();
    loop {
        match fault() {
            // An older refusal costs a try that changes nothing.
            Err(FaultError::BeyondEnd) if fs::was_refused() && room.make() => {}
            done => return done,
        }
    }
}

/// Handles an access that is not allowed. The page may be one that is being moved. Then the access is tried
/// again when the move is over, unless the caller holds a lock.
#[cold]
fn retry_if_moving(
    task: &Task,
    address: VirtAddr,
    access: Access,
    error: FaultError,
) -> Result<(), FaultError> {
    let memory = &task.shared().memory;
    if !memory.heap.may_have_moved() || error == FaultError::BeyondEnd || !epoch::may_reclaim() {
        return Err(error);
    }
    match memory.fault_from_outside(address, access) {
        Ok(_) => Ok(()),
        Err(FaultError::OutOfMemory) => reclaim_and_retry(task, address, access),
        Err(error) => Err(error),
    }
}

/// Tries again as long as reclaim finds enough to be worth it. A page or two would soon be needed again for
/// the tables that were dropped to get them.
#[cold]
fn reclaim_and_retry(task: &Task, address: VirtAddr, access: Access) -> Result<(), FaultError> {
    let mut reclaim = Reclaim::new();
    while reclaim.try_reclaim() {
        let fault = task.space().fault(&pin(), address, access);
        match fault {
            Ok(_) => return Ok(()),
            Err(FaultError::OutOfMemory) => {}
            Err(error) => return retry_if_moving(task, address, access, error),
        }
    }
    Err(FaultError::OutOfMemory)
}

#[cold]
fn unresolved(frame: &mut TrapFrame, address: VirtAddr, access: Access, error: FaultError) {
    let (signal, code) = match error {
        FaultError::NotMapped => (SIGSEGV, SEGV_MAPERR),
        FaultError::Denied => (SIGSEGV, SEGV_ACCERR),
        FaultError::BeyondEnd => (SIGBUS, BUS_ADRERR),
        FaultError::OutOfMemory => return sched::with_current(|task| handle_oom(task, address.get())),
    };
    raise(frame, signal, Origin::new(code, address.get()), access);
}

fn name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Exec => "exec",
    }
}

/// The vector of a trap after an instruction.
const DEBUG: u8 = 1;

/// Handles any other exception in user mode.
pub fn exception(frame: &mut TrapFrame, vector: u8) {
    let at = frame.rip;
    let is_stale = |task: &Task| {
        vector == DEBUG && task.attention.has(attention::TRACED) && ptrace::step_is_stale(task, frame)
    };
    if sched::with_current(is_stale) {
        return;
    }
    let (signal, code, value) = match vector {
        0 => (SIGFPE, FPE_INTDIV, at),
        DEBUG => (SIGTRAP, TRAP_TRACE, at),
        3 => (SIGTRAP, SI_KERNEL, 0),
        6 => (SIGILL, ILL_ILLOPN, at),
        16 => (SIGFPE, float_code(arch::x87_complaints()), at),
        19 => (SIGFPE, float_code(arch::vector_complaints()), at),
        17 => (SIGBUS, BUS_ADRALN, at),
        11 | 12 => (SIGBUS, SI_KERNEL, 0),
        _ => (SIGSEGV, SI_KERNEL, 0),
    };
    raise(frame, signal, Origin::new(code, value), Access::Exec);
}

/// Returns the `si_code` of floating point exceptions, for the first of them in Linux's order.
fn float_code(of: u16) -> i32 {
    let codes = [
        (complaint::INVALID, FPE_FLTINV),
        (complaint::ZERO_DIVIDE, FPE_FLTDIV),
        (complaint::OVERFLOW, FPE_FLTOVF),
        (complaint::UNDERFLOW, FPE_FLTUND),
        (complaint::INEXACT, FPE_FLTRES),
    ];
    codes.into_iter().find(|(bits, _)| of & bits != 0).map_or(FPE_FLTINV, |(_, code)| code)
}

/// Delivers the signal of a fault to the program's handler, or ends the program.
#[cold]
fn raise(frame: &mut TrapFrame, signal: u32, origin: Origin, access: Access) {
    let fault = Fault { signal, origin, address: origin.first(), access };
    sched::with_current(|task| carry_out(task, signal::force(task, frame, fault), frame));
}

/// Carries out `fate` of the running thread, whose registers are `frame`. Ends the process unless it lives,
/// and reports a crash to the host.
pub fn carry_out(task: &Task, fate: Fate, frame: &mut TrapFrame) {
    let (signal, fault) = match fate {
        Fate::Lives => return,
        Fate::Dies(signal) => (signal, None),
        Fate::Crashes(fault) => (fault.signal, Some(fault)),
    };
    if task.attention.has(attention::TRACED) {
        ptrace::at_exit(task, frame, signal);
    }
    match fault {
        None => {
            task.process().end(Ending::Signal(signal));
        }
        Some(fault) => crash(task, &fault, frame),
    }
}

/// Ends the run, because `task` has made a call that is not supported: its process and the first one die of
/// SIGSYS, and the host gets a report. The number of the call is in rax there.
#[cold]
pub fn unsupported(task: &Task, frame: &TrapFrame) {
    let (signal, address) = (SIGSYS, frame.rip);
    let fault = Fault { signal, origin: Origin::new(SI_KERNEL, address), address, access: Access::Exec };
    let mut frame = *frame;
    frame.rax = frame.number();
    crash(task, &fault, &frame);
    if let Some(first) = pid::process(FIRST) {
        first.end(Ending::Signal(signal));
    }
}

fn crash(task: &Task, fault: &Fault, frame: &TrapFrame) {
    let process = task.process();
    if process.end(Ending::Signal(fault.signal)) {
        let program = &task.shared().memory.program;
        let crash = Crash {
            signal: fault.signal,
            program: &program.file.path().unwrap_or_default(),
            pid: process.pid(),
            tid: task.tid(),
            address: fault.address,
            access: name(fault.access),
            frame,
            load_bias: program.load_bias,
        };
        control::crash(&crash, |into, from| epoch::without_reclaim(|| user::copy_in(into, from)).is_ok());
    }
}
