//! What was used: getrusage, times.

use abi::Errno;
use abi::process::Rusage;
use abi::time::{Timespec, Timeval};
use vm::Event;

use super::{Call, Outcome};
use crate::arch;
use crate::mm::user;
use crate::process::TICKS_PER_SECOND;

const RUSAGE_SELF: i32 = 0;
const RUSAGE_CHILDREN: i32 = -1;
const RUSAGE_THREAD: i32 = 1;

fn timeval(ns: u64) -> Timeval {
    let time = Timespec::from_ns(ns);
    Timeval { seconds: time.seconds, microseconds: time.nanoseconds / 1000 }
}

/// CPU time, all of it as user time, and faults, those of the whole process.
pub fn getrusage(call: &mut Call<'_>) -> Outcome {
    let process = call.task.process();
    let cpu_ns = match call.int(0) {
        RUSAGE_SELF => process.cpu_ns(),
        RUSAGE_THREAD => call.task.cpu_ns(),
        RUSAGE_CHILDREN => 0,
        _ => return Err(Errno::EINVAL),
    };
    let counters = process.space().counters();
    let faults = counters[Event::AllocFault] + counters[Event::FillFault];
    let usage = Rusage { user_time: timeval(cpu_ns), minor_faults: faults as i64, ..Rusage::default() };
    user::write(call.arg(1), &usage)?;
    Ok(0)
}

/// CPU time in ticks; returns the ticks since boot.
pub fn times(call: &mut Call<'_>) -> Outcome {
    const NS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;
    if call.arg(0) != 0 {
        let ticks = call.task.process().cpu_ns() / NS_PER_TICK;
        user::write(call.arg(0), &[ticks, 0, 0, 0])?;
    }
    Ok(arch::now_ns() / NS_PER_TICK)
}
