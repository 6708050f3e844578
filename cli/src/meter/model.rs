//! The cost model: from counts per round to rounds per second of a large machine.
//!
//! The machine is the one of RadixVM's evaluation, eight sockets of ten cores at 2.4 GHz (Intel E7-8870). A
//! round costs its CPU
//!
//! ```text
//!   cycles = instructions / IPC + iterations of string instructions · ITERATION
//!          + Σ transfers of a kind · latency of that kind
//!          + wait for an interrupt + targets · sending one + received · trap
//! ```
//!
//! The speed of N CPUs is at most the least of
//!
//! ```text
//!   N / cycles                      each CPU works on its own
//!   1 / (hottest · latency)         a line is in one place: `hottest` transfers of the hottest line per round
//!   1 / waiting                     `waiting`: cycles of a round during which other CPUs wait for it asleep
//! ```
//!
//! `waiting` is visible only where CPUs sleep: the window's length by the virtual clock, divided by its
//! rounds, is then more than `instructions / N`. It is scaled up by the proportion in which transfers raise
//! the cost of the whole round, because work under a lock is charged like all other work. Instructions of a
//! CPU that spins are counted as instructions already.
//!
//! The model leaves out queues in front of a line before it saturates, full caches, page walks, and remote
//! memory.

use serde::{Deserialize, Serialize};

use super::statistics::Summary;

/// The cycles per second of the E7-8870 (RadixVM, EuroSys 2013, section 5.1).
pub const FREQUENCY: f64 = 2.4e9;
/// The instructions per cycle without transfers. This is an assumption, not a measurement.
pub const IPC: f64 = 1.0;
/// The cycles of an iteration of a repeated string instruction, by which both kernels zero and copy pages: 8
/// bytes at 16 bytes per cycle, the width of a store unit of that machine. This is an assumption, not a
/// measurement.
pub const ITERATION: f64 = 0.5;
/// The cores of a socket.
const SOCKET: f64 = 10.0;

/// The cycles of an access to a line in another core's cache.
pub struct Latency {
    /// The kind of access.
    pub kind: &'static str,
    /// The cycles if both cores are in one socket.
    pub near: f64,
    /// The cycles if they are in two sockets: the mean over seven others, three of them one hop away and four
    /// two hops.
    pub far: f64,
}

/// Returns the mean over the other sockets.
const fn far(one_hop: f64, two_hops: f64) -> f64 {
    (3.0 * one_hop + 4.0 * two_hops) / 7.0
}

/// The latency of a load of a modified line, from David, Guerraoui, Trigonakis: Everything you always wanted
/// to know about synchronization but were afraid to ask, SOSP 2013, table 2, column Xeon (eight E7-8867L).
/// The table also has the load of a shared line, and the store to a modified and to a shared one.
pub const READ_MODIFIED: Latency =
    Latency { kind: "load, modified elsewhere", near: 109.0, far: far(289.0, 400.0) };
/// From the same source.
pub const READ_CLEAN: Latency = Latency { kind: "load, clean elsewhere", near: 44.0, far: far(223.0, 334.0) };
/// From the same source.
pub const WRITE: Latency = Latency { kind: "store, copy elsewhere", near: 115.0, far: far(320.0, 431.0) };
/// From the same source.
pub const UPGRADE: Latency =
    Latency { kind: "store, shared with others", near: 116.0, far: far(318.0, 428.0) };

/// The seconds until an interrupt is answered, with 16 and with 120 cores: Kumar and others: LATR, ASPLOS
/// 2018, section 1.
pub const INTERRUPT: [(f64, f64); 2] = [(16.0, 2.7e-6), (120.0, 6.6e-6)];
/// The seconds of a shootdown of all other cores, with 16 and with 120 cores, from the same source.
pub const SHOOTDOWN: [(f64, f64); 2] = [(16.0, 6e-6), (120.0, 80e-6)];
/// The cycles of the trap at the target of an interrupt: Baumann and others: The multikernel, SOSP 2009,
/// section 5.1.
pub const TRAP: f64 = 800.0;

impl Latency {
    /// Returns the mean over pairs of `cpus` cores that fill one socket after the other.
    pub fn cycles(&self, cpus: f64) -> f64 {
        let near = if cpus <= SOCKET { 1.0 } else { (SOCKET - 1.0) / (cpus - 1.0) };
        self.near * near + self.far * (1.0 - near)
    }
}

