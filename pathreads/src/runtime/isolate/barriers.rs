//! `membarrier` of a program whose threads are processes. Linux has a barrier of one process reach the
//! threads of that alone, so one of the program is made in another way:
//!
//! | the program asks for | what is done |
//! |---|---|
//! | a barrier of the process (PRIVATE_EXPEDITED) | Linux's barrier of all processes that have registered (GLOBAL_EXPEDITED) |
//! | one that also has threads fetch changed code again (SYNC_CORE) | a request: each member executes an instruction that does so, and all of its accesses before are over |
//! | to register for either | all members register for the barriers of all processes. New ones inherit that |
//! | a barrier for restartable sequences (RSEQ) | EINVAL: there are none |
//!
//! A registration is the program's, whichever thread asks for it, and its children inherit it.

use core::arch::x86_64::__cpuid;
use core::sync::atomic::Ordering;

use abi::Errno;

use super::{Request, control, locked, me, others, prepare_stack, request};
use crate::sys::{Result, harmless, nr};

const QUERY: u32 = 0;
const GLOBAL_EXPEDITED: u32 = 2;
const REGISTER_GLOBAL_EXPEDITED: u32 = 4;
const PRIVATE_EXPEDITED: u32 = 8;
const REGISTER_PRIVATE_EXPEDITED: u32 = 16;
const SYNC_CORE: u32 = 32;
const REGISTER_SYNC_CORE: u32 = 64;
const GET_REGISTRATIONS: u32 = 512;
/// All barriers but those for restartable sequences. 1 is the slow barrier of all processes.
const KNOWN: u32 = 1
    | GLOBAL_EXPEDITED
    | REGISTER_GLOBAL_EXPEDITED
    | PRIVATE_EXPEDITED
    | REGISTER_PRIVATE_EXPEDITED
    | SYNC_CORE
    | REGISTER_SYNC_CORE
    | GET_REGISTRATIONS;

/// Makes a barrier, registers for barriers, or says which there are. Not inlined, because Go makes calls with
/// little stack.
#[inline(never)]
pub fn membarrier(command: u64, flags: u64) -> Result {
    let command = command as u32;
    if flags as u32 != 0 || command & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    match command {
        QUERY => call(QUERY).map(|known| known & u64::from(KNOWN)),
        REGISTER_GLOBAL_EXPEDITED | REGISTER_PRIVATE_EXPEDITED | REGISTER_SYNC_CORE => register_all(command),
        PRIVATE_EXPEDITED => {
            need(REGISTER_PRIVATE_EXPEDITED)?;
            call(GLOBAL_EXPEDITED)
        }
        SYNC_CORE => {
            need(REGISTER_SYNC_CORE)?;
            prepare_stack();
            serialize();
            locked(|_| request(others().with(me()), Request::Serialize));
            Ok(0)
        }
        GET_REGISTRATIONS => registrations(),
        other => call(other),
    }
}

fn call(command: u32) -> Result {
    harmless!(nr::MEMBARRIER, u64::from(command), 0, 0)
}

fn need(registration: u32) -> Result<()> {
    let is_there = control().barriers.load(Ordering::Relaxed) & registration != 0;
    if is_there { Ok(()) } else { Err(Errno::EPERM) }
}

/// Has this member take part in the barriers of others.
pub fn register() -> Result {
    call(REGISTER_GLOBAL_EXPEDITED)
}

/// Has all members do so, and notes what the program has registered for. A member is made under the lock, so
/// none is left out.
fn register_all(what: u32) -> Result {
    prepare_stack();
    locked(|_| {
        let registered = register()?;
        request(others().with(me()), Request::Register);
        control().barriers.fetch_or(what, Ordering::Relaxed);
        Ok(registered)
    })
}

/// Returns what the program has registered for, if Linux takes this member for registered.
fn registrations() -> Result {
    let own = call(GET_REGISTRATIONS)? & u64::from(REGISTER_GLOBAL_EXPEDITED);
    Ok(if own == 0 { 0 } else { u64::from(control().barriers.load(Ordering::Relaxed)) })
}

/// Has the processor finish all instructions before this one, and fetch again those that follow.
pub fn serialize() {
    let _ = __cpuid(0);
}
