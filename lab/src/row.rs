//! One result per (program, system, CPUs).

use abi::config::Choice;
use serde::Serialize;

use launch::guest::system::System;
use launch::measure::Report;
use launch::meter;
use launch::meter::statistics::Summary;

/// One object of the JSON output.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// local, pipeline or global.
    pub program: &'static str,
    /// "radixvm" or "linux".
    pub system: &'static str,
    /// The address-space design, or null on Linux.
    pub design: Option<String>,
    /// The kind of page tables, or null on Linux.
    pub tables: Option<String>,
    /// The kernel's version.
    pub kernel: String,
    /// The number of virtual CPUs, and of threads.
    pub cpus: u16,
    /// The regions unmapped.
    pub rounds: u64,
    /// The length of the window.
    pub seconds: f64,
    /// The rounds divided by the seconds.
    pub rounds_per_s: f64,
    /// The meter's counts per round, or null at more CPUs than it supports.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The meter's counts per round.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Instructions of user and kernel.
    pub instructions: Option<Summary>,
    /// Accesses that another CPU's cache had to serve or give up.
    pub transfers: Option<Summary>,
    /// Interrupts sent to other cores.
    pub ipis: Option<Summary>,
    /// Interrupts received from other cores.
    pub ipi_targets: Option<Summary>,
    /// Page faults.
    pub faults: Option<Summary>,
    /// invlpg and loads of CR3.
    pub tlb_flushes: Option<Summary>,
}

impl Counts {
    /// Returns the counts of a metered run.
    pub fn new(row: &meter::row::Row) -> Self {
        Counts {
            instructions: Some(row.instructions),
            transfers: Some(row.transfers),
            ipis: Some(row.ipis),
            ipi_targets: Some(row.ipi_targets),
            faults: Some(row.faults),
            tlb_flushes: Some(row.tlb_flushes),
        }
    }
}

impl Row {
    /// Returns the row of one run.
    pub fn new(program: &'static str, system: System, kernel: &str, cpus: u16, report: &Report) -> Self {
        let (name, design, tables) = match system {
            System::Radixvm(design, tables, ..) => {
                ("radixvm", Some(design.word().to_owned()), Some(tables.word().to_owned()))
            }
            System::Linux => ("linux", None, None),
        };
        Row {
            program,
            system: name,
            design,
            tables,
            kernel: kernel.to_owned(),
            cpus,
            rounds: report.rounds,
            seconds: report.seconds,
            rounds_per_s: report.rounds as f64 / report.seconds,
            counts: Counts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_exactly_the_documented_keys() {
        let report = r#"{"seconds":2,"tsc":5,"minor_faults":7,"rounds":10}"#;
        let row = Row::new("local", System::Linux, "6.1", 4, &serde_json::from_str(report).unwrap());
        let text = serde_json::to_string(&row).unwrap();
        let keys: Vec<&str> = text
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|word| !["local", "linux", "6.1"].contains(word))
            .collect();
        let documented = "program system design tables kernel cpus rounds seconds rounds_per_s instructions transfers ipis \
                          ipi_targets faults tlb_flushes";
        assert_eq!(keys, documented.split_whitespace().collect::<Vec<_>>());
        assert_eq!(row.rounds_per_s, 5.0);
    }
}
