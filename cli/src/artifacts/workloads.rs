//! The pthread programs of `user/workloads`, which the C compiler of this machine builds, with its C library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use super::build::ensure_tools;
use crate::place;

/// Names the programs, in the order of the paper's table 1.
pub const WORKLOADS: [&str; 10] = [
    "string_match",
    "histogram",
    "linear_regression",
    "matrix_multiply",
    "kmeans",
    "pca",
    "swaptions",
    "fluidanimate",
    "blackscholes",
    "dedup",
];

/// The program beside them that measures costs of threads.
pub const OF_THREADS: &str = "threads";

/// The name of the folder of those that are built or installed.
pub const FOLDER: &str = "workloads";

/// Returns a program. It is compiled if it is not there, or older than its source.
pub fn workload(name: &str) -> Result<PathBuf> {
    if let Some(installed) = place::installed() {
        return Ok(installed.join(FOLDER).join(name));
    }
    let sources = place::root().join("user").join(FOLDER);
    let source = sources.join(name).with_extension("c");
    let folder = place::target().join(FOLDER);
    let program = folder.join(name);
    let newest = modified(&source)?.max(modified(&sources.join("workload.h"))?);
    if !modified(&program).is_ok_and(|built| built > newest) {
        ensure_tools()?;
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        compile(&source, &program)?;
    }
    Ok(program)
}

fn modified(file: &Path) -> Result<SystemTime> {
    fs::metadata(file).and_then(|about| about.modified()).with_context(|| file.display().to_string())
}

/// Compiles a program. It gets its name when it is complete, because other commands may compile it too.
fn compile(source: &Path, program: &Path) -> Result<()> {
    let half = program.with_extension(std::process::id().to_string());
    let mut compiler = Command::new("cc");
    compiler.args(["-O3", "-pthread", "-o"]).arg(&half).arg(source).arg("-lm").stdin(Stdio::null());
    let output = compiler.output().context("cannot start cc")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} cannot be compiled:\n{messages}", source.display());
    fs::rename(&half, program).with_context(|| program.display().to_string())
}
