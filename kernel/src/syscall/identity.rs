//! Numbers of processes, threads, groups and sessions.

use alloc::sync::Arc;

use abi::Errno;

use super::{Call, Outcome};
use crate::process::{Process, pid};

impl Call<'_> {
    /// Returns the process whose number is argument `index`, or the caller's if that is 0.
    pub(super) fn process(&self, index: usize) -> Result<Arc<Process>, Errno> {
        match self.arg(index) as u32 {
            0 => Ok(self.task.process().clone()),
            pid => pid::process(pid).ok_or(Errno::ESRCH),
        }
    }
}

/// Returns the process's number.
pub fn getpid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.process().pid().into())
}

/// Returns the thread's number.
pub fn gettid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.tid().into())
}

/// Returns the parent's number, or 0 for the first process.
pub fn getppid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.process().parent().map_or(0, |parent| parent.pid()).into())
}

/// Returns the number of the process's group.
pub fn getpgrp(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.process().group().into())
}

/// Returns the number of a process's group.
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

/// Returns the number of a process's session.
pub fn getsid(call: &mut Call<'_>) -> Outcome {
    Ok(call.process(0)?.session().into())
}

/// Begins a session.
pub fn setsid(call: &mut Call<'_>) -> Outcome {
    Ok(call.task.process().lead_session()?.into())
}
