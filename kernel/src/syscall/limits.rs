//! Resource limits: kept and told; enforced are the number of open files, by `fs`, and of processes, by `clone`.

use abi::Errno;
use abi::process::{RLIMIT_NLIMITS, Rlimit};

use super::{Call, Outcome};
use crate::mm::user;
use crate::process::Process;

fn check(resource: u64) -> Result<usize, Errno> {
    if resource < RLIMIT_NLIMITS { Ok(resource as usize) } else { Err(Errno::EINVAL) }
}

fn get(process: &Process, resource: u64) -> Result<Rlimit, Errno> {
    let index = check(resource)?;
    Ok(process.limits.lock()[index])
}

fn set(process: &Process, resource: u64, limit: Rlimit) -> Result<(), Errno> {
    let index = check(resource)?;
    if limit.current > limit.maximum {
        return Err(Errno::EINVAL);
    }
    process.limits.lock()[index] = limit;
    Ok(())
}

/// Tells a limit.
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

/// Sets a limit of any process and tells the old one.
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
