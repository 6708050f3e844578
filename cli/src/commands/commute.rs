//! `radixvm commute`: counts the pairs of commuting calls that conflict over a line of the kernel.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use commute::case::Case;
use commute::enumerate;

use super::contend::write;
use launch::exit_status::FAILED;
use launch::guest::system::System;
use launch::meter::commute::{self as tests, Experiment, Outcome};
use launch::{options, terminal};

const HELP: &str = "\
A model of POSIX calls makes the tests: a state and two calls whose two orders give the same results and the same state. \
Each kernel runs the two calls on two CPUs under the meter. A kernel could do so without a conflict: a line that one call \
writes and the other one touches, or an interrupt. The results are compared with the model's, and the status is 125 if \
they differ.

WORD of --only is the name of a call (stat), a mode (threads, processes), or part of a test's key.

The JSON is an array with one object per test and system. Keys stay the same between runs, for --compare.";

/// Options of `radixvm commute`.
#[derive(Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Kernels under the tests
    #[arg(
        long,
        value_enum,
        default_value = "adaptive,linux",
        value_delimiter = ',',
        value_name = "SYSTEM,..."
    )]
    systems: Vec<System>,
    /// Run only tests to which each of these words applies
    #[arg(long, value_delimiter = ',', value_name = "WORD,...")]
    only: Vec<String>,
    /// Run only every N-th of these tests
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    every: u32,
    /// Counted repeats of each test, with the two orders of the calls by turns. Of each order the median
    /// counts, and of the two the larger one
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    repeats: u32,
    /// List the tests and run none
    #[arg(long)]
    list: bool,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table of pairs of calls as a page
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Draw the table of pairs of calls as an SVG picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Compare the JSON of two runs, and run nothing
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["json", "page", "svg", "list"])]
    compare: Vec<PathBuf>,
    #[command(flatten)]
    guests: options::Guests,
}

impl Arguments {
    fn cases(&self) -> Vec<Case> {
        let chosen = enumerate::all().into_iter().filter(|case| is_chosen(case, &self.only));
        chosen.step_by(self.every as usize).collect()
    }
}

fn is_chosen(case: &Case, words: &[String]) -> bool {
    let key = tests::key(case);
    let is_call = |word: &str| enumerate::is_call(word);
    let has_call = |word: &str| case.calls.iter().any(|call| call.op.name() == word);
    words.iter().all(|word| if is_call(word) { has_call(word) } else { key.contains(word) })
}

/// Runs the tests, prints the tables and writes the requested files.
pub fn run(arguments: &Arguments) -> Result<u8> {
    if let [before, after] = &arguments.compare[..] {
        terminal::print_plain(tests::compare(&read(before)?, &read(after)?))?;
        return Ok(0);
    }
    let cases = arguments.cases();
    ensure!(!cases.is_empty(), "--only {}: no test is like that", arguments.only.join(","));
    if arguments.list {
        let lines: String = cases.iter().map(|case| format!("{case}\n")).collect();
        terminal::print_plain(lines)?;
        return Ok(0);
    }
    arguments.guests.apply();
    let systems = arguments.systems.clone();
    let outcomes = Experiment { cases, repeats: arguments.repeats as usize, systems }.run()?;
    terminal::print_plain(tests::text(&outcomes))?;
    if let Some(file) = &arguments.json {
        write(file, &(serde_json::to_string_pretty(&outcomes)? + "\n"))?;
    }
    if let Some(file) = &arguments.page {
        write(file, &tests::markdown(&outcomes))?;
    }
    if let Some(file) = &arguments.svg {
        write(file, &tests::picture(&outcomes))?;
    }
    let all_agree = outcomes.iter().all(|outcome| outcome.difference.is_none());
    Ok(if all_agree { 0 } else { FAILED })
}

fn read(file: &Path) -> Result<Vec<Outcome>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| format!("{}: not results of this command", file.display()))
}

#[cfg(test)]
mod tests_of_arguments {
    use super::*;

    #[test]
    fn every_word_applies_to_a_chosen_test() {
        let case: Case = "all:read.3+pread.4.0;threads;;read.3 pread.4.0;".parse().unwrap();
        let chosen =
            |words: &[&str]| is_chosen(&case, &words.iter().map(|word| (*word).into()).collect::<Vec<_>>());
        assert!(
            chosen(&[]) && chosen(&["read"]) && chosen(&["read", "pread", "threads"]) && chosen(&["pread.4"])
        );
        assert!(!chosen(&["write"]) && !chosen(&["processes"]) && !chosen(&["read", "open"]));
    }
}
