//! The command `cargo xtask mutants logic CRATE [--shard K/N]` changes the logic of a crate at one place
//! after the other, by cargo-mutants, and runs the crate's tests on each mutant.
//!
//! All mutants of the larger crates take days. A shard is every N-th mutant, and the nightly tests run
//! another shard each day, so that all mutants have been run after N days.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::root;
use crate::shell::target_dir;

/// A crate with mutants of its logic.
struct Target {
    name: &'static str,
    /// Number of shards, so that one of them takes about an hour on two cores.
    shards: u64,
    /// The packages whose tests judge a mutant.
    judges: &'static [&'static str],
}

const TARGETS: [Target; 6] = [
    Target { name: "refcache", shards: 10, judges: &["radixvm-refcache"] },
    Target { name: "rcu", shards: 3, judges: &["radixvm-rcu"] },
    Target { name: "bonsai", shards: 4, judges: &["radixvm-bonsai"] },
    Target { name: "radixmap", shards: 40, judges: &["radixvm-radixmap"] },
    Target { name: "vm", shards: 80, judges: &["radixvm-vm", "radixvm-vm-testkit"] },
    Target { name: "vm-trees", shards: 20, judges: &["radixvm-vm-trees", "radixvm-vm-testkit"] },
];

/// Status of cargo-mutants if mutants survived, and if tests did not end.
const SURVIVED: i32 = 2;
const TIMED_OUT: i32 = 3;

/// Runs the mutants that the words after `mutants logic` ask for. Returns whether all of them were run.
pub fn run(words: &[&str]) -> Result<bool> {
    match words {
        [name] => shard_of(target(name)?, "0/1"),
        [name, "--shard", shard] => shard_of(target(name)?, shard),
        _ => bail!("mutants logic CRATE [--shard K/N]"),
    }
}

/// Returns the names of the crates.
pub fn crates() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|target| target.name)
}

/// Runs the shard of this day. Returns whether all of its mutants were run.
pub fn run_today(name: &str) -> Result<bool> {
    let target = target(name)?;
    let day = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / (24 * 60 * 60);
    shard_of(target, &format!("{}/{}", day % target.shards, target.shards))
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

/// Runs the mutants K, K + N, K + 2N and so on.
fn shard_of(target: &Target, shard: &str) -> Result<bool> {
    ensure!(is_possible(), "cargo-mutants is missing: cargo install cargo-mutants --locked");
    let folder = target_dir("mutants").join(folder_name(target.name, shard)?);
    let mut command = command(target, shard, &folder);
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    println!("{}, shard {shard}: the results are in {}", target.name, folder.display());
    Ok(matches!(status.code(), Some(0 | SURVIVED | TIMED_OUT)))
}

/// Returns a name such as `logic-refcache-3-of-10`.
fn folder_name(name: &str, shard: &str) -> Result<String> {
    let numbers = shard.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    let (k, n): (u64, u64) = numbers.with_context(|| format!("--shard {shard}: write K/N, such as 3/10"))?;
    ensure!(k < n, "--shard {shard}: K is 0 to N - 1");
    Ok(format!("logic-{name}-{k}-of-{n}"))
}

fn command(target: &Target, shard: &str, folder: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root()).args(["mutants", "--sharding", "round-robin"]);
    command.args(["--package", &format!("radixvm-{}", target.name), "--shard", shard]);
    command.args(target.judges.iter().map(|judge| format!("--test-package={judge}")));
    command.arg("--output").arg(folder);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_a_folder_of_its_own() {
        assert_eq!(folder_name("rcu", "2/3").unwrap(), "logic-rcu-2-of-3");
        for wrong in ["3/3", "1", "a/3", "1/", "1/0"] {
            assert!(folder_name("rcu", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_target_is_a_crate_with_mutants_of_its_own() {
        for target in &TARGETS {
            assert!(root().join("crates").join(target.name).join("src/lib.rs").exists(), "{}", target.name);
        }
        assert!(target("sync").is_err());
    }
}
