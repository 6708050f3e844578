//! Clocks and sleeping.

use abi::Errno;
use abi::time::*;

use super::{Call, Outcome};
use crate::arch;
use crate::mm::user;
use crate::process::cpu_timers::CpuClock;
use crate::process::pid;
use crate::process::signal::Rest;
use crate::sched::{self, Task};

const NS_PER_SECOND: u64 = 1_000_000_000;
/// The bit of a clock's number that says that it is a thread's.
const PER_THREAD: i32 = 4;

/// Returns the time on `clock`, in nanoseconds.
fn read(task: &Task, clock: u64) -> Result<u64, Errno> {
    match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_TAI => Ok(arch::wall_ns()),
        CLOCK_MONOTONIC | CLOCK_MONOTONIC_RAW | CLOCK_MONOTONIC_COARSE | CLOCK_BOOTTIME => Ok(arch::now_ns()),
        CLOCK_PROCESS_CPUTIME_ID => Ok(task.process().cpu_ns()),
        CLOCK_THREAD_CPUTIME_ID => Ok(task.cpu_ns()),
        _ => thread_clock(task, clock as u32 as i32),
    }
}

/// Reads the clock of a thread or process by its number, as `pthread_getcpuclockid` encodes it:
/// `~id << 3 | kind`.
fn thread_clock(task: &Task, clock: i32) -> Result<u64, Errno> {
    const KIND: i32 = 3;
    const DEVICE: i32 = 3;
    let id = !(clock >> 3) as u32;
    let process = task.process();
    let is_self = id == 0;
    match (clock < 0 && clock & KIND != DEVICE, clock & PER_THREAD != 0) {
        (false, _) => Err(Errno::EINVAL),
        (true, true) if is_self => Ok(task.cpu_ns()),
        (true, true) => process.thread(id).map(|thread| thread.cpu_ns()).ok_or(Errno::EINVAL),
        (true, false) if is_self => Ok(process.cpu_ns()),
        (true, false) => pid::process(id).map(|process| process.cpu_ns()).ok_or(Errno::EINVAL),
    }
}

/// Returns a clock of the CPU time of the task's process or of one of its threads, or `None` for another kind
/// of clock.
///
/// # Errors
/// EINVAL for a clock of another process.
pub(super) fn own_cpu_clock(task: &Task, clock: u64) -> Result<Option<CpuClock>, Errno> {
    match clock {
        CLOCK_PROCESS_CPUTIME_ID => return Ok(Some(CpuClock::Process)),
        CLOCK_THREAD_CPUTIME_ID => return Ok(Some(CpuClock::Thread(task.tid()))),
        clock if (clock as u32 as i32) >= 0 => return Ok(None),
        _ => {}
    }
    thread_clock(task, clock as u32 as i32)?;
    let (id, process) = (!(clock as u32 as i32 >> 3) as u32, task.process());
    match clock as u32 as i32 & PER_THREAD != 0 {
        true if id == 0 => Ok(Some(CpuClock::Thread(task.tid()))),
        true => Ok(Some(CpuClock::Thread(id))),
        false if id == 0 || id == process.pid() => Ok(Some(CpuClock::Process)),
        false => Err(Errno::EINVAL),
    }
}

/// Writes the time on a clock.
pub fn clock_gettime(call: &mut Call<'_>) -> Outcome {
    let now = read(call.task, call.arg(0) as u32 as i32 as u64)?;
    user::write(call.arg(1), &Timespec::from_ns(now))?;
    Ok(0)
}

/// Writes the resolution of a clock. Every clock counts nanoseconds, also the coarse ones.
pub fn clock_getres(call: &mut Call<'_>) -> Outcome {
    read(call.task, call.arg(0) as u32 as i32 as u64)?;
    if call.arg(1) != 0 {
        user::write(call.arg(1), &Timespec::from_ns(1))?;
    }
    Ok(0)
}

/// Writes the wall clock in microseconds. Time zones are left to the C library.
pub fn gettimeofday(call: &mut Call<'_>) -> Outcome {
    let now = Timespec::from_ns(arch::wall_ns());
    if call.arg(0) != 0 {
        let now = Timeval { seconds: now.seconds, microseconds: now.nanoseconds / 1000 };
        user::write(call.arg(0), &now)?;
    }
    if call.arg(1) != 0 {
        user::write(call.arg(1), &[0u32; 2])?;
    }
    Ok(0)
}

/// Returns the wall clock in seconds.
pub fn time(call: &mut Call<'_>) -> Outcome {
    let now = arch::wall_ns() / NS_PER_SECOND;
    if call.arg(0) != 0 {
        user::write(call.arg(0), &now)?;
    }
    Ok(now)
}

/// Sleeps for a given time.
pub fn nanosleep(call: &mut Call<'_>) -> Outcome {
    sleep(call.task, arch::now_ns(), call.arg(0), call.arg(1))
}

/// Sleeps for a given time or until a point in time, on a clock that runs during the sleep.
pub fn clock_nanosleep(call: &mut Call<'_>) -> Outcome {
    let clock = call.arg(0) as u32 as i32 as u64;
    let now = match clock {
        CLOCK_REALTIME | CLOCK_MONOTONIC | CLOCK_BOOTTIME | CLOCK_TAI => read(call.task, clock)?,
        CLOCK_PROCESS_CPUTIME_ID..=CLOCK_MONOTONIC_COARSE => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    };
    if call.arg(1) & TIMER_ABSTIME == 0 {
        return sleep(call.task, arch::now_ns(), call.arg(2), call.arg(3));
    }
    let time = user::read::<Timespec>(call.arg(2))?.to_ns().ok_or(Errno::EINVAL)?;
    let until = arch::now_ns().saturating_add(time.saturating_sub(now));
    let allow = |_: &Errno| call.task.thread.signals.allow_restart_without_handler();
    sched::sleep_until(until).inspect_err(allow).map(|()| 0)
}

/// Goes on with a sleep that a signal without a handler ended.
pub fn restart_syscall(call: &mut Call<'_>) -> Outcome {
    let rest = call.task.thread.signals.take_rest().ok_or(Errno::EINTR)?;
    sleep_until(call.task, rest)
}

/// Sleeps for the time at `request`.
fn sleep(task: &Task, now: u64, request: u64, remaining: u64) -> Outcome {
    let time = user::read::<Timespec>(request)?.to_ns().ok_or(Errno::EINVAL)?;
    sleep_until(task, Rest { until: now.saturating_add(time), remaining })
}

/// Sleeps for the `rest` of a time. If a signal ends that, writes what is left, and goes on later if no
/// handler runs.
fn sleep_until(task: &Task, rest: Rest) -> Outcome {
    let slept = sched::sleep_until(rest.until);
    if slept.is_err() {
        if rest.remaining != 0 {
            let left = rest.until.saturating_sub(arch::now_ns());
            user::write(rest.remaining, &Timespec::from_ns(left))?;
        }
        task.thread.signals.allow_rest(rest);
    }
    slept.map(|()| 0)
}

/// Converts a point in time on the wall clock or since boot to nanoseconds since boot.
pub(super) fn deadline(time: u64, on_wall_clock: bool) -> u64 {
    let now = arch::now_ns();
    if on_wall_clock { now.saturating_add(time.saturating_sub(arch::wall_ns())) } else { time }
}
