//! The window in which counts matter, from the moment when the last thread is warm to the moment when the
//! first one is done.
//!
//! | stage | marker | effect |
//! |---|---|---|
//! | waiting | RUN | → running; everything counts, in case no BEGIN comes |
//! | running | BEGIN, not yet from all threads | one more is warm |
//! | running | BEGIN from the last thread | → open; counts and blame start here |
//! | running | STOP | → over; the whole run was the window, one round per CPU |
//! | open | BEGIN | a thread more than announced: ignored |
//! | open | ITER | that CPU's round ends; → over if it was the last one wanted |
//! | open | END, STOP | → over; counts end here |
//! | over | BEGIN | ignored and counted |
//! | any | any other | nothing |
//!
//! At the start and the end of the window, all CPUs' counters are read while they run. The readings are as
//! exact as the throttle's slack.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::counts::{PHASES, Reading};
use crate::cpu::{Cpu, Privilege, Snapshot};

/// The window.
#[derive(Debug, Default)]
pub struct Window {
    /// Set if transfers are blamed on instructions.
    recording: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Waiting,
    Running,
    Open,
    Over,
}

#[derive(Debug, Default)]
struct Inner {
    stage: Stage,
    marked: bool,
    warm: u8,
    rounds: u64,
    ignored: u64,
    start: Vec<Snapshot>,
    end: Vec<Snapshot>,
}

/// The results of the window, at the end.
#[derive(Debug)]
pub struct Outcome {
    /// Set if the program marked it.
    pub marked: bool,
    /// Number of windows after the first.
    pub ignored: u64,
    /// Counts in it, for each CPU.
    pub totals: Vec<Snapshot>,
}

impl Window {
    /// Returns whether transfers are to be blamed. Relaxed: the ends of the window are not exact, see above.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.recording.load(Relaxed)
    }

    /// Handles RUN. Returns whether it is the first one.
    pub fn run(&self, cpus: &[Cpu]) -> bool {
        let mut inner = self.inner();
        if inner.stage != Stage::Waiting {
            return false;
        }
        inner.stage = Stage::Running;
        self.start(&mut inner, cpus);
        true
    }

    /// Handles BEGIN. Returns whether it was the last one, which opens the window.
    pub fn begin(&self, threads: u8, cpus: &[Cpu]) -> bool {
        let mut inner = self.inner();
        match inner.stage {
            Stage::Running => {
                inner.warm += 1;
                if inner.warm >= threads {
                    inner.stage = Stage::Open;
                    inner.marked = true;
                    self.start(&mut inner, cpus);
                    return true;
                }
            }
            Stage::Over => inner.ignored += 1,
            _ => {}
        }
        false
    }

    /// Handles ITER. Returns whether it was the last of the `wanted` rounds (0: all there are).
    pub fn iter(&self, cpu: &Cpu, privilege: Privilege, ahead: u64, wanted: u64) -> bool {
        let mut inner = self.inner();
        if inner.stage != Stage::Open {
            return false;
        }
        cpu.end_round(privilege, ahead);
        inner.rounds += 1;
        inner.rounds == wanted
    }

    /// Returns whether END would end the window.
    pub fn is_open(&self) -> bool {
        self.inner().stage == Stage::Open
    }

    /// Handles the last round, END, STOP or the end of the machine. Returns whether it ended the window.
    pub fn stop(&self, cpus: &[Cpu]) -> bool {
        let mut inner = self.inner();
        match inner.stage {
            Stage::Waiting | Stage::Over => return false,
            Stage::Running => cpus.iter().for_each(|cpu| cpu.end_round(Privilege::User, 0)),
            Stage::Open => {}
        }
        self.recording.store(false, Relaxed);
        inner.end = cpus.iter().map(Cpu::snapshot).collect();
        inner.stage = Stage::Over;
        true
    }

    /// Returns the results.
    pub fn outcome(&self) -> Outcome {
        let inner = self.inner();
        let totals = inner.start.iter().zip(&inner.end).map(|(start, end)| between(start, end)).collect();
        Outcome { marked: inner.marked, ignored: inner.ignored, totals }
    }

    fn start(&self, inner: &mut Inner, cpus: &[Cpu]) {
        inner.start = cpus.iter().map(Cpu::snapshot).collect();
        cpus.iter().for_each(Cpu::start_rounds);
        self.recording.store(true, Relaxed);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn between(start: &Snapshot, end: &Snapshot) -> Snapshot {
    let phases = |privilege: usize| -> [Reading; PHASES] {
        std::array::from_fn(|phase| end[privilege][phase].since(&start[privilege][phase]))
    };
    [phases(0), phases(1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Kind;

    fn cpus() -> Vec<Cpu> {
        vec![Cpu::default(), Cpu::default()]
    }

    fn work(cpu: &Cpu) {
        cpu.block(Privilege::User, 10, false);
    }

    fn instructions(window: &Window) -> Vec<u64> {
        let of = |snapshot: &Snapshot| snapshot[0][0].get(Kind::Instructions);
        window.outcome().totals.iter().map(of).collect()
    }

    fn rounds(cpus: &[Cpu]) -> Vec<usize> {
        cpus.iter().map(|cpu| cpu.log().rounds.len()).collect()
    }

    #[test]
    fn opens_with_the_last_begin_and_closes_with_the_first_end() {
        let (window, cpus) = (Window::default(), cpus());
        assert!(window.run(&cpus));
        work(&cpus[0]);
        window.iter(&cpus[0], Privilege::User, 0, 0);
        window.begin(2, &cpus);
        work(&cpus[0]);
        window.begin(2, &cpus);
        for cpu in [0, 0, 1] {
            work(&cpus[cpu]);
            window.iter(&cpus[cpu], Privilege::User, 0, 0);
        }
        work(&cpus[1]);
        assert!(window.is_open() && window.stop(&cpus));
        work(&cpus[1]);
        window.iter(&cpus[1], Privilege::User, 0, 0);
        assert!(!window.is_open() && !window.stop(&cpus));
        assert_eq!(instructions(&window), [20, 20]);
        assert_eq!(rounds(&cpus), [2, 1], "the cut-off round does not count");
        assert!(window.outcome().marked);
    }

    #[test]
    fn without_begin_the_whole_run_is_one_round_per_cpu() {
        let (window, cpus) = (Window::default(), cpus());
        assert!(window.run(&cpus) && !window.run(&cpus));
        work(&cpus[1]);
        assert!(window.stop(&cpus));
        assert_eq!(instructions(&window), [0, 10]);
        assert_eq!(rounds(&cpus), [1, 1]);
        assert!(!window.outcome().marked);
    }

    #[test]
    fn any_begin_opens_where_no_number_is_given_and_more_windows_are_ignored() {
        let (window, cpus) = (Window::default(), cpus());
        window.begin(0, &cpus);
        assert!(!window.is_recording(), "there is no program yet");
        window.run(&cpus);
        window.begin(0, &cpus);
        window.begin(0, &cpus);
        window.stop(&cpus);
        assert!(!window.is_recording());
        window.begin(0, &cpus);
        assert_eq!(window.outcome().ignored, 1);
    }

    #[test]
    fn the_last_wanted_round_is_told() {
        let (window, cpus) = (Window::default(), cpus());
        window.run(&cpus);
        window.begin(0, &cpus);
        let rounds = (0..3).map(|round| window.iter(&cpus[round % 2], Privilege::User, 0, 2));
        assert_eq!(rounds.collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_machine_without_a_program_has_no_counts() {
        let (window, cpus) = (Window::default(), cpus());
        assert!(!window.stop(&cpus));
        assert!(window.outcome().totals.is_empty());
    }
}
