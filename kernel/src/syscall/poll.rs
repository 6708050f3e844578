//! Waiting for files.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::{POLLERR, POLLHUP, POLLNVAL, PollFd};
use abi::time::Timespec;

use super::{Call, Outcome, signals};
use crate::arch;
use crate::fs::content::ALWAYS_READY;
use crate::fs::{FdTable, readiness};
use crate::mm::fallible;
use crate::mm::user;

pub fn poll(call: &mut Call<'_>) -> Outcome {
    let timeout = u64::try_from(call.int(2)).ok().map(|ms| ms * 1_000_000);
    wait(call, timeout)
}

pub fn ppoll(call: &mut Call<'_>) -> Outcome {
    let timeout = match call.arg(2) {
        0 => None,
        at => Some(user::read::<Timespec>(at)?.to_ns().ok_or(Errno::EINVAL)?),
    };
    signals::under_mask(call, call.arg(3), call.arg(4), || wait(call, timeout))
}

fn wait(call: &Call<'_>, timeout_ns: Option<u64>) -> Outcome {
    let (list, count) = (call.arg(0), call.arg(1));
    if count > call.files().limit() as u64 {
        return Err(Errno::EINVAL);
    }
    let mut polled = read_list(list, count)?;
    // There is always a deadline: a wait without one could be restarted after a signal handler, and polls
    // never are.
    let deadline = timeout_ns.map_or(u64::MAX, |ns| arch::now_ns().saturating_add(ns));
    let mut look = || Some(look(call.files(), &mut polled)).filter(|&ready| ready > 0);
    let ready = match timeout_ns {
        // A call that does not wait need not be woken.
        Some(0) => look(),
        _ => readiness::wait_until(deadline, look).inspect_err(|_| allow_restart(call, timeout_ns))?,
    };
    let ready = ready.unwrap_or(0);
    for (index, one) in polled.iter().enumerate() {
        user::write(entry(list, index), one)?;
    }
    Ok(ready)
}

/// Allows a wait without a limit to be restarted if no handler runs. The rest of another one is not known.
pub(super) fn allow_restart(call: &Call<'_>, timeout_ns: Option<u64>) {
    if timeout_ns.is_none() {
        call.task.thread.signals.allow_restart_without_handler();
    }
}

fn entry(list: u64, index: usize) -> u64 {
    list.wrapping_add((index * size_of::<PollFd>()) as u64)
}

fn read_list(list: u64, count: u64) -> Result<Vec<PollFd>, Errno> {
    let mut polled = fallible::empty(count as usize)?;
    for index in 0..count as usize {
        polled.push(user::read(entry(list, index))?);
    }
    Ok(polled)
}

/// Stores the events that are ready, and returns the number of files that have some.
fn look(files: &FdTable, polled: &mut [PollFd]) -> u64 {
    polled.iter_mut().for_each(|one| one.revents = events(files, one));
    polled.iter().filter(|one| one.revents != 0).count() as u64
}

fn events(files: &FdTable, one: &PollFd) -> i16 {
    if one.fd < 0 {
        return 0;
    }
    let ready = files
        .borrow(one.fd)
        .map(|file| file.node().content().map_or(ALWAYS_READY, |content| content.ready()));
    ready.map_or(POLLNVAL, |ready| ready & (one.events | POLLERR | POLLHUP))
}
