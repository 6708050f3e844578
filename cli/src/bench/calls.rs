//! What single calls cost on one CPU, in instructions, on RadixVM and on stock Linux.

use anyhow::{Context, Result};
use serde::Serialize;

use crate::guest::system::System;
use crate::meter::benchmarks;
use crate::table::{Table, count};

/// What is measured: its name, and the program with its arguments whose round it is.
const CALLS: [(&str, &str, &[&str]); 9] = [
    ("mmap", "microbench", &["mmap"]),
    ("mmap, touch", "microbench", &["mmap-PF"]),
    ("fault", "microbench", &["PF"]),
    ("munmap, untouched", "microbench", &["unmap-virt"]),
    ("munmap, touched", "microbench", &["unmap"]),
    ("mprotect", "microbench", &["mprotect"]),
    ("mmap, touch, munmap", "local", &[]),
    ("fork, exit, wait", "forkexit", &[]),
    ("fork, exec, exit, wait", "forkexit", &["--exec"]),
];

/// One object of the JSON output. Instructions of user and kernel, the median of rounds.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// What was done.
    pub call: &'static str,
    /// The program whose round it is.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<&'static str>,
    /// Instructions on RadixVM.
    pub radixvm: f64,
    /// Instructions on stock Linux.
    pub linux: f64,
    /// RadixVM's as a multiple of Linux's.
    pub ratio: f64,
}

/// Measures every call; if it is to be `quick`, those that make no processes.
pub fn run(quick: bool, memory: u64) -> Result<Vec<Cost>> {
    let wanted = CALLS.iter().filter(|(_, program, _)| !quick || *program != "forkexit");
    wanted.map(|call| cost(call, memory)).collect()
}

fn cost(
    &(call, program, arguments): &(&'static str, &'static str, &[&'static str]),
    memory: u64,
) -> Result<Cost> {
    let systems = [System::DEFAULT, System::Linux];
    let cells = benchmarks::experiment(program, arguments, &[1], &systems, memory)?.run()?;
    let instructions = |system| {
        let cell = cells.iter().find(|cell| cell.system == system);
        cell.map(|cell| cell.row.instructions.median)
            .with_context(|| format!("{call}: nothing measured on {system}"))
    };
    let (radixvm, linux) = (instructions(System::DEFAULT)?, instructions(System::Linux)?);
    Ok(Cost { call, program, arguments: arguments.to_vec(), radixvm, linux, ratio: radixvm / linux })
}

/// The costs side by side.
pub fn table(costs: &[Cost]) -> Table {
    let mut table = Table::new(["call", "RadixVM", "stock Linux", "ratio"]);
    for cost in costs {
        table.row([
            cost.call.to_owned(),
            count(cost.radixvm as i64),
            count(cost.linux as i64),
            format!("{:.2}x", cost.ratio),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_it_is() {
        let cost = Cost {
            call: "mmap",
            program: "microbench",
            arguments: vec!["mmap"],
            radixvm: 500.0,
            linux: 2000.0,
            ratio: 0.25,
        };
        let keys = "call program arguments radixvm linux ratio";
        let json = serde_json::to_value(&cost).unwrap();
        assert!(keys.split(' ').all(|key| json.get(key).is_some()) && json.as_object().unwrap().len() == 6);
        let text = table(&[cost]).to_string();
        assert!(text.contains("2,000") && text.contains("0.25x"), "{text}");
    }

    #[test]
    fn every_program_can_be_metered() {
        assert!(
            CALLS.iter().all(|(_, program, _)| benchmarks::rounds(program).is_some_and(|rounds| rounds > 0))
        );
    }
}
