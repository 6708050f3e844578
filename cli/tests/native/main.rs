//! Tests of `radixvm native`: programs behave as without it. Rules in C (`pathreads/conformance`) and
//! programs of the distribution are run plainly and under the runtime, and their output and status are
//! compared.

mod command;
mod programs;
mod rules;
#[path = "../skipped.rs"]
mod skipped;
mod soak;
mod workloads;

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The ways to run a program: plainly, with the pool, and with the pool and `--strict`.
const WAYS: [&[&str]; 3] = [&[], &["--pool"], &["--strict"]];

/// Returns the runtime, which is built first if it has to be.
fn runtime() -> &'static Path {
    static RUNTIME: OnceLock<PathBuf> = OnceLock::new();
    RUNTIME.get_or_init(|| launch::artifacts::runtime().expect("the runtime can be built"))
}

/// Returns a command that runs a program in one of the ways. `timeout` ends it when it hangs.
fn in_way(way: &[&str], program: impl AsRef<OsStr>) -> Command {
    in_way_for(600, way, program)
}

/// Returns one that may run for this number of seconds.
fn in_way_for(seconds: u32, way: &[&str], program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=10").arg(seconds.to_string());
    if !way.is_empty() {
        command.arg(runtime()).args(way).arg("--");
    }
    command.arg(program).stdin(Stdio::null());
    command
}

/// The output and the end of a run.
#[derive(PartialEq, Eq)]
struct Seen {
    status: Option<i32>,
    signal: Option<i32>,
    text: String,
    messages: String,
}

impl From<Output> for Seen {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Seen {
            status: output.status.code(),
            signal: output.status.signal(),
            text: text(&output.stdout),
            messages: text(&output.stderr),
        }
    }
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Seen { status, signal, text, messages } = self;
        write!(f, "status {status:?}, signal {signal:?}\n{text}{messages}")
    }
}

/// Runs a command and returns what is seen of it.
fn see(mut command: Command) -> Seen {
    command.output().expect("the program starts").into()
}
