//! The plugin's output: totals, one row of counts per round, the most contended lines.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::guest::protocol::Address;

/// The version of the format.
const VERSION: u32 = 1;
/// The kinds that make up `transfers`.
pub const TRANSFERS: [&str; 5] = ["read_modified", "read_clean", "write_modified", "write_clean", "upgrades"];
/// The kinds that make up `tlb_flushes`.
pub const FLUSHES: [&str; 2] = ["invlpg", "cr3_loads"];

/// A CPU with at most this many rounds in the window keeps its first.
pub const ROUNDS_KEPT: usize = 2;

/// One metered run.
#[derive(Clone, Debug, Deserialize)]
pub struct Output {
    version: u32,
    /// The number of virtual CPUs.
    pub cpus: u16,
    /// The instructions that a CPU may run ahead.
    pub slack: u64,
    /// Set if the program marked a window. Otherwise the whole run counts, as one round.
    pub marked: bool,
    /// The times that a CPU was let go although it was too far ahead.
    pub escapes: u64,
    /// The length of the window by the virtual clock.
    #[serde(default)]
    pub window_virtual_seconds: f64,
    /// The length of the run by the host's clock.
    #[serde(default)]
    pub host_seconds: f64,
    /// The number of further windows, which are not counted.
    #[serde(default)]
    pub ignored_windows: u64,
    /// The address of the marker at which the program's window begins.
    #[serde(default)]
    pub begin: Option<Address>,
    /// All counts in the window, by CPU, privilege and phase.
    #[serde(default)]
    pub totals: Vec<Total>,
    columns: Vec<String>,
    rounds: Vec<Vec<u64>>,
    /// The contended lines, the most contended first.
    #[serde(default)]
    pub lines: Vec<Line>,
    /// The tests of two calls, in the order in which the program marked them.
    #[serde(default)]
    pub tests: Vec<Test>,
    /// The places in the program that made the kernel work, those with most transfers first, if they were
    /// wanted.
    #[serde(default)]
    pub sites: Vec<Site>,
    /// Pieces of the program's code, one of each page: the address and the bytes in hexadecimal.
    #[serde(default)]
    pub code: Vec<(Address, String)>,
}

/// A place in the program that made the kernel work, and what the kernel did for it.
#[derive(Clone, Debug, Deserialize)]
pub struct Site {
    /// "call", "fault", "interrupt" or "other".
    pub cause: String,
    /// The number of the system call.
    pub number: Option<u64>,
    /// The instruction, or 0.
    pub pc: Address,
    /// The code that ends with the `syscall` instruction, in hexadecimal.
    #[serde(default)]
    pub ending: Option<String>,
    /// The addresses on the stack that may be those of callers, the innermost first.
    #[serde(default)]
    pub callers: Vec<Address>,
    /// The number of calls, faults or interrupts.
    pub entries: u64,
    /// The kernel's instructions.
    pub instructions: u64,
    /// The lines that it took from other CPUs.
    pub transfers: u64,
    /// The copies that other CPUs lost.
    pub invalidations: u64,
    /// The interrupts that it sent.
    pub sent: u64,
    /// The kernel's instructions that took most lines, with their transfers.
    pub code: Vec<(Address, u64)>,
    /// The program's stack at one of the entries.
    pub stack: Option<Stack>,
}

/// The stack of a program.
#[derive(Clone, Debug, Deserialize)]
pub struct Stack {
    /// The stack pointer.
    pub rsp: Address,
    /// The frame pointer, if the program uses one.
    pub rbp: Address,
    /// The bytes from the stack pointer upwards, in hexadecimal.
    pub bytes: String,
}

/// A test of two calls.
#[derive(Clone, Debug, Deserialize)]
pub struct Test {
    /// The interrupts that both calls sent.
    pub sent: u64,
    /// The timer ticks during the calls.
    pub ticks: u64,
    /// The lines that one call wrote and the other touched.
    pub conflicts: Vec<Conflict>,
}

/// A line that one call of a test wrote and the other touched.
#[derive(Clone, Debug, Deserialize)]
pub struct Conflict {
    /// Its guest-physical address.
    pub address: Address,
    /// A virtual address by which it was reached.
    #[serde(rename = "virtual")]
    pub linear: Address,
    /// The first instruction that wrote it.
    pub writer: Address,
    /// The first instruction of the other call that wrote it, or else that read it.
    pub other: Address,
    /// Set if both wrote it.
    pub both_write: bool,
    /// Set if they touched different bytes.
    pub disjoint: bool,
}

/// The counts of one privilege and phase on one CPU.
#[derive(Clone, Debug, Deserialize)]
pub struct Total {
    /// "user" or "kernel".
    pub privilege: String,
    /// The phase, which is 0 at first.
    pub phase: u8,
    /// The counts by kind.
    pub counts: BTreeMap<String, u64>,
}

/// A line of 64 bytes, and the code that transferred it.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    /// Its guest-physical address.
    pub address: Address,
    /// The virtual address by which it was last reached.
    #[serde(rename = "virtual")]
    pub linear: Address,
    /// The times that a CPU had to ask for it, upgrades among them.
    pub transfers: u64,
    /// The times that a CPU had it, but shared.
    pub upgrades: u64,
    /// The copies that were lost to writers.
    pub invalidations: u64,
    /// The CPUs that asked for it.
    pub cpus: Vec<u16>,
    /// Set if they touched different bytes.
    pub false_sharing: bool,
    /// The pairs of instructions, the most frequent first.
    pub pairs: Vec<Pair>,
}

