//! The suites of tests, the tiers that they make up, and running them.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, available_parallelism};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::lane::Lane;
use crate::shell::{cargo, target_dir, tests, tests_of_both};
use crate::tally::Tally;
use crate::{check, failures, mutants, root};

/// A suite of tests.
struct Suite {
    name: &'static str,
    /// Whether it runs beside the others. Guests leave cores idle while they boot and wait. Loom, Miri and
    /// the fuzz drivers use them, have target folders of their own, and ask no clock. Programs on this
    /// machine come after those, when nothing is compiled any more, and the benchmarks at the end: they boot
    /// guests, one at a time.
    beside: bool,
    run: Run,
}

/// Runs the tests with one of these parts in their names, or all, and shows their output in the lane.
type Run = fn(&[&str], &Lane) -> Result<Tally>;

impl Suite {
    const fn new(name: &'static str, run: Run) -> Self {
        Suite { name, beside: false, run }
    }

    const fn beside(name: &'static str, run: Run) -> Self {
        Suite { name, beside: true, run }
    }
}

/// The quick ones first. The last three take hours: they run only where they are named, and with `--nightly`.
const SUITES: [Suite; 12] = [
    Suite::new("check", check::all),
    Suite::new("unit", unit),
    Suite::beside("asan", asan),
    Suite::new("guest", guest),
    Suite::new("bochs", bochs),
    Suite::beside("loom", loom),
    Suite::beside("native", native),
    Suite::beside("miri", miri),
    Suite::beside("bench", bench),
    Suite::new("cpus", cpus),
    Suite::new("fuzz", fuzz),
    Suite::new("mutants", mutants),
];

/// The number of suites that a run without words includes.
const USUAL: usize = 9;

/// The guest tests of `--quick`: a program of each kind, each way that a run can end, and a few for the
/// memory.
const QUICK_GUESTS: [&str; 8] = [
    "binaries::musl::",
    "crashes::a_read_is",
    "hostile::bad_arguments",
    "launching::",
    "lifecycle::",
    "microbenchmarks::local_percore::cpus_2",
    "statuses::",
    "streams::stderr",
];

/// Runs the wanted tests: a tier, suites, or suites and parts of the names of tests. Without words, runs each
/// test once. The last line sums up. Returns whether nothing failed.
pub fn run(words: &[&str]) -> Result<bool> {
    match words {
        ["--quick"] => run_each(&[("check", &[]), ("unit", &[]), ("native", &[]), ("guest", &QUICK_GUESTS)]),
        ["--nightly"] => run_each(&SUITES.each_ref().map(|suite| (suite.name, &[][..]))),
        [] => run_each(&SUITES.each_ref().map(|suite| (suite.name, &[][..]))[..USUAL]),
        words => run_each(&chosen(words)?),
    }
}

/// Splits words into suites, which come first, and parts of the names of their tests.
fn chosen<'a>(words: &'a [&'a str]) -> Result<Vec<Part<'a>>> {
    let is_suite = |word: &&&str| SUITES.iter().any(|suite| suite.name == **word);
    let count = words.iter().take_while(is_suite).count();
    let (suites, names) = words.split_at(count);
    if let Some(option) = names.iter().find(|name| name.starts_with('-')) {
        bail!("{option}: not here; --quick and --nightly stand alone");
    }
    if suites.is_empty() {
        bail!(
            "{}: not a suite; suites are {}",
            words[0],
            SUITES.each_ref().map(|suite| suite.name).join(", ")
        );
    }
    Ok(suites.iter().map(|suite| (*suite, names)).collect())
}

/// A suite, and parts of the names of the tests to run. No part stands for all tests.
type Part<'a> = (&'a str, &'a [&'a str]);

/// A suite that was run: its name, what came out, and the seconds it took.
#[derive(Clone)]
struct Done {
    name: &'static str,
    tally: Tally,
    seconds: u64,
}

