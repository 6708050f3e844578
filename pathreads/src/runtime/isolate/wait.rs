//! Waiting for children: all are the leader's, so any thread may wait for any.
//!
//! The leader waits by itself. Another member asks a helper for a child that has ended, without waiting. If
//! there is none, it has a helper watch, and sleeps in a call that its signals interrupt, as they would
//! interrupt the wait. When it wakes, it handles the call again (`Frame::again`).

use core::sync::atomic::Ordering;

use abi::Errno;

use super::MILLISECOND;
use super::helpers::{self, INFORMATION, What};
use crate::dispatch::Then;
use crate::entry::Frame;
use crate::sys::{Result, nr};
use crate::user;

/// The kinds of children of `waitid`.
const ALL: u64 = 0;
const ONE: u64 = 1;
const GROUP: u64 = 2;
const DESCRIPTOR: u64 = 3;

const WNOHANG: u64 = 1;
const WEXITED: u64 = 4;

/// The options for others than the program's children: those of one thread, and members.
const NOT_PASSED_ON: u64 = 0xe000_0000;

/// Handles `wait4` and `waitid` of a member that is not the leader.
pub extern "C" fn handle(frame: &mut Frame) -> Then {
    match find(frame) {
        Ok(Some(result)) => frame.rax = result,
        Ok(None) => return sleep(frame),
        Err(error) => frame.rax = error.to_result(),
    }
    Then::Return
}

/// Takes the options for members out of a call of the leader, which would take their ends from the watcher.
pub fn leave_members(frame: &mut Frame) {
    let at = if frame.call[0] == nr::WAIT4 { 3 } else { 4 };
    if super::others().iter().next().is_some() {
        frame.call[at] &= !NOT_PASSED_ON;
    }
}

/// Returns the options of a call.
fn options(call: &[u64; 7]) -> u64 {
    u64::from(if call[0] == nr::WAIT4 { call[3] } else { call[4] } as u32) & !NOT_PASSED_ON
}

/// Takes what there is to wait for. Returns `None` if the call has to sleep.
fn find(frame: &Frame) -> Result<Option<u64>> {
    helpers::own_job().answer.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    let options = options(&frame.call);
    let may_sleep = options & WNOHANG == 0;
    if frame.call[0] == nr::WAIT4 {
        let child = find_by_wait4(&frame.call, options | WNOHANG)?;
        Ok((child != 0 || !may_sleep).then_some(child))
    } else {
        let is_found = find_by_waitid(&frame.call, options | WNOHANG, may_sleep)?;
        Ok((is_found || !may_sleep).then_some(0))
    }
}

/// Returns the child, or 0 if there is none yet.
fn find_by_wait4([number, child, status_at, _, usage_at, ..]: &[u64; 7], options: u64) -> Result {
    let job = helpers::own_job();
    let call = [*number, *child, job.answer_at(0), options, job.answer_at(INFORMATION), 0, 0];
    let found = helpers::ask(What::Call(call))?;
    if found != 0 && *status_at != 0 {
        let status = job.answer[0].load(Ordering::Relaxed) as u32;
        user::write(*status_at, &status.to_le_bytes())?;
    }
    write_usage(*usage_at, found != 0)?;
    Ok(found)
}

/// Returns whether there is a child. If not, a call that does not sleep says so in the information.
fn find_by_waitid(
    [number, kind, id, information_at, _, usage_at, _]: &[u64; 7],
    options: u64,
    may_sleep: bool,
) -> Result<bool> {
    let job = helpers::own_job();
    let call = [*number, *kind, *id, job.answer_at(0), options, job.answer_at(INFORMATION), 0];
    helpers::ask(What::Call(call))?;
    // The signal, which is 0 if there is nothing.
    let is_found = job.answer[0].load(Ordering::Relaxed) as u32 != 0;
    write_information(*information_at, is_found || !may_sleep)?;
    write_usage(*usage_at, is_found)?;
    Ok(is_found)
}

