//! The comparison of two runs, which lists every count that differs.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::compact::Compact;
use super::counts::{Count, PART};
use launch::meter::row::Row;

/// The counts, by name, of a JSON file of `bench figures`.
pub struct File(Vec<(String, Count)>);

/// `figures.json`.
#[derive(Deserialize)]
struct Full {
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

impl File {
    /// Reads `counts.json`, or `figures.json`.
    ///
    /// # Errors
    /// Fails if the text is neither.
    pub fn parse(text: &str) -> Result<Self> {
        if let Ok(compact) = Compact::parse(text) {
            return Ok(File::of_compact(&compact));
        }
        let full: Full = serde_json::from_str(text).context("neither counts.json nor figures.json")?;
        Ok(File::of_full(&full))
    }

    fn of_full(full: &Full) -> Self {
        let panels =
            full.figures.iter().flat_map(|figure| figure.panels.iter().map(move |panel| (&figure.id, panel)));
        let series = panels.flat_map(|(id, panel)| panel.series.iter().map(move |of| (id, &panel.title, of)));
        let counts = series.flat_map(|(id, title, series)| {
            let place = format!("{id}, {title}, {}", series.label);
            let rows = series.counts.iter().enumerate();
            rows.flat_map(move |(at, row)| named(&place, at, row.cpus, Count::all(row)))
        });
        File(counts.collect())
    }

    fn of_compact(compact: &Compact) -> Self {
        let mut runs: BTreeMap<String, usize> = BTreeMap::new();
        let counts = compact.points.iter().flat_map(|point| {
            let place = format!("{}, {}, {}", point.figure, point.panel, point.series);
            let at = runs.entry(place.clone()).or_default();
            let counts =
                point.counts.map(|counts| named(&place, *at, point.cpus, Count::known(point.cpus, counts)));
            *at += usize::from(counts.is_some());
            counts.into_iter().flatten()
        });
        File(counts.collect())
    }
}

/// Returns the counts of row `at` of a curve, by name. Their names contain the row's number, because a curve
/// may have several rows with the same number of CPUs.
fn named(place: &str, at: usize, cpus: u16, counts: [Count; 5]) -> Vec<(String, Count)> {
    let name = |count: &Count| format!("{place}, {cpus} CPUs (run {}), {}", at + 1, count.name);
    counts.into_iter().map(|count| (name(&count), count)).collect()
}

/// A count that both files have.
struct Pair {
    name: String,
    counts: [Count; 2],
}

/// The number of compared counts, and the counts that differ.
pub struct Comparison {
    compared: usize,
    different: Vec<Pair>,
}

impl Comparison {
    /// Compares the counts that both files have.
    pub fn new(File(first): File, File(second): File) -> Self {
        let mut second: BTreeMap<_, _> = second.into_iter().collect();
        let pair = |(name, count)| Some(Pair { counts: [count, second.remove(&name)?], name });
        let pairs: Vec<Pair> = first.into_iter().filter_map(pair).collect();
        let compared = pairs.len();
        Comparison { compared, different: pairs.into_iter().filter(Pair::differs).collect() }
    }

    /// Returns whether at least one count was compared, and none differs.
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

#[cfg(test)]
mod tests {
    use super::super::compact::tests::results;
    use super::*;
    use crate::fixture::cell;
    use launch::guest::system::System;

    fn file(instructions: f64, transfers: f64) -> File {
        let mut row = cell(System::PERCORE, 2).row;
        (row.instructions.mean, row.transfers.mean) = (instructions, transfers);
        let series = Series { label: "RadixVM".to_owned(), counts: vec![row] };
        let panel = Panel { title: "local".to_owned(), series: vec![series] };
        File::of_full(&Full { figures: vec![Figure { id: "fig5".to_owned(), panels: vec![panel] }] })
    }

    #[test]
    fn a_twentieth_is_allowed_and_more_is_told() {
        assert!(Comparison::new(file(1000.0, 0.0), file(1050.0, 0.0)).agrees());
        let far = Comparison::new(file(1000.0, 0.0), file(1060.0, 0.0));
        assert!(!far.agrees());
        assert_eq!(
            far.to_string(),
            "fig5, local, RadixVM, 2 CPUs (run 1), instructions: 1000.00 and 1060.00\n4 of 5 counts agree within 5 %.\n"
        );
    }

    #[test]
    fn a_hundredth_of_a_round_is_allowed() {
        assert!(Comparison::new(file(1e6, 100.0), file(1e6, 185.0)).agrees());
        assert!(!Comparison::new(file(1e6, 100.0), file(1e6, 190.0)).agrees());
    }

    #[test]
    fn files_with_nothing_in_common_do_not_agree() {
        assert!(!Comparison::new(file(1.0, 1.0), File(Vec::new())).agrees());
    }

    #[test]
    fn both_kinds_of_file_of_a_run_have_the_same_counts() {
        let results = results();
        let full = File::parse(&serde_json::to_string(&results).unwrap()).unwrap();
        let compact = File::parse(&Compact::of(&results).text().unwrap()).unwrap();
        assert!(compact.0.len() > 100);
        let both = Comparison::new(compact, full);
        assert!(both.agrees() && both.to_string().contains(" counts agree"), "{both}");
        assert!(File::parse("[]").is_err());
    }
}
