//! `radixvm bench memory`: what address spaces of real programs cost beside their pages.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use super::output::Output;
use crate::bench::memory::live;
use crate::bench::memory::rebuild::{Cost, rebuild};
use crate::bench::memory::snapshot::Snapshot;
use crate::guest::system::{Tables, word};
use crate::place;
use crate::table::{Table, count};

/// Options of `radixvm bench memory`.
#[derive(Args)]
#[command(after_help = "\
Without snapshots or processes: the recorded ones in docs/snapshots. A snapshot says which pages a process had mapped and which \
of them had memory; the same space is built in the core, by one thread on this machine, which touches the same pages.")]
pub struct Arguments {
    /// Snapshots, as --save writes them
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<PathBuf>,
    /// A live process of this machine's Linux; may be given more than once
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Write the snapshot of the one process given
    #[arg(long, value_name = "FILE", requires = "pid")]
    save: Option<PathBuf>,
    /// Page tables
    #[arg(long, value_enum, default_value = "percore")]
    tables: Tables,
    /// Write the results as JSON: an array with one object per program
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One object of the JSON output.
#[derive(Debug, Serialize)]
struct Row {
    program: String,
    /// Kind of page tables.
    tables: String,
    /// Bytes of pages that have memory.
    resident_bytes: u64,
    /// Regions on Linux.
    vmas: u64,
    /// Linux's regions and page tables.
    linux_bytes: u64,
    /// Linux's page tables.
    linux_table_bytes: u64,
    /// Our metadata.
    metadata_bytes: u64,
    /// Our page tables, of one core.
    table_bytes: u64,
    /// Ours as a multiple of Linux's.
    ratio: f64,
}

impl Row {
    fn new(snapshot: &Snapshot, tables: Tables, cost: Cost) -> Self {
        let linux = snapshot.linux;
        Row {
            program: snapshot.program.clone(),
            tables: word(&tables),
            resident_bytes: 4096 * snapshot.resident(),
            vmas: linux.vmas,
            linux_bytes: linux.bytes(),
            linux_table_bytes: linux.table_bytes,
            metadata_bytes: cost.metadata,
            table_bytes: cost.tables,
            ratio: cost.bytes() as f64 / linux.bytes() as f64,
        }
    }
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
    let rows = snapshots.iter().map(|of| row(of, tables)).collect::<Result<Vec<_>>>()?;
    write!(std::io::stdout(), "{}\n{NOTES}", report(&rows))?;
    if let Some(file) = json {
        file.write(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    Ok(0)
}

fn row(snapshot: &Snapshot, tables: Tables) -> Result<Row> {
    let cost = rebuild(snapshot, tables.into()).with_context(|| snapshot.program.clone())?;
    Ok(Row::new(snapshot, tables, cost))
}

/// What was asked for: files, processes, or the recorded snapshots.
fn gather(files: &[PathBuf], pids: &[u32]) -> Result<Vec<Snapshot>> {
    if files.is_empty() && pids.is_empty() {
        return recorded()?.iter().map(|path| read(path)).collect();
    }
    files.iter().map(|path| read(path)).chain(pids.iter().map(|pid| live::snapshot(*pid))).collect()
}

/// The snapshots in docs/snapshots, by name.
fn recorded() -> Result<Vec<PathBuf>> {
    let folder = place::root().join("docs/snapshots");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Snapshot> {
    fs::read_to_string(path)
        .map_err(Into::into)
        .and_then(|text| text.parse())
        .with_context(|| path.display().to_string())
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

/// What the columns mean.
const NOTES: &str = "\
Linux: its regions (VMAs, without the tree that finds them) and its page tables, as it counted them when the snapshot was taken.
metadata: what the core allocated for the same space. tables: page tables of one core, without leaves that are linked. of Linux: the two as a multiple of Linux's.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_programs_are_there_and_can_be_rebuilt() {
        let snapshots = gather(&[], &[]).unwrap();
        assert!(snapshots.len() >= 3);
        for snapshot in snapshots {
            let row = row(&snapshot, Tables::Percore).unwrap();
            assert!(row.table_bytes > 0 && row.metadata_bytes > 0 && row.resident_bytes > 0, "{row:?}");
        }
    }

    #[test]
    fn a_file_that_is_no_snapshot_is_named() {
        let error = read(Path::new("Cargo.toml")).unwrap_err();
        assert!(format!("{error:#}").starts_with("Cargo.toml: not a snapshot"), "{error:#}");
    }
}
