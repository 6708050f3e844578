//! `radixvm bench micro`: microbenchmarks on RadixVM and on stock Linux.

use std::path::PathBuf;

use abi::config::{Choice, Huge};
use anyhow::Result;
use clap::Args;

use super::output::Output;
use crate::micro::{self, Scope};
use crate::plot;
use crate::row::Row;
use launch::guest::linux;
use launch::guest::qemu::Accel;
use launch::measure::accel;
use launch::table::{Table, count};
use launch::{options, terminal};

/// Options of `radixvm bench micro`.
#[derive(Args)]
#[command(after_help = "\
The JSON is an array with one object per program, system and number of CPUs: the run with the median speed, and counts per \
round (median, p10, p90, mean) of a further run under the contention meter, which tells up to 128 CPUs apart; see \
docs/guide/meter.md.")]
pub struct Arguments {
    /// Numbers of virtual CPUs
    #[arg(long, default_value = "1,2,4,8", value_delimiter = ',', value_parser = options::cpus, value_name = "N,...")]
    cpus: Vec<u16>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the results
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Runs of every combination, of which the median counts
    #[arg(long, default_value = "3", value_parser = options::repeats, value_name = "N")]
    repeats: u32,
    /// One run of a fourth of the rounds
    #[arg(long, conflicts_with = "repeats")]
    quick: bool,
    /// Memory of every guest
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
    /// Huge pages, on either kernel
    #[arg(long, value_parser = options::choice::<Huge>(), default_value = Huge::DEFAULT.word())]
    huge: Huge,
    #[command(flatten)]
    guests: options::Guests,
}

/// Measures and reports.
pub fn run(arguments: Arguments) -> Result<u8> {
    let Arguments { cpus, json, svg, repeats, quick, memory, huge, guests } = arguments;
    guests.apply();
    // Opened before the measurement, which takes minutes and could not be stored otherwise.
    let [json, svg] = [json, svg].map(|path| path.map(Output::open).transpose());
    let (json, svg) = (json?, svg?);
    let repeats = if quick { 1 } else { repeats };
    let accel = accel()?;
    let rows = micro::run(&Scope { cpus, repeats, quick, memory, huge, accel })?;
    terminal::print_plain(format_args!("{}\n{}", report(&rows), notes(accel, huge)))?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    if let Some(file) = svg {
        file.write(&plot::svg(&rows)?)?;
    }
    Ok(0)
}

/// Returns the explanation of the columns.
fn notes(accel: Accel, huge: Huge) -> String {
    format!(
        "\
The same ELF files on every system, executed by {accel}; huge pages {} on either kernel.
local: threads map a page, write to it, unmap it. pipeline: the next thread writes to it too and unmaps it.
global: every thread writes to all pages of a region, each unmaps a part.
rounds: regions unmapped. of Linux: rounds/s as a multiple of stock Linux's.
instructions, transfers, targets: by the contention meter, per round: the median of instructions, user and kernel, and of
cache lines that one CPU took from another; the mean of interrupts received (several that arrive together count once).
",
        huge.word()
    )
}

fn report(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "program",
        "system",
        "CPUs",
        "rounds/s",
        "of Linux",
        "instructions",
        "transfers",
        "targets",
    ])
    .left(1);
    for row in rows {
        let version = (row.system == "linux").then(|| linux::short(&row.kernel));
        let words = [Some(row.system), row.tables.as_deref(), version];
        let system = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
        table.row([
            row.program.to_owned(),
            system,
            row.cpus.to_string(),
            count(row.rounds_per_s as i64),
            ratio(row, rows),
            row.counts.instructions.map_or_else(String::new, |of| count(of.median as i64)),
            row.counts.transfers.map_or_else(String::new, |of| format!("{:.2}", of.median)),
            row.counts.ipi_targets.map_or_else(String::new, |of| format!("{:.2}", of.mean)),
        ]);
    }
    table
}

/// Returns the speed as a multiple of Linux's for the same program and CPUs.
fn ratio(row: &Row, rows: &[Row]) -> String {
    let same =
        |other: &&Row| other.system == "linux" && other.program == row.program && other.cpus == row.cpus;
    let linux = rows.iter().find(same).filter(|_| row.system != "linux");
    linux.map_or_else(String::new, |linux| format!("{:.2}x", row.rounds_per_s / linux.rounds_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_explained() {
        let notes = notes(Accel::Tcg, Huge::Never);
        for word in [
            "local:",
            "pipeline:",
            "global:",
            "of Linux:",
            "targets: by the contention meter",
            "translator",
            "huge pages never",
        ] {
            assert!(notes.contains(word), "{word}");
        }
    }
}
