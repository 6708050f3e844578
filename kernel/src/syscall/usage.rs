//! Resource usage: getrusage, times.

use abi::Errno;
use abi::process::Rusage;
use abi::time::{Timespec, Timeval};

use super::{Call, Outcome};
use crate::arch;
use crate::mm::user;
use crate::process::{TICKS_PER_SECOND, Usage};

const RUSAGE_SELF: i32 = 0;
const RUSAGE_CHILDREN: i32 = -1;
const RUSAGE_THREAD: i32 = 1;

fn timeval(ns: u64) -> Timeval {
    let time = Timespec::from_ns(ns);
    Timeval { seconds: time.seconds, microseconds: time.nanoseconds / 1000 }
}

/// Returns the usage as `rusage`: CPU time, all of it as user time, and faults.
pub(super) fn rusage(usage: &Usage) -> Rusage {
    Rusage { user_time: timeval(usage.cpu_ns), minor_faults: usage.faults as i64, ..Rusage::default() }
}

/// Writes the usage of the process, the thread, or the children that were waited for. Faults of a thread are
/// those of the whole process.
pub fn getrusage(call: &mut Call<'_>) -> Outcome {
    let process = call.task.process();
    let usage = match call.int(0) {
        RUSAGE_SELF => process.usage(),
        RUSAGE_THREAD => Usage { cpu_ns: call.task.cpu_ns(), ..process.usage() },
        RUSAGE_CHILDREN => process.children_usage.get(),
        _ => return Err(Errno::EINVAL),
    };
    user::write(call.arg(1), &rusage(&usage))?;
    Ok(0)
}

/// Writes CPU times in ticks, and returns the ticks since boot.
pub fn times(call: &mut Call<'_>) -> Outcome {
    const NS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;
    if call.arg(0) != 0 {
        let process = call.task.process();
        let [own, children] =
            [process.cpu_ns(), process.children_usage.get().cpu_ns].map(|ns| ns / NS_PER_TICK);
        user::write(call.arg(0), &[own, 0, children, 0])?;
    }
    Ok(arch::now_ns() / NS_PER_TICK)
}