/// Returns the value at `x` of a straight line through two points, which is level to the left of the first.
fn line(points: &[(f64, f64); 2], x: f64) -> f64 {
    let [(x0, y0), (x1, y1)] = *points;
    y0 + (y1 - y0) * ((x - x0) / (x1 - x0)).max(0.0)
}

/// Returns the cycles that the sender waits for the answers, besides sending.
pub fn answer(cpus: f64) -> f64 {
    FREQUENCY * line(&INTERRUPT, cpus)
}

/// Returns the cycles per target: the time of a shootdown of all cores beyond that of one interrupt, divided
/// by the further targets.
pub fn send(cpus: f64) -> f64 {
    let per_target = |at: usize| {
        let (cores, shootdown) = SHOOTDOWN[at];
        (cores, (shootdown - INTERRUPT[at].1) / (cores - 1.0))
    };
    FREQUENCY * line(&[per_target(0), per_target(1)], cpus)
}

/// The work of a mean round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The instructions of user and kernel.
    pub instructions: f64,
    /// The iterations of repeated string instructions.
    pub iterations: f64,
    /// The loads of lines that are modified elsewhere.
    pub read_modified: f64,
    /// The loads of lines that are clean elsewhere.
    pub read_clean: f64,
    /// The stores to lines that are elsewhere.
    pub write: f64,
    /// The stores to lines that are shared with others.
    pub upgrades: f64,
    /// The interrupts received, which equals the interrupts sent, counted by target.
    pub targets: f64,
    /// The transfers of the hottest line.
    pub hottest: f64,
    /// The instructions during which the other CPUs wait asleep.
    pub waiting: f64,
}

impl Load {
    /// Interpolates to `other`, or extrapolates: `part` 0 is this load, and 1 the other. No count becomes
    /// negative.
    fn toward(&self, other: &Load, part: f64) -> Load {
        let mix = |a: f64, b: f64| (a + (b - a) * part).max(0.0);
        Load {
            instructions: mix(self.instructions, other.instructions),
            iterations: mix(self.iterations, other.iterations),
            read_modified: mix(self.read_modified, other.read_modified),
            read_clean: mix(self.read_clean, other.read_clean),
            write: mix(self.write, other.write),
            upgrades: mix(self.upgrades, other.upgrades),
            targets: mix(self.targets, other.targets),
            hottest: mix(self.hottest, other.hottest),
            waiting: mix(self.waiting, other.waiting),
        }
    }

    /// Returns `rounds` rounds of this load as one.
    pub fn times(&self, rounds: f64) -> Load {
        Load::default().toward(self, rounds)
    }

    /// Returns the load to expect at `grown`, a point further along a line that ends in this load at `cpus`.
    /// A count that costs less than a hundredth of a round here is noise and stays. A falling count stays
    /// too, because it would end at zero.
    fn grown(&self, grown: &Load, cpus: f64) -> Load {
        let least = self.cycles(cpus) / 100.0;
        let count =
            |here: f64, there: f64, cycles: f64| if here * cycles < least { here } else { there.max(here) };
        Load {
            instructions: grown.instructions.max(self.instructions),
            iterations: grown.iterations.max(self.iterations),
            read_modified: count(self.read_modified, grown.read_modified, READ_MODIFIED.cycles(cpus)),
            read_clean: count(self.read_clean, grown.read_clean, READ_CLEAN.cycles(cpus)),
            write: count(self.write, grown.write, WRITE.cycles(cpus)),
            upgrades: count(self.upgrades, grown.upgrades, UPGRADE.cycles(cpus)),
            targets: count(self.targets, grown.targets, answer(cpus)),
            hottest: count(self.hottest, grown.hottest, WRITE.cycles(cpus)),
            waiting: grown.waiting.max(self.waiting),
        }
    }

    /// Returns the cycles that a round takes on its CPU.
    pub fn cycles(&self, cpus: f64) -> f64 {
        let alone = self.instructions / IPC + self.iterations * ITERATION;
        alone + self.transfers(cpus) + self.interrupts(cpus)
    }

    fn transfers(&self, cpus: f64) -> f64 {
        self.read_modified * READ_MODIFIED.cycles(cpus)
            + self.read_clean * READ_CLEAN.cycles(cpus)
            + self.write * WRITE.cycles(cpus)
            + self.upgrades * UPGRADE.cycles(cpus)
    }

