//! Who am I: processes, threads, groups, sessions, users. All are root's.

use alloc::sync::Arc;

use abi::Errno;

use super::{Call, Outcome};
use crate::mm::user;
use crate::process::{Process, pid};

impl Call<'_> {
    /// The process whose number argument `index` is; 0 is the caller's.
    pub(super) fn process(&self, index: usize) -> Result<Arc<Process>, Errno> {
        match self.arg(index) as u32 {
            0 => Ok(self.task.process().clone()),
            pid => pid::process(pid).ok_or(Errno::ESRCH),
        }
    }
}

/// The process's number.
pub fn getpid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.process().pid().into())
}

/// The thread's number.
pub fn gettid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.tid().into())
}

/// The parent's number; nobody started the first process.
pub fn getppid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.process().parent().map_or(0, |parent| parent.pid()).into())
}

/// The number of the process's group.
pub fn getpgrp(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.process().group().into())
}

/// The number of a process's group.
pub fn getpgid(call: &mut Call<'_>) -> Outcome {
    Ok(call.process(0)?.group().into())
}

/// Moves the process or a child to a group.
pub fn setpgid(call: &mut Call<'_>) -> Outcome {
    if call.int(1) < 0 {
        return Err(Errno::EINVAL);
    }
    let target = call.process(0)?;
    let group = if call.int(1) == 0 { target.pid() } else { call.arg(1) as u32 };
    call.task.process().move_to_group(&target, group).map(|()| 0)
}

/// The number of a process's session.
pub fn getsid(call: &mut Call<'_>) -> Outcome {
    Ok(call.process(0)?.session().into())
}

/// Begins a session.
pub fn setsid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.process().lead_session()?.into())
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
