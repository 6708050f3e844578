//! The counts of a row by which two runs are compared, and the tolerance.

use launch::meter::model::{TRAP, UPGRADE, answer, send};
use launch::meter::row::Row;

/// The part of the larger count by which two counts may differ.
pub const PART: f64 = 0.05;
/// The part of the instructions of a round that the difference between two counts may cost. It moves the
/// height of a curve by less.
const COST: f64 = 0.01;
/// The number by which two counts may always differ, because a round has a transfer or it has none.
const LEAST: f64 = 1.0;

/// A count of a row: the mean, which the figures are drawn from.
pub struct Count {
    /// As `contend` calls it.
    pub name: &'static str,
    /// The mean number per round.
    pub value: f64,
    /// The difference between the 10th and the 90th percentile of the rounds.
    pub scatter: f64,
    /// The number of them that costs [`COST`] of its round.
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

    /// Returns the counts from means alone, in the same order. One of each is taken to cost the most cycles
    /// that it can.
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

    /// Returns the largest difference that the two may have.
    pub fn tolerance(&self, other: &Count) -> f64 {
        (PART * self.value.max(other.value)).max(self.little.min(other.little)).max(LEAST)
    }

    /// Returns whether the two differ by no more than that.
    pub fn agrees(&self, other: &Count) -> bool {
        (self.value - other.value).abs() <= self.tolerance(other)
    }
}
