//! clone, clone3, and what belongs to a thread: its identity word, its robust list, its FS base.

use abi::Errno;
use abi::process::*;
use sync::atomic::Ordering;

use super::{Call, Outcome};
use crate::arch::{self, TrapFrame};
use crate::control;
use crate::mm::user::{self, USER_END};
use crate::process;
use crate::sched;

/// What a thread shares with its creator, all of it: there are no processes beside the first yet.
const THREAD: u64 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
/// Flags that change nothing for a thread, or that we do.
const KNOWN: u64 = THREAD
    | CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_CHILD_SETTID
    | CLONE_DETACHED
    | CLONE_UNTRACED
    | CLONE_PTRACE
    | CLONE_IO;

/// Makes a thread.
pub fn clone(call: &mut Call<'_>) -> Outcome {
    let args = CloneArgs {
        flags: call.arg(0) & !CSIGNAL,
        stack: call.arg(1),
        parent_tid: call.arg(2),
        child_tid: call.arg(3),
        tls: call.arg(4),
        ..CloneArgs::default()
    };
    start_thread(call, &args)
}

/// Makes a thread, as a structure says that may grow: what we do not know must be zero.
pub fn clone3(call: &mut Call<'_>) -> Outcome {
    const SMALLEST: u64 = 64;
    const LARGEST: u64 = 4096;
    let (at, size) = (call.arg(0), call.arg(1));
    match size {
        ..SMALLEST => return Err(Errno::EINVAL),
        LARGEST.. => return Err(Errno::E2BIG),
        _ => {}
    }
    let mut bytes = [0; size_of::<CloneArgs>()];
    let known = bytes.len().min(size as usize);
    user::copy_in(&mut bytes[..known], at)?;
    for offset in known as u64..size {
        if user::read::<u8>(at + offset)? != 0 {
            return Err(Errno::E2BIG);
        }
    }
    let args: CloneArgs = abi::zerocopy::transmute!(bytes);
    if args.set_tid_size != 0 || (args.stack == 0) != (args.stack_size == 0) {
        return Err(Errno::EINVAL);
    }
    let stack = args.stack.checked_add(args.stack_size).ok_or(Errno::EINVAL)?;
    start_thread(call, &CloneArgs { stack, ..args })
}

/// `args.stack` is the stack pointer, 0 for the caller's.
fn start_thread(call: &mut Call<'_>, args: &CloneArgs) -> Outcome {
    check_flags(args)?;
    let has = |flag| args.flags & flag != 0;
    let fs_base = if has(CLONE_SETTLS) { check_base(args.tls)? } else { arch::fs_base() };
    let clear_tid = if has(CLONE_CHILD_CLEARTID) { args.child_tid } else { 0 };
    let frame = child_frame(call.frame, args.stack);
    let child = process::spawn(call.task, frame, fs_base, clear_tid)?;
    let tid = child.tid();
    // Before it runs, so that it finds them. Linux ignores bad addresses here.
    let words = [(CLONE_PARENT_SETTID, args.parent_tid), (CLONE_CHILD_SETTID, args.child_tid)];
    for (_, at) in words.into_iter().filter(|&(flag, _)| has(flag)) {
        let _bad_address = user::write(at, &tid);
    }
    sched::enqueue(child);
    Ok(tid.into())
}

/// # Errors
/// EINVAL for flags that need one another, or that a thread cannot have; ENOSYS for another process, which
/// is said aloud.
fn check_flags(args: &CloneArgs) -> Result<(), Errno> {
    let flags = args.flags;
    let lacks = |flag, needed| flags & flag != 0 && flags & needed == 0;
    if lacks(CLONE_SIGHAND, CLONE_VM) || lacks(CLONE_THREAD, CLONE_SIGHAND) {
        return Err(Errno::EINVAL);
    }
    if flags & CLONE_THREAD == 0 {
        control::warn(format_args!("clone: a new process (flags {flags:#x}) is not supported"));
        return Err(Errno::ENOSYS);
    }
    if flags & THREAD != THREAD || flags & !KNOWN != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// The child goes on where the parent does, with another stack and a result of 0.
fn child_frame(parent: &TrapFrame, stack: u64) -> TrapFrame {
    let mut frame = *parent;
    frame.set_result(0);
    if stack != 0 {
        frame.rsp = stack;
    }
    frame
}

fn check_base(base: u64) -> Result<u64, Errno> {
    if base < USER_END { Ok(base) } else { Err(Errno::EPERM) }
}

/// Which word to clear when the thread exits.
pub fn set_tid_address(call: &mut Call<'_>) -> Outcome {
    // Relaxed: only the thread itself looks at it.
    call.task.thread.clear_tid.store(call.arg(0), Ordering::Relaxed);
    Ok(call.task.tid().into())
}

/// Where the list of held robust locks begins.
pub fn set_robust_list(call: &mut Call<'_>) -> Outcome {
    if call.arg(1) != size_of::<RobustListHead>() as u64 {
        return Err(Errno::EINVAL);
    }
    call.task.thread.robust_list.store(call.arg(0), Ordering::Relaxed);
    Ok(0)
}

/// Where it begins, of any thread.
pub fn get_robust_list(call: &mut Call<'_>) -> Outcome {
    let head = match call.arg(0) as u32 {
        0 => Some(call.task.thread.robust_list.load(Ordering::Relaxed)),
        tid => call.task.process().thread(tid).map(|task| task.thread.robust_list.load(Ordering::Relaxed)),
    };
    user::write(call.arg(1), &head.ok_or(Errno::ESRCH)?)?;
    user::write(call.arg(2), &(size_of::<RobustListHead>() as u64))?;
    Ok(0)
}

/// The FS base.
pub fn arch_prctl(call: &mut Call<'_>) -> Outcome {
    match call.arg(0) {
        ARCH_SET_FS => arch::set_fs_base(check_base(call.arg(1))?),
        ARCH_GET_FS => user::write(call.arg(1), &arch::fs_base())?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
