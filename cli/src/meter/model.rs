//! The cost model: from counts per round to rounds per second of a large machine.
//!
//! The machine is the one of RadixVM's evaluation, eight sockets of ten cores at 2.4 GHz (Intel E7-8870). A round costs its
//! CPU
//!
//! ```text
//!   cycles = instructions / IPC + iterations of string instructions · ITERATION + Σ transfers of a kind · latency of that kind
//!          + wait for an interrupt + targets · sending one + received · trap
//! ```
//!
//! and N CPUs do at most, whichever is least,
//!
//! ```text
//!   N / cycles                      each on its own
//!   1 / (hottest · latency)         one line is in one place at a time: `hottest` transfers of the hottest line per round
//!   1 / waiting                     `waiting`: cycles of a round during which the others wait for it, asleep
//! ```
//!
//! `waiting` is seen only where CPUs sleep: the window's length by the virtual clock, over its rounds, is then more than
//! `instructions / N`. It is raised in the proportion in which transfers raise the cost of the whole round, because what is done
//! under a lock is charged like everything else. Instructions of a CPU that spins are counted as instructions already.
//!
//! Left out: queues in front of a line before it saturates, caches that are full, page walks, memory that is far.

use serde::{Deserialize, Serialize};

use super::statistics::Summary;

/// Cycles per second: E7-8870 (RadixVM, EuroSys 2013, section 5.1).
pub const FREQUENCY: f64 = 2.4e9;
/// Instructions per cycle where nothing is transferred: stated, not measured.
pub const IPC: f64 = 1.0;
/// Cycles of an iteration of a repeated string instruction, by which both kernels zero and copy pages: its 8 bytes at 16 a cycle,
/// which is what a store unit of that machine takes. Stated, not measured.
pub const ITERATION: f64 = 0.5;
/// Cores of a socket.
const SOCKET: f64 = 10.0;

/// Cycles that an access to a line in another core's cache takes.
pub struct Latency {
    /// What is accessed.
    pub kind: &'static str,
    /// Both cores in one socket.
    pub near: f64,
    /// In two sockets: the mean over seven others, three of them one hop away and four two hops.
    pub far: f64,
}

/// The mean over the other sockets.
const fn far(one_hop: f64, two_hops: f64) -> f64 {
    (3.0 * one_hop + 4.0 * two_hops) / 7.0
}

/// David, Guerraoui, Trigonakis: Everything you always wanted to know about synchronization but were afraid to ask,
/// SOSP 2013, table 2, column Xeon (eight E7-8867L): load of a modified and of a shared line, store to a modified and to a
/// shared one.
pub const READ_MODIFIED: Latency =
    Latency { kind: "load, modified elsewhere", near: 109.0, far: far(289.0, 400.0) };
/// The same source.
pub const READ_CLEAN: Latency = Latency { kind: "load, clean elsewhere", near: 44.0, far: far(223.0, 334.0) };
/// The same source.
pub const WRITE: Latency = Latency { kind: "store, copy elsewhere", near: 115.0, far: far(320.0, 431.0) };
/// The same source.
pub const UPGRADE: Latency =
    Latency { kind: "store, shared with others", near: 116.0, far: far(318.0, 428.0) };

/// Seconds until an interrupt is answered, with 16 and with 120 cores: Kumar and others: LATR, ASPLOS 2018, section 1.
pub const INTERRUPT: [(f64, f64); 2] = [(16.0, 2.7e-6), (120.0, 6.6e-6)];
/// Seconds of a shootdown of all others, with as many cores: the same source.
pub const SHOOTDOWN: [(f64, f64); 2] = [(16.0, 6e-6), (120.0, 80e-6)];
/// Cycles of the trap that an interrupt is to its target: Baumann and others: The multikernel, SOSP 2009, section 5.1.
pub const TRAP: f64 = 800.0;

impl Latency {
    /// The mean over pairs of `cpus` cores that fill one socket after the other.
    pub fn cycles(&self, cpus: f64) -> f64 {
        let near = if cpus <= SOCKET { 1.0 } else { (SOCKET - 1.0) / (cpus - 1.0) };
        self.near * near + self.far * (1.0 - near)
    }
}

/// A straight line through two points, level to the left of the first.
fn line(points: &[(f64, f64); 2], x: f64) -> f64 {
    let [(x0, y0), (x1, y1)] = *points;
    y0 + (y1 - y0) * ((x - x0) / (x1 - x0)).max(0.0)
}

