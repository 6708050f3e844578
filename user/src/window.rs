//! The measured window: pinned threads that start together and stop together.
//!
//! ```text
//! thread 0   pin ─┬─ read counters ─┬─ body ──┬─ read counters ─┬─ ends
//! thread i   pin ─┴─ spin ──────────┴─ body ──┴─ spin ──────────┴─ ends
//! ```
//! Nobody sleeps, starts or ends inside, so that every thread keeps its core busy with this address space
//! for the whole window, and counts such as IPI targets are exact. Thread 0 is the calling thread: a spawner
//! that slept would be one more thread.

use crate::counters::{Counters, Reading, minor_faults};
use crate::spin::Barrier;
use crate::{cores, require};
use std::thread;
use std::time::Instant;

/// What one thread knows of its place.
pub struct Worker<'a> {
    /// 0 for the calling thread.
    pub index: usize,
    /// Waits for all threads.
    pub barrier: &'a Barrier,
    /// Threads outnumber CPUs.
    pub crowded: bool,
}

/// What the window cost.
pub struct Window {
    /// Wall-clock time.
    pub seconds: f64,
    /// Cycles by thread 0's counter.
    pub cycles: u64,
    /// Page faults without disk.
    pub minor_faults: u64,
    /// The kernel's counters, if it has some.
    pub counters: Option<Counters>,
}

/// Runs `body` on `threads` pinned threads; returns what they returned, in order, and what it cost.
pub fn measure<R: Send>(threads: usize, body: impl Fn(&Worker) -> R + Sync) -> (Vec<R>, Window) {
    let cpus = require(cores::allowed(), "sched_getaffinity");
    let crowded = threads > cpus.len();
    let barrier = &Barrier::new(threads, crowded);
    let (body, cpus) = (&body, &cpus);
    let start = move |index: usize| {
        require(cores::pin(cpus[index % cpus.len()]), "sched_setaffinity");
        barrier.wait();
        Worker { index, barrier, crowded }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|i| scope.spawn(move || follow(start(i), body))).collect();
        let (before, after) = (Reading::prepare(), Reading::prepare());
        let (first, window) = lead(start(0), body, before, after);
        let others = others.into_iter().map(|thread| thread.join().expect("a thread panicked"));
        ([first].into_iter().chain(others).collect(), window)
    })
}

fn follow<R>(worker: Worker, body: &impl Fn(&Worker) -> R) -> R {
    worker.barrier.wait();
    let result = body(&worker);
    worker.barrier.wait();
    worker.barrier.wait();
    result
}

fn lead<R>(
    worker: Worker,
    body: &impl Fn(&Worker) -> R,
    mut before: Reading,
    mut after: Reading,
) -> (R, Window) {
    before.take();
    let (faults, clock) = (minor_faults(), Instant::now());
    let cycles = cores::cycles();
    worker.barrier.wait();
    let result = body(&worker);
    worker.barrier.wait();
    let (cycles, seconds) = (cores::cycles() - cycles, clock.elapsed().as_secs_f64());
    let minor_faults = minor_faults() - faults;
    after.take();
    worker.barrier.wait();
    (result, Window { seconds, cycles, minor_faults, counters: after.since(&before) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back_in_thread_order() {
        let (results, window) = measure(5, |worker| worker.index * 10);
        assert_eq!(results, [0, 10, 20, 30, 40]);
        assert!(window.seconds > 0.0 && window.cycles > 0);
    }
}
