//! Timers that send signals or are files.

use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use abi::file::{O_CLOEXEC, O_NONBLOCK};
use abi::signal::{NSIG, SIGALRM, SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD_ID, Sigevent};
use abi::time::*;

use alloc::sync::Arc;

use super::clock::own_cpu_clock;
use super::{Call, Outcome};
use crate::arch;
use crate::fs::timerfd;
use crate::mm::user;
use crate::process::timers::{self, Interval, Notice, Timer};
use crate::sched::Setting;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Sets ITIMER_REAL to a number of seconds, and returns the seconds that were left.
pub fn alarm(call: &mut Call<'_>) -> Outcome {
    let seconds = u64::from(call.arg(0) as u32);
    let now = arch::now_ns();
    let deadline = (seconds > 0).then(|| now.saturating_add(seconds * NS_PER_SECOND));
    let process = call.task.process();
    let old = process.timers.set_real(process, Setting { deadline, interval: 0 })?;
    // As in Linux: to the nearest second, and no less than one.
    let left = old.deadline.map(|deadline| deadline.saturating_sub(now));
    Ok(left.map_or(0, |left| ((left + NS_PER_SECOND / 2) / NS_PER_SECOND).max(1)))
}

pub fn getitimer(call: &mut Call<'_>) -> Outcome {
    let process = call.task.process();
    let timer = match interval(call)? {
        None => interval_timer(process.timers.real(), arch::now_ns()),
        Some(interval) => interval_timer(process.timers.interval(interval), process.cpu_ns()),
    };
    user::write(call.arg(1), &timer)?;
    Ok(0)
}

pub fn setitimer(call: &mut Call<'_>) -> Outcome {
    let which = interval(call)?;
    let new: Itimerval = match call.arg(1) {
        // As in Linux, nothing stops the timer.
        0 => Itimerval::default(),
        at => user::read(at)?,
    };
    let value = new.value.to_ns().ok_or(Errno::EINVAL)?;
    let interval = new.interval.to_ns().ok_or(Errno::EINVAL)?;
    let process = call.task.process();
    let now = if which.is_none() { arch::now_ns() } else { process.cpu_ns() };
    let setting = Setting { deadline: (value > 0).then(|| now.saturating_add(value)), interval };
    let old = match which {
        None => process.timers.set_real(process, setting)?,
        Some(which) => process.timers.set_interval(process, which, setting)?,
    };
    if call.arg(2) != 0 {
        user::write(call.arg(2), &interval_timer(old, now))?;
    }
    Ok(0)
}

