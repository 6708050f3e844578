//! From runs to a curve: points where something was counted, and the cost model's line through them.

use serde::Serialize;

use super::measure::Measured;
use super::{Across, Plot, Series, value};
use launch::meter::model;
use launch::meter::row::Row;

/// Cores of the papers' machine: where their axes end.
pub const PAPER: u16 = 80;
/// Numbers of CPUs that predictions are kept for.
const KEPT: [u16; 9] = [1, 2, 4, 8, 16, 32, 64, 80, 128];

/// A curve.
#[derive(Debug, Default, Serialize)]
pub struct Curve {
    /// Its name in the paper.
    pub label: &'static str,
    /// The machine's words: design, tables, counters; or linux.
    pub on: Vec<&'static str>,
    /// CPUs that do something else than what is drawn: it takes one more.
    pub apart: u16,
    /// The program.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<&'static str>,
    /// What this build has not.
    pub not_in_this_build: Option<String>,
    /// Runs that gave nothing, and why.
    pub skipped: Vec<String>,
    /// From counts.
    pub points: Vec<(f64, f64)>,
    /// By the cost model from counts at the numbers of CPUs around, or the largest two.
    pub predicted: Vec<(f64, f64)>,
    /// The same at every number of CPUs, and what it would be if counts per round stayed as they were last.
    #[serde(skip)]
    pub line: Vec<(f64, f64, f64)>,
    /// How many guests each point is the mean of.
    pub boots: Vec<usize>,
    /// All counts, where they were metered.
    pub counts: Vec<Row>,
}

impl Curve {
    /// A curve without points.
    pub fn empty(series: &Series) -> Self {
        Curve {
            label: series.label,
            on: series.on.words(),
            apart: series.work.apart,
            program: series.work.program,
            arguments: series.work.arguments.to_vec(),
            ..Curve::default()
        }
    }

    /// Takes what runs left: where each was, and the number of CPUs.
    pub fn fill(&mut self, across: Across, plot: Plot, runs: &[(f64, u16, Measured)]) {
        self.counts = runs.iter().filter_map(|(_, _, measured)| measured.row().cloned()).collect();
        let point =
            |(x, cpus, run): &(f64, u16, Measured)| Some((*x, value::value(plot, self.apart, run, *cpus)?));
        self.points = relative(plot, runs.iter().filter_map(point).collect());
        if across == Across::Cores && plot.is_metered() {
            self.line = line(plot, self.apart, runs);
        }
        let kept = self.line.iter().filter(|place| KEPT.iter().any(|cpus| f64::from(*cpus) == place.0));
        self.predicted = kept.map(|(x, y, _)| (*x, *y)).collect();
    }

    /// The value there: counted, or else predicted.
    pub fn at(&self, x: u16) -> Option<f64> {
        let counted = self.points.iter().find(|point| point.0 == f64::from(x)).map(|point| point.1);
        counted.or_else(|| self.line.iter().find(|place| place.0 == f64::from(x)).map(|place| place.1))
    }

    /// What was counted, and in how many guests.
    pub fn counted(&self) -> impl Iterator<Item = (&Row, &usize)> {
        self.counts.iter().zip(&self.boots)
    }

    /// The last counted value.
    pub fn last(&self) -> Option<f64> {
        self.points.last().map(|point| point.1)
    }
}

fn relative(plot: Plot, points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let first = points.first().filter(|_| plot == Plot::FaultRelative).map_or(1.0, |point| point.1);
    points.into_iter().map(|(x, y)| (x, y / first)).collect()
}

