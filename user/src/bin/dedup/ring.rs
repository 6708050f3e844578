//! A ring of places through which work passes, stage by stage. It is the queue between any two stages, and
//! bounds the work in progress.
//!
//! ```text
//! place              0       1       2       3          places.len() = 4
//! ticket            41      37      33      29          piece 8 at stage 1, 7 at 2, 6 at 3, 5 at 4: STAGES is 5
//!
//! head of stage      0: 9    1: 8    2: 7    3: 6    4: 5     the piece that the stage takes next
//! ```
//! A piece of work has a number, and is in the place `number mod places`. A place's *ticket* says for which
//! piece and which stage it is ready: `number * STAGES + stage`. The last stage makes it ready for the first
//! one and the piece that comes a round later.
//!
//! 1. A stage takes pieces in the order of their numbers: its head only counts up, by compare-and-swap.
//! 2. A piece is at a stage once: the thread that moved the head from its number has it.
//! 3. Tickets of a place only grow, and no two pieces share one. So a head that has come round to a place
//!    still being worked on does not match its ticket.
//! 4. No thread waits in a stage: a thread that serves several takes any that is ready. So a full ring
//!    empties as long as its last stage is served.
//!
//! Orderings: a ticket is stored with Release after the work, and loaded with Acquire before the next
//! stage's. So a stage sees everything that all stages before it did to the piece. Heads publish nothing and
//! are Relaxed.

use programs::spin::Line;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Number of stages.
pub const STAGES: usize = 5;

struct RingSlot<T> {
    ticket: AtomicU64,
    /// Never contended: the ticket decides which thread has the place.
    content: Mutex<T>,
}

/// The places.
pub struct Ring<T> {
    places: Vec<Line<RingSlot<T>>>,
    heads: [Line<AtomicU64>; STAGES],
    /// Number of pieces, or `u64::MAX` until that is known.
    total: AtomicU64,
}

impl<T: Default> Ring<T> {
    /// Creates a ring of `places` places, each ready for the first stage.
    pub fn new(places: usize) -> Ring<T> {
        let place = |number: u64| {
            Line(RingSlot { ticket: AtomicU64::new(ticket(number, 0)), content: Mutex::default() })
        };
        Ring {
            places: (0..places as u64).map(place).collect(),
            heads: Default::default(),
            total: AtomicU64::new(u64::MAX),
        }
    }
}

impl<T> Ring<T> {
    /// Takes the next piece to a stage, if it is ready. Returns whether it was.
    pub fn step(&self, stage: usize, work: impl FnOnce(&mut T)) -> bool {
        let head = &self.heads[stage].0;
        let number = head.load(Relaxed);
        let places = self.places.len() as u64;
        let place = &self.places[(number % places) as usize].0;
        // Acquire: pairs with the Release below, of the stage before.
        let ready = place.ticket.load(Acquire) == ticket(number, stage);
        if !ready || head.compare_exchange(number, number + 1, Relaxed, Relaxed).is_err() {
            return false;
        }
        work(&mut place.content.lock().expect("nobody panics at work"));
        let last = stage + 1 == STAGES;
        let next = if last { ticket(number + places, 0) } else { ticket(number, stage + 1) };
        // Release: pairs with the Acquire above, of the next stage.
        place.ticket.store(next, Release);
        true
    }

    /// Records that the first stage has seen the last piece.
    pub fn end(&self) {
        // Relaxed: the number publishes nothing else.
        self.total.store(self.heads[0].0.load(Relaxed), Relaxed);
    }

    /// Returns whether a stage has taken every piece.
    pub fn finished(&self, stage: usize) -> bool {
        // Relaxed: the thread that took the last piece finishes it.
        self.heads[stage].0.load(Relaxed) == self.total.load(Relaxed)
    }
}

fn ticket(number: u64, stage: usize) -> u64 {
    number * STAGES as u64 + stage as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use programs::spin::Spin;

    #[test]
    fn a_place_is_full_until_its_piece_has_passed_every_stage() {
        let ring = Ring::<u64>::new(2);
        assert!(!ring.step(1, |_| ()));
        assert!(ring.step(0, |_| ()) && ring.step(0, |_| ()) && !ring.step(0, |_| ()));
        assert!((1..STAGES).all(|stage| ring.step(stage, |_| ())));
        assert!(ring.step(0, |_| ()) && !ring.step(0, |_| ()));
    }

    #[test]
    fn nothing_ends_before_it_is_known_how_much_there_is() {
        let ring = Ring::<u64>::new(2);
        assert!((0..STAGES).all(|stage| !ring.finished(stage)));
        ring.step(0, |_| ());
        ring.end();
        assert!(ring.finished(0) && !ring.finished(1));
    }

    /// The content of a place tells which stages have been there.
    #[test]
    fn every_piece_passes_every_stage_once_in_order() {
        const PIECES: u64 = 3000;
        let (ring, right) = (Ring::<usize>::new(3), AtomicU64::new(0));
        let visit = |seen: &mut usize, stage: usize| {
            right.fetch_add(u64::from(stage == 0 || *seen == stage), Relaxed);
            *seen = if stage == 0 { 1 } else { *seen + 1 };
        };
        let serve = || {
            let mut spin = Spin::new(true);
            while !ring.finished(STAGES - 1) {
                if !(1..STAGES).rev().any(|stage| ring.step(stage, |seen| visit(seen, stage))) {
                    spin.turn();
                }
            }
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(serve)));
            let mut spin = Spin::new(true);
            for _ in 0..PIECES {
                while !ring.step(0, |seen| visit(seen, 0)) {
                    spin.turn();
                }
            }
            ring.end();
        });
        assert_eq!(right.into_inner(), PIECES * STAGES as u64);
    }
}
