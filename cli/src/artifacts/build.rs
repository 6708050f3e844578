//! Building with cargo.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::stamp::{Stale, Stamp};
use super::{Built, Package};
use crate::place;
use crate::progress::Step;

/// The lines of cargo's JSON that matter here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    target: Option<Target>,
    #[serde(default)]
    fresh: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    #[serde(default)]
    crate_types: Vec<String>,
}

/// Builds a package, every binary or the shared library, and leaves a stamp.
pub fn build(package: &Package, stamp: &Stamp, why: &Stale) -> Result<Built> {
    check_writable(package, why)?;
    ensure_tools()?;
    let begin = stamp.begin();
    let built =
        run_cargo(package).with_context(|| format!("the {} cannot be built ({why})", package.what))?;
    // Without a stamp the next call asks cargo again.
    let _ = begin.and_then(|begin| stamp.write(begin, &built));
    Ok(built)
}

/// Fails if cargo cannot write, with a message that says what is out of date and what to do. Cargo's own
/// message would be about a lock file.
fn check_writable(package: &Package, why: &Stale) -> Result<()> {
    let target = place::target();
    let nearest = target.ancestors().find(|folder| folder.exists()).unwrap_or(&target);
    ensure!(
        place::can_be_written(&target),
        "the {} must be built ({why}), and {} cannot be written: run this command once where it can, or set \
         CARGO_TARGET_DIR to a folder that can be written",
        package.what,
        nearest.display()
    );
    Ok(())
}

/// Calls the launcher to install missing compilers. It reports those that it cannot install.
pub fn ensure_tools() -> Result<()> {
    let launcher = place::root().join("radixvm");
    let mut command = Command::new(&launcher);
    let status = command.arg("__tools").stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {}", launcher.display()))?;
    ensure!(status.success(), "something that cargo needs is missing: see above");
    Ok(())
}

fn run_cargo(package: &Package) -> Result<Built> {
    let doing = format!("building the {}", package.what);
    let step = Step::quiet(&doing);
    let mut cargo = command(package).spawn().context("cannot start cargo")?;
    let complaints = complaints(&mut cargo);
    let built = read_messages(&mut cargo, &step, &doing);
    let status = cargo.wait()?;
    let complaints = complaints.join().expect("the reader does not panic");
    if !status.success() {
        bail!("cargo failed:\n{complaints}");
    }
    Ok(built)
}

fn command(package: &Package) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(place::root());
    command.args(["build", "--locked", "--message-format=json-render-diagnostics"]);
    command.args(["--profile", package.profile, "--package", package.name]);
    if let Some(target) = package.target {
        command.args(["--target", target]);
    }
    if let Some(feature) = package.feature {
        command.args(["--features", feature]);
    }
    // Settings of a test run or a model checker for the host must not reach the guests' builds.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_BUILD_TARGET");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Collects cargo's messages, which are shown only if it fails.
fn complaints(cargo: &mut Child) -> thread::JoinHandle<String> {
    let mut stderr = cargo.stderr.take().expect("piped");
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn read_messages(cargo: &mut Child, step: &Step, doing: &str) -> Built {
    let mut built = BTreeMap::new();
    let mut announced = false;
    let lines = BufReader::new(cargo.stdout.take().expect("piped")).lines().map_while(Result::ok);
    for message in lines.filter_map(|line| serde_json::from_str::<Message>(&line).ok()) {
        let Message { reason, executable, filenames, target: Some(target), fresh } = message else {
            continue;
        };
        if reason != "compiler-artifact" {
            continue;
        }
        if !fresh && !announced {
            step.announce(doing);
            announced = true;
        }
        step.tell(&format!("{doing}: {}", target.name));
        let file = executable.or_else(|| shared_library(&target, filenames));
        built.extend(file.map(|path| (target.name, path)));
    }
    built
}

/// Returns a library that is made to be loaded. Macros are shared libraries too.
fn shared_library(target: &Target, files: Vec<PathBuf>) -> Option<PathBuf> {
    let loadable = target.crate_types.iter().any(|kind| kind == "cdylib");
    files.into_iter().find(|file| loadable && file.extension().is_some_and(|end| end == "so"))
}
