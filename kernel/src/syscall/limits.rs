//! Resource limits (see `process::limits`).

use abi::Errno;
use abi::process::Rlimit;

use super::{Call, Outcome};
use crate::mm::user;
use crate::process::Process;

fn get(process: &Process, resource: u64) -> Result<Rlimit, Errno> {
    process.limits.get(resource).ok_or(Errno::EINVAL)
}

fn set(process: &Process, resource: u64, limit: Rlimit) -> Result<(), Errno> {
    get(process, resource)?;
    if limit.current > limit.maximum {
        return Err(Errno::EINVAL);
    }
    process.limits.set(resource, limit);
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
    set(call.task.process(), call.arg(0) as u32 as u64, limit)?;
    Ok(0)
}

/// Sets a limit of any process and writes the old one.
pub fn prlimit64(call: &mut Call<'_>) -> Outcome {
    let resource = call.arg(1) as u32 as u64;
    let process = call.process(0)?;
    let old = get(&process, resource)?;
    if call.arg(2) != 0 {
        let new = user::read(call.arg(2))?;
        set(&process, resource, new)?;
    }
    if call.arg(3) != 0 {
        user::write(call.arg(3), &old)?;
    }
    Ok(0)
}