/// Returns the interval timer in argument 0 if it is one of CPU time, or `None` for ITIMER_REAL.
fn interval(call: &Call<'_>) -> Result<Option<Interval>, Errno> {
    match call.int(0) {
        0 => Ok(None),
        1 => Ok(Some(Interval::Virtual)),
        2 => Ok(Some(Interval::Prof)),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns the nanoseconds to the deadline, at least one if there is a deadline.
fn left(setting: Setting, now: u64) -> u64 {
    setting.deadline.map_or(0, |deadline| deadline.saturating_sub(now).max(1))
}

fn interval_timer(setting: Setting, now: u64) -> Itimerval {
    // A time that is not over yet does not show as 0.
    let value = left(setting, now).next_multiple_of(1000);
    Itimerval { interval: Timeval::from_ns(setting.interval), value: Timeval::from_ns(value) }
}

fn specification(setting: Setting, now: u64) -> Itimerspec {
    Itimerspec { interval: Timespec::from_ns(setting.interval), value: Timespec::from_ns(left(setting, now)) }
}

/// Returns the time on the clock that the deadlines of a timer are on.
fn time_of(call: &Call<'_>, timer: &Timer) -> u64 {
    timer.cpu_clock().map_or_else(arch::now_ns, |clock| clock.now(call.task.process()))
}

/// Returns whether a timer's clock is the wall clock.
///
/// # Errors
/// EINVAL for clocks without timers.
fn is_wall(clock: u64) -> Result<bool, Errno> {
    match clock {
        CLOCK_REALTIME | CLOCK_TAI => Ok(true),
        CLOCK_MONOTONIC | CLOCK_BOOTTIME => Ok(false),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns the setting that a program means, for a clock on which it is `now`.
fn setting(at: u64, now: u64, is_wall: bool, absolute: bool) -> Result<Setting, Errno> {
    let new: Itimerspec = user::read(at)?;
    let value = new.value.to_ns().ok_or(Errno::EINVAL)?;
    let interval = new.interval.to_ns().ok_or(Errno::EINVAL)?;
    let deadline = match (absolute, is_wall) {
        (false, _) => now.saturating_add(value),
        (true, false) => value,
        (true, true) => now.saturating_add(value.saturating_sub(arch::wall_ns())),
    };
    Ok(Setting { deadline: (value > 0).then_some(deadline), interval })
}

pub fn timer_create(call: &mut Call<'_>) -> Outcome {
    let number = u64::from(call.arg(0) as u32);
    let cpu_clock = own_cpu_clock(call.task, number)?;
    let is_wall = cpu_clock.is_none() && is_wall(number)?;
    let event: Option<Sigevent> = match call.arg(1) {
        0 => None,
        at => Some(user::read(at)?),
    };
    let (signal, thread) = event.as_ref().map_or(Ok((SIGALRM, None)), |event| notified(call, event))?;
    let process = call.task.process();
    let number = process.timers.create(process, cpu_clock, |number| Notice {
        process: Arc::downgrade(process),
        thread,
        signal,
        origin: timers::origin(number, event.map_or(u64::from(number), |event| event.value)),
        is_wall,
        overruns: AtomicU32::new(0),
    })?;
    if let Err(error) = user::write(call.arg(2), &number) {
        process.timers.remove(number.into())?;
        return Err(error);
    }
    Ok(0)
}

/// Returns the signal, or 0 for none, and the thread that gets it alone.
fn notified(call: &Call<'_>, event: &Sigevent) -> Result<(u32, Option<u32>), Errno> {
    let signal = u32::try_from(event.signo).ok().filter(|signal| (1..=NSIG).contains(signal));
    match event.notify {
        SIGEV_NONE => Ok((0, None)),
        SIGEV_SIGNAL => Ok((signal.ok_or(Errno::EINVAL)?, None)),
        SIGEV_THREAD_ID => {
            let tid = event.tid as u32;
            call.task.process().thread(tid).ok_or(Errno::EINVAL)?;
            Ok((signal.ok_or(Errno::EINVAL)?, Some(tid)))
        }
        _ => Err(Errno::EINVAL),
    }
}

pub fn timer_settime(call: &mut Call<'_>) -> Outcome {
    let timer = call.task.process().timers.get(timer_id(call))?;
    let absolute = u64::from(call.arg(1) as u32) & TIMER_ABSTIME != 0;
    let now = time_of(call, &timer);
    let new = setting(call.arg(2), now, timer.action().is_wall, absolute)?;
    let old = timer.set(call.task.process(), new)?;
    if call.arg(3) != 0 {
        user::write(call.arg(3), &specification(old, now))?;
    }
    Ok(0)
}

pub fn timer_gettime(call: &mut Call<'_>) -> Outcome {
    let timer = call.task.process().timers.get(timer_id(call))?;
    user::write(call.arg(1), &specification(timer.setting(), time_of(call, &timer)))?;
    Ok(0)
}

pub fn timer_getoverrun(call: &mut Call<'_>) -> Outcome {
    let timer = call.task.process().timers.get(timer_id(call))?;
    timer.wait();
    Ok(timer.action().overruns.load(Ordering::Relaxed).into())
}

pub fn timer_delete(call: &mut Call<'_>) -> Outcome {
    call.task.process().timers.remove(timer_id(call)).map(|()| 0)
}

fn timer_id(call: &Call<'_>) -> u64 {
    u64::from(call.arg(0) as u32)
}

pub fn timerfd_create(call: &mut Call<'_>) -> Outcome {
    let flags = call.arg(1) as u32;
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let file = timerfd::open(is_wall(u64::from(call.arg(0) as u32))?, flags & O_NONBLOCK)?;
    Ok(call.files().add(file, 0, flags & O_CLOEXEC != 0)? as u64)
}

pub fn timerfd_settime(call: &mut Call<'_>) -> Outcome {
    // The wall clock is never set.
    const CANCEL_ON_SET: u64 = 2;
    let (file, flags) = (call.file(0)?, u64::from(call.arg(1) as u32));
    let timer = timerfd::of(&file)?;
    if flags & !(TIMER_ABSTIME | CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let now = arch::now_ns();
    let old = timer.set(setting(call.arg(2), now, timer.is_wall, flags & TIMER_ABSTIME != 0)?)?;
    if call.arg(3) != 0 {
        user::write(call.arg(3), &specification(old, now))?;
    }
    Ok(0)
}

pub fn timerfd_gettime(call: &mut Call<'_>) -> Outcome {
    let file = call.file(0)?;
    user::write(call.arg(1), &specification(timerfd::of(&file)?.setting(), arch::now_ns()))?;
    Ok(0)
}