/// The model's curve; it ends where counts end unless two numbers of CPUs above one say how they go on.
fn line(plot: Plot, apart: u16, runs: &[(f64, u16, Measured)]) -> Vec<(f64, f64, f64)> {
    let load = |(_, cpus, run): &(f64, u16, Measured)| Some((*cpus, value::load(plot, apart, run)?));
    let loads: Vec<_> = runs.iter().filter_map(load).collect();
    let goes_on = loads.iter().filter(|(cpus, _)| *cpus > 1).count() > 1;
    let end = loads.last().map_or(0, |(cpus, _)| if goes_on { model::MOST } else { *cpus });
    let drawn = |point: model::Point| {
        let [growing, steady] =
            [point.growing, point.steady].map(|rate| value::of_rate(plot, apart, rate, point.cpus));
        // A round is more work the more cores there are: it cannot stay as it was.
        let steady = if matches!(plot, Plot::PerRoundAndCore(_)) { growing } else { steady };
        (point.cpus.into(), growing, steady)
    };
    model::curve(&loads).into_iter().filter(|point| point.cpus <= end).map(drawn).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::fixture::cell;
    use launch::guest::system::System;

    /// A curve of counted points.
    pub fn curve(label: &'static str, points: &[(f64, f64)]) -> Curve {
        Curve { label, points: points.to_vec(), ..Curve::default() }
    }

    fn metered(cpus: u16) -> (f64, u16, Measured) {
        let cell = cell(System::PERCORE, cpus);
        (cpus.into(), cpus, Measured::Metered { row: Box::new(cell.row), load: cell.load })
    }

    /// A curve of runs with one, two and four CPUs.
    pub fn filled(plot: Plot) -> Curve {
        let mut curve = Curve { boots: vec![2, 3, 8], ..Curve::default() };
        curve.fill(Across::Cores, plot, &[metered(1), metered(2), metered(4)]);
        curve
    }

    #[test]
    fn points_are_counted_and_the_line_goes_through_them_to_the_end_of_the_model() {
        let curve = filled(Plot::PerRound(2.0));
        assert_eq!((curve.points.len(), curve.counts.len(), curve.line.len()), (3, 3, 128));
        for (x, y) in &curve.points {
            let there = curve.line.iter().find(|place| place.0 == *x).unwrap();
            assert!((there.1 / y - 1.0).abs() < 1e-9, "{there:?} {y}");
        }
        assert_eq!(curve.predicted.len(), KEPT.len());
        assert!((curve.at(2).unwrap() / filled(Plot::PerRound(1.0)).at(2).unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_said_beyond_two_cpus_by_runs_with_one_and_two() {
        let mut curve = Curve::default();
        curve.fill(Across::Cores, Plot::Jobs, &[metered(1), metered(2)]);
        assert_eq!((curve.line.len(), curve.at(80)), (2, None));
    }

    #[test]
    fn a_job_is_all_rounds() {
        let (job, round) = (filled(Plot::Jobs), filled(Plot::PerRound(3600.0)));
        let rounds = |cpus| round.at(cpus).unwrap() / job.at(cpus).unwrap();
        // Four that were counted. One CPU has done another before; two have done two each.
        assert!(rounds(1) > 3.0 && rounds(1) <= 5.0, "{}", rounds(1));
        assert!(rounds(2) > 2.0 && rounds(2) <= 4.0, "{}", rounds(2));
    }

    #[test]
    fn cycles_are_those_of_the_round_and_relative_faults_start_at_one() {
        let cell = cell(System::PERCORE, 1);
        assert!((filled(Plot::Cycles).at(1).unwrap() / cell.load.cycles(1.0) - 1.0).abs() < 1e-9);
        let mut curve = Curve::default();
        curve.fill(Across::Argument("%", &[]), Plot::FaultRelative, &[metered(2), metered(4)]);
        assert_eq!((curve.points.len(), curve.points[0].1, curve.line.len()), (2, 1.0, 0));
    }

    #[test]
    fn a_report_is_worth_its_counter() {
        let counters = std::collections::BTreeMap::from([("table_pages".to_owned(), 7)]);
        let mut curve = Curve::default();
        curve.fill(Across::Cores, Plot::TablePages, &[(1.0, 1, Measured::Reported(counters))]);
        assert_eq!((curve.points, curve.line, curve.counts.len()), (vec![(1.0, 7.0)], vec![], 0));
    }
}
