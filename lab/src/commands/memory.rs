//! `radixvm bench memory`: the cost of address spaces of real programs beside their pages.

use std::path::PathBuf;

use abi::config::Tables;
use anyhow::{Result, ensure};
use clap::Args;

use super::output::Output;
use crate::memory::live;
use crate::memory::row::{Row, read, recorded};
use crate::memory::snapshot::Snapshot;
use crate::memory::sparse;
use launch::options;
use launch::table::{Table, count};
use launch::terminal;

/// Options of `radixvm bench memory`.
#[derive(Args)]
#[command(after_help = "\
Without snapshots or processes: the recorded ones in docs/snapshots, and two that are made up, 500 pages at odd places and one page in 512. A snapshot says which pages a process had mapped and which \
of them had memory; the same space is built in the core, by one thread on this machine, which touches the same pages.")]
pub struct Arguments {
    /// Snapshots, as --save writes them
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<PathBuf>,
    /// A live process of this machine's Linux (may be repeated)
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Write the snapshot of the one process given
    #[arg(long, value_name = "FILE", requires = "pid")]
    save: Option<PathBuf>,
    /// Page tables
    #[arg(long, value_parser = options::choice::<Tables>(), default_value = "adaptive")]
    tables: Tables,
    /// Write the results as JSON: an array with one object per program
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures and reports.
pub fn run(arguments: Arguments) -> Result<u8> {
    let Arguments { snapshots, pid, save, tables, json } = arguments;
    let json = json.map(Output::open).transpose()?;
    let snapshots = gather(&snapshots, &pid)?;
    if let Some(path) = save {
        ensure!(snapshots.len() == 1, "--save takes the snapshot of one process");
        Output::open(path)?.write(&snapshots[0].to_string())?;
    }
    let rows = snapshots.iter().map(|snapshot| Row::of(snapshot, tables)).collect::<Result<Vec<_>>>()?;
    terminal::print_plain(format_args!("{}\n{NOTES}", report(&rows)))?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    Ok(0)
}

/// Returns the snapshots of the files and processes, or the recorded snapshots and the made-up ones.
fn gather(files: &[PathBuf], pids: &[u32]) -> Result<Vec<Snapshot>> {
    if files.is_empty() && pids.is_empty() {
        return Ok([recorded()?, sparse::all()].concat());
    }
    files.iter().map(|path| read(path)).chain(pids.iter().map(|pid| live::snapshot(*pid))).collect()
}

fn report(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "program",
        "resident KiB",
        "VMAs",
        "Linux KiB",
        "metadata KiB",
        "tables KiB",
        "of Linux",
    ]);
    let kib = |bytes: u64| count(bytes.div_ceil(1024) as i64);
    for row in rows {
        table.row([
            row.program.clone(),
            kib(row.resident_bytes),
            count(row.vmas as i64),
            kib(row.linux_bytes),
            kib(row.metadata_bytes),
            kib(row.table_bytes),
            format!("{:.2}x", row.ratio),
        ]);
    }
    table
}

/// The explanation of the columns.
const NOTES: &str = "\
Linux: its regions (VMAs, without the tree that finds them) and its page tables, as it counted them when the snapshot was taken;
of pages at odd places and one in 512, which are made up, as its sizes say, with the tree.
metadata: what the core allocated for the same space. tables: page tables of one core, without leaves that are linked. of Linux: the two as a multiple of Linux's.
";
