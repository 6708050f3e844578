//! The results for people: a table in the terminal, and a page in a browser.

pub mod chart;
mod contended_lines;
mod curves;
pub mod html;
pub mod law;
mod page;
pub mod palette;
mod phases;
pub mod scale;
pub mod style;

pub use curves::picture;
pub use page::page;

use super::blame::Blame;
use super::row::{Cell, Row};
use crate::guest::system::System;
use crate::table::{Table, count};

/// The notes below the table.
const NOTES: &str = "\
Per round: the median; `mean` is that of the transfers, which timer ticks and lock convoys bend. transfers: accesses that
another CPU's cache had to serve or give up. IPIs, targets, faults, flushes: means. predicted: rounds/s of all CPUs by the
cost model (RadixVM's 80-core machine), from means. Page walks and instruction fetches are not seen. See docs/guide/meter.md.
";

/// Formats the table, the hottest lines and the notes.
pub fn text(cells: &[Cell]) -> String {
    let Some(first) = cells.first() else { return String::new() };
    let Row { program, qemu, huge, .. } = &first.row;
    let slack = slack(cells);
    let what = if first.row.marked { "per round" } else { "per run: the program marks no rounds" };
    let lines: String = cells.iter().filter(|cell| is_last(cell, cells)).filter_map(hottest).collect();
    let lines =
        if lines.is_empty() { lines } else { format!("\nhottest lines, transfers per round:\n{lines}") };
    let (table, phases) = (table(cells), phase_table(cells));
    format!(
        "{program}, {what} (QEMU {qemu}, slack {slack}, huge pages {huge}):\n\n{table}{phases}{lines}\n{NOTES}"
    )
}

/// Formats the slack: one number if all runs had the same, and otherwise the range.
fn slack(cells: &[Cell]) -> String {
    let of = || cells.iter().map(|cell| cell.row.slack);
    match (of().min().unwrap_or(0), of().max().unwrap_or(0)) {
        (least, most) if least == most => most.to_string(),
        (least, most) => format!("{least} to {most}"),
    }
}

/// Formats the table of phases, or nothing if the program marks none.
fn phase_table(cells: &[Cell]) -> String {
    let rows = phases::rows(cells);
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(phases::HEADING);
    rows.into_iter().for_each(|row| table.row(row));
    format!("\nby phase, means:\n\n{table}")
}

fn table(cells: &[Cell]) -> Table {
    let heading =
        ["system", "CPUs", "instructions", "transfers", "mean", "IPIs", "targets", "faults", "flushes"];
    let mut table = Table::new(heading.into_iter().chain(["predicted", "scaling"]));
    for cell in cells {
        let row = &cell.row;
        table.row([
            cell.system.to_string(),
            row.cpus.to_string(),
            count(row.instructions.median.round() as i64),
            number(row.transfers.median),
            number(row.transfers.mean),
            number(row.ipis.mean),
            number(row.ipi_targets.mean),
            number(row.faults.mean),
            number(row.tlb_flushes.mean),
            count(row.predicted_rounds_per_s.mean.round() as i64),
            scaling(cell, cells),
        ]);
    }
    table
}

/// Formats the predicted speed as a multiple of that of the same system with the fewest CPUs.
fn scaling(cell: &Cell, cells: &[Cell]) -> String {
    let first = cells.iter().find(|other| other.system == cell.system);
    let base = first.map_or(0.0, |first| first.row.predicted_rounds_per_s.mean);
    if base > 0.0 { format!("{:.1}x", cell.row.predicted_rounds_per_s.mean / base) } else { String::new() }
}

/// Returns whether no result of the same system has more CPUs.
fn is_last(cell: &Cell, cells: &[Cell]) -> bool {
    !cells.iter().any(|other| other.system == cell.system && other.row.cpus > cell.row.cpus)
}

/// Formats the line that moved most, and the code that moved it.
fn hottest(cell: &Cell) -> Option<String> {
    let Blame { owner, transfers, false_sharing, pairs, .. } = cell
        .blame
        .iter()
        .filter(|line| line.transfers >= 0.005)
        .max_by(|a, b| a.transfers.total_cmp(&b.transfers))?;
    let sharing = if *false_sharing { ", false sharing" } else { "" };
    let code = pairs.first().map_or_else(String::new, |pair| {
        format!("    {}\n    {} {}\n", pair.from, arrow(&pair.kind), pair.to)
    });
    Some(format!(
        "  {} at {} CPUs: {} in {owner}{sharing}\n{code}",
        cell.system,
        cell.row.cpus,
        number(*transfers)
    ))
}

fn arrow(kind: &str) -> String {
    format!("--{}-->", kind.replace(' ', "-"))
}

/// Formats a number with at most two digits behind the point.
fn number(value: f64) -> String {
    match value {
        100.0.. => count(value.round() as i64),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Returns the systems in the order in which they were measured.
fn systems(cells: &[Cell]) -> Vec<System> {
    let mut systems: Vec<System> = cells.iter().map(|cell| cell.system).collect();
    systems.dedup();
    systems
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::meter::row::tests::cell;

    /// Returns cells of two systems with two and four CPUs.
    pub fn cells() -> Vec<Cell> {
        [System::PERCORE, System::Linux]
            .into_iter()
            .flat_map(|system| [2, 4].map(|cpus| cell(system, cpus)))
            .collect()
    }

    #[test]
    fn the_table_has_a_row_per_result_and_names_the_hottest_line() {
        let text = text(&cells());
        let rows = text.lines().take_while(|line| !line.starts_with("by phase"));
        assert_eq!(rows.filter(|line| line.starts_with("RadixVM percore")).count(), 2, "{text}");
        for word in [
            "local, per round",
            "2,920",
            "2.75",
            "1.0x",
            "stock Linux at 4 CPUs: 2.00",
            "by phase, means",
            "--read-modified-->",
        ] {
            assert!(text.contains(word), "no {word} in {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 125), "{text}");
    }

    #[test]
    fn numbers_are_as_long_as_they_say_something() {
        assert_eq!(
            [0.0, 2.754, 57.04, 1234.5].map(number),
            ["0.00", "2.75", "57.0", "1,235"].map(str::to_owned)
        );
    }
}
