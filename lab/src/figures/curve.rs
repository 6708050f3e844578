//! A curve that is made from runs: the counted points, and the cost model's line through them.

use serde::Serialize;

use super::compact::Point;
use super::counts::Count;
use super::measure::Measured;
use super::{Across, Plot, Series, value};
use launch::meter::model;
use launch::meter::row::Row;

/// The number of cores of the papers' machine, at which their axes end.
pub const PAPER: u16 = 80;
/// Numbers of CPUs for which predictions are kept.
const KEPT: [u16; 9] = [1, 2, 4, 8, 16, 32, 64, 80, 128];
/// Numbers of CPUs, beyond those counted, for which the compact file has predictions.
const RECORDED: [u16; 8] = [10, 16, 24, 32, 48, 64, 80, 128];

/// A curve.
#[derive(Debug, Default, Serialize)]
pub struct Curve {
    /// Its name in the paper.
    pub label: &'static str,
    /// The machine's words: design, tables and counters, or linux.
    pub on: Vec<&'static str>,
    /// The number of CPUs whose work is not drawn. The curve begins at one more.
    pub apart: u16,
    /// The program.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<&'static str>,
    /// The design or program that this build lacks.
    pub not_in_this_build: Option<String>,
    /// Runs without a result, with the reason.
    pub skipped: Vec<String>,
    /// The points from counts.
    pub points: Vec<(f64, f64)>,
    /// The cost model's values, from counts at the nearest numbers of CPUs on both sides, or at the largest
    /// two.
    pub predicted: Vec<(f64, f64)>,
    /// The same at every number of CPUs. The third number is the value if counts per round stayed as they
    /// were last, where that is known.
    #[serde(skip)]
    pub line: Vec<(f64, f64, Option<f64>)>,
    /// The number of guests of which each point is the mean.
    pub boots: Vec<usize>,
    /// All counts, where they were metered.
    pub counts: Vec<Row>,
    /// The data of each point for the compact file.
    #[serde(skip)]
    pub counted: Vec<Counted>,
    /// The number of its colour, and whether another curve has it, too.
    #[serde(skip)]
    pub color: (usize, bool),
}

/// A point and what it was made from.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Where it is.
    pub x: f64,
    /// The number of CPUs.
    pub cpus: u16,
    /// The number of guests of which it is the mean.
    pub boots: usize,
    /// Means per round, in the order of [`Count::all`], or `None` where the meter was not needed.
    pub counts: Option<[f64; 5]>,
}

impl Curve {
    /// Returns a curve without points.
    pub fn empty(series: &Series) -> Self {
        Curve {
            label: series.label,
            on: series.on.words(),
            apart: series.work.apart,
            program: series.work.program,
            arguments: series.work.arguments.to_vec(),
            color: (series.color(), false),
            ..Curve::default()
        }
    }

    /// Returns the curve of a series, from its points in the compact file.
    pub fn recorded(series: &Series, across: Across, plot: Plot, points: &[&Point]) -> Self {
        let mut curve = Curve::empty(series);
        for point in points.iter().filter(|point| point.boots > 0) {
            let &&Point { x, cpus, boots, counts, value, .. } = point;
            curve.points.push((x, value));
            curve.boots.push(boots);
            curve.counted.push(Counted { x, cpus, boots, counts });
        }
        curve.predicted = points.iter().map(|point| (point.x, point.value)).collect();
        if across == Across::Cores && plot.is_metered() {
            curve.line = through(points);
        }
        curve
    }

    /// Returns the points for the compact file: every point, and predictions beyond the last.
    pub fn record(&self, figure: &str, panel: &str) -> Vec<Point> {
        let point = |x, cpus, value| Point {
            figure: figure.to_owned(),
            panel: panel.to_owned(),
            series: self.label.to_owned(),
            x,
            cpus,
            boots: 0,
            counts: None,
            value,
            steady: None,
        };
        let counted = self.points.iter().zip(&self.counted).map(|((x, value), of)| Point {
            boots: of.boots,
            counts: of.counts,
            ..point(*x, of.cpus, *value)
        });
        let end = self.points.last().map_or(f64::INFINITY, |last| last.0);
        let beyond = self.line.iter().filter(|place| place.0 > end && RECORDED.contains(&(place.0 as u16)));
        let beyond =
            beyond.map(|(x, value, steady)| Point { steady: *steady, ..point(*x, *x as u16, *value) });
        counted.chain(beyond).collect()
    }

