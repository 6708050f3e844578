//! Two runs side by side: every count that differs.

use std::fmt;

use serde::Deserialize;

use crate::meter::row::Row;
use crate::meter::statistics::Summary;

/// Counts may differ by this part of the larger one.
const PART: f64 = 0.05;
/// Or by this much: the median of few transfers is a whole number.
const LEAST: f64 = 1.0;

/// A JSON file of `bench figures`, as far as it is compared.
#[derive(Deserialize)]
pub struct File {
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    id: String,
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
struct Panel {
    title: String,
    series: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    label: String,
    counts: Vec<Row>,
}

/// A count that both have.
struct Pair {
    name: String,
    values: [f64; 2],
}

/// The result: how many counts, and those that differ.
pub struct Comparison {
    compared: usize,
    different: Vec<Pair>,
}

impl Comparison {
    /// Compares what both files have.
    pub fn new(first: &File, second: &File) -> Self {
        let (first, second) = (counts(first), counts(second));
        let pair = |(name, value): (String, f64)| {
            let other = second.iter().find(|(other, _)| *other == name)?.1;
            Some(Pair { name, values: [value, other] })
        };
        let pairs: Vec<Pair> = first.into_iter().filter_map(pair).collect();
        let compared = pairs.len();
        Comparison { compared, different: pairs.into_iter().filter(Pair::differs).collect() }
    }

    /// Whether there was something to compare, and nothing differs.
    pub fn agrees(&self) -> bool {
        self.compared > 0 && self.different.is_empty()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Pair { name, values: [first, second] } in &self.different {
            writeln!(f, "{name}: {first:.2} and {second:.2}")?;
        }
        let (all, different, percent) = (self.compared, self.different.len(), 100.0 * PART);
        writeln!(f, "{} of {all} counts agree within {percent} %.", all - different)
    }
}

impl Pair {
    fn differs(&self) -> bool {
        let [first, second] = self.values;
        (first - second).abs() > (PART * first.max(second)).max(LEAST)
    }
}

/// All counts of a file by name: medians of rounds.
fn counts(file: &File) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    for figure in &file.figures {
        for panel in &figure.panels {
            for series in &panel.series {
                let place = format!("{}, {}, {}", figure.id, panel.title, series.label);
                all.extend(series.counts.iter().enumerate().flat_map(|(at, row)| of_row(&place, at, row)));
            }
        }
    }
    all
}

/// The counts of the row `at` of a curve: one may have several of as many CPUs.
fn of_row(place: &str, at: usize, row: &Row) -> [(String, f64); 5] {
    let name = |count: &str| format!("{place}, {} CPUs (run {}), {count}", row.cpus, at + 1);
    let of = |count, summary: &Summary| (name(count), summary.median);
    [
        of("instructions", &row.instructions),
        of("transfers", &row.transfers),
        of("invalidations", &row.invalidations),
        of("ipi_targets", &row.ipi_targets),
        of("faults", &row.faults),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::system::System;
    use crate::meter::row::tests::cell;

    fn file(instructions: f64) -> File {
        let mut row = cell(System::PERCORE, 2).row;
        row.instructions.median = instructions;
        let series = Series { label: "RadixVM".to_owned(), counts: vec![row] };
        let panel = Panel { title: "local".to_owned(), series: vec![series] };
        File { figures: vec![Figure { id: "fig5".to_owned(), panels: vec![panel] }] }
    }

    #[test]
    fn a_twentieth_is_allowed_and_more_is_told() {
        assert!(Comparison::new(&file(1000.0), &file(1050.0)).agrees());
        let far = Comparison::new(&file(1000.0), &file(1060.0));
        assert!(!far.agrees());
        assert_eq!(
            far.to_string(),
            "fig5, local, RadixVM, 2 CPUs (run 1), instructions: 1000.00 and 1060.00\n4 of 5 counts agree within 5 %.\n"
        );
    }

    #[test]
    fn files_with_nothing_in_common_do_not_agree() {
        assert!(!Comparison::new(&file(1.0), &File { figures: Vec::new() }).agrees());
    }
}
