//! The command `cargo xtask mutants logic CRATE` changes the logic of a crate at one place after the other,
//! and runs the tests on each mutant until one fails.
//!
//! cargo-mutants lists the mutants. Most of them are put into one build, each behind a switch (see
//! `switches.rs`), because a build for each mutant would take days. The others, such as changes of constants,
//! are built one at a time. The results stay in `target/mutants/logic-CRATE.tsv`, and the next call continues
//! from there. They are discarded when the crate's source changes.
//!
//! A shard is every N-th mutant. The nightly tests run another shard each day.

mod build;
mod judge;
mod listing;
mod switches;

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use super::digest;
use super::models::Models;
use super::results::{Outcome, Results};
use super::tree::Tree;
use build::{Binary, Builder, Built, Kind};
use judge::Judges;
use listing::Mutant;

use crate::root;

/// A crate with mutants of its logic.
struct Target {
    name: &'static str,
    /// Number of shards. One of radixmap takes about an hour on two busy cores. The others are guesses from
    /// the number of mutants and the time of the tests.
    shards: usize,
    /// The packages whose tests judge a mutant.
    judges: &'static [&'static str],
}

impl Target {
    /// Returns the path of the crate's `lib.rs`.
    fn root_file(&self) -> PathBuf {
        PathBuf::from(format!("crates/{}/src/lib.rs", self.name))
    }

    /// Returns the paths of the roots of the crate's tests that are folders, such as its loom models.
    fn test_roots(&self) -> Vec<PathBuf> {
        let tests = PathBuf::from(format!("crates/{}/tests", self.name));
        let entries = fs::read_dir(root().join(&tests)).into_iter().flatten().flatten();
        let roots = entries.map(|entry| tests.join(entry.file_name()).join("main.rs"));
        roots.filter(|path| root().join(path).is_file()).collect()
    }

    /// Returns the words for cargo that build the tests.
    fn words_for_tests(&self) -> String {
        let judges: String = self.judges.iter().map(|judge| format!(" --package {judge}")).collect();
        format!("test --no-run --lib --tests{judges}")
    }
}

const TARGETS: [Target; 6] = [
    Target { name: "refcache", shards: 1, judges: &["radixvm-refcache"] },
    Target { name: "rcu", shards: 1, judges: &["radixvm-rcu"] },
    Target { name: "bonsai", shards: 1, judges: &["radixvm-bonsai"] },
    Target { name: "radixmap", shards: 2, judges: &["radixvm-radixmap"] },
    Target { name: "vm", shards: 8, judges: &["radixvm-vm", "radixvm-vm-testkit"] },
    Target { name: "vm-trees", shards: 2, judges: &["radixvm-vm-trees", "radixvm-vm-testkit"] },
];

/// The parsed command line.
struct Request<'a> {
    target: &'a Target,
    /// The mutants K, K + N, K + 2N and so on.
    shard: (usize, usize),
    /// Only the mutants with this text in their names, whether they have been tried or not.
    only: Option<&'a str>,
    /// Whether the mutants that survived are tried again.
    survivors: bool,
    /// Whether the loom models judge, instead of the other tests. They run on the mutants that survived.
    models: bool,
    /// Whether only mutants that have builds of their own are run.
    alone: bool,
}

impl<'a> Request<'a> {
    /// Requests all mutants that have not been tried.
    fn of(target: &'a Target) -> Self {
        Request { target, shard: (0, 1), only: None, survivors: false, models: false, alone: false }
    }

    fn parse(words: &[&'a str]) -> Result<Self> {
        let (name, mut rest) = words.split_first().context("which crate?")?;
        let mut request = Request::of(target(name)?);
        while let Some((option, after)) = rest.split_first() {
            rest = after;
            let mut value = || {
                let (value, after) = rest.split_first().with_context(|| format!("{option} what?"))?;
                rest = after;
                Ok::<_, anyhow::Error>(*value)
            };
            match *option {
                "--shard" => request.shard = parse_shard(value()?)?,
                "--only" => request.only = Some(value()?),
                "--survivors" => request.survivors = true,
                "--models" => request.models = true,
                "--alone" => request.alone = true,
                unknown => {
                    bail!(
                        "there is no option {unknown}: --shard K/N, --only TEXT, --survivors, --models, --alone"
                    )
                }
            }
        }
        Ok(request)
    }

    /// Returns whether this mutant is to be run, after `before` was its outcome.
    fn wants(&self, mutant: &Mutant, before: Option<&Outcome>) -> bool {
        match (self.only, before) {
            (Some(text), _) => mutant.name.contains(text),
            (None, None) => !self.models && mutant.id as usize % self.shard.1 == self.shard.0,
            (None, Some(outcome)) => (self.survivors || self.models) && *outcome == Outcome::Survived,
        }
    }
}

/// Runs the mutants that the words after `mutants logic` ask for. Returns whether all of them were run.
pub fn run(words: &[&str]) -> Result<bool> {
    run_request(&Request::parse(words)?)
}

/// Returns the names of the crates.
pub fn crates() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|target| target.name)
}

/// Runs the shard of this day. Returns whether all of its mutants were run.
pub fn run_today(name: &str) -> Result<bool> {
    let target = target(name)?;
    let day = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / (24 * 60 * 60);
    let shard = (usize::try_from(day)? % target.shards, target.shards);
    run_request(&Request { shard, ..Request::of(target) })
}

