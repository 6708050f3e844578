//! Who am I: processes, threads, users, children. There is one process, and it is root's.

use abi::Errno;
use abi::process::{
    P_ALL, P_PGID, P_PID, P_PIDFD, WAIT_CLONES, WCONTINUED, WEXITED, WNOHANG, WNOWAIT, WSTOPPED, WUNTRACED,
};

use super::{Call, Outcome};
use crate::mm::user;

/// The process's number.
pub fn getpid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.process().pid().into())
}

/// The thread's number.
pub fn gettid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.tid().into())
}

/// Nobody started the first process.
pub fn getppid(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

/// The process leads its group.
pub fn getpgrp(call: &mut Call<'_>) -> Outcome {
    getpid(call)
}

/// See [`getpgrp`].
pub fn getpgid(call: &mut Call<'_>) -> Outcome {
    let pid = call.task.process().pid();
    if [0, pid].contains(&(call.arg(0) as u32)) { Ok(pid.into()) } else { Err(Errno::ESRCH) }
}

/// The process leads its session.
pub fn getsid(call: &mut Call<'_>) -> Outcome {
    getpgid(call)
}

/// Root.
pub fn getuid(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

/// Root.
pub fn geteuid(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

/// Root's.
pub fn getgid(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

/// Root's.
pub fn getegid(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

/// Root, whichever way it is asked.
pub fn getresuid(call: &mut Call<'_>) -> Outcome {
    (0..3).try_for_each(|index| user::write(call.arg(index), &0u32))?;
    Ok(0)
}

/// See [`getresuid`].
pub fn getresgid(call: &mut Call<'_>) -> Outcome {
    getresuid(call)
}

/// Root has no further groups here.
pub fn getgroups(call: &mut Call<'_>) -> Outcome {
    if call.int(0) < 0 { Err(Errno::EINVAL) } else { Ok(0) }
}

/// There are no children.
pub fn wait4(call: &mut Call<'_>) -> Outcome {
    let known = WNOHANG | WUNTRACED | WCONTINUED | WAIT_CLONES;
    if call.arg(2) as u32 & !known != 0 { Err(Errno::EINVAL) } else { Err(Errno::ECHILD) }
}

/// See [`wait4`].
pub fn waitid(call: &mut Call<'_>) -> Outcome {
    let (options, events) = (call.arg(3) as u32, WEXITED | WSTOPPED | WCONTINUED);
    let known = WNOHANG | WNOWAIT | events | WAIT_CLONES;
    if options & !known != 0 || options & events == 0 {
        return Err(Errno::EINVAL);
    }
    match (call.int(0), call.int(1)) {
        (P_ALL, _) | (P_PID, 1..) | (P_PGID, 0..) => Err(Errno::ECHILD),
        (P_PIDFD, 0..) => Err(Errno::EBADF),
        _ => Err(Errno::EINVAL),
    }
}
