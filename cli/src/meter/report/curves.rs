//! The page's curves: predicted speed, and counts per round, over numbers of CPUs.

use super::chart::{CPUS, Chart, Curve, Mark, short};
use super::html::{escape, table};
use super::scale::Axis;
use super::{palette, style, systems};
use crate::guest::system::System;
use crate::meter::model::{self, Point};
use crate::meter::row::{Cell, Row};
use crate::meter::statistics::Summary;

/// The numbers of CPUs for which predictions are printed.
const PRINTED: [u16; 9] = [1, 2, 4, 8, 16, 32, 64, 80, 128];

/// Returns the predicted curve of one system.
fn points(cells: &[Cell], system: System) -> Vec<Point> {
    let loads: Vec<_> =
        cells.iter().filter(|cell| cell.system == system).map(|cell| (cell.row.cpus, cell.load)).collect();
    model::curve(&loads)
}

/// Formats all charts.
pub fn curves(cells: &[Cell]) -> String {
    let figure = |class: &str, chart: Chart| {
        format!(
            "<figure class=\"{class}\">{}<figcaption>{}</figcaption></figure>\n",
            chart.svg(),
            escape(&chart.title)
        )
    };
    let counted = |title: &str, of: fn(&Row) -> &Summary| figure("", counts(cells, title, of));
    let charts = [
        figure("first", speeds(cells)),
        counted("Cache lines transferred per round: median, and the range of eight rounds in ten", |row| {
            &row.transfers
        }),
        counted("Instructions per round", |row| &row.instructions),
        counted("Interrupts between CPUs per round, by target", |row| &row.ipi_targets),
        counted("Copies invalidated per round", |row| &row.invalidations),
    ];
    format!("<h2>Curves</h2>\n<div class=charts>{}</div>\n", charts.concat())
}

fn speeds(cells: &[Cell]) -> Chart {
    let curve = |system: System| {
        let measured: Vec<&Cell> = cells.iter().filter(|cell| cell.system == system).collect();
        let known_to = measured.iter().map(|cell| f64::from(cell.row.cpus)).fold(1.0, f64::max);
        let points = points(cells, system);
        let beyond = points.iter().filter(|point| f64::from(point.cpus) >= known_to);
        let dot = |cell: &&Cell| (f64::from(cell.row.cpus), cell.row.predicted_rounds_per_s.mean);
        Curve {
            label: system.label(),
            color: palette::of(system),
            hollow: false,
            band: beyond.map(|point| (point.cpus.into(), point.growing, point.steady)).collect(),
            points: points.iter().map(|point| (point.cpus.into(), point.growing)).collect(),
            known_to,
            dots: measured.iter().map(dot).collect(),
        }
    };
    let title = "Predicted rounds per second of all CPUs. Dots: from counts at that number of CPUs. Dashed: beyond what was \
                 counted, if counts go on as before. Shaded: up to the curve of counts that stay as they are. Dotted: perfect scaling.";
    let curves = systems(cells).into_iter().map(curve).collect();
    Chart { key: KEY, ideal: Some(0), ..chart(Axis::Logarithmic, title, curves) }
}

fn counts(cells: &[Cell], title: &str, of: fn(&Row) -> &Summary) -> Chart {
    let curve = |system: System| {
        let measured = || cells.iter().filter(move |cell| cell.system == system).map(|cell| &cell.row);
        let points: Vec<_> = measured().map(|row| (f64::from(row.cpus), of(row).median)).collect();
        Curve {
            label: system.label(),
            color: palette::of(system),
            hollow: false,
            band: measured().map(|row| (row.cpus.into(), of(row).p10, of(row).p90)).collect(),
            known_to: f64::INFINITY,
            dots: points.clone(),
            points,
        }
    };
    let curves = systems(cells).into_iter().map(curve).collect();
    chart(Axis::Linear, title, curves)
}

/// The meanings of the marks in the first chart.
const KEY: &[(Mark, &str)] = &[
    (Mark::Dot, "from counts"),
    (Mark::Dashed, "counts go on as before"),
    (Mark::Shaded, "to: counts stay as they are"),
];

/// Returns a chart, whose title is below it.
fn chart(axis: Axis, title: &str, curves: Vec<Curve>) -> Chart {
    let (title, heading) = (title.to_owned(), String::new());
    Chart { across: CPUS, up: ("", axis), title, heading, key: &[], said: Vec::new(), curves, ideal: None }
}

/// Returns the first chart as a picture of its own.
pub fn picture(cells: &[Cell]) -> String {
    speeds(cells).file(style::CSS)
}

/// Returns the first chart as a table of numbers.
pub fn predictions(cells: &[Cell]) -> String {
    let row = |system: System| {
        let points = points(cells, system);
        let at = |cpus: &u16| points.get(usize::from(*cpus) - 1);
        let cell = |cpus: &u16| at(cpus).map_or_else(String::new, |point| short(point.growing));
        let limit = points.last().map_or("", |point| point.limit.describe());
        [system.label()].into_iter().chain(PRINTED.iter().map(cell)).chain([limit.to_owned()]).collect()
    };
    let numbers = PRINTED.map(|cpus| cpus.to_string());
    let heading: Vec<&str> = ["predicted/s at CPUs"]
        .into_iter()
        .chain(numbers.iter().map(String::as_str))
        .chain(["limit at 128"])
        .collect();
    table(&heading, systems(cells).into_iter().map(row))
}
