//! futex: the operations of `process::futex` by their Linux numbers.

use abi::Errno;
use abi::process::*;
use abi::time::Timespec;

use super::clock::deadline;
use super::{Call, Outcome};
use crate::arch;
use crate::mm::user;
use crate::process::futex::{Word, requeue, wait, wake, wake_op};

const ANY: u32 = FUTEX_BITSET_MATCH_ANY;

/// Sleeping on words, waking, requeueing. A private futex is known by its address, a shared one by the file
/// that it lies in, if there is one.
pub fn futex(call: &mut Call<'_>) -> Outcome {
    let operation = call.arg(1) & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME) & 0xffff_ffff;
    if call.arg(1) & FUTEX_CLOCK_REALTIME != 0 && operation != FUTEX_WAIT_BITSET {
        return Err(Errno::ENOSYS);
    }
    let (value, last) = (call.arg(2) as u32, call.arg(5) as u32);
    let woken = match operation {
        FUTEX_WAIT => return sleep(call, value, ANY, false),
        FUTEX_WAIT_BITSET if last != 0 => return sleep(call, value, last, true),
        FUTEX_WAKE => wake(call.task, word(call, 0)?, count(value), ANY),
        FUTEX_WAKE_BITSET if last != 0 => wake(call.task, word(call, 0)?, count(value), last),
        FUTEX_REQUEUE => move_sleepers(call, None),
        FUTEX_CMP_REQUEUE => move_sleepers(call, Some(last)),
        FUTEX_WAKE_OP => wake_op(call.task, words(call)?, (count(value), count(call.arg(3) as u32)), last),
        FUTEX_WAIT_BITSET | FUTEX_WAKE_BITSET => Err(Errno::EINVAL),
        _ => Err(Errno::ENOSYS),
    };
    woken.map(|count| count as u64)
}

/// A word. That of a shared futex must lead somewhere, since it is known by what it leads to.
fn word(call: &Call<'_>, index: usize) -> Result<Word, Errno> {
    let word = Word { at: call.arg(index), private: call.arg(1) & FUTEX_PRIVATE_FLAG != 0 };
    if !word.private {
        user::load_u32(word.at)?;
    }
    Ok(word)
}

/// The two words of the calls that have two.
fn words(call: &Call<'_>) -> Result<(Word, Word), Errno> {
    Ok((word(call, 0)?, word(call, 4)?))
}

fn move_sleepers(call: &Call<'_>, expected: Option<u32>) -> Result<usize, Errno> {
    let counts = counts(call)?;
    requeue(call.task, words(call)?, counts, expected)
}

/// How many to wake: Linux wakes one where it is asked for none or a negative number.
fn count(value: u32) -> usize {
    (value as i32).max(1) as usize
}

/// How many a requeue wakes and moves.
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
    let slept = wait(word(call, 0)?, value, bits, until);
    if slept == Err(Errno::EINTR) && until.is_none() {
        call.task.thread.signals.allow_restart();
    }
    slept.map(|()| 0)
}
