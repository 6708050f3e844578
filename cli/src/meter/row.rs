//! One result per (program, system, CPUs): the row of the JSON, and the data for the table, the curves and
//! the page.

use std::collections::BTreeMap;

use abi::config::{Choice, Huge};
use serde::{Deserialize, Serialize};

use super::blame::Blame;
use super::model::{self, Load};
use super::output::{FLUSHES, Output, Round, TRANSFERS, Total};
use super::part::{Part, Phase, phases};
use super::statistics::Summary;
use crate::guest::system::System;

/// CPUs slept if the elapsed time is more than this multiple of a CPU's instructions.
const SLEPT: f64 = 1.25;

/// One object of the JSON output. Counts are per round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The program's name.
    pub program: String,
    /// "radixvm" or "linux".
    pub system: String,
    /// The address-space design, or null on Linux.
    pub design: Option<String>,
    /// The kind of page tables, or null on Linux.
    pub tables: Option<String>,
    /// The counter of references to the pages of files, or null on Linux.
    pub refs: Option<String>,
    /// The way of reads to keep pages.
    pub read_refs: Option<String>,
    /// The option for huge pages, on either kernel.
    pub huge: String,
    /// The number of virtual CPUs.
    pub cpus: u16,
    /// The number of counted rounds.
    pub rounds: usize,
    /// Instructions of user and kernel, without the iterations of repeated string instructions.
    pub instructions: Summary,
    /// Iterations of repeated string instructions, by which pages are zeroed and copied, also by idle CPUs.
    pub string_iterations: Summary,
    /// Accesses that another CPU's cache had to serve or give up.
    pub transfers: Summary,
    /// Copies that other CPUs lost to a store.
    pub invalidations: Summary,
    /// Writes to the interrupt command register.
    pub ipis: Summary,
    /// Interrupts from other CPUs, counted where they arrive.
    pub ipi_targets: Summary,
    /// Page faults.
    pub faults: Summary,
    /// invlpg and loads of CR3.
    pub tlb_flushes: Summary,
    /// Lines that no CPU had.
    pub cold: Summary,
    /// The prediction of the cost model for all CPUs together.
    pub predicted_rounds_per_s: Summary,
    /// Timer interrupts.
    pub ticks: Summary,
    /// The program's own counts, per round in the mean.
    pub user_part: Part,
    /// The kernel's counts.
    pub kernel_part: Part,
    /// The counts of each phase, if the program marks any.
    pub phases: Vec<Phase>,
    /// Transfers by the use of the memory that our kernel reports, of the lines that moved most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_owner: BTreeMap<String, f64>,
    /// Set if the program marked its rounds. Otherwise the whole run is one.
    pub marked: bool,
    /// The instructions that a CPU may run ahead of the slowest.
    pub slack: u64,
    /// The times that a CPU could not be held to that.
    pub escapes: u64,
    /// The version of the emulator.
    pub qemu: String,
    /// The version of the kernel under the program.
    pub kernel: String,
}

/// A row and the data behind it.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The system.
    pub system: System,
    /// The result.
    pub row: Row,
    /// The mean load per round, for curves.
    pub load: Load,
    /// The seconds that the run took on the host.
    pub host_seconds: f64,
    /// The contended lines with names.
    pub blame: Vec<Blame>,
    /// The counts of the window by CPU, privilege and phase.
    pub totals: Vec<Total>,
    /// The program's standard output.
    pub stdout: Vec<u8>,
}

/// The name and the configuration of a result.
pub struct Label<'a> {
    /// The program's name.
    pub program: &'a str,
    /// The system.
    pub system: System,
    /// The option for huge pages.
    pub huge: Huge,
    /// The emulator's version.
    pub qemu: &'a str,
    /// The kernel's version.
    pub kernel: &'a str,
}

impl Cell {
    /// Derives the result of a run.
    pub fn new(label: &Label<'_>, output: &Output, blame: Vec<Blame>) -> Self {
        let rounds = output.rounds();
        let loads = Loads::new(output, &rounds);
        let row = row(label, output, &rounds, &loads);
        Cell {
            system: label.system,
            row,
            load: loads.pick(|of| of.mean),
            host_seconds: output.host_seconds,
            blame,
            totals: output.totals.clone(),
            stdout: Vec::new(),
        }
    }

    /// Returns the cycles of a mean round by the model, by which runs are ordered.
    pub fn cost(&self) -> f64 {
        self.load.cycles(self.row.cpus.into())
    }
}

fn row(label: &Label<'_>, output: &Output, rounds: &[Round], loads: &Loads) -> Row {
    let word = |word: &str| Some(word.to_owned());
    let (system, [design, tables, refs, read_refs]) = match label.system {
        System::Radixvm(design, tables, refs, read_refs) => {
            ("radixvm", [word(design.word()), word(tables.word()), word(refs.word()), word(read_refs.word())])
        }
        System::Linux => ("linux", [const { None }; 4]),
    };
    let of = |names: &[&str]| summary(output, rounds, names);
    Row {
        program: label.program.to_owned(),
        system: system.to_owned(),
        design,
        tables,
        refs,
        read_refs,
        huge: label.huge.word().to_owned(),
        cpus: output.cpus,
        rounds: rounds.len(),
        instructions: loads.instructions,
        string_iterations: loads.iterations,
        transfers: of(&TRANSFERS),
        invalidations: of(&["invalidations"]),
        ipis: of(&["ipis_sent"]),
        ipi_targets: of(&["ipis_received"]),
        faults: of(&["faults"]),
        tlb_flushes: of(&FLUSHES),
        cold: of(&["cold"]),
        predicted_rounds_per_s: model::summary(|pick| loads.pick(pick), output.cpus),
        ticks: of(&["ticks"]),
        user_part: Part::privileged(output, "user"),
        kernel_part: Part::privileged(output, "kernel"),
        phases: phases(output),
        by_owner: BTreeMap::new(),
        marked: output.marked,
        slack: output.slack,
        escapes: output.escapes,
        qemu: label.qemu.to_owned(),
        kernel: label.kernel.to_owned(),
    }
}