/// Runs the suites in two lanes at the same time. Shows the output of the second when the first has ended.
fn run_each(parts: &[Part<'_>]) -> Result<bool> {
    let is_beside = |(name, _): &Part<'_>| suite(name).beside;
    let (second, first): (Vec<_>, Vec<_>) = parts.iter().partition(|part| is_beside(part));
    let lane = Lane::held();
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| run_lane(&second, &lane));
        let one = run_lane(&first, &Lane::shown());
        lane.show();
        (one, other.join().expect("it does not panic"))
    });
    let done = [one?, other?].concat();
    let total = done.iter().fold(Tally::default(), |mut sum, suite| {
        sum += suite.tally.clone();
        sum
    });
    if total.is_empty() {
        bail!("no test has one of these words in its name: {}", parts[0].1.join(", "));
    }
    println!();
    done.iter().for_each(Done::print);
    println!("\ntests: {total}");
    Ok(total.failed == 0)
}

/// Runs suites one after the other.
fn run_lane(parts: &[Part<'_>], lane: &Lane) -> Result<Vec<Done>> {
    let run = |(name, names): &Part<'_>| {
        let suite = suite(name);
        lane.say(&format!("\n== {name}"));
        failures::forget(name)?;
        let start = Instant::now();
        let tally = (suite.run)(names, lane)?;
        Ok(Done { name: suite.name, tally, seconds: start.elapsed().as_secs() })
    };
    parts.iter().map(run).collect()
}

fn suite(name: &str) -> &'static Suite {
    SUITES.iter().find(|suite| suite.name == name).expect("only known suites get here")
}

impl Done {
    fn print(&self) {
        println!("{:<7} {} in {} s", self.name, self.tally, self.seconds);
        for log in &self.tally.logs {
            println!("  failed: {}", log.display());
            let output = fs::read_to_string(log).unwrap_or_default();
            failures::end_of(&output).iter().for_each(|line| println!("    {line}"));
        }
    }
}

/// Runs everything that needs no guest: crates, their property tests, the programs' own tests, on this
/// machine.
fn unit(names: &[&str], lane: &Lane) -> Result<Tally> {
    let mut command = cargo("test --locked --workspace --exclude radixvm-kernel --no-fail-fast");
    tests(lane, "unit", command.arg("--").args(names))
}

/// Runs tests that run programs on this machine under the runtime.
fn native(names: &[&str], lane: &Lane) -> Result<Tally> {
    let mut total = tests(lane, "native", natives("--skip soak::").args(names))?;
    // It keeps the machine busy, so the other programs do not run beside it.
    if names.is_empty() || names.iter().any(|name| SOAK.contains(name)) {
        total += tests(lane, "native", &mut natives("soak::"))?;
    }
    Ok(total)
}

/// The test of programs on a busy machine.
const SOAK: &str = "soak::a_mix_on_a_busy_machine_runs_as_plainly";

/// The same for all, so that no suite builds the command anew while tests of another one run it.
const FEATURES: &str = "--features guest,native";

fn natives(words: &str) -> Command {
    let mut command = cargo(&format!("test --locked --package radixvm {FEATURES} --test native --"));
    command.args(words.split_whitespace());
    command
}

/// The tests of `radixvm bench`, which boot hundreds of guests one after the other.
const BENCHES: [&str; 2] = ["calls::", "figures::"];

/// Runs tests that boot QEMU, except those of [`bench()`].
fn guest(names: &[&str], lane: &Lane) -> Result<Tally> {
    let mut command = guests(&format!("--test-threads={}", guests_at_once()));
    command.args(BENCHES.iter().flat_map(|name| ["--skip", name]));
    tests(lane, "guest", command.args(names))
}

/// Runs the tests of `radixvm bench`: all, or those of the modules with one of these parts in their names.
fn bench(names: &[&str], lane: &Lane) -> Result<Tally> {
    let is_wanted = |module: &&&str| names.is_empty() || names.iter().any(|name| module.contains(name));
    let modules: Vec<&str> = BENCHES.iter().filter(is_wanted).copied().collect();
    match modules.is_empty() {
        true => Ok(Tally::default()),
        false => tests(lane, "bench", guests("--test-threads=1").args(modules)),
    }
}

/// Returns the command for tests that boot guests, with these words for their runner.
fn guests(words: &str) -> Command {
    let mut command = cargo(&format!("test --locked --package radixvm {FEATURES} --test guest --"));
    command.args(words.split_whitespace());
    command
}

