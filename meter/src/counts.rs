//! The kinds of events, and their counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A kind of event. It is counted for the CPU that causes it, by privilege and phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Instructions. A repeated string instruction is one, however often it repeats.
    Instructions,
    /// Loads.
    Loads,
    /// Stores, and accesses that load and store in one.
    Stores,
    /// A load of a line that another CPU has modified.
    ReadModified,
    /// A load of a line that other CPUs have unmodified.
    ReadClean,
    /// A store, without a copy, to a line that another CPU has modified.
    WriteModified,
    /// A store, without a copy, to a line that other CPUs have unmodified.
    WriteClean,
    /// A store to a line that this CPU shares with others.
    Upgrades,
    /// Copies of other CPUs that a store removed.
    Invalidations,
    /// Accesses to a line that no CPU had.
    Cold,
    /// Iterations of repeated string instructions.
    RepIterations,
    /// Stores to the interrupt command register of the local APIC.
    IpisSent,
    /// Executions of an entry point named `ipi`.
    IpisReceived,
    /// Executions of an entry point named `tick`.
    Ticks,
    /// Executions of an entry point named `fault`.
    Faults,
    /// Executions of an entry point named `syscall`.
    Syscalls,
    /// Executions of an entry point named `schedule`.
    Schedules,
    /// Instructions that invalidate single translations.
    Invlpg,
    /// Writes to CR3.
    Cr3Loads,
    /// Accesses to devices by `in` and `out` and by memory, except for the local APIC's command register.
    Io,
}

use Kind::*;

/// All kinds in the order of their numbers.
pub const KINDS: [Kind; 20] = [
    Instructions,
    Loads,
    Stores,
    ReadModified,
    ReadClean,
    WriteModified,
    WriteClean,
    Upgrades,
    Invalidations,
    Cold,
    RepIterations,
    IpisSent,
    IpisReceived,
    Ticks,
    Faults,
    Syscalls,
    Schedules,
    Invlpg,
    Cr3Loads,
    Io,
];

const NAMES: [&str; KINDS.len()] = [
    "instructions",
    "loads",
    "stores",
    "read_modified",
    "read_clean",
    "write_modified",
    "write_clean",
    "upgrades",
    "invalidations",
    "cold",
    "rep_iterations",
    "ipis_sent",
    "ipis_received",
    "ticks",
    "faults",
    "syscalls",
    "schedules",
    "invlpg",
    "cr3_loads",
    "io",
];

impl Kind {
    /// Returns its name in the results.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Returns whether it moves a line between CPUs.
    pub fn is_transfer(self) -> bool {
        matches!(self, ReadModified | ReadClean | WriteModified | WriteClean | Upgrades)
    }
}

/// Number of phases that a program may mark.
pub const PHASES: usize = 8;

/// One counter of each kind, written by one CPU and read by the thread that opens or closes a window.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; KINDS.len()]);

impl Counts {
    /// Adds to a counter. Only the owner may call it. Relaxed, here and in `read`: a reading of another CPU's
    /// counts is as exact as the slack.
    #[inline]
    pub fn add(&self, kind: Kind, count: u64) {
        let counter = &self.0[kind as usize];
        counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Subtracts from a counter. Only the owner may call it.
    #[inline]
    pub fn subtract(&self, kind: Kind, count: u64) {
        self.add(kind, count.wrapping_neg());
    }

    /// Returns one present count.
    pub fn get(&self, kind: Kind) -> u64 {
        self.0[kind as usize].load(Relaxed)
    }

    /// Returns the present counts.
    pub fn read(&self) -> Reading {
        Reading(std::array::from_fn(|kind| self.0[kind].load(Relaxed)))
    }
}

/// Counts at one moment, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading([u64; KINDS.len()]);

impl Reading {
    /// Returns the count of a kind.
    pub fn get(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Returns the count of a kind, to change.
    pub fn get_mut(&mut self, kind: Kind) -> &mut u64 {
        &mut self.0[kind as usize]
    }

    /// Returns the sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind].wrapping_add(other.0[kind])))
    }

    /// Returns the counts since `before`. Two CPUs' clocks are never compared to the instruction, so a
    /// negative difference is zero.
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind].saturating_sub(before.0[kind])))
    }

    /// Returns whether all counts are zero.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_its_number_and_its_name() {
        assert!(KINDS.iter().enumerate().all(|(number, kind)| *kind as usize == number));
        assert_eq!((Upgrades.name(), Io.name()), ("upgrades", "io"));
        assert_eq!(KINDS.iter().filter(|kind| kind.is_transfer()).count(), 5);
    }

    #[test]
    fn readings_add_and_never_go_below_zero() {
        let counts = Counts::default();
        counts.add(Loads, 5);
        let before = counts.read();
        counts.add(Loads, 2);
        counts.subtract(Loads, 1);
        let now = counts.read();
        assert_eq!(now.since(&before).get(Loads), 1);
        assert!(before.since(&now).is_zero());
        assert_eq!(now.plus(&before).get(Loads), 11);
    }
}
