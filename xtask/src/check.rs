//! What a machine can see of the house rules.

use std::process::Command;

use anyhow::Result;

use crate::shell::{cargo, succeeds};
use crate::tally::Tally;
use crate::{linux_calls, packages, rooms};

/// All checks; each counts as a test.
pub fn all() -> Result<Tally> {
    let mut tally = Tally::default();
    tally += step("formatting", &mut cargo("fmt --all --check"))?;
    tally += step("clippy, host", &mut clippy("--workspace --exclude radixvm-kernel --all-targets"))?;
    tally += step("clippy, kernel", &mut clippy("--package radixvm-kernel --target x86_64-unknown-none"))?;
    tally += said("crates can be packaged", packages::check()?);
    tally += said("unsafe code in its rooms only", rooms::check()?);
    tally += said("docs/linux-calls.md is the kernel's table", linux_calls::check()?);
    Ok(tally)
}

fn clippy(what: &str) -> Command {
    let mut command = cargo("clippy --locked --quiet");
    command.args(what.split_whitespace()).args(["--", "--deny", "warnings"]);
    command
}

fn step(name: &str, command: &mut Command) -> Result<Tally> {
    Ok(said(name, succeeds(command)?))
}

fn said(name: &str, good: bool) -> Tally {
    println!("check {name} ... {}", if good { "ok" } else { "FAILED" });
    Tally::one(good)
}

/// Builds the API pages; a broken link is an error.
pub fn api_pages() -> Result<bool> {
    let mut command = cargo("doc --locked --no-deps");
    succeeds(command.env("RUSTDOCFLAGS", "--deny warnings"))
}
