//! The time that a guest has had to boot, on a machine that may be busy.
//!
//! The clock stops while QEMU's threads wait for a processor, so a guest that gets a fifth of the processors
//! that it asks for has five times as long. It runs while they sleep, so a guest that waits in vain is
//! detected. A line from the guest sets it back to zero.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

static ASKED: OnceLock<Duration> = OnceLock::new();

/// Sets the limit of all boots of this process, for `--boot-limit`.
pub fn set_limit(limit: Duration) {
    // A process has one command line.
    let _ = ASKED.set(limit);
}

/// Returns the limit that was set, or else `usual`.
pub fn limit_or(usual: Duration) -> Duration {
    ASKED.get().copied().unwrap_or(usual)
}

/// The times in which the threads of a process ran, and in which they could have run but had no processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    ran: Duration,
    waited: Duration,
}

impl Usage {
    /// Returns the times of all threads of a process, or nothing if the kernel does not report them.
    fn of(process: u32) -> Self {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        let texts =
            threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("schedstat")).ok());
        texts.filter_map(|text| Usage::parse(&text)).fold(Usage::default(), |sum, one| Usage {
            ran: sum.ran + one.ran,
            waited: sum.waited + one.waited,
        })
    }

    /// Reads a line of nanoseconds that a thread ran, nanoseconds that it waited, and time slices.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().map(|word| word.parse().map(Duration::from_nanos));
        Some(Usage { ran: words.next()?.ok()?, waited: words.next()?.ok()? })
    }

    /// Returns the times since an earlier look. Threads that have ended since are no longer counted.
    fn since(self, earlier: Usage) -> Self {
        let [ran, waited] = [(self.ran, earlier.ran), (self.waited, earlier.waited)]
            .map(|(now, then)| now.saturating_sub(then));
        Usage { ran, waited }
    }

    /// Returns the part of `elapsed` in which no thread waited for a processor. If several threads are always
    /// runnable, it is the part in which each of them ran.
    fn had(self, elapsed: Duration) -> Duration {
        let wanted = self.ran + self.waited;
        if wanted <= elapsed {
            elapsed - self.waited
        } else {
            elapsed.mul_f64(self.ran.as_secs_f64() / wanted.as_secs_f64())
        }
    }
}

/// The clock of one guest.
pub struct BootClock {
    process: u32,
    start: Instant,
    looked: Instant,
    usage: Usage,
    had: Duration,
}

impl BootClock {
    /// Starts it for QEMU's process.
    pub fn start(process: u32) -> Self {
        let now = Instant::now();
        BootClock { process, start: now, looked: now, usage: Usage::of(process), had: Duration::ZERO }
    }

    /// Looks at QEMU, and returns the time.
    pub fn look(&mut self) -> Times {
        let (now, usage) = (Instant::now(), Usage::of(self.process));
        self.had += usage.since(self.usage).had(now - self.looked);
        (self.looked, self.usage) = (now, usage);
        Times { elapsed: now - self.start, had: self.had }
    }
}

/// The times of a boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The time by the clock on the wall.
    pub elapsed: Duration,
    /// The part of that in which QEMU had the processors that it asked for.
    pub had: Duration,
}

impl Times {
    /// Returns `90 s`, with a remark if the machine is so busy that the guest got less than half of it.
    pub fn describe(self) -> String {
        let (elapsed, had) = (self.elapsed.as_secs(), self.had.as_secs());
        if self.had * 2 < self.elapsed {
            return format!("{elapsed} s (this machine is busy: QEMU had a processor for {had} s of them)");
        }
        format!("{elapsed} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn had(ran: u64, waited: u64, elapsed: u64) -> Duration {
        Usage { ran: seconds(ran), waited: seconds(waited) }.had(seconds(elapsed))
    }

    #[test]
    fn the_clock_stands_while_a_thread_waits_for_a_processor() {
        assert_eq!(had(10, 0, 10), seconds(10), "it runs");
        assert_eq!(had(0, 0, 10), seconds(10), "it sleeps, or nothing is known of it");
        assert_eq!(had(2, 8, 10), seconds(2), "it gets a fifth");
        assert_eq!(had(1, 3, 10), seconds(7), "it sleeps most of the time");
        assert_eq!(had(20, 0, 10), seconds(10), "two threads run");
        assert_eq!(had(10, 30, 10), seconds(2) + seconds(1) / 2, "four threads share a processor");
    }

    #[test]
    fn the_kernels_line_is_understood() {
        let usage = Usage::parse("526383000 926707000 2\n").unwrap();
        assert_eq!((usage.ran.as_millis(), usage.waited.as_millis()), (526, 926));
        assert_eq!(Usage::parse(""), None);
        assert_eq!(Usage::of(u32::MAX), Usage::default());
    }

    #[test]
    fn this_process_has_run() {
        let mut clock = BootClock::start(std::process::id());
        let times = clock.look();
        assert!(times.had <= times.elapsed, "{times:?}");
    }

    #[test]
    fn a_busy_machine_is_named() {
        let describe = |elapsed, had| Times { elapsed: seconds(elapsed), had: seconds(had) }.describe();
        assert_eq!(describe(60, 40), "60 s");
        assert_eq!(describe(60, 12), "60 s (this machine is busy: QEMU had a processor for 12 s of them)");
    }
}
