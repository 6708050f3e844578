//! Exceptions of programs: page faults that are resolved, and everything that ends in a signal.

use abi::signal::*;
use percore::pin;
use vm::{Access, FaultError, VirtAddr};

use super::Ending;
use super::patience::Patience;
use super::signal::{self, Fate, Origin};
use crate::arch::TrapFrame;
use crate::control::{self, Crash};
use crate::sched::{self, Task};

/// A page fault in user mode.
#[inline]
pub fn from_user(frame: &mut TrapFrame, address: VirtAddr, access: Access) {
    let resolved = sched::with_current(|task| resolve(task, address, access));
    if let Err(error) = resolved {
        segfault(frame, address, access, error);
    }
}

/// A fault inside a copy to or from user memory: whether to try again.
pub fn from_kernel(address: VirtAddr, access: Access) -> bool {
    let resolved = crate::arch::with_current(|task| resolve(task, address, access));
    matches!(resolved, Some(Ok(())))
}

#[inline(always)]
fn resolve(task: &Task, address: VirtAddr, access: Access) -> Result<(), FaultError> {
    let fault = task.process().space().fault(&pin(), address, access);
    match fault {
        Ok(_) => Ok(()),
        Err(FaultError::OutOfMemory) => find_memory(task, address, access),
        Err(error) => Err(error),
    }
}

/// Tries again as long as looking for memory finds enough to be worth it: a page or two would soon be lost
/// to the tables that were dropped for them.
#[cold]
fn find_memory(task: &Task, address: VirtAddr, access: Access) -> Result<(), FaultError> {
    let mut patience = Patience::new();
    while patience.found_memory() {
        let fault = task.process().space().fault(&pin(), address, access);
        match fault {
            Ok(_) => return Ok(()),
            Err(FaultError::OutOfMemory) => {}
            Err(error) => return Err(error),
        }
    }
    Err(FaultError::OutOfMemory)
}

#[cold]
fn segfault(frame: &mut TrapFrame, address: VirtAddr, access: Access, error: FaultError) {
    let code = match error {
        FaultError::NotMapped => SEGV_MAPERR,
        FaultError::Denied => SEGV_ACCERR,
        FaultError::OutOfMemory => return out_of_memory(address),
    };
    raise(frame, SIGSEGV, Origin { code, value: address.get() }, name(access));
}

fn name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Exec => "exec",
    }
}

/// Kills the program, which can neither go on nor be told.
fn out_of_memory(address: VirtAddr) {
    sched::with_current(|task| {
        let process = task.process();
        if process.end(Ending::Signal(SIGKILL)) {
            control::oom(format_args!(
                "out of memory: no frame for the program's page at {:#x}",
                address.get()
            ));
        }
    });
}

/// Any other exception in user mode.
pub fn exception(frame: &mut TrapFrame, vector: u8, _error: u64) {
    let at = frame.rip;
    let (signal, code, value) = match vector {
        0 => (SIGFPE, FPE_INTDIV, at),
        1 => (SIGTRAP, TRAP_TRACE, at),
        3 => (SIGTRAP, TRAP_BRKPT, at),
        6 => (SIGILL, ILL_ILLOPN, at),
        16 | 19 => (SIGFPE, FPE_FLTINV, at),
        17 => (SIGBUS, BUS_ADRALN, at),
        11 | 12 => (SIGBUS, SI_KERNEL, 0),
        _ => (SIGSEGV, SI_KERNEL, 0),
    };
    raise(frame, signal, Origin { code, value }, "exec");
}

/// The program handles the signal of its fault, or dies of it, and then its last moments are told.
#[cold]
fn raise(frame: &mut TrapFrame, signal: u32, origin: Origin, access: &str) {
    sched::with_current(|task| {
        let process = task.process();
        let Fate::Dies(signal) = signal::force(task, frame, signal, origin) else { return };
        if process.end(Ending::Signal(signal)) {
            control::crash(&Crash {
                signal,
                pid: process.pid(),
                tid: task.tid(),
                address: origin.value,
                access,
                frame,
                load_bias: process.load_bias(),
            });
        }
    });
}
