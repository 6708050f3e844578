//! `radixvm contend`: counts the cache lines and interrupts between the CPUs of a program, and names the
//! code.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use abi::config::{Choice, Huge, ReadRefs, Refs};
use anyhow::{Context, Result, ensure};
use clap::Args;

use launch::exit_status::FAILED;
use launch::guest::file_arg::FileArg;
use launch::guest::system::System;
use launch::meter::experiment::Experiment;
use launch::meter::row::Cell;
use launch::meter::{benchmarks, report};
use launch::{artifacts, options, program, terminal};

const HELP: &str = "\
Guests run under QEMU's translator with a plugin that keeps a directory of cache lines; CPUs are kept in step, so two \
processors here are enough for any number of them. Counts are per round, as the program marks its rounds; of a program \
without marks the whole run is one round. docs/guide/meter.md says what is counted and what is not.

The whole list of --cpus takes minutes: local takes seconds on RadixVM, but on stock Linux, whose boot is long, minutes with 32 and \
with 64 CPUs each, on two processors. --quick, or --systems adaptive, is done in one or two.

In ARGS, {cpus} stands for the number of CPUs. A benchmark of user/ (local, pipeline, global, faultstorm, ...) gets \
--threads {cpus} and, if it works in rounds, a suitable --iterations unless they are given.

The JSON is an array with one object per program, system and number of CPUs.";

/// The numbers of CPUs of a quick run.
const QUICK: [u16; 4] = [1, 2, 4, 8];

/// Options of `radixvm contend`.
#[derive(Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Numbers of virtual CPUs
    #[arg(long, default_value = "1,2,4,8,16,32,64", value_delimiter = ',', value_parser = options::metered_cpus, value_name = "N,...")]
    cpus: Vec<u16>,
    /// The same as --cpus 1,2,4,8
    #[arg(long, conflicts_with = "cpus")]
    quick: bool,
    /// Kernels under the program
    #[arg(
        long,
        value_enum,
        default_value = "adaptive,percore,shared,linux",
        value_delimiter = ',',
        value_name = "SYSTEM,..."
    )]
    systems: Vec<System>,
    /// Counter of the references to the pages of files, on RadixVM
    #[arg(long, value_parser = options::choice::<Refs>(), default_value = "refcache", value_delimiter = ',', value_name = "COUNT,...")]
    refs: Vec<Refs>,
    /// The way in which a read keeps the page of a file, on RadixVM
    #[arg(long, value_parser = options::choice::<ReadRefs>(), default_value = "pinned", value_delimiter = ',', value_name = "COUNT,...")]
    read_refs: Vec<ReadRefs>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with curves, and the contended lines with their code, into a folder
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Instructions that a CPU may run ahead of the slowest [default: 200, less where rounds are short]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000), value_name = "N")]
    slack: Option<u64>,
    /// Runs of every combination, of which the one with the median cost counts
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    repeats: u32,
    /// Memory of every guest
    #[arg(short, long, default_value = "1G", value_parser = options::size, value_name = "SIZE")]
    memory: u64,
    /// Huge pages, on either kernel
    #[arg(long, value_parser = options::choice::<Huge>(), default_value = Huge::DEFAULT.word())]
    huge: Huge,
    /// Copy a file or folder into the guest, to the same path or to GUEST
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    files: Vec<String>,
    /// Set a variable of the program's environment, or without a value pass on the host's
    #[arg(short, long = "env", value_parser = options::setting, value_name = "K=V")]
    env: Vec<OsString>,
    #[command(flatten)]
    guests: options::Guests,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM ARGS")]
    command: Vec<String>,
}

impl Arguments {
    /// Returns each kernel with each counter. Linux is listed once.
    fn systems(&self) -> Vec<System> {
        let counted =
            self.systems.iter().flat_map(|system| self.refs.iter().map(|refs| system.counting(*refs)));
        once(counted.flat_map(|system| self.read_refs.iter().map(move |reads| system.reading(*reads))))
    }

    fn experiment(&self) -> Result<Experiment> {
        let name = &self.command[0];
        let bundled = artifacts::is_bundled(name);
        let rounds = benchmarks::rounds(name);
        Ok(Experiment {
            step: "metering".to_owned(),
            program: if bundled { artifacts::program(name)? } else { program::find(name)? },
            arguments: benchmarks::complete(&self.command[1..], rounds),
            rounds: rounds.unwrap_or(0),
            files: self.files.iter().map(|text| FileArg::parse(text)).collect::<Result<_>>()?,
            environment: self.env.clone(),
            cpus: sorted(if self.quick { &QUICK } else { &self.cpus }),
            systems: self.systems(),
            repeats: self.repeats,
            memory: self.memory,
            huge: self.huge,
            slack: self.slack,
        })
    }
}

fn sorted(cpus: &[u16]) -> Vec<u16> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn once(systems: impl Iterator<Item = System>) -> Vec<System> {
    let mut unique = Vec::new();
    systems.for_each(|system| {
        if !unique.contains(&system) {
            unique.push(system)
        }
    });
    unique
}

/// Measures, prints the table, and writes the requested files.
pub fn run(arguments: &Arguments) -> Result<u8> {
    arguments.guests.apply();
    arguments.report.as_deref().map_or(Ok(()), prepare)?;
    let mut refused = Vec::new();
    let cells = arguments.experiment()?.run_what_can_be(&mut refused)?;
    terminal::print_plain(report::text(&cells))?;
    if let Some(file) = &arguments.json {
        write(file, &json(&cells)?)?;
    }
    if let Some(folder) = &arguments.report {
        write(&folder.join("contend.json"), &json(&cells)?)?;
        write(&folder.join("speed.svg"), &report::picture(&cells))?;
        write(&folder.join("index.html"), &report::page(&cells, &arguments.command))?;
    }
    refused.iter().for_each(|error| terminal::message(format_args!("skipped: {error:#}")));
    Ok(if refused.is_empty() { 0 } else { FAILED })
}

/// Makes the folder for the report before the long work, so that a failure shows at once.
fn prepare(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("--report {}", folder.display()))?;
    ensure!(folder.is_dir(), "--report {}: not a folder", folder.display());
    Ok(())
}

fn json(cells: &[Cell]) -> Result<String> {
    let rows: Vec<_> = cells.iter().map(|cell| &cell.row).collect();
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

/// Writes a result into a file, which an error names.
pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_sorted_and_nothing_is_run_twice() {
        assert_eq!(sorted(&[4, 1, 4]), [1, 4]);
        assert_eq!(once([System::Linux, System::PERCORE, System::Linux].into_iter()).len(), 2);
    }
}
