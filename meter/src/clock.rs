//! Virtual time: while a program is metered, `CLOCK_MONOTONIC` inside QEMU follows the guest's instructions.
//!
//! An emulated machine whose timers follow real time has a hundred times more ticks in a round than a real
//! one. So time is
//!
//! ```text
//! start + quanta done × instructions of a quantum × nanoseconds of an instruction + time during which all CPUs idled
//! ```
//!
//! It is continuous where it starts and where it stops, and never goes back. While no CPU runs, it is real,
//! so that sleepers wake. The guest's `rdtsc` reads the host's counter and stays real.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The clock. `now` is real time and `done` the time that the CPUs have run, both in nanoseconds.
#[derive(Debug, Default)]
pub struct Clock {
    /// Set once time is virtual.
    started: AtomicBool,
    dial: Mutex<Dial>,
}

#[derive(Debug, Default)]
struct Dial {
    start: u64,
    /// Sum of the idle periods that have ended.
    idle: u64,
    /// The time since which all CPUs idle.
    idle_since: Option<u64>,
    /// Real and virtual time of the end.
    stop: Option<(u64, u64)>,
    /// The latest time that any caller was told.
    told: u64,
}

impl Clock {
    /// Makes time virtual. All CPUs count as idle.
    pub fn start(&self, now: u64) {
        *self.dial() = Dial { start: now, idle_since: Some(now), told: now, ..Dial::default() };
        self.started.store(true, Relaxed);
    }

    /// Notes that the first CPU has woken or the last one idles. `is_empty` returns which, and is called
    /// under the clock's lock, so that the last of two callers learns the current state.
    pub fn turn(&self, now: u64, is_empty: impl Fn() -> bool) {
        let mut dial = self.dial();
        match (is_empty(), dial.idle_since) {
            (true, None) => dial.idle_since = Some(now),
            (false, Some(since)) => {
                dial.idle += now.saturating_sub(since);
                dial.idle_since = None;
            }
            _ => {}
        }
    }

    /// Makes time follow real time again, from the present virtual time.
    pub fn stop(&self, now: u64, done: u64) {
        let mut dial = self.dial();
        let time = dial.time(now, done);
        dial.stop.get_or_insert((now, time));
    }

    /// Returns the virtual time, or `None` if it is just real time.
    pub fn read(&self, now: impl Fn() -> u64, done: impl Fn() -> u64) -> Option<u64> {
        if !self.started.load(Relaxed) {
            return None;
        }
        let mut dial = self.dial();
        let time = dial.time(now(), done()).max(dial.told);
        dial.told = time;
        Some(time)
    }

    /// Returns the virtual nanoseconds from the start to the end.
    pub fn elapsed(&self) -> u64 {
        let dial = self.dial();
        dial.stop.map_or(0, |(_, time)| time - dial.start)
    }

    fn dial(&self) -> MutexGuard<'_, Dial> {
        self.dial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dial {
    fn time(&self, now: u64, done: u64) -> u64 {
        if let Some((real, time)) = self.stop {
            return time + now.saturating_sub(real);
        }
        let idling = self.idle_since.map_or(0, |since| now.saturating_sub(since));
        self.start + self.idle + idling + done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_until_it_starts() {
        assert_eq!(Clock::default().read(|| 5, || 7), None);
    }

    #[test]
    fn follows_instructions_while_a_cpu_runs_and_real_time_otherwise() {
        let clock = Clock::default();
        let at = |now, done| clock.read(|| now, || done).unwrap();
        clock.start(1_000);
        assert_eq!(at(1_100, 0), 1_100, "all idle");
        clock.turn(1_200, || false);
        assert_eq!(at(9_000, 0), 1_200, "nothing done");
        assert_eq!(at(9_000, 50), 1_250);
        clock.turn(10_000, || true);
        assert_eq!(at(10_300, 50), 1_550);
        clock.turn(11_000, || true);
        clock.turn(11_000, || false);
        assert_eq!(at(20_000, 51), 2_251);
        clock.stop(20_000, 60);
        assert_eq!(at(20_000, 999), 2_260, "continuous");
        assert_eq!(at(20_100, 999), 2_360, "and real again");
        assert_eq!(clock.elapsed(), 1_260);
    }

    #[test]
    fn never_goes_back() {
        let clock = Clock::default();
        clock.start(0);
        clock.turn(0, || false);
        assert_eq!(clock.read(|| 0, || 100), Some(100));
        assert_eq!(clock.read(|| 0, || 90), Some(100), "a reader with an old number");
    }
}
