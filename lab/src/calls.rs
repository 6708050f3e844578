//! The cost of single calls on one CPU, in instructions, on RadixVM and on stock Linux.

use abi::config::Huge;
use anyhow::{Context, Result, bail};
use serde::Serialize;

use launch::guest::system::System;
use launch::meter::benchmarks;
use launch::table::{Table, count};

/// A call that is measured.
#[derive(Debug)]
pub struct Call {
    /// Its name in tables and for `--only`.
    pub name: &'static str,
    /// The program whose round it is.
    program: &'static str,
    /// The program's arguments.
    arguments: &'static [&'static str],
    /// The number of calls in a round.
    per_round: u32,
    /// The most that RadixVM may take, as a multiple of Linux's instructions.
    limit: f64,
}

impl Call {
    const fn new(name: &'static str, program: &'static str, arguments: &'static [&'static str]) -> Self {
        Call { name, program, arguments, per_round: 1, limit: 1.0 }
    }

    const fn limit(self, limit: f64) -> Self {
        Call { limit, ..self }
    }

    const fn per_round(self, per_round: u32) -> Self {
        Call { per_round, ..self }
    }

    /// Returns whether it makes threads or processes, which takes longer to measure.
    fn makes_tasks(&self) -> bool {
        self.program == "forkexit" || self.name.starts_with("thread")
    }
}

/// All calls that can be measured, with the limits of the guest test `calls_cost_no_more_than_is_said`.
/// Ranges have 8 MiB unless the name says otherwise.
#[rustfmt::skip]
pub const CALLS: [Call; 25] = [
    Call::new("mmap", "microbench", &["mmap"]),
    Call::new("mmap, touch", "microbench", &["mmap-PF"]),
    Call::new("fault", "microbench", &["PF"]),
    Call::new("munmap, untouched", "microbench", &["unmap-virt"]),
    Call::new("munmap, touched", "microbench", &["unmap"]),
    Call::new("mprotect", "microbench", &["mprotect"]),
    Call::new("mmap, touch, munmap", "local", &[]).limit(0.3),
    Call::new("map 4K", "calls", &["map", "--pages", "1"]).limit(0.5),
    Call::new("map 64K", "calls", &["map", "--pages", "16"]).limit(0.5),
    Call::new("map 2M", "calls", &["map", "--pages", "512"]).limit(0.5),
    Call::new("map 8M", "calls", &["map", "--pages", "2048"]).limit(0.5),
    Call::new("map 128M", "calls", &["map", "--pages", "32768"]).limit(0.5),
    Call::new("map 1G", "calls", &["map", "--pages", "262144"]).limit(0.5),
    Call::new("map 16G", "calls", &["map", "--pages", "4194304"]).limit(0.5),
    Call::new("map, protect, touch, unmap", "calls", &["stack"]).limit(0.5),
    Call::new("touch, discard", "calls", &["discard"]).limit(0.5),
    Call::new("protect twice", "calls", &["protect"]).limit(0.5),
    Call::new("mincore", "calls", &["mincore"]).limit(0.5),
    Call::new("munmap, scattered", "calls", &["scattered", "--pages", "8"]).per_round(8),
    Call::new("maps", "calls", &["maps"]),
    Call::new("stat", "calls", &["stat"]),
    Call::new("thread, new stack", "calls", &["thread"]),
    Call::new("thread, kept stack", "calls", &["kept-thread"]),
    Call::new("fork, exit, wait", "forkexit", &[]),
    Call::new("fork, exec, exit, wait", "forkexit", &["--exec"]),
];

/// One object of the JSON output. Instructions are those of user and kernel, the median of rounds.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// The name of the call.
    pub call: &'static str,
    /// The program whose round it is.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<&'static str>,
    /// Instructions on RadixVM.
    pub radixvm: f64,
    /// Instructions on stock Linux.
    pub linux: f64,
    /// The stock kernel's version.
    pub linux_version: String,
    /// RadixVM's instructions as a multiple of Linux's.
    pub ratio: f64,
    /// The ratio that the tests require.
    pub limit: f64,
}