/// Returns percentiles over whole rounds, and the mean of the whole window.
fn summary(output: &Output, rounds: &[Round], names: &[&str]) -> Summary {
    Summary::of(rounds.iter().map(|round| round.sum(names))).with_mean(output.mean(names))
}

/// Summaries of the inputs of the model.
struct Loads {
    instructions: Summary,
    iterations: Summary,
    read_modified: Summary,
    read_clean: Summary,
    write: Summary,
    upgrades: Summary,
    targets: Summary,
    hottest: f64,
    waiting: f64,
}

impl Loads {
    fn new(output: &Output, rounds: &[Round]) -> Self {
        let of = |names: &[&str]| summary(output, rounds, names);
        let instructions =
            Summary::of(rounds.iter().map(Round::instructions)).with_mean(output.mean(&["instructions"]));
        let hottest = output.lines.iter().map(|line| line.transfers).max().unwrap_or(0);
        Loads {
            instructions,
            iterations: of(&["rep_iterations"]),
            read_modified: of(&["read_modified"]),
            read_clean: of(&["read_clean"]),
            write: of(&["write_modified", "write_clean"]),
            upgrades: of(&["upgrades"]),
            targets: of(&["ipis_received"]),
            hottest: hottest as f64 / output.ended().max(1) as f64,
            waiting: waiting(output, instructions.mean),
        }
    }

    fn pick(&self, pick: fn(&Summary) -> f64) -> Load {
        Load {
            instructions: pick(&self.instructions),
            iterations: pick(&self.iterations),
            read_modified: pick(&self.read_modified),
            read_clean: pick(&self.read_clean),
            write: pick(&self.write),
            upgrades: pick(&self.upgrades),
            targets: pick(&self.targets),
            hottest: self.hottest,
            waiting: self.waiting,
        }
    }
}

/// Returns the instructions of a round during which all other CPUs waited asleep, or 0 if the CPUs were busy
/// all the time. The virtual clock advances one nanosecond per instruction of the slowest running CPU.
fn waiting(output: &Output, instructions: f64) -> f64 {
    let elapsed = output.window_virtual_seconds * 1e9 / output.ended().max(1) as f64;
    let slept = output.marked && elapsed * f64::from(output.cpus) > SLEPT * instructions;
    if slept { elapsed } else { 0.0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::meter::output::tests::FIXTURE;

    /// Returns the fixture as the result of a system with `cpus` CPUs.
    pub fn cell(system: System, cpus: u16) -> Cell {
        let text = FIXTURE.replacen("\"cpus\":2", &format!("\"cpus\":{cpus}"), 1);
        let label = Label { program: "local", system, huge: Huge::Always, qemu: "7.2", kernel: "6.1" };
        Cell::new(&label, &Output::parse(&text).unwrap(), crate::meter::blame::tests::fixture())
    }

    #[test]
    fn a_row_has_exactly_the_documented_keys() {
        let value = serde_json::to_value(cell(System::Linux, 2).row).unwrap();
        let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let documented = "program system design tables refs read_refs huge cpus rounds instructions string_iterations transfers invalidations ipis ipi_targets faults \
                          tlb_flushes cold predicted_rounds_per_s ticks user_part kernel_part phases \
                          marked slack escapes qemu kernel";
        let mut documented: Vec<&str> = documented.split_whitespace().collect();
        keys.sort_unstable();
        documented.sort_unstable();
        assert_eq!(keys, documented);
        let summary: Vec<&String> = value["transfers"].as_object().unwrap().keys().collect();
        assert_eq!(summary.len(), 4);
    }

    #[test]
    fn counts_are_per_round() {
        let row = cell(System::PERCORE, 2).row;
        assert_eq!((row.system.as_str(), row.tables.as_deref(), row.rounds), ("radixvm", Some("percore"), 4));
        assert_eq!(row.transfers, Summary { median: 2.0, p10: 1.0, p90: 6.0, mean: 2.75 });
        assert_eq!(row.instructions.median, 2920.0);
        assert_eq!((row.tlb_flushes.p90, row.ipis.mean, row.ipi_targets.mean), (2.0, 0.25, 0.25));
        assert!(row.predicted_rounds_per_s.median > row.predicted_rounds_per_s.p10);
    }

    #[test]
    fn sleep_is_time_that_no_instruction_explains() {
        let mut output = Output::parse(FIXTURE).unwrap();
        assert_eq!(waiting(&output, 3020.0), 0.0);
        output.window_virtual_seconds = 20e-6;
        assert_eq!(waiting(&output, 3020.0), 5000.0);
        output.marked = false;
        assert_eq!(waiting(&output, 3020.0), 0.0);
    }
}
