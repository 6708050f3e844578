//! The user, system and idle time of a job: the Bonsai paper's table 1.

use serde::{Deserialize, Serialize};

use super::Timed;
use super::curve::Curve;
use super::value::{ended, load_of};
use launch::meter::model::FREQUENCY;
use launch::meter::row::Row;

/// Seconds of all CPUs together for one job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// In the program.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
    /// In neither: asleep, or waiting for the most contended line.
    pub idle: f64,
}

impl Split {
    /// Returns times as the paper has them.
    pub const fn seconds(user: f64, system: f64, idle: f64) -> Self {
        Split { user, system, idle }
    }

    /// Returns the times by the cost model, of a run that does `jobs` jobs an hour.
    fn of(row: &Row, jobs: f64) -> Self {
        let cpus = f64::from(row.cpus);
        let seconds = |part| load_of(part).times(ended(row)).cycles(cpus) / FREQUENCY;
        let (user, system) = (seconds(&row.user_part), seconds(&row.kernel_part));
        let idle = (cpus * 3600.0 / jobs - user - system).max(0.0);
        Split { user, system, idle }
    }
}

/// A row of the table.
#[derive(Debug, Serialize)]
pub struct Times {
    /// The program, as the paper calls it.
    pub job: &'static str,
    /// The design.
    pub design: &'static str,
    /// The number of CPUs counted.
    pub cpus: u16,
    /// The job's instructions in the program and in the kernel.
    pub instructions: [f64; 2],
    /// Ours.
    pub ours: Split,
    /// The paper's, at 80 cores, if it has this design.
    pub paper: Option<Split>,
}

/// Returns the rows of one job, at the most CPUs counted.
pub fn rows(Timed { panel, paper }: &Timed, curves: &[Curve]) -> Vec<Times> {
    let paper = paper.iter().copied().map(Some).chain(std::iter::repeat(None));
    let row = |(curve, paper): (&Curve, Option<Split>)| {
        let (row, jobs) = (curve.counts.last()?, curve.last()?);
        Some(Times {
            job: panel.title,
            design: curve.label,
            cpus: row.cpus,
            instructions: [&row.user_part, &row.kernel_part].map(|part| part.instructions * ended(row)),
            ours: Split::of(row, jobs),
            paper,
        })
    };
    curves.iter().zip(paper).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::curve::tests::filled;
    use super::super::{Panel, Plot};
    use super::*;

    #[test]
    fn user_system_and_idle_are_the_time_of_all_cpus() {
        let curve = Curve { label: "Pure RCU", ..filled(Plot::Jobs) };
        let jobs = curve.last().unwrap();
        let panel = Panel { title: "Metis", plot: Plot::Jobs, series: &[], claims: &[] };
        const PAPER: &[Split] = &[Split::seconds(3.0, 2.0, 1.0)];
        let rows = rows(&Timed { panel, paper: PAPER }, &[curve, Curve::default()]);
        assert_eq!((rows.len(), rows[0].cpus, rows[0].instructions), (1, 4, [4.0 * 120.0, 4.0 * 2900.0]));
        assert_eq!(rows[0].paper, Some(PAPER[0]));
        let Split { user, system, idle } = rows[0].ours;
        assert_eq!(user, 4.0 * 120.0 / FREQUENCY);
        assert!((user + system + idle) / (4.0 * 3600.0 / jobs) - 1.0 < 1e-9 && system > user);
    }
}
