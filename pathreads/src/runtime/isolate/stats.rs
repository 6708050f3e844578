//! Counters and times of each member, for `--stats`. A member writes its own, in lines of its own. Times are
//! read with `--stats` only: each costs two calls of the kernel.

use core::sync::atomic::{AtomicU64, Ordering};

use pathreads::record::Members;

use super::{control, me, others};
use crate::boot;
use crate::sys::{self, harmless, nr};

/// The counters of one member. Relaxed: they are read when the program exits.
#[repr(C, align(64))]
pub struct Stats {
    /// Faults that mapped memory.
    faults: AtomicU64,
    /// Regions that were mapped, for faults and before calls.
    fills: AtomicU64,
    /// Requests that were sent.
    requests: AtomicU64,
    /// Members that were not asked when memory or rights went, because they had not the memory.
    avoided: AtomicU64,
    /// Members that had memory which went, and were not asked.
    stale: AtomicU64,
    /// Nanoseconds in each [`Work`].
    times: [AtomicU64; 3],
}

/// Work that takes time.
#[derive(Clone, Copy)]
pub enum Work {
    /// Faults.
    Fault,
    /// Mapping memory before calls.
    Fill,
    /// Asking other members, and waiting for them, also within the others.
    Request,
}

fn mine() -> &'static Stats {
    &control().stats[me()]
}

fn add(counter: &AtomicU64, more: u64) {
    // Only this member writes it, but a handler of it, or a helper of the leader, may come in between.
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Counts a fault that mapped memory.
pub fn note_fault() {
    add(&mine().faults, 1);
}

/// Counts a region that was mapped.
pub fn note_fill() {
    add(&mine().fills, 1);
}

/// Counts a request that was sent.
pub fn note_request() {
    add(&mine().requests, 1);
}

/// Counts a member that has memory which goes, and is not asked.
pub fn note_stale() {
    add(&mine().stale, 1);
}

/// Counts the members that need not be asked about memory that only `holders` may have.
pub fn note_avoided(holders: Members) {
    if boot::prints_counters() {
        let spared = others().iter().filter(|member| !holders.has(*member)).count();
        add(&mine().avoided, spared as u64);
    }
}

/// Does the work, and adds the time that it takes.
#[inline(always)]
pub fn timed<R>(work: Work, f: impl FnOnce() -> R) -> R {
    if !boot::prints_counters() {
        return f();
    }
    let start = now();
    let result = f();
    add(&mine().times[work as usize], now().saturating_sub(start));
    result
}

/// Returns the nanoseconds of the monotonic clock.
fn now() -> u64 {
    const MONOTONIC: u64 = 1;
    const SECOND: u64 = 1_000_000_000;
    let mut time = [0_u64; 2];
    let _ = harmless!(nr::CLOCK_GETTIME, MONOTONIC, time.as_mut_ptr() as u64);
    time[0] * SECOND + time[1]
}

/// Prints the counters.
pub fn print() {
    let sum = |counter: fn(&Stats) -> &AtomicU64| {
        control().stats.iter().map(|stats| counter(stats).load(Ordering::Relaxed)).sum::<u64>()
    };
    let [at_fork, later] = control().copied.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
    let mut buffers = [[0; 20]; 10];
    let [a, b, c, d, e, f, g, h, i, j] = &mut buffers;
    sys::say(&[
        b"pathreads: ",
        sys::decimal(sum(|stats| &stats.faults), a),
        b" faults that mapped memory of another thread, ",
        sys::decimal(sum(|stats| &stats.requests), b),
        b" requests to other threads, ",
        sys::decimal(at_fork, c),
        b" bytes copied by fork, ",
        sys::decimal(later, d),
        b" before they were written to\n",
    ]);
    sys::say(&[
        b"pathreads: ",
        sys::decimal(sum(|stats| &stats.fills), e),
        b" regions mapped for threads that lacked them, ",
        sys::decimal(sum(|stats| &stats.avoided), f),
        b" requests avoided, ",
        sys::decimal(sum(|stats| &stats.stale), j),
        b" threads not asked to give memory up; microseconds of all threads: ",
        sys::decimal(sum(|stats| &stats.times[0]) / 1000, g),
        b" in faults, ",
        sys::decimal(sum(|stats| &stats.times[1]) / 1000, h),
        b" mapping before calls, ",
        sys::decimal(sum(|stats| &stats.times[2]) / 1000, i),
        b" asking\n",
    ]);
}
