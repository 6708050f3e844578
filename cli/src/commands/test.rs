//! `radixvm test`: runs the tests with `cargo xtask test`.

use std::process::Command;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use launch::guest::system::word;
use launch::place;

/// A suite of `cargo xtask test`, quick ones first.
#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    /// Formatting, lints, rules of rooms
    Check,
    /// Everything that needs no guest
    Unit,
    /// Random calls of the crates' public functions, misuse included, under AddressSanitizer
    Asan,
    /// Programs in guests
    Guest,
    /// Programs in guests with CPUs that QEMU's translator lacks
    Bochs,
    /// The model checker
    Loom,
    /// Programs on this machine under the runtime, compared with plain runs
    Native,
    /// The interpreter that checks every access
    Miri,
    /// `radixvm bench` in guests: a limit for each call, every figure in short
    Bench,
    /// Guests with every number of CPUs (with --nightly, or where it is named)
    Cpus,
    /// Random calls for hours (the same)
    Fuzz,
    /// Atomic orderings made weaker, one at a time (the same)
    Mutants,
}

/// Options of `radixvm test`.
#[derive(Args)]
pub struct Arguments {
    /// Run check, unit, native and a few guests
    #[arg(long, conflicts_with_all = ["nightly", "suite"])]
    quick: bool,
    /// Run each test once, and then the suites that take hours
    #[arg(long, conflicts_with = "suite")]
    nightly: bool,
    /// The suite to run. Without it, each test runs once
    #[arg(value_enum)]
    suite: Option<Suite>,
    /// More suites, then parts of the names of the tests to run
    #[arg(value_name = "SUITE|NAME")]
    more: Vec<String>,
}

/// Runs the suites and returns their status.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(place::checkout("radixvm test")?).args(["xtask", "test"]);
    cargo.args(arguments.quick.then_some("--quick")).args(arguments.nightly.then_some("--nightly"));
    cargo.args(arguments.suite.iter().map(word)).args(&arguments.more);
    let status = cargo.status().context("cannot start cargo")?;
    Ok(status.code().map_or(1, |code| code as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_are_those_of_xtask() {
        let xtask = include_str!("../../../xtask/src/suites.rs");
        let named = xtask.lines().filter_map(|line| {
            let line = line.trim();
            line.strip_prefix("Suite::new(\"").or_else(|| line.strip_prefix("Suite::beside(\""))
        });
        let named: Vec<&str> = named.filter_map(|rest| rest.split('"').next()).collect();
        let ours: Vec<String> = Suite::value_variants().iter().map(word).collect();
        assert_eq!(ours, named);
    }
}