/// Returns the number of guests that run at a time: one for each two cores, because most guests have two CPUs
/// or more.
fn guests_at_once() -> usize {
    available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// The seconds that each driver runs under AddressSanitizer, unless the variable `FUZZ_SECONDS` says another
/// number.
const FUZZ_SECONDS: &str = "5";

/// Runs every test named `fuzz` under AddressSanitizer.
fn asan(names: &[&str], lane: &Lane) -> Result<Tally> {
    if !nightly_has("--version") {
        lane.say(
            "skipped: no nightly toolchain here, which AddressSanitizer needs (rustup toolchain install nightly)"
        );
        return Ok(Tally::skip());
    }
    let mut command = drivers()?;
    command.env("FUZZ_SECONDS", env::var("FUZZ_SECONDS").unwrap_or(FUZZ_SECONDS.to_owned()));
    tests(lane, "asan", command.args(names))
}

/// Returns the command for tests named `fuzz`, built with AddressSanitizer. Its leak detector needs to trace
/// threads, which containers often forbid, so the drivers count unfreed memory themselves.
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

/// Boots guests with every number of CPUs.
fn cpus(names: &[&str], lane: &Lane) -> Result<Tally> {
    tests(lane, "cpus", guests("--test-threads=1 --ignored --skip bochs:: --skip storms::").args(names))
}

/// Fuzzes for a long time: each driver under AddressSanitizer, each of the guest's storms on each number of
/// CPUs, and programs under pathreads on a busy machine for six times as long. A number before the names is
/// the minutes (10), unless `FUZZ_SECONDS` is set.
fn fuzz(words: &[&str], lane: &Lane) -> Result<Tally> {
    let minutes = words.first().and_then(|word| word.parse().ok());
    let names = &words[usize::from(minutes.is_some())..];
    let wanted = env::var("FUZZ_SECONDS").ok().map(|text| text.parse().context("FUZZ_SECONDS"));
    let seconds = wanted.transpose()?.unwrap_or(minutes.unwrap_or(10) * 60_u64);
    let longer = env::var("SOAK_SECONDS").unwrap_or_else(|_| (seconds * 6).to_string());
    let seconds = seconds.to_string();
    let mut storms = guests("--test-threads=1 --nocapture --ignored --skip bochs:: --skip scale::");
    storms.env("FUZZ_SECONDS", &seconds).args(names);
    let mut total = Tally::skip();
    if nightly_has("--version") {
        total = tests(lane, "fuzz", drivers()?.env("FUZZ_SECONDS", &seconds).arg("--nocapture").args(names))?;
    }
    total += tests(lane, "fuzz", &mut storms)?;
    let mut soak = natives("--nocapture --ignored");
    total += tests(lane, "fuzz", soak.env("SOAK_SECONDS", &longer).args(names))?;
    Ok(total)
}

/// Weakens the atomic orderings of each crate that has loom models, and runs today's shard of the mutants of
/// logic, for the crates with one of these parts in their names. A crate counts as a test that passes if all
/// of its mutants were run: a person judges the mutants that survive.
fn mutants(names: &[&str], _: &Lane) -> Result<Tally> {
    let wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part));
    let mut total = Tally::default();
    for package in packages_with("loom")? {
        let name = package.trim_start_matches("radixvm-");
        if wanted(name) {
            total += Tally::one(mutants::orderings(&[name])?);
        }
    }
    if !mutants::logic::is_possible() {
        println!("skipped: no cargo-mutants here (cargo install cargo-mutants --locked)");
        total += Tally::skip();
        return Ok(total);
    }
    for name in mutants::logic::crates().filter(|name| wanted(name)) {
        total += Tally::one(mutants::logic::run_today(name)?);
    }
    Ok(total)
}

/// Returns whether the nightly toolchain is here and has this command.
fn nightly_has(words: &str) -> bool {
    // Where there is no rustup, the variable says nothing and the toolchain answers that is there.
    let answer = |words| cargo(words).env("RUSTUP_TOOLCHAIN", "nightly").output();
    let is_nightly =
        answer("--version").is_ok_and(|output| output.stdout.windows(7).any(|part| part == b"nightly"));
    is_nightly && answer(words).is_ok_and(|output| output.status.success())
}

