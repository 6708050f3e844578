//! The suites of tests, and running them.

use std::env;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::shell::{cargo, target_dir, tests, tests_of_both};
use crate::tally::Tally;
use crate::{check, root};

/// A suite and how it is run.
struct Suite {
    name: &'static str,
    run: fn() -> Result<Tally>,
}

/// Quick ones first.
const SUITES: [Suite; 7] = [
    Suite { name: "check", run: check::all },
    Suite { name: "unit", run: unit },
    Suite { name: "asan", run: asan },
    Suite { name: "guest", run: guest },
    Suite { name: "bochs", run: bochs },
    Suite { name: "loom", run: loom },
    Suite { name: "miri", run: miri },
];

/// Runs the named suites, or all. The last line sums up; true if nothing failed.
pub fn run(names: &[&str]) -> Result<bool> {
    if let Some(unknown) = names.iter().find(|name| SUITES.iter().all(|suite| suite.name != **name)) {
        bail!("there is no suite {unknown}: {}", SUITES.map(|suite| suite.name).join(", "));
    }
    let chosen = SUITES.iter().filter(|suite| names.is_empty() || names.contains(&suite.name));
    let mut total = Tally::default();
    let mut lines = Vec::new();
    for suite in chosen {
        println!("\n== {}", suite.name);
        let start = Instant::now();
        let tally = (suite.run)()?;
        lines.push(format!("{:<6} {tally} in {} s", suite.name, start.elapsed().as_secs()));
        total += tally;
    }
    println!("\n{}\n\ntests: {total}", lines.join("\n"));
    Ok(total.failed == 0)
}

/// Everything that needs no guest: crates, their property tests, the programs' own tests, on this machine.
fn unit() -> Result<Tally> {
    tests(&mut cargo("test --locked --workspace --exclude radixvm-kernel --no-fail-fast"))
}

/// Tests that boot QEMU, one at a time: each guest wants the machine for itself.
fn guest() -> Result<Tally> {
    tests(&mut cargo("test --locked --package radixvm --features guest --test guest -- --test-threads=1"))
}

/// How long each driver runs under AddressSanitizer, in seconds, unless `FUZZ_SECONDS` says so.
const FUZZ_SECONDS: &str = "15";

/// Every crate with a test named `fuzz`, under AddressSanitizer.
fn asan() -> Result<Tally> {
    if !nightly_has("--version") {
        println!(
            "skipped: no nightly toolchain here, which AddressSanitizer needs (rustup toolchain install nightly)"
        );
        return Ok(Tally::skip());
    }
    let mut command = drivers()?;
    command.env("FUZZ_SECONDS", env::var("FUZZ_SECONDS").unwrap_or(FUZZ_SECONDS.to_owned()));
    tests(&mut command)
}

/// Tests named `fuzz`, built with AddressSanitizer. Its leak detector needs to trace threads, which containers
/// often forbid, so the drivers count themselves what was not freed.
fn drivers() -> Result<Command> {
    let mut command = cargo("test --locked --no-fail-fast --target x86_64-unknown-linux-gnu --test fuzz");
    command.args(packages_with("fuzz")?.iter().flat_map(|name| ["--package", name]));
    command.arg("--target-dir").arg(target_dir("asan")).args(["--", "--test-threads=1"]);
    command
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("ASAN_OPTIONS", "detect_leaks=0");
    Ok(command)
}

/// Fuzzes for a long time: each driver under AddressSanitizer, and each of the guest's storms on each number of CPUs, for as many
/// minutes, or for `FUZZ_SECONDS`. True if nothing failed.
pub fn fuzz(minutes: u64) -> Result<bool> {
    let seconds = env::var("FUZZ_SECONDS").unwrap_or_else(|_| (minutes * 60).to_string());
    let mut storms = cargo("test --locked --package radixvm --features guest --test guest");
    storms
        .args(["--", "--test-threads=1", "--nocapture", "--ignored", "storms::"])
        .env("FUZZ_SECONDS", &seconds);
    let mut total = tests(drivers()?.env("FUZZ_SECONDS", &seconds).arg("--nocapture"))?;
    total += tests(&mut storms)?;
    println!("\nfuzz: {total}");
    Ok(total.failed == 0)
}

/// Whether the nightly toolchain is here and can do this.
fn nightly_has(words: &str) -> bool {
    let answer = cargo(words).env("RUSTUP_TOOLCHAIN", "nightly").output();
    answer.is_ok_and(|output| output.status.success())
}

/// The tests for CPUs that QEMU's translator has not.
fn bochs() -> Result<Tally> {
    if Command::new("bochs-bin").arg("--help").output().is_err() {
        println!("skipped: no Bochs here (apt-get install bochs bochsbios vgabios)");
        return Ok(Tally::skip());
    }
    let tests_of_bochs = "--test guest -- --test-threads=1 --ignored bochs::";
    tests(&mut cargo(&format!("test --locked --package radixvm --features guest {tests_of_bochs}")))
}

/// Every crate with a test named `loom`, under the model checker.
fn loom() -> Result<Tally> {
    let mut command = cargo("test --locked --release --no-fail-fast --test loom");
    command.args(packages_with("loom")?.iter().flat_map(|name| ["--package", name]));
    command.arg("--target-dir").arg(target_dir("loom")).env("RUSTFLAGS", "--cfg loom");
    tests(&mut command)
}

/// The crates that have a test of this name.
fn packages_with(test: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("crates"))? {
        let folder = entry?.path();
        let tests = folder.join("tests");
        if tests.join(test).with_extension("rs").exists() || tests.join(test).exists() {
            names.push(format!("radixvm-{}", folder.file_name().unwrap_or_default().to_string_lossy()));
        }
    }
    names.sort();
    Ok(names)
}

/// The crates with unsafe code, under the interpreter that checks every access. It forgets dead borrows more often than it
/// would by itself: the words of nodes are reached by many short ones.
fn miri() -> Result<Tally> {
    if !nightly_has("miri --version") {
        println!("skipped: no nightly toolchain with Miri here (rustup toolchain install nightly -c miri)");
        return Ok(Tally::skip());
    }
    // Miri runs one thread at a time. The radix map takes about as long as all others together.
    let others = ["sync", "percore", "refcache", "rcu", "bonsai", "baselines"];
    tests_of_both(&mut interpreted(&["radixmap"]), &mut interpreted(&others))
}

/// Miri on these crates.
fn interpreted(crates: &[&str]) -> Command {
    let mut command = cargo("miri test --locked --no-fail-fast");
    command.args(crates.iter().map(|name| format!("--package=radixvm-{name}")));
    command
        .arg("--target-dir")
        .arg(target_dir("miri"))
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-provenance-gc=2000");
    command
}
