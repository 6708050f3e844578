//! `epoll` and `eventfd`.

use abi::Errno;
use abi::file::{
    EFD_SEMAPHORE, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLEXCLUSIVE, EpollEvent, O_CLOEXEC,
    O_NONBLOCK,
};
use abi::time::Timespec;

use super::{Call, Outcome, signals};
use crate::arch;
use crate::fs::{MAX_FILES, epoll, eventfd, readiness};
use crate::mm::{fallible, user};

pub fn epoll_create(call: &mut Call<'_>) -> Outcome {
    if call.int(0) <= 0 { Err(Errno::EINVAL) } else { create(call, 0) }
}

pub fn epoll_create1(call: &mut Call<'_>) -> Outcome {
    create(call, call.arg(0) as u32)
}

fn create(call: &Call<'_>, flags: u32) -> Outcome {
    if flags & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(call.files().add(epoll::open(0)?, 0, flags & O_CLOEXEC != 0)? as u64)
}

pub fn epoll_ctl(call: &mut Call<'_>) -> Outcome {
    let (operation, fd) = (call.arg(1) as u32, call.int(2));
    let event = match operation {
        EPOLL_CTL_DEL => EpollEvent::default(),
        _ => user::read(call.arg(3))?,
    };
    let (files, own) = (call.files(), call.files().get(call.int(0))?);
    let file = files.get(fd)?;
    // As in Linux, a file that is always ready is refused first.
    if !file.node().content().is_some_and(|content| content.is_polled()) {
        return Err(Errno::EPERM);
    }
    let list = epoll::of(&own)?;
    if own.is(&file) {
        return Err(Errno::EINVAL);
    }
    match operation {
        EPOLL_CTL_ADD => list.add(fd, file, event)?,
        EPOLL_CTL_DEL => list.remove(fd, &file)?,
        EPOLL_CTL_MOD if event.events() & EPOLLEXCLUSIVE != 0 => return Err(Errno::EINVAL),
        EPOLL_CTL_MOD => list.modify(fd, &file, event)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

pub fn epoll_wait(call: &mut Call<'_>) -> Outcome {
    wait(call, milliseconds(call))
}

pub fn epoll_pwait(call: &mut Call<'_>) -> Outcome {
    under_mask(call, milliseconds(call))
}

pub fn epoll_pwait2(call: &mut Call<'_>) -> Outcome {
    let timeout = match call.arg(3) {
        0 => None,
        at => Some(user::read::<Timespec>(at)?.to_ns().ok_or(Errno::EINVAL)?),
    };
    under_mask(call, timeout)
}

/// Returns the nanoseconds of a timeout in milliseconds, unless it is below zero.
fn milliseconds(call: &Call<'_>) -> Option<u64> {
    u64::try_from(call.int(3)).ok().map(|ms| ms * 1_000_000)
}

fn under_mask(call: &Call<'_>, timeout_ns: Option<u64>) -> Outcome {
    signals::under_mask(call, call.arg(4), call.arg(5), || wait(call, timeout_ns))
}

fn wait(call: &Call<'_>, timeout_ns: Option<u64>) -> Outcome {
    let most = usize::try_from(call.int(2)).ok().filter(|&most| most > 0).ok_or(Errno::EINVAL)?;
    let file = call.files().get(call.int(0))?;
    let list = epoll::of(&file)?;
    let most = most.min(MAX_FILES as usize);
    let mut events = fallible::empty(most)?;
    // There is always a deadline: a wait without one could be restarted after a signal handler, and these
    // never are.
    let deadline = timeout_ns.map_or(u64::MAX, |ns| arch::now_ns().saturating_add(ns));
    let mut look = || Some(list.collect(most, &mut events)).filter(|&count| count > 0);
    match timeout_ns {
        // A call that does not wait need not be woken.
        Some(0) => look(),
        _ => readiness::wait_until(deadline, look)?,
    };
    let place = |index: usize| call.arg(1).wrapping_add((index * size_of::<EpollEvent>()) as u64);
    for (index, event) in events.iter().enumerate() {
        match user::write(place(index), event) {
            Err(_) if index > 0 => return Ok(index as u64),
            written => written?,
        }
    }
    Ok(events.len() as u64)
}

pub fn eventfd(call: &mut Call<'_>) -> Outcome {
    make_eventfd(call, 0)
}

pub fn eventfd2(call: &mut Call<'_>) -> Outcome {
    make_eventfd(call, call.arg(1) as u32)
}

fn make_eventfd(call: &Call<'_>, flags: u32) -> Outcome {
    if flags & !(EFD_SEMAPHORE | O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let file = eventfd::open(u64::from(call.arg(0) as u32), flags & !O_CLOEXEC)?;
    Ok(call.files().add(file, 0, flags & O_CLOEXEC != 0)? as u64)
}
