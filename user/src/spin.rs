//! Waiting without sleeping: a sleeping thread would leave its CPU idle, and the kernel under test would
//! rightly stop interrupting it. So threads wait for each other with `pause`, and yield their CPU only now
//! and then, or often if several of them must share one.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// A value alone on its cache lines (two, as the CPU fetches them in pairs).
#[repr(align(128))]
#[derive(Default)]
pub struct Line<T>(pub T);

/// One wait: call [`Spin::turn`] until the condition holds.
pub struct Spin {
    turns: u32,
    patience: u32,
}

impl Spin {
    /// Starts a wait. `crowded`: the threads outnumber the CPUs.
    pub fn new(crowded: bool) -> Spin {
        Spin { turns: 0, patience: if crowded { 1 << 6 } else { 1 << 14 } }
    }

    /// Pauses, or yields the CPU after a number of pauses.
    pub fn turn(&mut self) {
        self.turns += 1;
        if self.turns.is_multiple_of(self.patience) {
            std::thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// A barrier that spins. The effects of a thread before it are visible to every thread after it.
pub struct Barrier {
    threads: usize,
    crowded: bool,
    arrived: Line<AtomicUsize>,
    round: Line<AtomicUsize>,
}

impl Barrier {
    /// Creates a barrier for this many threads.
    pub fn new(threads: usize, crowded: bool) -> Barrier {
        Barrier { threads, crowded, arrived: Line::default(), round: Line::default() }
    }

    /// Returns when all threads have called it.
    pub fn wait(&self) {
        // Relaxed: the round cannot turn before this very thread has arrived.
        let round = self.round.0.load(Relaxed);
        // AcqRel: the last thread to arrive reads from every earlier arrival, so it has seen what they did.
        if self.arrived.0.fetch_add(1, AcqRel) + 1 == self.threads {
            // Relaxed: no thread arrives again before the round turns, which releases this store too.
            self.arrived.0.store(0, Relaxed);
            // Release: pairs with the Acquire below.
            self.round.0.store(round.wrapping_add(1), Release);
            return;
        }
        let mut spin = Spin::new(self.crowded);
        while self.round.0.load(Acquire) == round {
            spin.turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_passes_before_all_have_arrived() {
        const THREADS: usize = 4;
        let (barrier, arrivals) = (Barrier::new(THREADS, true), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 1..=100 {
                        arrivals.fetch_add(1, Relaxed);
                        barrier.wait();
                        assert_eq!(arrivals.load(Relaxed), round * THREADS);
                        barrier.wait();
                    }
                });
            }
        });
    }
}
