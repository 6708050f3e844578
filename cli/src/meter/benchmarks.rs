//! The benchmarks of `user/`, with the options that make them worth metering.

use abi::config::Huge;
use anyhow::Result;

use super::experiment::Experiment;
use crate::artifacts;
use crate::guest::system::System;

/// The default slack. Runs with short rounds use less.
pub const SLACK: u64 = 200;

/// The names, and the rounds of all threads together, or 0 for benchmarks that do not work in rounds.
const BENCHMARKS: [(&str, u64); 20] = [
    ("calls", 100),
    ("microbench", 2000),
    ("forkexit", 100),
    ("local", 2000),
    ("pipeline", 2000),
    ("global", 64),
    ("faultstorm", 2000),
    ("neighbours", 2000),
    ("drbh", 2000),
    ("kvread", 2000),
    ("hotfile", 64),
    ("webserve", 1000),
    ("pageshare", 2000),
    ("probe", 1000),
    ("readers", 2000),
    ("simulated", 2000),
    ("treelookup", 0),
    ("wordindex", 0),
    ("textindex", 0),
    ("dedup", 0),
];

/// Returns the rounds of all threads of a benchmark together, or `None` for other programs.
pub fn rounds(name: &str) -> Option<u64> {
    let found = BENCHMARKS.iter().find(|(known, _)| artifacts::is_bundled(name) && *known == name);
    found.map(|(_, rounds)| *rounds)
}

/// Adds the options of a benchmark of `rounds` rounds that were not given.
pub fn complete(arguments: &[String], rounds: Option<u64>) -> Vec<String> {
    let mut arguments = arguments.to_vec();
    if rounds.is_some() {
        add(&mut arguments, "--threads", "{cpus}");
    }
    if rounds.is_some_and(|rounds| rounds > 0) {
        add(&mut arguments, "--iterations", "{rounds}");
        add(&mut arguments, "--warmup", "{warmup}");
    }
    arguments
}

/// Adds an option before a `--`, unless it is there.
fn add(arguments: &mut Vec<String>, name: &str, value: &str) {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let given = |word: &String| word.split('=').next() == Some(name);
    if !arguments[..end].iter().any(given) {
        arguments.splice(end..end, [name.to_owned(), value.to_owned()]);
    }
}

/// Returns an experiment with a benchmark and these arguments, which runs once for each number of CPUs on
/// each system.
pub fn experiment(
    name: &str,
    arguments: &[&str],
    cpus: &[u16],
    systems: &[System],
    memory: u64,
) -> Result<Experiment> {
    let (rounds, arguments) =
        (rounds(name), arguments.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
    Ok(Experiment {
        step: "metering".to_owned(),
        program: artifacts::program(name)?,
        arguments: complete(&arguments, rounds),
        rounds: rounds.unwrap_or(0),
        files: Vec::new(),
        environment: Vec::new(),
        cpus: cpus.to_vec(),
        systems: systems.to_vec(),
        repeats: 1,
        memory,
        huge: Huge::DEFAULT,
        slack: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn benchmarks_get_threads_and_rounds_unless_given() {
        assert_eq!(
            complete(&[], Some(2000)),
            words("--threads {cpus} --iterations {rounds} --warmup {warmup}")
        );
        let given = words("--threads=3 --iterations 5 --warmup 2");
        assert_eq!(complete(&given, Some(2000)), given);
        assert_eq!(complete(&words("a.txt"), Some(0)), words("a.txt --threads {cpus}"));
        assert_eq!(complete(&words("-- --threads"), Some(0)), words("--threads {cpus} -- --threads"));
        assert_eq!(complete(&words("x"), None), words("x"));
    }

    #[test]
    fn every_benchmark_is_there() {
        assert!(BENCHMARKS.iter().all(|(name, total)| rounds(name) == Some(*total)));
        assert_eq!((rounds("hostile"), rounds("./local")), (None, None));
    }
}
