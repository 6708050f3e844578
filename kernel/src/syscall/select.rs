//! Waiting for files that are named by sets of bits.

use abi::Errno;
use abi::file::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDNORM, POLLWRNORM};
use abi::time::{Timespec, Timeval};

use super::poll::allow_restart;
use super::{Call, Outcome, signals};
use crate::arch;
use crate::fs::content::ALWAYS_READY;
use crate::fs::{FdTable, MAX_FILES, readiness};
use crate::mm::user;

/// The words of a set.
const WORDS: usize = MAX_FILES as usize / 64;
/// The events for which each set waits, as in Linux's `fs/select.c`.
const EVENTS: [i16; 3] = [POLLIN | POLLRDNORM | POLLHUP | POLLERR, POLLOUT | POLLWRNORM | POLLERR, POLLPRI];

/// Three sets of descriptors: to read, to write, and with exceptional conditions.
type Sets = [[u64; WORDS]; 3];

pub fn select(call: &mut Call<'_>) -> Outcome {
    let at = call.arg(4);
    let timeout = match at {
        0 => None,
        _ => Some(ns_of(user::read(at)?)?),
    };
    let deadline = deadline(timeout);
    let outcome = wait(call, timeout, deadline);
    // As in Linux, what is left of the time is stored if that is possible.
    if timeout.is_some() {
        let Timespec { seconds, nanoseconds } = left(deadline);
        let _unused = user::write(at, &Timeval { seconds, microseconds: nanoseconds / 1000 });
    }
    outcome
}

pub fn pselect6(call: &mut Call<'_>) -> Outcome {
    let (at, mask) = (call.arg(4), call.arg(5));
    let timeout = match at {
        0 => None,
        _ => Some(user::read::<Timespec>(at)?.to_ns().ok_or(Errno::EINVAL)?),
    };
    let deadline = deadline(timeout);
    let [mask, size] = if mask != 0 { user::read(mask)? } else { [0; 2] };
    let outcome = signals::under_mask(call, mask, size, || wait(call, timeout, deadline));
    if timeout.is_some() {
        let _unused = user::write(at, &left(deadline));
    }
    outcome
}

fn ns_of(time: Timeval) -> Result<u64, Errno> {
    let Timeval { seconds, microseconds } = time;
    let microseconds = u64::try_from(microseconds).map_err(|_| Errno::EINVAL)?;
    let seconds = u64::try_from(seconds).map_err(|_| Errno::EINVAL)?;
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(microseconds.saturating_mul(1000)))
}

/// Returns the moment at which the wait ends. There is always one: a wait without one could be restarted
/// after a signal handler, and these never are.
fn deadline(timeout_ns: Option<u64>) -> u64 {
    timeout_ns.map_or(u64::MAX, |ns| arch::now_ns().saturating_add(ns))
}

fn left(deadline: u64) -> Timespec {
    Timespec::from_ns(deadline.saturating_sub(arch::now_ns()))
}

fn wait(call: &Call<'_>, timeout_ns: Option<u64>, deadline: u64) -> Outcome {
    let count = u64::try_from(call.int(0)).map_err(|_| Errno::EINVAL)?.min(MAX_FILES) as usize;
    let places = [call.arg(1), call.arg(2), call.arg(3)];
    let mut wanted = Sets::default();
    for (set, place) in wanted.iter_mut().zip(places) {
        read_set(set, place, count)?;
    }
    let mut found = Sets::default();
    let mut look = || look(call.files(), count, &wanted, &mut found).transpose();
    let ready = match timeout_ns {
        // A call that does not wait need not be woken.
        Some(0) => look(),
        _ => readiness::wait_until(deadline, look).inspect_err(|_| allow_restart(call, timeout_ns))?,
    };
    let ready = ready.transpose()?.unwrap_or(0);
    for (set, place) in found.iter().zip(places) {
        write_set(set, place, count)?;
    }
    Ok(ready)
}

/// Reads the first `count` bits of the set at `place`, if there is one.
fn read_set(set: &mut [u64; WORDS], place: u64, count: usize) -> Result<(), Errno> {
    if place == 0 {
        return Ok(());
    }
    for (index, word) in set.iter_mut().take(count.div_ceil(64)).enumerate() {
        *word = user::read(place.wrapping_add(index as u64 * 8))?;
    }
    if let Some(last) = set.get_mut(count / 64) {
        *last &= (1 << (count % 64)) - 1;
    }
    Ok(())
}

fn write_set(set: &[u64; WORDS], place: u64, count: usize) -> Result<(), Errno> {
    if place == 0 {
        return Ok(());
    }
    let words = set.iter().take(count.div_ceil(64)).enumerate();
    words.into_iter().try_for_each(|(index, word)| user::write(place.wrapping_add(index as u64 * 8), word))
}

/// Stores the descriptors that are ready in `found`, and returns the number of their bits, or `None` if there
/// are none.
///
/// # Errors
/// EBADF if a descriptor is not open.
fn look(files: &FdTable, count: usize, wanted: &Sets, found: &mut Sets) -> Result<Option<u64>, Errno> {
    *found = Sets::default();
    let mut ready = 0;
    for file in 0..count {
        let (word, bit) = (file / 64, 1 << (file % 64));
        let is_wanted = |set: &[u64; WORDS]| set.get(word).is_some_and(|word| word & bit != 0);
        if !wanted.iter().any(is_wanted) {
            continue;
        }
        let events = files
            .borrow(file as i32)
            .map(|file| file.node().content().map_or(ALWAYS_READY, |content| content.ready()))?;
        for ((wanted, found), set_events) in wanted.iter().zip(found.iter_mut()).zip(EVENTS) {
            if is_wanted(wanted) && events & set_events != 0 {
                found.get_mut(word).into_iter().for_each(|word| *word |= bit);
                ready += 1;
            }
        }
    }
    Ok(Some(ready).filter(|&ready| ready > 0))
}
