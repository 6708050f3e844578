//! Rounds of reclaim: one task at a time reclaims, for all that are short of memory.
//!
//! Two tasks that reclaimed at once would wait for each other's epochs. And when hundreds of tasks are short,
//! a round for each, one after the other, would be all that the machine does. So a task that asks for memory
//! sleeps while a round runs. If a round that begins after it asked finds nothing, its own would find nothing
//! either, as one grace period of RCU serves all that waited when it began. If none runs, it runs the next.
//!
//! | state | `begun`, `ended` | a task that asks |
//! |---|---|---|
//! | idle | n, n | runs round n + 1 |
//! | running | n + 1, n | sleeps until a round finds memory, or until round n + 2 has found none |
//!
//! 1. One round runs at a time: `begun` grows only when it equals `ended`, under the lock.
//! 2. A task is told that there is no memory only after a round that began when it had asked, that knew of at
//!    least as many tries, and that was not too early. A call that may fail takes the round that runs.
//! 3. Each sleeper is woken at the end of each round, and runs the next if it still needs one: so no sleeper
//!    waits for a round that no task runs.

use core::mem;

use sync::SpinLock;

use crate::arch;
use crate::sched::{self, WaitQueue};

/// The rounds, and the tasks that wait for one.
pub struct Rounds {
    state: SpinLock<State>,
    waiting: WaitQueue,
}

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It found memory.
    Found,
    /// There is no memory.
    Nothing,
    /// It found none, but some is about to be freed.
    TooEarly,
}

/// The answer to a task that asked.
pub enum Answer {
    /// Its own round found memory.
    Found,
    /// Another task's round found memory, which others may have taken.
    FoundByAnother,
    /// There is no memory.
    Nothing,
}

struct State {
    /// The rounds that have begun.
    begun: u64,
    /// The rounds that have ended: all of those, or all but one.
    ended: u64,
    /// The last round that found memory, or 0.
    fruitful: u64,
    /// The last round that found none and was not too early, or 0.
    vain: u64,
    /// The most tries that a task had behind it when it asked for the next round.
    tried: usize,
}

/// A task's request for a round.
struct Request {
    /// The rounds that had ended.
    ended: u64,
    /// The first round after which the task may be told that there is no memory.
    needed: u64,
}

/// How a task goes on after it asked.
enum Turn {
    Told(Answer),
    /// It runs the next round, after this number of tries.
    Mine(usize),
}

impl State {
    fn is_running(&self) -> bool {
        self.begun != self.ended
    }

    fn ask(&mut self, tried: usize, may_fail: bool) -> Request {
        if self.is_running() && may_fail {
            return Request { ended: self.ended, needed: self.begun };
        }
        self.tried = self.tried.max(tried);
        Request { ended: self.ended, needed: self.begun + 1 }
    }

    fn turn(&mut self, request: &Request) -> Option<Turn> {
        if self.fruitful > request.ended {
            Some(Turn::Told(Answer::FoundByAnother))
        } else if self.vain >= request.needed {
            Some(Turn::Told(Answer::Nothing))
        } else if self.is_running() {
            None
        } else {
            self.begun += 1;
            Some(Turn::Mine(mem::take(&mut self.tried)))
        }
    }

    fn end(&mut self, tried: usize, outcome: Outcome) {
        self.ended += 1;
        match outcome {
            Outcome::Found => (self.fruitful, self.tried) = (self.ended, 0),
            Outcome::Nothing => self.vain = self.ended,
            Outcome::TooEarly => self.tried = self.tried.max(tried),
        }
    }
}

impl Rounds {
    /// Creates the state before the first round.
    pub const fn new() -> Self {
        let state = State { begun: 0, ended: 0, fruitful: 0, vain: 0, tried: 0 };
        Self { state: SpinLock::new(state), waiting: WaitQueue::new() }
    }

    /// Waits for a round after `tried` tries, or runs `round` with the most tries of all that wait. Returns
    /// `None` if the running task is killed. With `may_fail`, a round that runs already will do. The caller
    /// holds no spin lock and is in no wait queue.
    pub fn join(&self, tried: usize, may_fail: bool, round: impl Fn(usize) -> Outcome) -> Option<Answer> {
        let request = self.state.lock().ask(tried, may_fail);
        loop {
            match self.waiting.wait_killable(|| self.turn(&request)).ok()?? {
                Turn::Told(answer) => return Some(answer),
                Turn::Mine(tried) => match self.run(tried, &round) {
                    Outcome::Found => return Some(Answer::Found),
                    Outcome::Nothing => return Some(Answer::Nothing),
                    Outcome::TooEarly => sched::give_way(),
                },
            }
        }
    }

    /// Returns how the running task goes on: `Some(None)` if it is killed, and `None` if it has to wait.
    fn turn(&self, request: &Request) -> Option<Option<Turn>> {
        // First, so that a killed task does not run a round that others need before it exits.
        if arch::with_current(|task| task.is_killed()) == Some(true) {
            return Some(None);
        }
        self.state.lock().turn(request).map(Some)
    }

    fn run(&self, tried: usize, round: impl Fn(usize) -> Outcome) -> Outcome {
        let outcome = round(tried);
        self.state.lock().end(tried, outcome);
        self.waiting.wake_all();
        outcome
    }
}
