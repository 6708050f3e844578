//! Runs cargo and git.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result};

use crate::failures::Failures;
use crate::lane::Lane;
use crate::root;
use crate::tally::Tally;

/// Returns a command that runs cargo with these words in the repository's root.
pub fn cargo(words: &str) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root()).args(words.split_whitespace());
    command
}

/// Returns the target directory for an unusual purpose, so that the usual builds stay valid.
pub fn target_dir(purpose: &str) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join(purpose)
}

/// Returns the files that git knows or would add and whose names match one of `patterns`.
pub fn tracked(patterns: &[&str]) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "--cached", "--others", "--exclude-standard"]).args(patterns);
    let output = git.output().context("cannot run git")?;
    let names = String::from_utf8(output.stdout)?;
    let paths = names.lines().map(|name| root().join(name));
    Ok(paths.filter(|path| path.exists()).collect())
}

/// Returns whether a command succeeds.
pub fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    Ok(status.success())
}

/// Runs tests of a suite, shows their output in the lane, counts them, and keeps the output of those that
/// fail. A run that fails without a failed test counts as one: it did not build, or died.
pub fn tests(lane: &Lane, suite: &str, command: &mut Command) -> Result<Tally> {
    command.stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    let (mut tally, mut failures) = (Tally::default(), Failures::of(suite));
    for line in BufReader::new(child.stdout.take().expect("piped")).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        tally.hear(&line);
        failures.hear(&line)?;
        lane.say(&line);
    }
    if !child.wait()?.success() && tally.failed == 0 {
        tally.failed = 1;
    }
    tally.logs = failures.finish()?;
    Ok(tally)
}

/// Runs two commands as [`tests`] does, at the same time. Shows the output of the second when the first has
/// ended.
pub fn tests_of_both(lane: &Lane, suite: &str, first: &mut Command, second: &mut Command) -> Result<Tally> {
    let later = Lane::held();
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| tests(&later, suite, second));
        (tests(lane, suite, first), other.join().expect("it does not panic"))
    });
    later.take().iter().for_each(|line| lane.say(line));
    let mut both = one?;
    both += other?;
    Ok(both)
}
