//! The kernel and the programs for guests, built by cargo when they are not up to date.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::place;
use crate::progress::Step;

const KERNEL: Package = Package {
    name: "radixvm-kernel",
    target: Some("x86_64-unknown-none"),
    what: "building the kernel",
    profile: "release",
};
const USER: Package = Package {
    name: "radixvm-user",
    target: Some("x86_64-unknown-linux-musl"),
    what: "building the programs",
    profile: "release",
};
const METER: Package =
    Package { name: "radixvm-meter", target: None, what: "building the meter", profile: "release" };
/// With the profile of this command, whose dependencies it shares.
const LABORATORY: Package =
    Package { name: "radixvm-lab", target: None, what: "building the laboratory", profile: "dev" };

struct Package {
    name: &'static str,
    /// None: this machine.
    target: Option<&'static str>,
    what: &'static str,
    profile: &'static str,
}

/// Binaries by name.
type Built = BTreeMap<String, PathBuf>;

/// The kernel's ELF file.
pub fn kernel() -> Result<PathBuf> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    let built = once(&BUILT, &KERNEL)?;
    built.values().next().cloned().context("cargo built no kernel")
}

/// The programs for guests.
pub fn programs() -> Result<&'static Built> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    once(&BUILT, &USER)
}

/// One of the programs for guests.
pub fn program(name: &str) -> Result<PathBuf> {
    programs()?.get(name).cloned().with_context(|| format!("user/ has no program {name}"))
}

/// The plugin that meters guests, loaded by QEMU.
pub fn meter() -> Result<PathBuf> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    let built = once(&BUILT, &METER)?;
    built.values().next().cloned().context("cargo built no plugin")
}

/// The command behind `radixvm bench`.
pub fn laboratory() -> Result<PathBuf> {
    build(&LABORATORY)?.remove(LABORATORY.name).context("cargo built no laboratory")
}

/// Asks cargo once in the life of this process.
fn once(built: &'static OnceLock<Built>, package: &Package) -> Result<&'static Built> {
    match built.get() {
        Some(built) => Ok(built),
        None => build(package).map(|fresh| built.get_or_init(|| fresh)),
    }
}

/// Whether `name` is one of the programs in `user/`: asked of the sources, so that nothing is built for a no.
pub fn is_bundled(name: &str) -> bool {
    let source = place::root().join("user/src/bin").join(name);
    !name.contains('/') && (source.with_extension("rs").is_file() || source.join("main.rs").is_file())
}

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

/// Builds a package: every binary, or the shared library.
fn build(package: &Package) -> Result<Built> {
    let step = Step::quiet(package.what);
    let mut cargo = command(package).spawn().context("cannot start cargo")?;
    let complaints = complaints(&mut cargo);
    let built = read_messages(&mut cargo, &step, package.what);
    let status = cargo.wait()?;
    let complaints = complaints.join().expect("the reader does not panic");
    if !status.success() {
        bail!("{} failed:\n{complaints}", package.what);
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
    // What a test run or a model checker set for the host must not reach the guests' builds.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_BUILD_TARGET");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Collects what cargo says to people; shown only if it fails.
fn complaints(cargo: &mut Child) -> thread::JoinHandle<String> {
    let mut stderr = cargo.stderr.take().expect("piped");
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn read_messages(cargo: &mut Child, step: &Step, what: &str) -> Built {
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
            step.announce(what);
            announced = true;
        }
        step.tell(&format!("{what}: {}", target.name));
        let file = executable.or_else(|| shared_library(&target, filenames));
        built.extend(file.map(|path| (target.name, path)));
    }
    built
}

/// A library that is made to be loaded; macros are shared libraries too.
fn shared_library(target: &Target, files: Vec<PathBuf>) -> Option<PathBuf> {
    let loadable = target.crate_types.iter().any(|kind| kind == "cdylib");
    files.into_iter().find(|file| loadable && file.extension().is_some_and(|end| end == "so"))
}

/// Whether rustup has a target installed, as far as files can tell.
pub fn has_target(sysroot: &Path, target: &str) -> bool {
    sysroot.join("lib/rustlib").join(target).join("lib").is_dir()
}

/// The targets that guests are built for.
pub fn targets() -> [&'static str; 2] {
    [KERNEL.target, USER.target].map(|target| target.expect("guests are not this machine"))
}
