//! The counts of a row by which two runs are compared, and the tolerance.

use launch::meter::model::{TRAP, UPGRADE, answer, send};
use launch::meter::row::Row;

/// Counts may differ by this part of the larger one.
pub const PART: f64 = 0.05;
/// Or by what costs this part of a round: a height moves by less for it.
const COST: f64 = 0.01;
/// Or by this much: a round has a transfer or it has none.
const LEAST: f64 = 1.0;

/// A count of a row: the mean, which the figures are drawn from.
pub struct Count {
    /// As `contend` calls it.
    pub name: &'static str,
    /// How many a round.
    pub value: f64,
    /// From a round that nine tenths exceed to one that a tenth does.
    pub scatter: f64,
    /// How much of it costs little of its round.
    little: f64,
}

impl Count {
    /// Returns the counts of a row. The cost of a fault is in the other counts.
    pub fn all(row: &Row) -> [Count; 5] {
        let summaries =
            [&row.instructions, &row.transfers, &row.invalidations, &row.ipi_targets, &row.faults];
        let mut counts = Count::known(row.cpus, summaries.map(|summary| summary.mean));
        for (count, summary) in counts.iter_mut().zip(summaries) {
            count.scatter = summary.p90 - summary.p10;
        }
        counts
    }

    /// Returns the same of means alone, in the same order, each with the cycles that one costs at most.
    pub fn known(cpus: u16, means: [f64; 5]) -> [Count; 5] {
        let cpus = f64::from(cpus);
        let (line, interrupt) = (UPGRADE.cycles(cpus), answer(cpus) + send(cpus) + TRAP);
        let names = ["instructions", "transfers", "invalidations", "ipi_targets", "faults"];
        let cycles = [1.0, line, line, interrupt, f64::INFINITY];
        std::array::from_fn(|at| Count {
            name: names[at],
            value: means[at],
            scatter: 0.0,
            little: COST * means[0] / cycles[at],
        })
    }

    /// How far apart the two may be.
    pub fn tolerance(&self, other: &Count) -> f64 {
        (PART * self.value.max(other.value)).max(self.little.min(other.little)).max(LEAST)
    }

    /// Whether the two are the same, as far as it matters.
    pub fn agrees(&self, other: &Count) -> bool {
        (self.value - other.value).abs() <= self.tolerance(other)
    }
}
