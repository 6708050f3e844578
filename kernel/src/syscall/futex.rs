//! futex: the operations of `process::futex` by their Linux numbers.

use abi::Errno;
use abi::process::*;
use abi::time::Timespec;

use super::clock::deadline;
use super::{Call, Outcome};
use crate::arch;
use crate::mm::user;
use crate::process::futex::{requeue, wait, wake, wake_op};

const ANY: u32 = FUTEX_BITSET_MATCH_ANY;

/// Sleeping on words, waking, requeueing. Private and shared futexes are the same: one process.
pub fn futex(call: &mut Call<'_>) -> Outcome {
    let operation = call.arg(1) & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME) & 0xffff_ffff;
    let (at, value, other, last) = (call.arg(0), call.arg(2) as u32, call.arg(4), call.arg(5) as u32);
    let process = &**call.task.process();
    let woken = match operation {
        FUTEX_WAIT => return sleep(call, at, value, ANY, false),
        FUTEX_WAIT_BITSET if last != 0 => return sleep(call, at, value, last, true),
        FUTEX_WAKE => wake(process, at, count(value), ANY),
        FUTEX_WAKE_BITSET if last != 0 => wake(process, at, count(value), last),
        FUTEX_REQUEUE => requeue(process, (at, other), counts(call)?, None),
        FUTEX_CMP_REQUEUE => requeue(process, (at, other), counts(call)?, Some(last)),
        FUTEX_WAKE_OP => wake_op(process, (at, other), (count(value), count(call.arg(3) as u32)), last),
        FUTEX_WAIT_BITSET | FUTEX_WAKE_BITSET => Err(Errno::EINVAL),
        _ => Err(Errno::ENOSYS),
    };
    woken.map(|count| count as u64)
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

fn sleep(call: &Call<'_>, at: u64, value: u32, bits: u32, absolute: bool) -> Outcome {
    let until = match call.arg(3) {
        0 => None,
        timeout => {
            let time = user::read::<Timespec>(timeout)?.to_ns().ok_or(Errno::EINVAL)?;
            let on_wall_clock = call.arg(1) & FUTEX_CLOCK_REALTIME != 0;
            Some(if absolute { deadline(time, on_wall_clock) } else { arch::now_ns().saturating_add(time) })
        }
    };
    let slept = wait(at, value, bits, until);
    if slept == Err(Errno::EINTR) && until.is_none() {
        call.task.thread.signals.allow_restart();
    }
    slept.map(|()| 0)
}
