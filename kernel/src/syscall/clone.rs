//! fork, vfork, clone, clone3.

use alloc::sync::Arc;

use abi::Errno;
use abi::process::*;
use abi::signal::{NSIG, SIGCHLD};

use super::{Call, Outcome};
use crate::arch::{self, TrapFrame};
use crate::fs::{Opened, Reserved};
use crate::mm::user::{self, USER_END};
use crate::process::{self, Clone, FIRST, Process, pidfd, ptrace, retry};
use crate::sched::attention;

/// Flags that are implemented, or that have no effect here.
const KNOWN: u64 = CLONE_VM
    | CLONE_FS
    | CLONE_FILES
    | CLONE_SIGHAND
    | CLONE_PIDFD
    | CLONE_PTRACE
    | CLONE_VFORK
    | CLONE_PARENT
    | CLONE_THREAD
    | CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_CHILD_SETTID
    | CLONE_DETACHED
    | CLONE_UNTRACED
    | CLONE_IO;
/// Flags that `clone` cannot express, because its low byte is a signal.
const EXTENDED: u64 = CLONE_CLEAR_SIGHAND;

/// Makes a copy of the process.
pub fn fork(call: &mut Call<'_>) -> Outcome {
    make(call, &CloneArgs { exit_signal: SIGCHLD.into(), ..CloneArgs::default() })
}

/// Makes a process in the memory of this one, which sleeps meanwhile.
pub fn vfork(call: &mut Call<'_>) -> Outcome {
    let flags = CLONE_VM | CLONE_VFORK;
    make(call, &CloneArgs { flags, exit_signal: SIGCHLD.into(), ..CloneArgs::default() })
}

/// Makes a thread or a process.
pub fn clone(call: &mut Call<'_>) -> Outcome {
    let flags = u64::from(call.arg(0) as u32);
    // Both would be written to the same address.
    if flags & (CLONE_PIDFD | CLONE_PARENT_SETTID) == CLONE_PIDFD | CLONE_PARENT_SETTID {
        return Err(Errno::EINVAL);
    }
    let args = CloneArgs {
        flags: flags & !CSIGNAL,
        exit_signal: flags & CSIGNAL,
        stack: call.arg(1),
        parent_tid: call.arg(2),
        pidfd: call.arg(2),
        child_tid: call.arg(3),
        tls: call.arg(4),
        ..CloneArgs::default()
    };
    make(call, &args)
}

/// Does the same with a structure that may grow: its unknown part must be zero.
pub fn clone3(call: &mut Call<'_>) -> Outcome {
    let args = read_args(call.arg(0), call.arg(1))?;
    let is_known = args.set_tid_size == 0 && args.exit_signal <= NSIG.into();
    let is_thread = args.flags & (CLONE_THREAD | CLONE_PARENT) != 0;
    if !is_known || (args.stack == 0) != (args.stack_size == 0) || is_thread && args.exit_signal != 0 {
        return Err(Errno::EINVAL);
    }
    let stack = args.stack.checked_add(args.stack_size).ok_or(Errno::EINVAL)?;
    make(call, &CloneArgs { stack, ..args })
}

fn read_args(at: u64, size: u64) -> Result<CloneArgs, Errno> {
    const SMALLEST: u64 = 64;
    const LARGEST: u64 = 4096;
    match size {
        ..SMALLEST => return Err(Errno::EINVAL),
        LARGEST.. => return Err(Errno::E2BIG),
        _ => {}
    }
    let mut bytes = [0; size_of::<CloneArgs>()];
    let known = bytes.len().min(size as usize);
    user::copy_in(bytes.get_mut(..known).ok_or(Errno::EINVAL)?, at)?;
    for offset in known as u64..size {
        if user::read::<u8>(at + offset)? != 0 {
            return Err(Errno::E2BIG);
        }
    }
    Ok(abi::zerocopy::transmute!(bytes))
}

/// Makes a thread or a process. `args.stack` is the stack pointer, or 0 for the caller's.
fn make(call: &mut Call<'_>, args: &CloneArgs) -> Outcome {
    check_flags(call, args.flags)?;
    let has = |flag| args.flags & flag != 0;
    let wanted = Clone {
        flags: args.flags,
        frame: child_frame(call, args.stack),
        fs_base: if has(CLONE_SETTLS) { check_base(args.tls)? } else { arch::fs_base() },
        set_tid: if has(CLONE_CHILD_SETTID) { args.child_tid } else { 0 },
        clear_tid: if has(CLONE_CHILD_CLEARTID) { args.child_tid } else { 0 },
        exit_signal: args.exit_signal as u32,
    };
    let is_traced = call.task.attention.has(attention::TRACED);
    let made = process::clone(call.task, &wanted, |child, tid| {
        let descriptor =
            if has(CLONE_PIDFD) { Some(retry(|| prepare(call, child, args.pidfd))?) } else { None };
        if has(CLONE_PARENT_SETTID) {
            // Linux ignores bad addresses here.
            let _bad_address = user::write(args.parent_tid, &tid);
        }
        Ok(|| {
            descriptor.map(|(fd, file)| fd.fill(file, true));
        })
    })?;
    if is_traced {
        ptrace::after_clone(call.task, call.frame, &wanted, made.tid);
    }
    if made.wait(call.task) && is_traced {
        ptrace::after_vfork(call.task, call.frame, made.tid);
    }
    Ok(made.tid.into())
}

/// Prepares a descriptor for `child`, and writes its number to `at`.
fn prepare<'c>(call: &'c Call<'_>, child: &Arc<Process>, at: u64) -> Result<(Reserved<'c>, Opened), Errno> {
    let (fd, file) = (call.files().reserve(0)?, pidfd::open(child.clone(), 0)?);
    user::write(at, &fd.number())?;
    Ok((fd, Opened::new(file).ok_or(Errno::EBADF)?))
}

/// Checks the flags.
///
/// # Errors
/// EINVAL for flags that require or exclude one another, or that are unknown.
fn check_flags(call: &Call<'_>, flags: u64) -> Result<(), Errno> {
    let lacks = |flag, needed| flags & flag != 0 && flags & needed == 0;
    let both = |pair| flags & pair == pair;
    let is_first = call.task.process().pid() == FIRST;
    match () {
        () if lacks(CLONE_SIGHAND, CLONE_VM) || lacks(CLONE_THREAD, CLONE_SIGHAND) => Err(Errno::EINVAL),
        () if both(CLONE_SIGHAND | CLONE_CLEAR_SIGHAND) => Err(Errno::EINVAL),
        () if flags & CLONE_PIDFD != 0 && flags & (CLONE_THREAD | CLONE_DETACHED) != 0 => Err(Errno::EINVAL),
        // The first process has no parent whose child this could be.
        () if flags & CLONE_PARENT != 0 && is_first => Err(Errno::EINVAL),
        () if flags & !(KNOWN | EXTENDED) != 0 => Err(Errno::EINVAL),
        () => Ok(()),
    }
}

/// Returns the registers of the child: the parent's with another stack and a result of 0.
fn child_frame(call: &Call<'_>, stack: u64) -> TrapFrame {
    let mut frame = *call.frame;
    if call.task.attention.has(attention::TRACED) {
        ptrace::without_step(call.task, &mut frame);
    }
    frame.set_result(0);
    if stack != 0 {
        frame.rsp = stack;
    }
    frame
}

/// Checks an FS base that a program sets.
///
/// # Errors
/// EPERM if it is not in user space.
pub fn check_base(base: u64) -> Result<u64, Errno> {
    if base < USER_END { Ok(base) } else { Err(Errno::EPERM) }
}
