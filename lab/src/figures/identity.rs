//! The machine and the build of a result.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Serialize;

use launch::place;

/// The identity of a result, for the JSON and the page.
#[derive(Clone, Debug, Serialize)]
pub struct Identity {
    /// The commit, with `-dirty` if files have changed since.
    pub commit: String,
    /// The processor's name.
    pub processor: String,
    /// The number of processors.
    pub processors: usize,
    /// The kernel of the host.
    pub host: String,
}

impl Identity {
    /// Returns that of this machine and this clone.
    pub fn here() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Identity {
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
            processor: processor().unwrap_or_else(|| "unknown".to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            host: format!("Linux {}", release.trim().split('-').next().unwrap_or_default()),
        }
    }
}

/// Returns a digest of the contents of these files.
pub fn digest(files: &[PathBuf]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        fs::read(file).with_context(|| file.display().to_string())?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]).current_dir(place::root());
    let output = git.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(": ")?.1.to_owned())
}
