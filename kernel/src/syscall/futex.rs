//! futex: the operations of `process::futex`, by their Linux numbers.

use abi::Errno;
use abi::process::*;
use abi::time::Timespec;

use super::clock::deadline;
use super::{Call, Outcome};
use crate::arch;
use crate::mm::user;
use crate::process::futex::{Word, requeue, wait, wake, wake_op};

const ANY: u32 = FUTEX_BITSET_MATCH_ANY;

/// Sleeps on words, wakes and requeues sleepers.
pub fn futex(call: &mut Call<'_>) -> Outcome {
    let operation = call.arg(1) & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME) & 0xffff_ffff;
    if call.arg(1) & FUTEX_CLOCK_REALTIME != 0 && operation != FUTEX_WAIT_BITSET {
        return Err(Errno::ENOSYS);
    }
    let (value, last) = (call.arg(2) as u32, call.arg(5) as u32);
    let woken = match operation {
        FUTEX_WAIT => return sleep(call, value, ANY, false),
        FUTEX_WAIT_BITSET if last != 0 => return sleep(call, value, last, true),
        FUTEX_WAKE => Ok(wake(call.task, word(call, 0)?, count(value), ANY)),
        FUTEX_WAKE_BITSET if last != 0 => Ok(wake(call.task, word(call, 0)?, count(value), last)),
        FUTEX_REQUEUE => move_sleepers(call, None),
        FUTEX_CMP_REQUEUE => move_sleepers(call, Some(last)),
        FUTEX_WAKE_OP => wake_op(call.task, words(call)?, (count(value), count(call.arg(3) as u32)), last),
        FUTEX_WAIT_BITSET | FUTEX_WAKE_BITSET => Err(Errno::EINVAL),
        _ => Err(Errno::ENOSYS),
    };
    woken.map(|count| count as u64)
}

fn is_private(call: &Call<'_>) -> bool {
    call.arg(1) & FUTEX_PRIVATE_FLAG != 0
}

/// Returns the word in argument `index`. A shared word must be mapped, because its key is what it maps.
fn word(call: &Call<'_>, index: usize) -> Result<Word, Errno> {
    let (at, is_private) = (call.arg(index), is_private(call));
    if !is_private {
        user::load_u32(at)?;
    }
    Word::new(at, is_private)
}

/// Returns the words of calls that have two.
fn words(call: &Call<'_>) -> Result<(Word, Word), Errno> {
    Ok((word(call, 0)?, word(call, 4)?))
}

fn move_sleepers(call: &Call<'_>, expected: Option<u32>) -> Result<usize, Errno> {
    let counts = counts(call)?;
    requeue(call.task, words(call)?, counts, expected)
}

/// Returns the number of sleepers to wake. Linux wakes one if the number is zero or negative.
fn count(value: u32) -> usize {
    (value as i32).max(1) as usize
}

/// Returns the numbers of sleepers that a requeue wakes and moves.
fn counts(call: &Call<'_>) -> Result<(usize, usize), Errno> {
    let exact = |index| usize::try_from(call.int(index)).map_err(|_| Errno::EINVAL);
    Ok((exact(2)?, exact(3)?))
}

fn sleep(call: &Call<'_>, value: u32, bits: u32, absolute: bool) -> Outcome {
    let until = match call.arg(3) {
        0 => None,
        timeout => {
            let time = user::read::<Timespec>(timeout)?.to_ns().ok_or(Errno::EINVAL)?;
            let on_wall_clock = call.arg(1) & FUTEX_CLOCK_REALTIME != 0;
            Some(if absolute { deadline(time, on_wall_clock) } else { arch::now_ns().saturating_add(time) })
        }
    };
    let slept = wait(Word::new(call.arg(0), is_private(call))?, value, bits, until);
    if slept == Err(Errno::EINTR) && until.is_none() {
        call.task.thread.signals.allow_restart();
    }
    slept.map(|()| 0)
}
