//! One result per snapshot: the cost of its space on Linux and in our core.

use std::fs;
use std::path::Path;

use abi::config::{Choice, Tables};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::rebuild::{Cost, rebuild};
use super::snapshot::Snapshot;
use launch::place;

/// One object of the JSON output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub program: String,
    /// Kind of page tables.
    pub tables: String,
    /// Bytes of pages that have memory.
    pub resident_bytes: u64,
    /// Regions on Linux.
    pub vmas: u64,
    /// Linux's regions and page tables.
    pub linux_bytes: u64,
    /// Linux's page tables.
    pub linux_table_bytes: u64,
    /// Our metadata.
    pub metadata_bytes: u64,
    /// Our page tables, of one core.
    pub table_bytes: u64,
    /// Our cost as a multiple of Linux's.
    pub ratio: f64,
}

impl Row {
    /// Rebuilds a snapshot with `tables` and compares the costs.
    ///
    /// # Errors
    /// If the core refuses the snapshot.
    pub fn of(snapshot: &Snapshot, tables: Tables) -> Result<Self> {
        let cost = rebuild(snapshot, kind(tables)).with_context(|| snapshot.program.clone())?;
        Ok(Row::new(snapshot, tables, cost))
    }

    fn new(snapshot: &Snapshot, tables: Tables, cost: Cost) -> Self {
        let linux = snapshot.linux;
        Row {
            program: snapshot.program.clone(),
            tables: tables.word().to_owned(),
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

/// Reads the snapshots in docs/snapshots, by name.
pub fn recorded() -> Result<Vec<Snapshot>> {
    let folder = place::root().join("docs/snapshots");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// Reads a snapshot from a file.
pub fn read(path: &Path) -> Result<Snapshot> {
    fs::read_to_string(path)
        .map_err(Into::into)
        .and_then(|text| text.parse())
        .with_context(|| path.display().to_string())
}

/// Returns the core's name for page tables.
fn kind(tables: Tables) -> vm::Tables {
    match tables {
        Tables::Percore => vm::Tables::PerCore,
        Tables::Shared => vm::Tables::Shared,
        Tables::Adaptive => vm::Tables::Adaptive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_programs_are_there_and_can_be_rebuilt() {
        let snapshots = recorded().unwrap();
        assert!(snapshots.len() >= 3);
        for row in snapshots.iter().map(|snapshot| Row::of(snapshot, Tables::Percore).unwrap()) {
            assert!(row.table_bytes > 0 && row.metadata_bytes > 0 && row.resident_bytes > 0, "{row:?}");
        }
    }

    #[test]
    fn a_file_that_is_no_snapshot_is_named() {
        let error = read(Path::new("Cargo.toml")).unwrap_err();
        assert!(format!("{error:#}").starts_with("Cargo.toml: not a snapshot"), "{error:#}");
    }
}
