//! Strict turns around a ring of threads, at a known cost.
//!
//! Every thread has a flag alone on its line. The thread that has the turn stores the number of the lap into
//! the flag of the next thread, which has been loading it until then:
//!
//! ```text
//! flag of the next thread      this thread's copy    the next one's copy    counts as
//! it has loaded lap 4          shared                shared
//! this thread stores lap 5     modified              -                      1 upgrade, which invalidates 1 copy
//! it loads lap 5               shared                shared                 1 load served modified
//! ```
//! However often the next thread loads the flag, it has a copy until the store takes it away. So each turn
//! costs a ring of two or more threads exactly two transfers: one to take the turn, one to pass it on. A ring
//! of one thread costs none.

use programs::spin::{Line, Spin};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// A ring.
pub struct Ring {
    /// For each thread, the last lap in which it was given the turn.
    flags: Vec<Line<AtomicU64>>,
}

/// A thread's place in its ring.
pub struct RingPosition<'a> {
    ring: &'a Ring,
    index: usize,
    /// The lap of this thread's last turn.
    lap: u64,
}

impl Ring {
    /// Creates a ring of this many threads. The first one has the turn.
    pub fn new(threads: usize) -> Ring {
        let flags: Vec<Line<AtomicU64>> = (0..threads).map(|_| Line::default()).collect();
        // Relaxed: the threads that load it are not started yet.
        flags[0].0.store(1, Relaxed);
        Ring { flags }
    }

    /// Returns place `index`, for one thread.
    pub fn place(&self, index: usize) -> RingPosition<'_> {
        RingPosition { ring: self, index, lap: 0 }
    }
}

impl RingPosition<'_> {
    /// Waits for this thread's next turn and returns the lap.
    pub fn take(&mut self, crowded: bool) -> u64 {
        self.lap += 1;
        let mut spin = Spin::new(crowded);
        // Acquire: pairs with the Release in `pass`. The effects of the earlier turns of other threads are
        // visible.
        while self.ring.flags[self.index].0.load(Acquire) != self.lap {
            spin.turn();
        }
        self.lap
    }

    /// Gives the turn to the next thread. A new lap starts at the first.
    pub fn pass(&self) {
        let next = (self.index + 1) % self.ring.flags.len();
        let lap = self.lap + u64::from(next == 0);
        // Release: pairs with the Acquire in `take`.
        self.ring.flags[next].0.store(lap, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn threads_come_in_order_lap_by_lap() {
        const THREADS: usize = 3;
        let (ring, seen) = (Ring::new(THREADS), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for index in 0..THREADS {
                let (mut place, seen) = (ring.place(index), &seen);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let lap = place.take(true);
                        seen.lock().unwrap().push((lap, index));
                        place.pass();
                    }
                });
            }
        });
        let expected: Vec<_> = (1..=50).flat_map(|lap| (0..THREADS).map(move |index| (lap, index))).collect();
        assert_eq!(seen.into_inner().unwrap(), expected);
    }

    #[test]
    fn a_thread_alone_always_has_the_turn() {
        let ring = Ring::new(1);
        let mut place = ring.place(0);
        for lap in 1..4 {
            assert_eq!(place.take(false), lap);
            place.pass();
        }
    }
}
