//! The results for people: the tests that are free of conflicts, by call and by pair of calls, and the code
//! that makes the others conflict.

use std::collections::BTreeMap;
use std::fmt::Write;

use commute::call::OPS;

use super::{Contended, Outcome};
use crate::table::Table;

/// The number of places in code in the report.
const PLACES: usize = 12;

/// The notes below the tables.
const NOTES: &str = "\
A test is two calls that commute. It is free if no kernel line is written by one and touched by the other, and none sends
an interrupt. Work that a kernel defers until after a call, page walks and instruction fetches are not seen. See
docs/design/commute.md.
";

/// A number of tests and of those that are free.
#[derive(Clone, Copy, Default)]
pub(super) struct Share {
    pub free: usize,
    pub all: usize,
}

impl Share {
    pub fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Self {
        outcomes.fold(Share::default(), |share, outcome| Share {
            free: share.free + usize::from(outcome.is_free()),
            all: share.all + 1,
        })
    }

    /// Formats percents with one digit after the point.
    pub fn percent(self) -> String {
        if self.all == 0 {
            "–".to_owned()
        } else {
            format!("{:.1}", 100.0 * self.free as f64 / self.all as f64)
        }
    }

    /// Formats whole percents, for cells of a large table.
    fn short(self) -> String {
        (100 * self.free).checked_div(self.all).map_or("–".to_owned(), |percent| percent.to_string())
    }
}

/// Returns the systems in the order of the results.
pub(super) fn systems(outcomes: &[Outcome]) -> Vec<&str> {
    let mut systems: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !systems.contains(&outcome.system.as_str()) {
            systems.push(&outcome.system);
        }
    }
    systems
}

/// Returns the outcomes on a system.
pub(super) fn on<'a>(outcomes: &'a [Outcome], system: &'a str) -> impl Iterator<Item = &'a Outcome> {
    outcomes.iter().filter(move |outcome| outcome.system == system)
}

/// Rows of a table: a name, and the tests to which it applies.
type Row<'a> = (String, Box<dyn Fn(&Outcome) -> bool + 'a>);

fn rows<'a>() -> Vec<Row<'a>> {
    let mode = |mode: &'static str| -> Row<'a> {
        (format!("{mode}, all calls"), Box::new(move |outcome: &Outcome| outcome.key.starts_with(mode)))
    };
    let call = |name: &'static str| -> Row<'a> {
        (name.to_owned(), Box::new(move |outcome: &Outcome| outcome.calls.iter().any(|call| call == name)))
    };
    let mut rows: Vec<Row<'a>> = vec![("all".to_owned(), Box::new(|_: &Outcome| true))];
    rows.extend(["threads", "processes"].map(mode));
    rows.extend(OPS.iter().map(|(_, name, _)| call(name)));
    rows
}

/// Formats the shares by call, wrong results, and the code to blame.
pub fn text(outcomes: &[Outcome]) -> String {
    let systems = systems(outcomes);
    let mut table = Table::new(["% free", "tests"].into_iter().chain(systems.iter().copied()));
    for (name, applies) in rows() {
        let shares: Vec<Share> = systems
            .iter()
            .map(|system| Share::of(on(outcomes, system).filter(|outcome| applies(outcome))))
            .collect();
        if shares.first().is_some_and(|share| share.all > 0) {
            let cells = shares.iter().map(|share| share.percent());
            table.row([name, shares[0].all.to_string()].into_iter().chain(cells));
        }
    }
    let mut text = table.to_string();
    for system in systems {
        text += &wrong(outcomes, system);
        text += &places(outcomes, system);
    }
    format!("{text}\n{NOTES}")
}

/// Formats the results that are not the model's.
fn wrong(outcomes: &[Outcome], system: &str) -> String {
    let mut text = String::new();
    for outcome in on(outcomes, system) {
        if let Some(difference) = &outcome.difference {
            writeln!(text, "  {}: {difference}", outcome.key).expect("strings take all");
        }
    }
    let heading = format!("\nresults on {system} that are not the model's:\n");
    if text.is_empty() { format!("\nall results on {system} are the model's\n") } else { heading + &text }
}

