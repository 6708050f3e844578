//! Scheduling calls: yielding, affinity, and policies, of which there is one.

use alloc::sync::Arc;

use abi::Errno;
use abi::users::CAP_SYS_NICE;
use percore::{CoreId, CoreSet, MAX_CORES, pin};

use super::{Call, Outcome};
use crate::arch;
use crate::bytes::{prefix, prefix_mut};
use crate::mm::user;
use crate::process::pid;
use crate::sched::{self, Task};

/// Lets another task run.
pub fn sched_yield(_call: &mut Call<'_>) -> Outcome {
    sched::yield_now();
    Ok(0)
}

/// Returns the thread whose number is argument 0, or the caller if that is 0.
fn target(call: &Call<'_>) -> Result<Arc<Task>, Errno> {
    match call.arg(0) as u32 {
        0 => Ok(sched::current()),
        tid => pid::thread(tid).ok_or(Errno::ESRCH),
    }
}

/// Sets the cores on which a thread may run, one bit for each. Cores that the machine does not have are
/// ignored.
pub fn sched_setaffinity(call: &mut Call<'_>) -> Outcome {
    let mut bytes = [0; MAX_CORES / 8];
    user::copy_in(prefix_mut(&mut bytes, u64::from(call.arg(1) as u32)), call.arg(2))?;
    let has = |core: &CoreId| bytes.get(core.index() / 8).is_some_and(|byte| byte & bit(*core) != 0);
    let cores: CoreSet = (0..arch::cores()).map(CoreId::new).filter(has).collect();
    let task = target(call)?;
    permit(&task)?;
    if cores.is_empty() {
        return Err(Errno::EINVAL);
    }
    sched::set_affinity(&task, cores);
    Ok(0)
}

/// Returns an error unless the caller may schedule `task`.
///
/// # Errors
/// EPERM.
fn permit(task: &Task) -> Result<(), Errno> {
    let pin = pin();
    let may = sched::with_credentials(|own| own.may_schedule(task.thread.credentials.peek(&pin)));
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

/// Returns the bit of a core in its byte of a set.
fn bit(core: CoreId) -> u8 {
    1 << (core.index() % 8)
}

/// Writes the cores on which a thread may run, and returns the number of bytes.
pub fn sched_getaffinity(call: &mut Call<'_>) -> Outcome {
    let size = arch::cores().div_ceil(64) * 8;
    let length = call.arg(1) as u32 as usize;
    if length < size || !length.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; MAX_CORES / 8];
    for core in target(call)?.affinity().iter() {
        bytes.get_mut(core.index() / 8).into_iter().for_each(|byte| *byte |= bit(core));
    }
    user::copy_out(call.arg(2), prefix(&bytes, size as u64))?;
    Ok(size as u64)
}

const SCHED_OTHER: u64 = 0;
const SCHED_FIFO: i32 = 1;
const SCHED_RR: i32 = 2;
const SCHED_BATCH: i32 = 3;
const SCHED_IDLE: i32 = 5;

/// Returns the only policy, SCHED_OTHER.
pub fn sched_getscheduler(call: &mut Call<'_>) -> Outcome {
    target(call).map(|_| SCHED_OTHER)
}

/// Accepts the policies without priorities. They all mean SCHED_OTHER.
pub fn sched_setscheduler(call: &mut Call<'_>) -> Outcome {
    match call.int(1) {
        SCHED_FIFO | SCHED_RR => Err(Errno::EPERM),
        0 | SCHED_BATCH | SCHED_IDLE => set_priority(call, call.arg(2)),
        _ => Err(Errno::EINVAL),
    }
}

fn set_priority(call: &Call<'_>, at: u64) -> Outcome {
    let priority: i32 = user::read(at)?;
    permit(&*target(call)?)?;
    if priority == 0 { Ok(0) } else { Err(Errno::EINVAL) }
}

/// Checks the priority, which must be 0.
pub fn sched_setparam(call: &mut Call<'_>) -> Outcome {
    set_priority(call, call.arg(1))
}

/// Writes the priority, which is 0.
pub fn sched_getparam(call: &mut Call<'_>) -> Outcome {
    target(call)?;
    user::write(call.arg(1), &0u32)?;
    Ok(0)
}

/// Returns the highest priority of a policy, with Linux's numbers: 99 for real-time policies, and 0 for
/// others.
pub fn sched_get_priority_max(call: &mut Call<'_>) -> Outcome {
    priority_bound(call, 99)
}

/// Returns the lowest priority of a policy: 1 for real-time policies, and 0 for others.
pub fn sched_get_priority_min(call: &mut Call<'_>) -> Outcome {
    priority_bound(call, 1)
}

fn priority_bound(call: &Call<'_>, real_time: u64) -> Outcome {
    match call.int(0) {
        SCHED_FIFO | SCHED_RR => Ok(real_time),
        0 | SCHED_BATCH | SCHED_IDLE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns the nice value 0, which this call encodes as 20.
pub fn getpriority(call: &mut Call<'_>) -> Outcome {
    whose_priority(call).map(|()| 20)
}

/// Checks the arguments. The nice value has no effect.
pub fn setpriority(call: &mut Call<'_>) -> Outcome {
    whose_priority(call)?;
    let (tid, is_process) = (call.arg(1) as u32, call.int(0) == PRIO_PROCESS);
    if let Some(task) = pid::thread(tid).filter(|_| is_process) {
        permit(&task)?;
    }
    let may_raise = sched::with_credentials(|of| of.can(CAP_SYS_NICE));
    if call.int(2) >= 0 || may_raise { Ok(0) } else { Err(Errno::EACCES) }
}

const PRIO_PROCESS: i32 = 0;

fn group_exists(group: u32) -> bool {
    let mut found = false;
    pid::for_each(|process| found |= process.group() == group);
    found
}

/// Checks that the thread, group or user exists.
fn whose_priority(call: &Call<'_>) -> Result<(), Errno> {
    const PRIO_PGRP: i32 = 1;
    const PRIO_USER: i32 = 2;
    let who = call.arg(1) as u32;
    let known = match call.int(0) {
        PRIO_PROCESS => who == 0 || pid::thread(who).is_some(),
        PRIO_PGRP => who == 0 || group_exists(who),
        PRIO_USER => who == 0 || sched::with_credentials(|of| of.users.real == who),
        _ => return Err(Errno::EINVAL),
    };
    if known { Ok(()) } else { Err(Errno::ESRCH) }
}
