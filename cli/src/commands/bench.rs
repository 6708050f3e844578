//! `radixvm bench`: measurements on RadixVM and on stock Linux.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::bench::micro::{self, Scope};
use crate::bench::plot;
use crate::bench::row::Row;
use crate::options;
use crate::table::{Table, count};

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// local, pipeline and global on RadixVM with per-core tables, with a shared table, and on stock Linux
    Micro(Micro),
}

/// Options of `radixvm bench micro`.
#[derive(Args)]
#[command(after_help = "\
The JSON is an array with one object per program, system and number of CPUs: the run with the median speed, and counts per \
round (median, p10, p90, mean) of a further run under the contention meter, which tells up to 128 CPUs apart; see \
docs/meter.md.")]
pub struct Micro {
    /// Numbers of virtual CPUs
    #[arg(long, default_value = "1,2,4,8", value_delimiter = ',', value_parser = options::cpus, value_name = "N,...")]
    cpus: Vec<u16>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the results
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Runs of every combination; the median counts
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    repeats: u32,
    /// One run of a fourth of the rounds
    #[arg(long, conflicts_with = "repeats")]
    quick: bool,
    /// Memory of every guest
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
}

/// Measures and reports.
pub fn run(bench: Bench) -> Result<u8> {
    let Bench::Micro(Micro { cpus, json, svg, repeats, quick, memory }) = bench;
    let repeats = if quick { 1 } else { repeats };
    let rows = micro::run(&Scope { cpus, repeats, quick, memory })?;
    std::io::stdout().write_all(report(&rows).to_string().as_bytes())?;
    if let Some(file) = json {
        write_json(&rows, &file).with_context(|| file.display().to_string())?;
    }
    if let Some(file) = svg {
        plot::draw(&rows, &file).with_context(|| file.display().to_string())?;
    }
    Ok(0)
}

fn write_json(rows: &[Row], file: &Path) -> Result<()> {
    Ok(std::fs::write(file, serde_json::to_string_pretty(rows)? + "\n")?)
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
        let system =
            [Some(row.system), row.tables.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
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

/// Speed as a multiple of Linux's for the same program and CPUs.
fn ratio(row: &Row, rows: &[Row]) -> String {
    let same =
        |other: &&Row| other.system == "linux" && other.program == row.program && other.cpus == row.cpus;
    let linux = rows.iter().find(same).filter(|_| row.system != "linux");
    linux.map_or_else(String::new, |linux| format!("{:.2}x", row.rounds_per_s / linux.rounds_per_s))
}
