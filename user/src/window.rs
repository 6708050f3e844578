//! The measured window: pinned threads that start together and stop together.
//!
//! ```text
//! thread 0   pin ─┬─ warm up ─┬─ read counters ─┬─ BEGIN body END ─┬─ read counters ─┬─ ends
//! thread i   pin ─┴─ warm up ─┴─ spin ──────────┴─ BEGIN body END ─┴─ spin ──────────┴─ ends
//!                 sleep       spin              spin               spin              spin
//! ```
//! After the warm-up no thread sleeps, starts or ends. So every thread keeps its core busy with this address
//! space for the whole window, and counts such as IPI targets are exact. Only the first barrier sleeps:
//! threads that spin while others are made would slow down a meter that keeps all CPUs in step. Thread 0 is
//! the calling thread: a spawner that slept would be one more thread.
//!
//! The words in capitals, and ITER after every round, are [`marker`]s for the contention meter. Threads that
//! work in rounds say BEGIN together, after the first round if there are more: the first round bears the
//! disturbance by the reading of the counters.

use crate::counters::{Counters, Reading, minor_faults};
use crate::spin::{Barrier, Line};
use crate::{cores, marker, require};
use std::sync;
use std::thread;
use std::time::Instant;

/// The place of one thread.
pub struct Worker<'a> {
    /// 0 for the calling thread.
    pub index: usize,
    /// Waits for all threads.
    pub barrier: &'a Barrier,
    /// Whether threads outnumber CPUs.
    pub crowded: bool,
}

/// The costs of the window.
pub struct Window {
    /// Wall-clock time.
    pub seconds: f64,
    /// Cycles by thread 0's counter.
    pub cycles: u64,
    /// Page faults without disk.
    pub minor_faults: u64,
    /// The kernel's counters, if it has any.
    pub counters: Option<Counters>,
}

/// Number of rounds of each thread.
#[derive(Clone, Copy)]
pub struct Rounds {
    /// Rounds before the window.
    pub warm_up: u64,
    /// Rounds in the window.
    pub counted: u64,
}

/// Runs `body` on `threads` pinned threads. Returns their results, in order, and the costs. For the meter the
/// whole body is one round.
pub fn measure<R: Send>(threads: usize, body: impl Fn(&Worker) -> R + Sync) -> (Vec<R>, Window) {
    let once = |worker: &Worker, (): &mut ()| {
        marker::begin(threads);
        let result = body(worker);
        marker::iter();
        // No thread closes the meter's window before all have finished their round.
        worker.barrier.wait();
        result
    };
    run(threads, &|_: &Worker| (), &once)
}

/// Makes `threads` pinned threads do rounds, passing the number of the round, and returns the costs of the
/// counted rounds. Each thread has state of its own. `prepare` makes it before the first round, and the same
/// thread drops it after the window.
pub fn measure_rounds<T>(
    threads: usize,
    rounds: Rounds,
    prepare: impl Fn(&Worker) -> T + Sync,
    round: impl Fn(&Worker, &mut T, u64) + Sync,
) -> Window {
    let warm_up = |worker: &Worker| {
        let mut own = prepare(worker);
        (0..rounds.warm_up).for_each(|number| round(worker, &mut own, number));
        own
    };
    let counted = |worker: &Worker, own: &mut T| {
        let metered = u64::from(rounds.counted > 1);
        for number in 0..rounds.counted {
            if number == metered {
                // The threads start together. Otherwise quick threads would be done before slow ones have
                // begun.
                worker.barrier.wait();
                marker::begin(threads);
            }
            round(worker, own, number);
            if number >= metered {
                marker::iter();
            }
        }
    };
    run(threads, &warm_up, &counted).1
}

/// Runs the window. The result of `warm_up` is passed to `body`, and dropped when the window is over.
fn run<T, R: Send>(
    threads: usize,
    warm_up: &(impl Fn(&Worker) -> T + Sync),
    body: &(impl Fn(&Worker, &mut T) -> R + Sync),
) -> (Vec<R>, Window) {
    let cpus = &require(cores::allowed(), "sched_getaffinity");
    let crowded = threads > cpus.len();
    let (ready, barrier) = (&sync::Barrier::new(threads), &Barrier::new(threads, crowded));
    let start = move |index: usize| {
        require(cores::pin(cpus[index % cpus.len()]), "sched_setaffinity");
        ready.wait();
        let worker = Worker { index, barrier, crowded };
        // In lines of its own: the first thread's stack also has what the closures of all threads refer to.
        let own = Line(warm_up(&worker));
        barrier.wait();
        (worker, own)
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|i| scope.spawn(move || follow(start(i), body))).collect();
        let (before, after) = (Reading::prepare(), Reading::prepare());
        let (first, window) = lead(start(0), body, before, after);
        let others = others.into_iter().map(|thread| thread.join().expect("a thread panicked"));
        ([first].into_iter().chain(others).collect(), window)
    })
}

fn follow<T, R>((worker, mut own): (Worker, Line<T>), body: &impl Fn(&Worker, &mut T) -> R) -> R {
    worker.barrier.wait();
    let result = body(&worker, &mut own.0);
    marker::end();
    worker.barrier.wait();
    worker.barrier.wait();
    result
}

fn lead<T, R>(
    (worker, mut own): (Worker, Line<T>),
    body: &impl Fn(&Worker, &mut T) -> R,
    mut before: Reading,
    mut after: Reading,
) -> (R, Window) {
    before.take();
    let (faults, clock) = (minor_faults(), Instant::now());
    let cycles = cores::cycles();
    worker.barrier.wait();
    let result = body(&worker, &mut own.0);
    marker::end();
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
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn results_come_back_in_thread_order() {
        let (results, window) = measure(5, |worker| worker.index * 10);
        assert_eq!(results, [0, 10, 20, 30, 40]);
        assert!(window.seconds > 0.0 && window.cycles > 0);
    }

    #[test]
    fn every_thread_warms_up_before_any_round_counts() {
        const THREADS: usize = 3;
        let (warm, counted) = (AtomicU64::new(0), AtomicU64::new(0));
        let round = |_: &Worker, done: &mut u64, number| {
            assert_eq!(number, if *done < 5 { *done } else { *done - 5 });
            if *done < 5 { &warm } else { &counted }.fetch_add(1, Relaxed);
            assert!(*done < 5 || warm.load(Relaxed) == 5 * THREADS as u64);
            *done += 1;
        };
        measure_rounds(THREADS, Rounds { warm_up: 5, counted: 7 }, |_| 0, round);
        assert_eq!((warm.into_inner(), counted.into_inner()), (15, 21));
    }
}