/// Formats the pairs of places in code that make most tests conflict, each with the number of tests.
fn places(outcomes: &[Outcome], system: &str) -> String {
    let mut tests: BTreeMap<(&str, &str), (usize, &Contended)> = BTreeMap::new();
    for outcome in on(outcomes, system) {
        let mut seen = Vec::new();
        for line in &outcome.lines {
            let (writer, other) = (line.writer.as_str(), line.other.as_str());
            // If both write, either may come first.
            let place =
                if line.both_write { (writer.min(other), writer.max(other)) } else { (writer, other) };
            if !seen.contains(&place) {
                seen.push(place);
                tests.entry(place).or_insert((0, line)).0 += 1;
            }
        }
    }
    let mut tests: Vec<_> = tests.into_values().collect();
    tests.sort_by_key(|(count, line)| (std::cmp::Reverse(*count), line.writer.clone()));
    let mut text = format!("\nmost tests on {system} that conflict do so here:\n");
    for (count, line) in tests.iter().take(PLACES) {
        let how = if line.false_sharing { ", different bytes" } else { "" };
        let access = if line.both_write { "written" } else { "read" };
        let Contended { owner, writer, other, .. } = line;
        writeln!(text, "{count:6}  {owner}{how}: written at {writer}\n        and {access} at {other}")
            .expect("strings take all");
    }
    let interrupted =
        on(outcomes, system).filter(|outcome| outcome.conflicts == 0 && !outcome.is_free()).count();
    if interrupted > 0 {
        writeln!(text, "{interrupted:6}  no line, but an interrupt").expect("strings take all");
    }
    text
}

/// Formats the table of pairs of calls as a page, a cell for each pair with one number per system.
pub fn markdown(outcomes: &[Outcome]) -> String {
    let systems = systems(outcomes);
    let names: Vec<&str> = OPS.iter().map(|(_, name, _)| *name).collect();
    let mut text = format!("Percent of tests without conflict: {}.\n\n", systems.join(" / "));
    writeln!(text, "| | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()))
        .expect("strings take all");
    for row in &names {
        let cells = names.iter().map(|column| cell(outcomes, &systems, [row, column]));
        writeln!(text, "| {row} | {} |", cells.collect::<Vec<_>>().join(" | ")).expect("strings take all");
    }
    text
}

fn cell(outcomes: &[Outcome], systems: &[&str], pair: [&str; 2]) -> String {
    let is_pair = |outcome: &&Outcome| outcome.is_of(pair[0], pair[1]);
    let shares = systems.iter().map(|system| Share::of(on(outcomes, system).filter(is_pair)).short());
    shares.collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;

    fn outcomes() -> Vec<Outcome> {
        vec![
            outcome("threads/a", ["open", "stat"], "adaptive", 2),
            outcome("processes/b", ["stat", "stat"], "adaptive", 0),
            outcome("threads/a", ["open", "stat"], "linux", 0),
            outcome("processes/b", ["stat", "stat"], "linux", 0),
        ]
    }

    #[test]
    fn calls_have_rows_and_places_are_blamed_once_per_test() {
        let text = text(&outcomes());
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().rev().take(3).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("stat"), ["100.0", "50.0", "2"]);
        assert_eq!(row("open"), ["100.0", "0.0", "1"]);
        assert!(text.contains("     1  table: written at lock\n        and read at look_up"), "{text}");
    }

    #[test]
    fn a_place_that_both_write_is_one_and_interrupts_are_told() {
        let line = |writer: &str, other: &str| Contended {
            writer: writer.to_owned(),
            other: other.to_owned(),
            both_write: true,
            ..outcome("", ["open", "stat"], "linux", 1).lines.remove(0)
        };
        let test = |lines: Vec<Contended>| Outcome { lines, ..outcome("a", ["open", "stat"], "linux", 1) };
        let alone = Outcome { interrupts: 2, ..outcome("c", ["open", "stat"], "linux", 0) };
        let text = text(&[test(vec![line("lock", "count")]), test(vec![line("count", "lock")]), alone]);
        assert!(text.contains("     2  table: written at lock\n        and written at count"), "{text}");
        assert!(text.contains("     1  no line, but an interrupt"), "{text}");
    }

    #[test]
    fn a_pair_of_calls_is_one_cell_in_either_order() {
        let page = markdown(&outcomes());
        let row = |name: &str| {
            page.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap().to_owned()
        };
        assert!(row("open").contains("0 / 100") && row("stat").contains("0 / 100"), "{page}");
        assert!(row("stat").contains("100 / 100") && row("dup").contains("– / –"), "{page}");
    }
}
