//! Clocks and times.

use crate::{constants, plain};

plain! {
    /// Seconds and nanoseconds.
    #[derive(Default, PartialOrd, Ord)]
    pub struct Timespec {
        /// Seconds.
        pub seconds: i64,
        /// Nanoseconds, 0 to 999,999,999 when valid.
        pub nanoseconds: i64,
    }

    /// Seconds and microseconds.
    #[derive(Default, PartialOrd, Ord)]
    pub struct Timeval {
        /// Seconds.
        pub seconds: i64,
        /// Microseconds.
        pub microseconds: i64,
    }

    /// The same in microseconds, for `setitimer`.
    #[derive(Default)]
    pub struct Itimerval {
        /// The period, or zero for a single shot.
        pub interval: Timeval,
        /// Time to the next expiry.
        pub value: Timeval,
    }

    /// An interval timer's setting.
    #[derive(Default)]
    pub struct Itimerspec {
        /// The period, or zero for a single shot.
        pub interval: Timespec,
        /// Time to the next expiry.
        pub value: Timespec,
    }
}

impl Timespec {
    /// Returns the time that is `nanoseconds` after zero.
    pub const fn from_ns(nanoseconds: u64) -> Self {
        Self {
            seconds: (nanoseconds / 1_000_000_000) as i64,
            nanoseconds: (nanoseconds % 1_000_000_000) as i64,
        }
    }

    /// Returns the nanoseconds since zero, saturating, or `None` for a time that Linux calls invalid.
    pub const fn to_ns(self) -> Option<u64> {
        if self.seconds < 0 || self.nanoseconds < 0 || self.nanoseconds >= 1_000_000_000 {
            return None;
        }
        Some((self.seconds as u64).saturating_mul(1_000_000_000).saturating_add(self.nanoseconds as u64))
    }
}

impl Timeval {
    /// Returns the time that is `nanoseconds` after zero, to the microsecond before.
    pub const fn from_ns(nanoseconds: u64) -> Self {
        Self {
            seconds: (nanoseconds / 1_000_000_000) as i64,
            microseconds: (nanoseconds % 1_000_000_000 / 1000) as i64,
        }
    }

    /// Returns the nanoseconds since zero, saturating, or `None` for a time that Linux calls invalid.
    pub const fn to_ns(self) -> Option<u64> {
        if self.seconds < 0 || self.microseconds < 0 || self.microseconds >= 1_000_000 {
            return None;
        }
        Some(
            (self.seconds as u64)
                .saturating_mul(1_000_000_000)
                .saturating_add(self.microseconds as u64 * 1000),
        )
    }
}

constants! { u64:
    CLOCK_REALTIME = 0, "Wall clock.";
    CLOCK_MONOTONIC = 1, "Time since boot.";
    CLOCK_PROCESS_CPUTIME_ID = 2, "CPU time of the process.";
    CLOCK_THREAD_CPUTIME_ID = 3, "CPU time of the thread.";
    CLOCK_MONOTONIC_RAW = 4, "Time since boot, never adjusted.";
    CLOCK_REALTIME_COARSE = 5, "Wall clock, tick resolution.";
    CLOCK_MONOTONIC_COARSE = 6, "Time since boot, tick resolution.";
    CLOCK_BOOTTIME = 7, "Time since boot, with sleep.";
    CLOCK_TAI = 11, "Atomic time.";
    TIMER_ABSTIME = 1, "The time given is a point, not a span.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_and_huge_times() {
        assert_eq!(Timespec::from_ns(1_500_000_000).to_ns(), Some(1_500_000_000));
        assert_eq!(Timespec { seconds: i64::MAX, nanoseconds: 0 }.to_ns(), Some(u64::MAX));
        assert_eq!(Timespec { seconds: 0, nanoseconds: 1_000_000_000 }.to_ns(), None);
        assert_eq!(Timespec { seconds: -1, nanoseconds: 0 }.to_ns(), None);
    }
}