    /// Fills the curve from results, each with its place on the axis and its number of CPUs.
    pub fn fill(&mut self, across: Across, plot: Plot, runs: &[(f64, u16, Measured)]) {
        self.counts = runs.iter().filter_map(|(_, _, measured)| measured.row().cloned()).collect();
        let mut points = Vec::new();
        for ((x, cpus, run), boots) in runs.iter().zip(&self.boots) {
            let Some(value) = value::value(plot, self.apart, run, *cpus) else { continue };
            let counts = run.row().map(|row| Count::all(row).map(|count| count.value));
            self.counted.push(Counted { x: *x, cpus: *cpus, boots: *boots, counts });
            points.push((*x, value));
        }
        self.points = relative(plot, points);
        if across == Across::Cores && plot.is_metered() {
            self.line = line(plot, self.apart, runs);
        }
        let kept = self.line.iter().filter(|place| KEPT.iter().any(|cpus| f64::from(*cpus) == place.0));
        self.predicted = kept.map(|(x, y, _)| (*x, *y)).collect();
    }

    /// Returns the value at `x`: the counted one, or else the predicted one.
    pub fn at(&self, x: u16) -> Option<f64> {
        let counted = self.points.iter().find(|point| point.0 == f64::from(x)).map(|point| point.1);
        counted.or_else(|| self.line.iter().find(|place| place.0 == f64::from(x)).map(|place| place.1))
    }

    /// Returns whether it has a point.
    pub fn is_drawn(&self) -> bool {
        !self.points.is_empty()
    }

    /// Returns the largest number of CPUs that was counted.
    pub fn counted_to(&self) -> Option<u16> {
        self.counted.iter().map(|of| of.cpus).max()
    }

    /// Returns the part of a job during which one CPU works and the others wait. It follows by Amdahl's law
    /// from the speed-up at the most CPUs counted. The speed-up cannot exceed the inverse of this part.
    pub fn serial_part(&self) -> Option<f64> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let part = (last.0 * first.1 / last.1 - 1.0) / (last.0 - 1.0);
        (first.0 == 1.0 && last.0 > 1.0).then_some(part.max(0.0))
    }

    /// Returns the last counted value.
    pub fn last(&self) -> Option<f64> {
        self.points.last().map(|point| point.1)
    }
}

fn relative(plot: Plot, points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let first = points.first().filter(|_| plot == Plot::FaultRelative).map_or(1.0, |point| point.1);
    points.into_iter().map(|(x, y)| (x, y / first)).collect()
}

/// Returns the model's curve. It ends where counts end unless two numbers of CPUs above one say how they
/// go on.
fn line(plot: Plot, apart: u16, runs: &[(f64, u16, Measured)]) -> Vec<(f64, f64, Option<f64>)> {
    let load = |(_, cpus, run): &(f64, u16, Measured)| Some((*cpus, value::load(plot, apart, run)?));
    let loads: Vec<_> = runs.iter().filter_map(load).collect();
    let goes_on = loads.iter().filter(|(cpus, _)| *cpus > 1).count() > 1;
    let end = loads.last().map_or(0, |(cpus, _)| if goes_on { model::MOST } else { *cpus });
    let drawn = |point: model::Point| {
        let [growing, steady] =
            [point.growing, point.steady].map(|rate| value::of_rate(plot, apart, rate, point.cpus));
        // The work of a round grows with the number of cores, so its counts cannot stay as they were.
        let steady = if matches!(plot, Plot::PerRoundAndCore(_)) { growing } else { steady };
        (point.cpus.into(), growing, Some(steady))
    };
    model::curve(&loads).into_iter().filter(|point| point.cpus <= end).map(drawn).collect()
}

/// Returns the line through the points of the compact file, at every number of CPUs. Between two points it is
/// a power of that number.
fn through(points: &[&Point]) -> Vec<(f64, f64, Option<f64>)> {
    let last = points.iter().rposition(|point| point.boots > 0).unwrap_or(0);
    let steady = |at: usize| if at == last { Some(points[at].value) } else { points[at].steady };
    let mut line = Vec::new();
    for (at, pair) in points.windows(2).enumerate() {
        let [from, to] = [pair[0], pair[1]];
        for cpus in from.cpus..to.cpus {
            let x = f64::from(cpus);
            let between = |from_y: f64, to_y: f64| power((from.x, from_y), (to.x, to_y), x);
            let steady = if at < last { None } else { steady(at).zip(steady(at + 1)) };
            line.push((x, between(from.value, to.value), steady.map(|(from, to)| between(from, to))));
        }
    }
    line.extend(
        points.last().map(|end| (end.x, end.value, if points.len() > last + 1 { end.steady } else { None })),
    );
    line
}

