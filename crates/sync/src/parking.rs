//! Sleeping without losing a wake-up: one word per task.
//!
//! | state    | the task                                            | `wake` makes it                            |
//! |----------|-----------------------------------------------------|--------------------------------------------|
//! | ACTIVE   | runs, or waits in a run queue                       | NOTIFIED                                   |
//! | NOTIFIED | as ACTIVE, but its next park returns at once        | NOTIFIED                                   |
//! | PARKING  | has decided to sleep, is still on its stack         | NOTIFIED: requeued once off its stack      |
//! | PARKED   | is on no core and in no queue                       | ACTIVE: the waker puts it into a run queue |
//!
//! ```text
//!              begin                settle (by the task that runs next on that core)
//!   ACTIVE --------------> PARKING ----------------> PARKED
//!    ^  ^                     |                        |
//!    |  |   begin, settle     | wake                   | wake
//!    |  +----- NOTIFIED <-----+                        |
//!    +-------------------------------------------------+
//! ```
//!
//! 1. A sleeper registers where wakers look (a list, a timer, a pending bit), checks its condition, then
//!    parks. A waker makes the condition true, then wakes. All transitions are read-modify-writes of one
//!    word, so they are ordered: a wake before `begin` leaves NOTIFIED behind and the park returns. A wake
//!    after it finds PARKING or PARKED. None is lost.
//! 2. Exactly one flow puts a task into a run queue: the waker that turned PARKED into ACTIVE, or the core
//!    whose `settle` found NOTIFIED. Both come after the task left its stack, so no two cores ever run on one
//!    stack.
//! 3. A park may return without a cause (a late wake-up of an earlier sleep), so every caller re-checks in a
//!    loop.
//!
//! Orderings: `wake` releases the waker's writes. `begin` and `settle` acquire them when they find the token,
//! and a waker that enqueues hands it on through the run queue's lock. AcqRel throughout: these are rare
//! operations.

use crate::atomic::{AtomicU8, Ordering};

const ACTIVE: u8 = 0;
const NOTIFIED: u8 = 1;
const PARKING: u8 = 2;
const PARKED: u8 = 3;

/// The state of a task: it may sleep, sleeps, or has a wake-up coming.
#[derive(Debug)]
pub struct Parking(AtomicU8);

impl Default for Parking {
    fn default() -> Self {
        Self::new()
    }
}

impl Parking {
    crate::const_unless_loom! {
        /// Makes the state of a task that is about to be put into a run queue.
        pub fn new() -> Self {
            Self(AtomicU8::new(ACTIVE))
        }
    }

    /// Begins a sleep. Returns false if the task was woken since it last slept, and must look again.
    pub fn begin(&self) -> bool {
        self.leave_for(ACTIVE, PARKING)
    }

    /// Records that the task is off its stack. Returns false if it was woken meanwhile, and must be put into
    /// a run queue.
    pub fn settle(&self) -> bool {
        self.leave_for(PARKING, PARKED)
    }

    /// Returns whether the task sleeps, or has decided to.
    pub fn is_asleep(&self) -> bool {
        // Relaxed: a hint for others.
        self.0.load(Ordering::Relaxed) >= PARKING
    }

    /// Changes the state from `expected` to `next`, or from NOTIFIED to ACTIVE, which consumes the token.
    /// Returns whether it found `expected`.
    fn leave_for(&self, expected: u8, next: u8) -> bool {
        let moved = self.0.compare_exchange(expected, next, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !moved {
            // Only a wake-up can have come between, and only this caller leaves NOTIFIED.
            self.0.swap(ACTIVE, Ordering::AcqRel);
        }
        moved
    }

    /// Wakes the task. Returns true if it slept, and the caller must put it into a run queue.
    pub fn wake(&self) -> bool {
        let mut state = self.0.load(Ordering::Relaxed);
        loop {
            // Written even when nothing changes, so that the token carries this waker's writes too.
            let next = if state == PARKED { ACTIVE } else { NOTIFIED };
            match self.0.compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return state == PARKED,
                Err(now) => state = now,
            }
        }
    }
}
