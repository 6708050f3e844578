//! Exceptions of programs: page faults that are resolved, and everything that ends in a signal.

use abi::signal::*;
use percore::pin;
use vm::{Access, FaultError, VirtAddr};

use super::Ending;
use super::oom::{handle_oom, wait_for_oom};
use super::reclaim::Reclaim;
use super::signal::{self, Fate, Fault, Origin};
use crate::arch::{self, TrapFrame, complaint};
use crate::control::{self, Crash};
use crate::mm::epoch;
use crate::sched::{self, Task};

/// A page fault in user mode.
#[inline]
pub fn from_user(frame: &mut TrapFrame, address: VirtAddr, access: Access) {
    let resolved = sched::with_current(|task| resolve(task, address, access));
    if let Err(error) = resolved {
        unresolved(frame, address, access, error);
    }
}

/// A fault inside a copy to or from user memory: whether to try again. Memory that is not there is waited for, if the
/// caller may wait.
pub fn from_kernel(address: VirtAddr, access: Access) -> bool {
    let resolved = arch::with_current(|task| resolve_in_time(task, address, access));
    matches!(resolved, Some(Ok(())))
}

fn resolve_in_time(task: &Task, address: VirtAddr, access: Access) -> Result<(), FaultError> {
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
        Err(FaultError::OutOfMemory) => find_memory(task, address, access),
        Err(error) => refused(task, address, access, error),
    }
}

/// The access may not be; unless the page is one that is being moved: then it is as if the access came when the move is over.
/// Who holds a lock does not wait for that.
#[cold]
fn refused(task: &Task, address: VirtAddr, access: Access, error: FaultError) -> Result<(), FaultError> {
    let memory = &task.shared().memory;
    if !memory.heap.may_have_moved() || error == FaultError::BeyondEnd || !epoch::may_reclaim() {
        return Err(error);
    }
    match memory.fault_from_outside(address, access) {
        Ok(_) => Ok(()),
        Err(FaultError::OutOfMemory) => find_memory(task, address, access),
        Err(error) => Err(error),
    }
}

/// Tries again as long as looking for memory finds enough to be worth it: a page or two would soon be lost
/// to the tables that were dropped for them.
#[cold]
fn find_memory(task: &Task, address: VirtAddr, access: Access) -> Result<(), FaultError> {
    let mut reclaim = Reclaim::new();
    while reclaim.try_reclaim() {
        let fault = task.space().fault(&pin(), address, access);
        match fault {
            Ok(_) => return Ok(()),
            Err(FaultError::OutOfMemory) => {}
            Err(error) => return refused(task, address, access, error),
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

/// Any other exception in user mode.
pub fn exception(frame: &mut TrapFrame, vector: u8, _error: u64) {
    let at = frame.rip;
    let (signal, code, value) = match vector {
        0 => (SIGFPE, FPE_INTDIV, at),
        1 => (SIGTRAP, TRAP_TRACE, at),
        3 => (SIGTRAP, SI_KERNEL, 0),
        6 => (SIGILL, ILL_ILLOPN, at),
        16 => (SIGFPE, complained(arch::x87_complaints()), at),
        19 => (SIGFPE, complained(arch::vector_complaints()), at),
        17 => (SIGBUS, BUS_ADRALN, at),
        11 | 12 => (SIGBUS, SI_KERNEL, 0),
        _ => (SIGSEGV, SI_KERNEL, 0),
    };
    raise(frame, signal, Origin::new(code, value), Access::Exec);
}

/// `si_code` of floating point exceptions: the first of them in Linux's order.
fn complained(of: u16) -> i32 {
    let codes = [
        (complaint::INVALID, FPE_FLTINV),
        (complaint::ZERO_DIVIDE, FPE_FLTDIV),
        (complaint::OVERFLOW, FPE_FLTOVF),
        (complaint::UNDERFLOW, FPE_FLTUND),
        (complaint::INEXACT, FPE_FLTRES),
    ];
    codes.into_iter().find(|(bits, _)| of & bits != 0).map_or(FPE_FLTINV, |(_, code)| code)
}

/// The program handles the signal of its fault, or dies of it.
#[cold]
fn raise(frame: &mut TrapFrame, signal: u32, origin: Origin, access: Access) {
    let fault = Fault { signal, origin, address: origin.value, access };
    sched::with_current(|task| meet(task, signal::force(task, frame, fault), frame));
}

/// The running thread, whose registers are `frame`, meets its fate: its process ends unless it lives, and if that is
/// its own fault, its last moments are told.
pub fn meet(task: &Task, fate: Fate, frame: &TrapFrame) {
    match fate {
        Fate::Lives => {}
        Fate::Dies(signal) => {
            task.process().end(Ending::Signal(signal));
        }
        Fate::Crashes(fault) => crash(task, &fault, frame),
    }
}

fn crash(task: &Task, fault: &Fault, frame: &TrapFrame) {
    let process = task.process();
    if process.end(Ending::Signal(fault.signal)) {
        let program = &task.shared().memory.program;
        control::crash(&Crash {
            signal: fault.signal,
            program: &program.file.path().unwrap_or_default(),
            pid: process.pid(),
            tid: task.tid(),
            address: fault.address,
            access: name(fault.access),
            frame,
            load_bias: program.load_bias,
        });
    }
}
