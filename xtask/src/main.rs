//! The developers' commands: `cargo xtask VERB`. CI and `radixvm test` use them too.
#![forbid(unsafe_code)]

mod arrows;
mod check;
mod failures;
mod fresh_machine;
mod lane;
mod language;
mod links;
mod linux_calls;
mod mutants;
mod packages;
mod release;
mod results;
mod rooms;
mod shell;
mod suites;
mod tally;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
usage: cargo xtask VERB

  check              formatting, clippy, rooms, language, links, generated pages up to date
  test               each test once
  test --quick       formatting, lints, what needs no guest, and a few guests
  test --nightly     each test once, then the suites cpus, fuzz and mutants, which take hours
  test SUITE... [NAME]...
                     these suites, or their tests with NAME in their names. The suites:
                     check unit asan guest bochs loom native miri bench cpus fuzz mutants
  asan               the fuzz drivers under AddressSanitizer, each for FUZZ_SECONDS (5)
  bochs              the tests that boot Bochs, whose CPUs have PCIDs and the x2APIC
  cpus               guests with every number of CPUs
  fuzz [MINUTES]     the fuzz drivers under AddressSanitizer, and random calls in guests of 1, 4 and 8 CPUs; each so long (10)
  SUITE              one suite
  mutants orderings CRATE [--only FILE:LINE] [--survivors] [--list]
                     weaken each atomic ordering of the crate and run its loom models; results in target/mutants
  mutants logic CRATE [--shard K/N] [--only TEXT] [--survivors] [--models] [--alone]
                     change the logic of the crate, one place at a time, and run its tests; results in target/mutants
  package            builds each crate from its package and with the oldest Rust that Cargo.toml promises; looks for unused
                     dependencies with cargo-machete. A tool that is missing is named and skipped.
  release            makes target/release-archive/radixvm-VERSION-x86_64-linux.tar.gz of what `radixvm install` installs; the same commit makes
                     an archive with the same names, owners and times
  fresh-machine RELEASE [--whole] [--ubuntu MIRROR]
                     make a minimal Debian of this release (bookworm, trixie), or Ubuntu (noble), by debootstrap, as root, and run
                     `./radixvm demo` and `./radixvm test --quick` of the last commit in it; --whole: all tests
  results [--only NAME,...]
                     measure, and write docs/results: local, pipeline, global, forkexit, designs, counters, calls, memory,
                     pool, malloc and native (the last three are times, for a quiet machine).
                     Refuses changes that are not committed.
  results --pack FOLDER, results --unpack FOLDER
                     make a folder that measures pool, malloc and native elsewhere, which needs no Rust, by its script
                     `measure`; write docs/results from the folder when it is back
  arrows             prints the rooms of each unit and how often each names the others
  doc                write docs/guide/linux-calls.md from the kernel's table, ARCHITECTURE.md's rooms from theirs, and the API pages";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<bool> {
    match words {
        ["test", names @ ..] => suites::run(names),
        ["check" | "native" | "asan" | "loom" | "miri" | "bench" | "guest" | "bochs" | "cpus"]
        | ["fuzz", ..] => suites::run(words),
        ["mutants", "orderings", rest @ ..] => mutants::orderings(rest),
        ["mutants", "logic", rest @ ..] => mutants::logic::run(rest),
        ["package"] => packages::verify(),
        ["release"] => release::make(),
        ["fresh-machine", words @ ..] => fresh_machine::run(words),
        ["results", rest @ ..] => results::run(rest),
        ["arrows"] => arrows::print(),
        ["doc"] => {
            linux_calls::write()?;
            arrows::write_pictures()?;
            check::api_pages()
        }
        _ => anyhow::bail!("{USAGE}"),
    }
}

/// Returns the repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ lies in the repository").to_owned()
}