/// Runs the tests for CPU features that QEMU's translator lacks.
fn bochs(names: &[&str], lane: &Lane) -> Result<Tally> {
    if !has_bochs() {
        lane.say("skipped: no Bochs here (apt-get install bochs bochsbios vgabios)");
        return Ok(Tally::skip());
    }
    tests(lane, "bochs", guests("--test-threads=1 --ignored --skip scale:: --skip storms::").args(names))
}

/// Returns whether Bochs is installed, and its two ROM images, which are packages of their own.
fn has_bochs() -> bool {
    let share = env::var_os("BXSHARE").map_or_else(|| "/usr/share/bochs".into(), PathBuf::from);
    let has_roms = ["BIOS-bochs-latest", "VGABIOS-lgpl-latest"].iter().all(|rom| share.join(rom).exists());
    has_roms && Command::new("bochs-bin").arg("--help").output().is_ok()
}

/// Runs the models of every crate with a test named `loom`, and those of radixmap that need wider nodes.
fn loom(names: &[&str], lane: &Lane) -> Result<Tally> {
    let test = || cargo("test --locked --release --no-fail-fast --test loom");
    let mut all = test();
    all.args(packages_with("loom")?.iter().flat_map(|name| ["--package", name]));
    all.arg("--target-dir").arg(target_dir("loom")).env("RUSTFLAGS", "--cfg loom");
    let mut wide = test();
    wide.args(["--package", "radixvm-radixmap", "--target-dir"]).arg(target_dir("loom-wide"));
    wide.env("RUSTFLAGS", "--cfg loom --cfg loom_wide");
    let mut tally = tests(lane, "loom", all.arg("--").args(names))?;
    tally += tests(lane, "loom-wide", wide.arg("--").args(names))?;
    Ok(tally)
}

/// Crates with models that do not lie under crates/.
const WITH_MODELS: [&str; 1] = ["pathreads"];

/// Returns the crates that have a test of this name.
fn packages_with(test: &str) -> Result<Vec<String>> {
    let mut folders: Vec<PathBuf> = WITH_MODELS.map(|name| root().join(name)).into();
    for entry in std::fs::read_dir(root().join("crates"))? {
        folders.push(entry?.path());
    }
    let mut names = Vec::new();
    for folder in folders {
        let tests = folder.join("tests");
        if tests.join(test).with_extension("rs").exists() || tests.join(test).exists() {
            names.push(format!("radixvm-{}", folder.file_name().unwrap_or_default().to_string_lossy()));
        }
    }
    names.sort();
    Ok(names)
}

/// Runs the crates with unsafe code under Miri, which checks every access. It collects dead borrows more
/// often than by default, because nodes' words are reached by many short borrows.
fn miri(names: &[&str], lane: &Lane) -> Result<Tally> {
    if !nightly_has("miri --version") {
        lane.say("skipped: no nightly toolchain with Miri here (rustup toolchain install nightly -c miri)");
        return Ok(Tally::skip());
    }
    // Miri runs one thread at a time. The radix map takes about as long as all others together.
    let others = ["sync", "percore", "refcache", "rcu", "bonsai", "baselines", "iamalloc"];
    let (mut map, mut others) = (interpreted(&["radixmap"]), interpreted(&others));
    tests_of_both(lane, "miri", map.args(names), others.args(names))
}

/// Returns a command that runs Miri on these crates.
fn interpreted(crates: &[&str]) -> Command {
    let mut command = cargo("miri test --locked --no-fail-fast");
    command.args(crates.iter().map(|name| format!("--package=radixvm-{name}")));
    command
        .arg("--target-dir")
        .arg(target_dir("miri"))
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-provenance-gc=2000")
        .arg("--");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_suites_and_then_parts_of_names() {
        assert_eq!(chosen(&["guest", "memory"]).unwrap(), [("guest", &["memory"][..])]);
        assert_eq!(chosen(&["unit", "loom"]).unwrap(), [("unit", &[][..]), ("loom", &[])]);
        for wrong in [&["memory"][..], &["--quick", "guest"], &["guest", "--quick"]] {
            assert!(chosen(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_suites_that_take_hours_come_last() {
        assert_eq!(
            SUITES[USUAL..].iter().map(|suite| suite.name).collect::<Vec<_>>(),
            ["cpus", "fuzz", "mutants"]
        );
    }
}