/// Returns the value at `x` of the power law through two points.
fn power((x0, y0): (f64, f64), (x1, y1): (f64, f64), x: f64) -> f64 {
    if x == x0 { y0 } else { y0 * (y1 / y0).powf((x / x0).ln() / (x1 / x0).ln()) }
}

#[cfg(test)]
pub mod tests {
    use super::super::all;
    use super::*;
    use crate::fixture::cell;
    use launch::guest::system::System;

    /// Returns a curve of counted points.
    pub fn curve(label: &'static str, points: &[(f64, f64)]) -> Curve {
        let counted = |(x, _): &(f64, f64)| Counted { x: *x, cpus: *x as u16, boots: 2, counts: None };
        Curve {
            label,
            points: points.to_vec(),
            counted: points.iter().map(counted).collect(),
            ..Curve::default()
        }
    }

    fn metered(cpus: u16) -> (f64, u16, Measured) {
        let cell = cell(System::PERCORE, cpus);
        (
            cpus.into(),
            cpus,
            Measured::Metered { row: Box::new(cell.row), load: cell.load, counters: Default::default() },
        )
    }

    /// Returns a curve of runs with one, two and four CPUs.
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
        let mut curve = Curve { boots: vec![2, 2], ..Curve::default() };
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
        let mut curve = Curve { boots: vec![2, 2], ..Curve::default() };
        curve.fill(Across::Argument("%", &[]), Plot::FaultRelative, &[metered(2), metered(4)]);
        assert_eq!((curve.points.len(), curve.points[0].1, curve.line.len()), (2, 1.0, 0));
    }

    #[test]
    fn a_report_is_worth_its_counter() {
        let counters = std::collections::BTreeMap::from([("table_pages".to_owned(), 7)]);
        let mut curve = Curve { boots: vec![2], ..Curve::default() };
        curve.fill(Across::Cores, Plot::TablePages, &[(1.0, 1, Measured::Reported(counters))]);
        assert_eq!((curve.points, curve.line, curve.counts.len()), (vec![(1.0, 7.0)], vec![], 0));
    }

    #[test]
    fn a_recorded_curve_is_the_same() {
        let drawn = filled(Plot::PerRound(2.0));
        let points = drawn.record("fig5", "local");
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>()[..4], [1.0, 2.0, 4.0, 10.0]);
        let series = &all().next().unwrap().content.panels().1[0].series[0];
        let again =
            Curve::recorded(series, Across::Cores, Plot::PerRound(2.0), &points.iter().collect::<Vec<_>>());
        assert_eq!((again.points.clone(), again.boots.clone()), (drawn.points.clone(), drawn.boots.clone()));
        assert_eq!((again.at(80), again.line.len()), (drawn.at(80), 128));
        for point in &points {
            let at = point.x as usize - 1;
            let (recorded, line) = (again.line[at], drawn.line[at]);
            assert!(
                recorded.0 == line.0 && (recorded.1 / line.1 - 1.0).abs() < 1e-9,
                "{recorded:?} {line:?}"
            );
        }
        let (recorded, line) = (again.line[79], drawn.line[79]);
        assert_eq!((recorded.2, again.line[1].2), (line.2, None));
    }

    #[test]
    fn between_two_places_the_line_is_a_power() {
        assert_eq!(power((1.0, 3.0), (4.0, 12.0), 2.0), 6.0);
        assert_eq!(power((1.0, 8.0), (4.0, 2.0), 2.0), 4.0);
        assert_eq!(power((8.0, 5.0), (80.0, 5.0), 8.0), 5.0);
    }

    #[test]
    fn half_of_the_speed_is_a_serial_part() {
        let half = curve("a", &[(1.0, 10.0), (8.0, 40.0)]);
        assert!((half.serial_part().unwrap() - 1.0 / 7.0).abs() < 1e-9);
        assert_eq!(curve("a", &[(1.0, 10.0), (8.0, 90.0)]).serial_part(), Some(0.0));
        assert_eq!((curve("a", &[(1.0, 10.0)]).serial_part(), curve("a", &[]).serial_part()), (None, None));
    }
}
