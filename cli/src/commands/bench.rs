//! `radixvm bench`: measurements on RadixVM and on stock Linux.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::bench::calls;
use crate::bench::measure::accel;
use crate::bench::micro::{self, Scope};
use crate::bench::plot;
use crate::bench::row::Row;
use crate::guest::qemu::Accel;
use crate::options;
use crate::table::{Table, count};

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// local, pipeline and global on RadixVM with per-core tables, with a shared table, and on stock Linux
    Micro(Micro),
    /// Instructions of single memory calls, fork and exec on one CPU, on RadixVM and on stock Linux
    Calls(Calls),
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
    #[arg(long, default_value = "3", value_parser = options::repeats, value_name = "N")]
    repeats: u32,
    /// One run of a fourth of the rounds
    #[arg(long, conflicts_with = "repeats")]
    quick: bool,
    /// Memory of every guest
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
}

/// Options of `radixvm bench calls`.
#[derive(Args)]
#[command(after_help = "\
Each call is a round of a program in user/, under the contention meter, without further iterations of repeated string \
instructions. The JSON is an array with one object per call.")]
pub struct Calls {
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Memory of every guest
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
}

/// Measures and reports.
pub fn run(bench: Bench) -> Result<u8> {
    match bench {
        Bench::Micro(options) => run_micro(options),
        Bench::Calls(options) => run_calls(options),
    }
}

fn run_calls(Calls { json, memory }: Calls) -> Result<u8> {
    let json = json.map(Output::open).transpose()?;
    let costs = calls::run(memory)?;
    write!(
        std::io::stdout(),
        "{}\nInstructions, user and kernel: the median of rounds.\n",
        calls::table(&costs)
    )?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&costs)? + "\n"))?;
    }
    Ok(0)
}

fn run_micro(Micro { cpus, json, svg, repeats, quick, memory }: Micro) -> Result<u8> {
    // Before minutes of measuring that could not be kept.
    let [json, svg] = [json, svg].map(|path| path.map(Output::open).transpose());
    let (json, svg) = (json?, svg?);
    let repeats = if quick { 1 } else { repeats };
    let accel = accel()?;
    let rows = micro::run(&Scope { cpus, repeats, quick, memory, accel })?;
    write!(std::io::stdout(), "{}\n{}", report(&rows), notes(accel))?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    if let Some(file) = svg {
        file.write(&plot::svg(&rows)?)?;
    }
    Ok(0)
}

/// A file that will be written. What it held stays until then.
struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    fn open(path: PathBuf) -> Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        Ok(Output { file: file.with_context(|| path.display().to_string())?, path })
    }

    fn write(mut self, text: &str) -> Result<()> {
        let written = self.empty().and_then(|()| self.file.write_all(text.as_bytes()));
        written.with_context(|| self.path.display().to_string())
    }

    /// A pipe has nothing to cut off.
    fn empty(&self) -> io::Result<()> {
        if self.file.metadata()?.is_file() { self.file.set_len(0) } else { Ok(()) }
    }
}

/// What the columns mean.
fn notes(accel: Accel) -> String {
    format!(
        "\
The same ELF files on every system, executed by {accel}.
local: threads map a page, write to it, unmap it. pipeline: the next thread writes to it too and unmaps it.
global: every thread writes to all pages of a region, each unmaps a part.
rounds: regions unmapped. of Linux: rounds/s as a multiple of stock Linux's.
instructions, transfers, targets: by the contention meter, per round: the median of instructions, user and kernel, and of
cache lines that one CPU took from another; the mean of interrupts received (several that arrive together count once).
"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_content_until_it_is_written() {
        let path = std::env::temp_dir().join(format!("radixvm-bench-{}", std::process::id()));
        std::fs::write(&path, "what was there before").unwrap();
        let output = Output::open(path.clone()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "what was there before");
        output.write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let error = Output::open("/no/such/folder/x.json".into()).err().unwrap();
        assert!(format!("{error:#}").starts_with("/no/such/folder/x.json: "), "{error:#}");
        Output::open("/dev/full".into()).unwrap().write("x").unwrap_err();
        Output::open("/dev/null".into()).unwrap().write("x").unwrap();
    }

    #[test]
    fn every_column_is_explained() {
        let notes = notes(Accel::Tcg);
        for word in
            ["local:", "pipeline:", "global:", "of Linux:", "targets: by the contention meter", "translator"]
        {
            assert!(notes.contains(word), "{word}");
        }
    }
}
