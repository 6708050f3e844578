//! Measuring one program in one guest by its own report.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use abi::config::Huge;
use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::artifacts;
use crate::guest::channels::Sink;
use crate::guest::file_arg::FileArg;
use crate::guest::qemu::Accel;
use crate::guest::session::{self, End};
use crate::guest::system::{self, Job, Size, Streams, System};
use crate::program::Program;

/// The time limit of a benchmark.
const LIMIT: Duration = Duration::from_secs(600);

/// A program with its options, and the files it reads.
#[derive(Clone)]
pub struct Task {
    /// The name of a program in `user/`.
    pub program: &'static str,
    /// Its options, without `--json`.
    pub arguments: Vec<String>,
    /// Files that have the same path in the guest.
    pub files: Vec<String>,
}

/// The report of a program with `--json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// The length of the measured window.
    pub seconds: f64,
    /// The pages that were faulted in.
    pub minor_faults: u64,
    /// The regions unmapped in the window, or 0 for programs that do not work in rounds.
    #[serde(default)]
    pub rounds: u64,
    /// A digest of the result, if the program has one.
    pub digest: Option<String>,
    /// The kernel's counters over the window. Those of what is in use, such as pages of tables, may have
    /// fallen.
    #[serde(default)]
    pub counters: Option<BTreeMap<String, i64>>,
}

impl Report {
    /// Returns a counter of events by its name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.as_ref()?.get(name)?.to_owned().try_into().ok()
    }

    /// Returns the interrupts sent to other cores.
    pub fn ipis(&self) -> Option<u64> {
        self.counter("ipis").or_else(|| self.counter("function_calls"))
    }

    /// Returns the faults that took a new frame.
    pub fn alloc_faults(&self) -> u64 {
        self.counter("alloc_faults").unwrap_or(self.minor_faults)
    }

    /// Returns the faults on pages that already had a frame.
    pub fn fill_faults(&self) -> Option<u64> {
        self.counter("fill_faults")
    }
}

/// Runs a task and returns its report.
pub fn measure(system: System, huge: Huge, task: &Task, size: Size) -> Result<Report> {
    let named = || format!("{} on {system} with {} CPUs", task.program, size.cpus);
    run(system, huge, task, size).with_context(named)
}

fn run(system: System, huge: Huge, task: &Task, size: Size) -> Result<Report> {
    let (stdout, stderr) = (Sink::buffer(), Sink::buffer());
    let streams = Streams { stdout: stdout.clone(), stderr: stderr.clone(), stdin: false };
    let mut plan = system::plan(system, &job(task)?, size, streams)?;
    plan.command_line += &system::huge(system, huge);
    plan.limit = Some(LIMIT);
    let outcome = session::run_unwatched(plan)?;
    if outcome.end != End::Exited(0) {
        bail!("{:?}: {}", outcome.end, String::from_utf8_lossy(&stderr.take()).trim());
    }
    let output = stdout.take();
    serde_json::from_slice(&output)
        .with_context(|| format!("no report: {}", String::from_utf8_lossy(&output)))
}

fn job(task: &Task) -> Result<Job> {
    let program = Program::load(&artifacts::program(task.program)?)?;
    let arguments = task.arguments.iter().map(String::as_str).chain(["--json"]);
    let mut job = Job::new(program, arguments.map(OsString::from));
    job.files = task.files.iter().map(|file| FileArg::parse(file)).collect::<Result<_>>()?;
    Ok(job)
}

/// Returns the accelerator for measurements, which is KVM if it works.
pub fn accel() -> Result<Accel> {
    let works = crate::guest::kvm::trouble(Path::new(&artifacts::kernel()?))?.is_none();
    Ok(if works { Accel::Kvm } else { Accel::Tcg })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kernels_counters_are_understood() {
        let ours = r#"{"seconds":1,"tsc":5,"minor_faults":0,"rounds":2,"counters":{"ipis":3,"ipi_targets":4,
            "alloc_faults":5,"fill_faults":6,"table_pages":-5},"program":"local"}"#;
        let ours: Report = serde_json::from_str(ours).unwrap();
        assert_eq!((ours.ipis(), ours.counter("ipi_targets")), (Some(3), Some(4)));
        assert_eq!((ours.alloc_faults(), ours.fill_faults()), (5, Some(6)));
        assert_eq!((ours.counters.as_ref().unwrap()["table_pages"], ours.counter("table_pages")), (-5, None));
        let linux =
            r#"{"seconds":1,"tsc":5,"minor_faults":7,"counters":{"tlb_shootdowns":4,"function_calls":9}}"#;
        let linux: Report = serde_json::from_str(linux).unwrap();
        assert_eq!((linux.ipis(), linux.counter("tlb_shootdowns")), (Some(9), Some(4)));
        assert_eq!((linux.alloc_faults(), linux.fill_faults(), linux.rounds), (7, None, 0));
    }
}