/// Writes the fields of a `siginfo` that `waitid` has.
fn write_information(at: u64, is_found: bool) -> Result<()> {
    const BYTES: usize = 28;
    if at == 0 || !is_found {
        return Ok(());
    }
    let mut bytes = [0; INFORMATION * 8];
    for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(&helpers::own_job().answer) {
        *place = word.load(Ordering::Relaxed).to_le_bytes();
    }
    user::write(at, &bytes[..BYTES])
}

fn write_usage(at: u64, is_found: bool) -> Result<()> {
    if at == 0 || !is_found {
        return Ok(());
    }
    let words = &helpers::own_job().answer[INFORMATION..];
    let words: [u64; 18] = core::array::from_fn(|word| words[word].load(Ordering::Relaxed));
    user::write_words(at, &words)
}

/// Has the thread sleep until there may be something, and handle the call again.
fn sleep(frame: &mut Frame) -> Then {
    const WAIT: u64 = 0;
    let job = helpers::own_job();
    let is_watched = watch(&frame.call);
    let value = job.watch.load(Ordering::Acquire);
    frame.again = frame.call[0];
    // When no helper can watch, the thread asks again soon. A descriptor may be another child's meanwhile,
    // and the group another one, which a watch from before does not know.
    let longest = match watched(&frame.call) {
        _ if !is_watched => Some(10 * MILLISECOND),
        [DESCRIPTOR, ..] | [GROUP, 0, _] => Some(100 * MILLISECOND),
        _ => None,
    };
    frame.scratch[..2].copy_from_slice(&[0, longest.unwrap_or(0)]);
    let time = longest.map_or(0, |_| frame.scratch.as_ptr() as u64);
    // One that has ended meanwhile is not slept for.
    let has_ended = is_watched && value & 1 != 0;
    let word = u64::from(if has_ended { !value } else { value });
    frame.call = [nr::FUTEX, job.watch.as_ptr() as u64, WAIT, word, time, 0, 0];
    Then::Perform
}

/// Has a helper watch, if none does. Returns whether one does.
fn watch(call: &[u64; 7]) -> bool {
    let job = helpers::own_job();
    let [kind, id, options] = watched(call);
    let value = job.watch.load(Ordering::Acquire);
    let is_same =
        [kind, id, options].iter().zip(&job.watched).all(|(new, old)| *new == old.load(Ordering::Relaxed));
    if value & 1 == 0 && value != 0 && is_same {
        return true;
    }
    let number = value / 2 % (u32::MAX / 2 - 1) + 1;
    job.watched.iter().zip([kind, id, options]).for_each(|(old, new)| old.store(new, Ordering::Relaxed));
    job.watch.store(2 * number, Ordering::Relaxed);
    let asked = helpers::ask(What::Watch { kind, id, options, number });
    if asked == Err(Errno::EAGAIN) {
        job.watch.store(2 * number + 1, Ordering::Relaxed);
    }
    asked.is_ok()
}

/// Returns the arguments of the call of `waitid` that returns when this call would.
fn watched(call: &[u64; 7]) -> [u64; 3] {
    let options = options(call);
    if call[0] == nr::WAITID {
        return [call[1], call[2], options];
    }
    let (kind, id) = match call[1] as i32 {
        -1 => (ALL, 0),
        0 => (GROUP, 0),
        number if number < 0 => (GROUP, u64::from(number.unsigned_abs())),
        number => (ONE, number as u64),
    };
    [kind, id, options | WEXITED]
}

/// Returns whether a child has ended. It stays what it is.
pub fn has_ended(child: u64) -> bool {
    const WNOWAIT: u64 = 0x100_0000;
    // Whatever its signal at the end: Go tries one without.
    const WALL: u64 = 0x4000_0000;
    let job = helpers::own_job();
    job.answer[0].store(0, Ordering::Relaxed);
    let options = WEXITED | WNOWAIT | WNOHANG | WALL;
    let call = [nr::WAITID, ONE, child, job.answer_at(0), options, 0, 0];
    let asked = helpers::ask(What::Call(call));
    // No child: it has ended, and another thread has waited for it, or SIGCHLD is ignored.
    asked.is_err() || job.answer[0].load(Ordering::Relaxed) as u32 != 0
}