/// Returns the calls whose names contain one of these words, or all if there are none. A `quick` run leaves
/// out threads and processes.
pub fn chosen(words: &[String], quick: bool) -> Result<Vec<&'static Call>> {
    let known = |word: &String| CALLS.iter().any(|call| call.name.contains(word.as_str()));
    if let Some(word) = words.iter().find(|word| !known(word)) {
        bail!("--only {word}: the calls are {}", CALLS.each_ref().map(|call| call.name).join("; "));
    }
    let wanted =
        |call: &&Call| words.is_empty() || words.iter().any(|word| call.name.contains(word.as_str()));
    Ok(CALLS.iter().filter(wanted).filter(|call| !(quick && call.makes_tasks())).collect())
}

/// Measures these calls.
pub fn run(calls: &[&'static Call], memory: u64, huge: Huge) -> Result<Vec<Cost>> {
    calls.iter().map(|call| cost(call, memory, huge)).collect()
}

fn cost(call: &'static Call, memory: u64, huge: Huge) -> Result<Cost> {
    let &Call { name, program, arguments, per_round, limit } = call;
    let systems = [System::DEFAULT, System::Linux];
    let mut experiment = benchmarks::experiment(program, arguments, &[1], &systems, memory)?;
    experiment.huge = huge;
    let cells = experiment.run()?;
    let instructions = |system| {
        let cell = cells.iter().find(|cell| cell.system == system);
        let round = cell.map(|cell| cell.row.instructions.median);
        round
            .map(|round| round / f64::from(per_round))
            .with_context(|| format!("{name}: nothing measured on {system}"))
    };
    let (radixvm, linux) = (instructions(System::DEFAULT)?, instructions(System::Linux)?);
    let (arguments, linux_version) = (arguments.to_vec(), System::Linux.version()?);
    Ok(Cost { call: name, program, arguments, radixvm, linux, linux_version, ratio: radixvm / linux, limit })
}

/// Formats the costs side by side.
pub fn table(costs: &[Cost]) -> Table {
    let linux = System::Linux.to_string();
    let mut table = Table::new(["call", "RadixVM", &linux, "ratio", "limit"]);
    for cost in costs {
        table.row([
            cost.call.to_owned(),
            count(cost.radixvm as i64),
            count(cost.linux as i64),
            format!("{:.2}x", cost.ratio),
            format!("{:.2}x", cost.limit),
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
            linux_version: "6.1".to_owned(),
            ratio: 0.25,
            limit: 0.75,
        };
        let keys = "call program arguments radixvm linux linux_version ratio limit";
        let json = serde_json::to_value(&cost).unwrap();
        assert!(keys.split(' ').all(|key| json.get(key).is_some()) && json.as_object().unwrap().len() == 8);
        let text = table(&[cost]).to_string();
        assert!(text.contains("2,000") && text.contains("0.25x") && text.contains("0.75x"), "{text}");
    }

    #[test]
    fn every_program_can_be_metered() {
        assert!(CALLS.iter().all(|call| benchmarks::rounds(call.program).is_some_and(|rounds| rounds > 0)));
    }

    #[test]
    fn no_call_may_take_more_than_on_linux() {
        assert!(CALLS.iter().all(|call| call.limit <= 1.0));
    }

    #[test]
    fn calls_are_chosen_by_parts_of_their_names() {
        let names = |words: &[&str], quick| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            chosen(&words, quick).map(|calls| calls.iter().map(|call| call.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["16G", "stat"], false).unwrap(), ["map 16G", "stat"]);
        assert_eq!(names(&["stack"], false).unwrap(), ["thread, new stack", "thread, kept stack"]);
        assert_eq!(names(&[], false).unwrap().len(), CALLS.len());
        assert_eq!(names(&[], true).unwrap().len(), CALLS.len() - 4);
        assert!(
            names(&["maps", "brk"], false)
                .unwrap_err()
                .to_string()
                .contains("--only brk: the calls are mmap; ")
        );
    }
}
