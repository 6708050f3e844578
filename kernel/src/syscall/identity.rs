//! Who am I: processes, threads, users. There is one process, and it is root's.

use abi::Errno;

use super::{Call, Outcome};

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
