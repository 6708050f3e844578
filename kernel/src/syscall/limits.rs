//! Resource limits (see `process::limits`).

use alloc::sync::Arc;

use abi::Errno;
use abi::process::{RLIMIT_CPU, RLIMIT_NOFILE, Rlimit};
use abi::users::CAP_SYS_RESOURCE;

use super::{Call, Outcome};
use crate::mm::user;
use crate::process::{Process, remote};
use crate::sched::{self, Task};
use crate::users::Credentials;

fn get(process: &Process, resource: u64) -> Result<Rlimit, Errno> {
    process.limits.get(resource).ok_or(Errno::EINVAL)
}

/// Sets a limit of `process`, one of whose threads is `thread`.
fn set(process: &Process, thread: Option<&Task>, resource: u64, limit: Rlimit) -> Result<(), Errno> {
    let old = get(process, resource)?;
    if limit.current > limit.maximum {
        return Err(Errno::EINVAL);
    }
    if limit.maximum > old.maximum {
        sched::with_credentials(|of| of.must(CAP_SYS_RESOURCE))?;
    }
    process.limits.set(resource, limit);
    if resource == RLIMIT_NOFILE
        && let Some(thread) = thread
    {
        thread.shared().files.set_limit(limit.current);
    }
    if resource == RLIMIT_CPU {
        process.timers.cpu.note_set();
    }
    Ok(())
}

/// Writes a limit.
pub fn getrlimit(call: &mut Call<'_>) -> Outcome {
    user::write(call.arg(1), &get(call.task.process(), call.arg(0) as u32 as u64)?)?;
    Ok(0)
}

/// Sets a limit.
pub fn setrlimit(call: &mut Call<'_>) -> Outcome {
    let limit = user::read(call.arg(1))?;
    set(call.task.process(), Some(call.task), call.arg(0) as u32 as u64, limit)?;
    Ok(0)
}

/// Sets a limit of any process and writes the old one.
pub fn prlimit64(call: &mut Call<'_>) -> Outcome {
    let resource = call.arg(1) as u32 as u64;
    let new = if call.arg(2) == 0 { None } else { Some(user::read(call.arg(2))?) };
    let process = call.process(0)?;
    let exchange = |thread: Option<&Task>| {
        let old = get(&process, resource)?;
        new.map_or(Ok(()), |new| set(&process, thread, resource, new))?;
        Ok(old)
    };
    let old = match Arc::ptr_eq(&process, call.task.process()) {
        true => exchange(Some(call.task)),
        // The thread gets no rights of another program between the check and the change.
        false => process.with_any_thread(|thread| {
            let thread = thread.map(|thread| &**thread);
            thread.map_or(Ok(()), |thread| remote::permit_other(thread, Credentials::may_limit))?;
            exchange(thread)
        }),
    }?;
    if call.arg(3) != 0 {
        user::write(call.arg(3), &old)?;
    }
    Ok(0)
}
