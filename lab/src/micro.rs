//! The microbenchmarks on every system: the plan of runs, and the rows of their results.

use abi::config::Huge;
use anyhow::Result;

use super::row::{Counts, Row};
use launch::guest::qemu::Accel;
use launch::guest::system::{Size, System};
use launch::measure::{Task, measure};
use launch::meter::benchmarks;
use launch::meter::model::MOST;
use launch::meter::statistics::median;
use launch::progress::Step;

/// The programs, with the rounds of one CPU in one run.
pub const PROGRAMS: [(&str, u64); 3] = [("local", 24_000), ("pipeline", 24_000), ("global", 960)];
/// The systems, ours first.
pub const SYSTEMS: [System; 3] = [System::PERCORE, System::SHARED, System::Linux];

/// The extent of the measurement.
pub struct Scope {
    /// The numbers of CPUs.
    pub cpus: Vec<u16>,
    /// The runs of every combination.
    pub repeats: u32,
    /// Set for a fourth of the rounds.
    pub quick: bool,
    /// The bytes of memory of every guest.
    pub memory: u64,
    /// The option for huge pages, on either kernel.
    pub huge: Huge,
    /// The accelerator of guests whose instructions are not counted.
    pub accel: Accel,
}

/// A combination of program, system and number of CPUs.
#[derive(Clone, Copy)]
struct Cell {
    program: &'static str,
    rounds: u64,
    system: System,
    cpus: u16,
}

/// Runs everything, and returns one row per combination.
pub fn run(scope: &Scope) -> Result<Vec<Row>> {
    let step = Step::new("measuring");
    let cells = cells(scope);
    let mut runs = vec![Vec::new(); cells.len()];
    for repeat in 1..=scope.repeats {
        // Interleaved, so that a slow minute of the machine affects every combination alike.
        for (cell, runs) in cells.iter().zip(&mut runs) {
            step.tell(&format!("run {repeat} of {}: {}", scope.repeats, cell.name()));
            let size = Size { cpus: cell.cpus, memory: scope.memory, accel: scope.accel };
            let report = measure(cell.system, scope.huge, &cell.task(), size)?;
            runs.push(Row::new(cell.program, cell.system, &cell.system.version()?, cell.cpus, &report));
        }
    }
    let mut rows: Vec<Row> =
        runs.into_iter().filter_map(|runs| median(runs, |row| row.rounds_per_s)).collect();
    drop(step);
    count(&cells, &mut rows, scope)?;
    Ok(rows)
}

fn cells(scope: &Scope) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (program, rounds) in PROGRAMS {
        for &cpus in &scope.cpus {
            let rounds = if scope.quick { rounds / 4 } else { rounds };
            cells.extend(SYSTEMS.map(|system| Cell { program, rounds, system, cpus }));
        }
    }
    cells
}

/// Adds the meter's counts per round, at the numbers of CPUs that it supports.
fn count(cells: &[Cell], rows: &mut [Row], scope: &Scope) -> Result<()> {
    let cpus: Vec<u16> = scope.cpus.iter().copied().filter(|cpus| *cpus <= MOST).collect();
    for (program, _) in PROGRAMS {
        let mut experiment = benchmarks::experiment(program, &[], &cpus, &SYSTEMS, scope.memory)?;
        experiment.huge = scope.huge;
        let counted = experiment.run()?;
        for (cell, row) in cells.iter().zip(&mut *rows).filter(|(cell, _)| cell.program == program) {
            let same =
                counted.iter().find(|other| other.system == cell.system && other.row.cpus == cell.cpus);
            row.counts = same.map_or_else(Counts::default, |same| Counts::new(&same.row));
        }
    }
    Ok(())
}

impl Cell {
    fn name(&self) -> String {
        format!("{} on {}, {} CPUs", self.program, self.system, self.cpus)
    }

    /// Returns the task. With more CPUs it has fewer rounds in total, because they share the processors of
    /// this machine.
    fn task(&self) -> Task {
        let cpus = u64::from(self.cpus);
        let iterations = (self.rounds / (cpus * cpus)).max(8);
        let arguments = ["--threads", &cpus.to_string(), "--iterations", &iterations.to_string()];
        Task { program: self.program, arguments: arguments.map(str::to_owned).to_vec(), files: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_there_once_and_systems_take_turns() {
        let scope = Scope {
            cpus: vec![1, 2],
            repeats: 1,
            quick: false,
            memory: 0,
            huge: Huge::DEFAULT,
            accel: Accel::Tcg,
        };
        let names: Vec<String> = cells(&scope).iter().map(Cell::name).collect();
        assert_eq!(names.len(), 18);
        assert_eq!(names[..3].iter().map(|name| name.starts_with("local on")).collect::<Vec<_>>(), [true; 3]);
        assert_ne!(names[0], names[1]);
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn no_run_is_empty() {
        let cell = Cell { program: "global", rounds: 240, system: System::Linux, cpus: 64 };
        assert_eq!(cell.task().arguments, ["--threads", "64", "--iterations", "8"]);
    }
}