/// Two instructions that contend for a line.
#[derive(Clone, Debug, Deserialize)]
pub struct Pair {
    /// The one that had it.
    pub from: Address,
    /// The one that took it.
    pub to: Address,
    /// The kind of transfer: read_modified, upgrade, ...
    pub kind: String,
    /// The number of times.
    pub count: u64,
}

/// The counts of one round on one CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round(BTreeMap<String, u64>);

impl Round {
    fn cpu(&self) -> u64 {
        self.0.get("cpu").copied().unwrap_or(0)
    }

    /// Returns a count by its name, or 0 if the plugin does not know it.
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0) as f64
    }

    /// Returns the instructions of user and kernel.
    pub fn instructions(&self) -> f64 {
        self.sum(&["user_instructions", "kernel_instructions"])
    }

    /// Returns the sum of some counts.
    pub fn sum(&self, names: &[&str]) -> f64 {
        names.iter().map(|name| self.get(name)).sum()
    }
}

impl Output {
    /// Reads the plugin's file.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).context("the plugin wrote no counts")?;
        Output::parse(&text)
    }

    /// Parses the plugin's JSON.
    pub fn parse(text: &str) -> Result<Self> {
        let output: Output = serde_json::from_str(text).context("the plugin's counts cannot be read")?;
        ensure!(
            output.version == VERSION,
            "the plugin writes format {}, not {VERSION}: build both anew",
            output.version
        );
        let width = output.columns.len();
        ensure!(output.rounds.iter().all(|row| row.len() == width), "a round has not {width} columns");
        Ok(output)
    }

    /// Returns the number of rounds that ended in the window.
    pub fn ended(&self) -> usize {
        if self.marked { self.rounds.len() } else { 1 }
    }

    /// Returns the counts of the window per round that ended in it. Rounds that are only partly in the window
    /// count with that part: the parts at the start make up for those missing at the end, and rounds longer
    /// than the window are not lost.
    pub fn mean(&self, names: &[&str]) -> f64 {
        self.mean_where(names, |_| true)
    }

    /// Does the same for some of the totals.
    pub fn mean_where(&self, names: &[&str], wanted: impl Fn(&Total) -> bool) -> f64 {
        let totals = self.totals.iter().filter(|total| wanted(total));
        let counts = totals.flat_map(|total| names.iter().filter_map(|name| total.counts.get(*name)));
        counts.sum::<u64>() as f64 / self.ended().max(1) as f64
    }

    /// Returns the counted rounds. A run without marks is one round, of all CPUs together.
    pub fn rounds(&self) -> Vec<Round> {
        let rows = self.rounds.iter().map(|row| self.columns.iter().cloned().zip(row.iter().copied()));
        let rows: Vec<Round> = rows.map(|row| Round(row.collect())).collect();
        if self.marked { whole(rows) } else { together(rows) }
    }
}

/// Removes the first round of each CPU that has more than [`ROUNDS_KEPT`]. The window opened in the middle of
/// it, for all CPUs but the one that was the last to be warm.
fn whole(rows: Vec<Round>) -> Vec<Round> {
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    rows.iter().for_each(|round| *seen.entry(round.cpu()).or_default() += 1);
    let mut whole = rows;
    whole.retain(|round| seen.insert(round.cpu(), 0).is_none_or(|rounds| rounds <= ROUNDS_KEPT));
    whole
}

fn together(rows: Vec<Round>) -> Vec<Round> {
    let mut all = BTreeMap::new();
    for (name, count) in rows.into_iter().flat_map(|round| round.0) {
        *all.entry(name).or_default() += count;
    }
    if all.is_empty() { Vec::new() } else { vec![Round(all)] }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Output as of the plugin about four rounds of two CPUs, one of which took a tick.
    pub const FIXTURE: &str = include_str!("fixture.json");

    #[test]
    fn rounds_are_read_by_the_names_of_columns() {
        let output = Output::parse(FIXTURE).unwrap();
        assert_eq!((output.cpus, output.marked, output.begin), (2, true, Some(Address(0x5555_5555_5234))));
        let rounds = output.rounds();
        assert_eq!(rounds.len(), 4);
        assert_eq!(rounds[0].get("user_instructions"), 120.0);
        assert_eq!(rounds[3].sum(&["read_modified", "upgrades", "unknown"]), 5.0);
        assert_eq!(output.lines[0].pairs[0].kind, "read_modified");
    }

    #[test]
    fn the_first_of_many_rounds_of_a_cpu_is_not_whole() {
        let row =
            |cpu, faults| Round(BTreeMap::from([("cpu".to_owned(), cpu), ("faults".to_owned(), faults)]));
        let rounds = whole(vec![row(0, 1), row(0, 2), row(0, 3), row(1, 4), row(1, 5)]);
        assert_eq!(rounds, [row(0, 2), row(0, 3), row(1, 4), row(1, 5)]);
    }

    #[test]
    fn a_run_without_marks_is_one_round() {
        let text = FIXTURE.replace(r#""marked":true"#, r#""marked":false"#);
        let rounds = Output::parse(&text).unwrap().rounds();
        assert_eq!((rounds.len(), rounds[0].get("user_instructions")), (1, 4.0 * 120.0));
    }

    #[test]
    fn other_formats_and_broken_rows_are_refused() {
        let why = |text: &str| format!("{:#}", Output::parse(text).unwrap_err());
        assert!(why(&FIXTURE.replace(r#""version":1"#, r#""version":2"#)).contains("format 2"));
        assert!(why(&FIXTURE.replace("[[0,0,120", "[[0,120")).contains("columns"));
        assert!(why("{}").contains("cannot be read"));
    }
}
