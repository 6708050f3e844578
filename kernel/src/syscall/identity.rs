//! Numbers of processes, threads, groups, sessions and users. There is one user, root.

use alloc::sync::Arc;

use abi::Errno;

use super::{Call, Outcome};
use crate::mm::user;
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

/// Returns root's user.
pub fn getuid(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

/// Returns root's user.
pub fn geteuid(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

/// Returns root's group.
pub fn getgid(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

/// Returns root's group.
pub fn getegid(_call: &mut Call<'_>) -> Outcome {
    Ok(0)
}

/// Writes root's user three times.
pub fn getresuid(call: &mut Call<'_>) -> Outcome {
    (0..3).try_for_each(|index| user::write(call.arg(index), &0u32))?;
    Ok(0)
}

/// Writes root's group three times.
pub fn getresgid(call: &mut Call<'_>) -> Outcome {
    getresuid(call)
}

/// Returns 0, because root has no further groups here.
pub fn getgroups(call: &mut Call<'_>) -> Outcome {
    if call.int(0) < 0 { Err(Errno::EINVAL) } else { Ok(0) }
}

/// Returns 0 if the first `count` arguments are root's number, or say that a number stays.
///
/// # Errors
/// EPERM: all processes are root's and stay so.
fn stays_root(call: &Call<'_>, count: usize) -> Outcome {
    let is_root = |index| matches!(call.arg(index) as u32, 0 | u32::MAX);
    if (0..count).all(is_root) { Ok(0) } else { Err(Errno::EPERM) }
}

/// Sets the user of the process.
pub fn setuid(call: &mut Call<'_>) -> Outcome {
    if call.arg(0) as u32 == u32::MAX { Err(Errno::EINVAL) } else { stays_root(call, 1) }
}

/// Sets the group of the process.
pub fn setgid(call: &mut Call<'_>) -> Outcome {
    setuid(call)
}

/// Sets the real and the effective user.
pub fn setreuid(call: &mut Call<'_>) -> Outcome {
    stays_root(call, 2)
}

/// Sets the real and the effective group.
pub fn setregid(call: &mut Call<'_>) -> Outcome {
    stays_root(call, 2)
}

/// Sets the real, the effective and the saved user.
pub fn setresuid(call: &mut Call<'_>) -> Outcome {
    stays_root(call, 3)
}

/// Sets the real, the effective and the saved group.
pub fn setresgid(call: &mut Call<'_>) -> Outcome {
    stays_root(call, 3)
}

/// Sets the further groups. Root's own is no further one.
pub fn setgroups(call: &mut Call<'_>) -> Outcome {
    const MOST: u64 = 65_536;
    let count = call.arg(0) as u32 as u64;
    if count > MOST {
        return Err(Errno::EINVAL);
    }
    for index in 0..count {
        let group: u32 = user::read(call.arg(1).wrapping_add(index * 4))?;
        if group != 0 {
            return Err(Errno::EPERM);
        }
    }
    Ok(0)
}