    /// Returns the cycles for interrupts. A round waits for at most one answer, because all its targets are
    /// asked at once.
    fn interrupts(&self, cpus: f64) -> f64 {
        self.targets.min(1.0) * answer(cpus) + self.targets * (send(cpus) + TRAP)
    }

    /// Returns the least cycles per round of the whole machine, by each of its limits.
    pub fn limits(&self, cpus: f64) -> [(Limit, f64); 3] {
        let cycles = self.cycles(cpus);
        let inflation = if self.instructions > 0.0 { cycles / self.instructions } else { 1.0 };
        [
            (Limit::Cores, cycles / cpus),
            (Limit::Line, self.hottest * WRITE.cycles(cpus)),
            (Limit::Lock, self.waiting * inflation),
        ]
    }

    /// Returns the rounds per second of the whole machine, and their limit.
    pub fn throughput(&self, cpus: f64) -> (f64, Limit) {
        let limits = self.limits(cpus);
        let (limit, cycles) = limits.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("three limits");
        (if cycles > 0.0 { FREQUENCY / cycles } else { 0.0 }, limit)
    }
}

/// A limit of the speed of the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The number of CPUs: each works on its own.
    Cores,
    /// The hottest line.
    Line,
    /// Waiters that sleep.
    Lock,
}

impl Limit {
    /// Returns a description for people.
    pub fn describe(self) -> &'static str {
        match self {
            Limit::Cores => "number of CPUs",
            Limit::Line => "hottest line",
            Limit::Lock => "lock with sleepers",
        }
    }
}

/// The largest number of CPUs in a curve.
pub const MOST: u16 = 128;

/// A point of a predicted curve, in rounds per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The number of CPUs.
    pub cpus: u16,
    /// The speed. Beyond the measured numbers, if counts per round go on as between the last two.
    pub growing: f64,
    /// The speed. Beyond the measured numbers, if counts per round stay at the last ones.
    pub steady: f64,
    /// The limit of `growing`.
    pub limit: Limit,
}

/// Returns the curve through loads at rising numbers of CPUs. Counts per round are interpolated between them.
pub fn curve(measured: &[(u16, Load)]) -> Vec<Point> {
    let place = |cpus: u16| {
        let (growing, limit) = load_at(measured, cpus, true).throughput(cpus.into());
        let (steady, _) = load_at(measured, cpus, false).throughput(cpus.into());
        Point { cpus, growing, steady, limit }
    };
    if measured.is_empty() { Vec::new() } else { (1..=MOST).map(place).collect() }
}

fn load_at(measured: &[(u16, Load)], cpus: u16, growing: bool) -> Load {
    let next = measured.partition_point(|(known, _)| *known < cpus);
    match (next.checked_sub(1).map(|last| &measured[last]), measured.get(next)) {
        (None, Some((_, first))) => *first,
        (Some(before), Some(after)) => between(before, after, cpus),
        (Some((_, last)), None) if growing => beyond(measured, cpus).unwrap_or(*last),
        (Some((_, last)), None) => *last,
        (None, None) => Load::default(),
    }
}

fn between((x0, from): &(u16, Load), (x1, to): &(u16, Load), cpus: u16) -> Load {
    let part = (f64::from(cpus) - f64::from(*x0)) / (f64::from(*x1) - f64::from(*x0));
    from.toward(to, part)
}

/// Extrapolates the line through the last two loads, if both are of more than one CPU. The step from one CPU
/// to two says nothing about the rest.
fn beyond(measured: &[(u16, Load)], cpus: u16) -> Option<Load> {
    match measured {
        [.., before, last] if before.0 > 1 => Some(last.1.grown(&between(before, last, cpus), last.0.into())),
        _ => None,
    }
}

/// Returns predictions from medians, from means, and from the percentiles. A costly round is a slow one, so
/// the tenth percentile of speed comes from the ninetieth of counts.
pub fn summary(load: impl Fn(fn(&Summary) -> f64) -> Load, cpus: u16) -> Summary {
    let speed = |pick: fn(&Summary) -> f64| load(pick).throughput(cpus.into()).0;
    Summary {
        median: speed(|of| of.median),
        p10: speed(|of| of.p90),
        p90: speed(|of| of.p10),
        mean: speed(|of| of.mean),
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