/// Cycles that the sender waits for the answers, besides sending.
pub fn answer(cpus: f64) -> f64 {
    FREQUENCY * line(&INTERRUPT, cpus)
}

/// Cycles per target: what a shootdown of all takes beyond one interrupt, over the further targets.
pub fn send(cpus: f64) -> f64 {
    let per_target = |at: usize| {
        let (cores, shootdown) = SHOOTDOWN[at];
        (cores, (shootdown - INTERRUPT[at].1) / (cores - 1.0))
    };
    FREQUENCY * line(&[per_target(0), per_target(1)], cpus)
}

/// What a round does, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// User and kernel.
    pub instructions: f64,
    /// Iterations of repeated string instructions.
    pub iterations: f64,
    /// Loads of lines modified elsewhere.
    pub read_modified: f64,
    /// Loads of lines clean elsewhere.
    pub read_clean: f64,
    /// Stores to lines elsewhere.
    pub write: f64,
    /// Stores to lines shared with others.
    pub upgrades: f64,
    /// Interrupts received, which is also how many were sent, counted by target.
    pub targets: f64,
    /// Transfers of the hottest line.
    pub hottest: f64,
    /// Instructions during which the other CPUs wait asleep.
    pub waiting: f64,
}

impl Load {
    /// A load between two, or beyond: 0 is this one, 1 the other. Never below nothing.
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

    /// So many rounds as one.
    pub fn times(&self, rounds: f64) -> Load {
        Load::default().toward(self, rounds)
    }

    /// What is to be expected of `grown`, further along a line that ends in this load at `cpus`: what costs less than a
    /// hundredth of a round here is noise, and stays; and so does what falls, which would end at nothing.
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

    /// Cycles that a round takes on its CPU.
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

    /// A round waits for at most one answer: all its targets are asked at once.
    fn interrupts(&self, cpus: f64) -> f64 {
        self.targets.min(1.0) * answer(cpus) + self.targets * (send(cpus) + TRAP)
    }

    /// Cycles per round below which the whole machine cannot come, by what limits it.
    pub fn limits(&self, cpus: f64) -> [(Limit, f64); 3] {
        let cycles = self.cycles(cpus);
        let inflation = if self.instructions > 0.0 { cycles / self.instructions } else { 1.0 };
        [
            (Limit::Cores, cycles / cpus),
            (Limit::Line, self.hottest * WRITE.cycles(cpus)),
            (Limit::Lock, self.waiting * inflation),
        ]
    }

    /// Rounds per second of the whole machine, and what limits them.
    pub fn throughput(&self, cpus: f64) -> (f64, Limit) {
        let limits = self.limits(cpus);
        let (limit, cycles) = limits.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("three limits");
        (if cycles > 0.0 { FREQUENCY / cycles } else { 0.0 }, limit)
    }
}

/// What more cores would have to get past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Nothing: every CPU works on its own.
    Cores,
    /// The hottest line.
    Line,
    /// Sleeping waiters.
    Lock,
}

impl Limit {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Limit::Cores => "number of CPUs",
            Limit::Line => "hottest line",
            Limit::Lock => "lock with sleepers",
        }
    }
}

/// The CPUs that curves are drawn for.
pub const MOST: u16 = 128;

/// One place of a predicted curve, in rounds per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Number of CPUs.
    pub cpus: u16,
    /// Beyond the measured: if counts per round go on as between the last two numbers of CPUs.
    pub growing: f64,
    /// Beyond the measured: if counts per round stay as they were last.
    pub steady: f64,
    /// What limits the first.
    pub limit: Limit,
}

/// The curve through loads at rising numbers of CPUs. Between them counts per round go in straight lines.
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

/// The line through the last two, if both are of more than one CPU: the step from one to two tells nothing of the rest.
fn beyond(measured: &[(u16, Load)], cpus: u16) -> Option<Load> {
    match measured {
        [.., before, last] if before.0 > 1 => Some(last.1.grown(&between(before, last, cpus), last.0.into())),
        _ => None,
    }
}

/// Predictions from medians, from means, and from what nine tenths of the rounds stay below and above: a costly round is a slow
/// one, so the tenth percentile of speed comes from the ninetieth of counts.
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
