//! Runs the checks of the repository's rules.

use std::process::Command;

use anyhow::Result;

use crate::lane::Lane;
use crate::shell::{cargo, succeeds};
use crate::tally::Tally;
use crate::{arrows, language, links, linux_calls, packages, results, rooms};

/// The name of a check and its function.
type Check = (&'static str, fn() -> Result<bool>);

/// The runtime for stock Linux, which builds for the host leave out.
const RUNTIME: &str = "--package radixvm-pathreads --features runtime --target x86_64-unknown-none";

const CHECKS: [Check; 13] = [
    ("formatting", || succeeds(&mut cargo("fmt --all --check"))),
    ("clippy, host", || {
        succeeds(&mut clippy(
            "--workspace --exclude radixvm-kernel --all-targets --features radixvm/guest,radixvm/native",
        ))
    }),
    ("clippy, kernel", || succeeds(&mut clippy("--package radixvm-kernel --target x86_64-unknown-none"))),
    ("clippy, runtime", || succeeds(&mut clippy(RUNTIME))),
    ("crates can be packaged", packages::check),
    ("unsafe code in its rooms only", rooms::check),
    ("rooms name only those below", arrows::check),
    ("files of crates have an order", arrows::check_files),
    ("ARCHITECTURE.md shows the rooms", arrows::check_pictures),
    ("docs/guide/linux-calls.md is the kernel's table", linux_calls::check),
    ("links of the pages lead somewhere", links::check),
    ("language of comments, pages and messages", language::check),
    ("counts of README.md are those of docs/results", results::check),
];

/// Runs the checks with one of these parts in their name, or all if there are none. Each counts as a test.
pub fn all(names: &[&str], lane: &Lane) -> Result<Tally> {
    let mut tally = Tally::default();
    for (name, check) in CHECKS {
        if names.is_empty() || names.iter().any(|part| name.contains(part)) {
            let good = check()?;
            lane.say(&format!("check {name} ... {}", if good { "ok" } else { "FAILED" }));
            tally += Tally::one(good);
        }
    }
    Ok(tally)
}

fn clippy(what: &str) -> Command {
    let mut command = cargo("clippy --locked --quiet");
    command.args(what.split_whitespace()).args(["--", "--deny", "warnings"]);
    command
}

/// Builds the API pages. A broken link is an error.
pub fn api_pages() -> Result<bool> {
    let mut command = cargo("doc --locked --no-deps");
    succeeds(command.env("RUSTDOCFLAGS", "--deny warnings"))
}
