//! Two runs side by side: every count that differs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::counts::{Count, PART};
use launch::meter::row::Row;

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
    counts: [Count; 2],
}

/// The result: how many counts, and those that differ.
pub struct Comparison {
    compared: usize,
    different: Vec<Pair>,
}

impl Comparison {
    /// Compares what both files have.
    pub fn new(first: &File, second: &File) -> Self {
        let mut second: BTreeMap<_, _> = counts(second).into_iter().collect();
        let pair = |(name, count)| Some(Pair { counts: [count, second.remove(&name)?], name });
        let pairs: Vec<Pair> = counts(first).into_iter().filter_map(pair).collect();
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
        for Pair { name, counts: [first, second] } in &self.different {
            writeln!(f, "{name}: {:.2} and {:.2}", first.value, second.value)?;
        }
        let (all, different, percent) = (self.compared, self.different.len(), 100.0 * PART);
        writeln!(f, "{} of {all} counts agree within {percent} %.", all - different)
    }
}

impl Pair {
    fn differs(&self) -> bool {
        let [first, second] = &self.counts;
        !first.agrees(second)
    }
}

/// All counts of a file by name.
fn counts(file: &File) -> Vec<(String, Count)> {
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
fn of_row(place: &str, at: usize, row: &Row) -> [(String, Count); 5] {
    let name = |count: &Count| format!("{place}, {} CPUs (run {}), {}", row.cpus, at + 1, count.name);
    Count::all(row).map(|count| (name(&count), count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::cell;
    use launch::guest::system::System;

    fn file(instructions: f64) -> File {
        let mut row = cell(System::PERCORE, 2).row;
        row.instructions.mean = instructions;
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
    fn what_costs_a_hundredth_of_its_round_is_allowed() {
        let [mut first, mut second] = [file(1e6), file(1e6)];
        let transfers = |file: &mut File, mean| {
            file.figures[0].panels[0].series[0].counts[0].transfers.mean = mean;
        };
        transfers(&mut first, 100.0);
        transfers(&mut second, 185.0);
        assert!(Comparison::new(&first, &second).agrees());
        transfers(&mut second, 190.0);
        assert!(!Comparison::new(&first, &second).agrees());
    }

    #[test]
    fn files_with_nothing_in_common_do_not_agree() {
        assert!(!Comparison::new(&file(1.0), &File { figures: Vec::new() }).agrees());
    }
}