/// Returns whether cargo-mutants is installed.
pub fn is_possible() -> bool {
    Command::new("cargo-mutants")
        .args(["mutants", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn target(name: &str) -> Result<&'static Target> {
    let known = || crates().collect::<Vec<_>>().join(", ");
    TARGETS
        .iter()
        .find(|target| target.name == name)
        .with_context(|| format!("{name}: not one of {}", known()))
}

/// Reads a shard such as `3/10`.
fn parse_shard(shard: &str) -> Result<(usize, usize)> {
    let numbers = shard.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    let (k, n) = numbers.with_context(|| format!("--shard {shard}: write K/N, such as 3/10"))?;
    ensure!(k < n, "--shard {shard}: K is 0 to N - 1");
    Ok((k, n))
}

fn run_request(request: &Request<'_>) -> Result<bool> {
    ensure!(is_possible(), "cargo-mutants is missing: cargo install cargo-mutants --locked");
    let name = request.target.name;
    let mutants = listing::mutants_of(&format!("radixvm-{name}"))?;
    let tree = Tree::update()?;
    let builder = Builder::new(&tree, request.target, &mutants)?;
    let mut results = Results::open(&format!("logic-{name}"), digest(builder.texts()))?;
    let wanted: Vec<&Mutant> =
        mutants.iter().filter(|mutant| request.wants(mutant, results.outcome(&mutant.name))).collect();
    if request.models {
        judge_by_models(&builder, &mutants, &wanted, &mut results)?;
    } else {
        judge(request, &builder, &mutants, &wanted, &mut results)?;
    }
    println!("{name}: {}", results.summary(mutants.iter().map(|mutant| &mutant.name)));
    Ok(true)
}

/// Runs the tests on the mutants `wanted`.
fn judge(
    request: &Request<'_>,
    builder: &Builder<'_>,
    all: &[Mutant],
    wanted: &[&Mutant],
    results: &mut Results,
) -> Result<()> {
    let Built { switched, unbuilt, binaries } = builder.build_all(Kind::Tests, all)?;
    let judges = Judges::measure(binaries)?;
    println!("the tests take {} s", judges.time().as_secs());
    let (hopeless, wanted): (Vec<_>, Vec<_>) =
        wanted.iter().copied().partition(|mutant| unbuilt.contains(&mutant.id));
    hopeless.into_iter().try_for_each(|mutant| record(results, mutant, Outcome::Unbuilt))?;
    let (together, alone) = divide(&wanted, &switched);
    if !request.alone {
        judge_together(&together, results, |mutant| judges.judge(mutant))?;
    }
    judge_alone(builder, Kind::Tests, &alone, results, |binaries| judges.with(&binaries).judge(0))
}

/// Runs the loom models on the mutants `wanted`.
fn judge_by_models(
    builder: &Builder<'_>,
    all: &[Mutant],
    wanted: &[&Mutant],
    results: &mut Results,
) -> Result<()> {
    let paths = |binaries: Vec<Binary>| binaries.into_iter().map(|binary| binary.path).collect::<Vec<_>>();
    let Built { switched, binaries, .. } = builder.build_all(Kind::Models, all)?;
    let binaries = paths(binaries);
    let models = Models::measure(&binaries, results)?;
    let (together, alone) = divide(wanted, &switched);
    judge_together(&together, results, |mutant| models.judge(&binaries, mutant))?;
    judge_alone(builder, Kind::Models, &alone, results, |binaries| models.judge(&paths(binaries), 0))
}

/// Divides mutants into those behind switches and those with builds of their own.
fn divide<'a>(wanted: &[&'a Mutant], switched: &BTreeSet<u32>) -> (Vec<&'a Mutant>, Vec<&'a Mutant>) {
    let (together, alone): (Vec<_>, Vec<_>) = wanted.iter().partition(|mutant| switched.contains(&mutant.id));
    println!("{} mutants are in one build, {} have builds of their own", together.len(), alone.len());
    (together, alone)
}

/// Judges mutants of one build, as many at the same time as there are cores.
fn judge_together(
    mutants: &[&Mutant],
    results: &mut Results,
    judge: impl Fn(u32) -> Result<Outcome> + Sync,
) -> Result<()> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(results));
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = judge(mutant.id)?;
            record(&mut results.lock().expect("no thread panicked"), mutant, outcome)?;
        }
        Ok(())
    };
    let workers = available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

/// Judges mutants with builds of their own, one after the other.
fn judge_alone(
    builder: &Builder<'_>,
    kind: Kind,
    mutants: &[&Mutant],
    results: &mut Results,
    judge: impl Fn(Vec<Binary>) -> Result<Outcome>,
) -> Result<()> {
    for mutant in mutants {
        let outcome = builder.build_one(kind, mutant)?.map_or(Ok(Outcome::Unbuilt), &judge)?;
        record(results, mutant, outcome)?;
    }
    Ok(())
}

fn record(results: &mut Results, mutant: &Mutant, outcome: Outcome) -> Result<()> {
    println!("{} {}: {outcome}", mutant.id, mutant.name);
    results.record(&mutant.name, outcome)
}
