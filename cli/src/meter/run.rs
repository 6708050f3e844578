//! One metered run: a guest with the plugin, and the plugin's results.

use std::path::Path;
use std::time::Duration;

use abi::config::Huge;
use anyhow::{Context, Result, bail, ensure};

use super::names::Kernel;
use super::output::Output;
use super::plugin::{Scratch, Settings};
use crate::guest::boot_clock;
use crate::guest::channels::Sink;
use crate::guest::protocol::Owners;
use crate::guest::qemu::Accel;
use crate::guest::session::{self, End, Farewell, Outcome, Plan};
use crate::guest::system::{self, Job, Size, Streams, System};
use crate::terminal;

/// An option of the stock kernel: its lists of free pages per CPU are made as long as possible. At their
/// usual length they sometimes fill up with pages of another kind during the boot. Then every fault fetches,
/// and every unmap returns, a batch of 63 pages under the zone's lock, which takes 35,000 instructions and
/// hundreds of transfers in a round of `local`.
const LINUX: &str = " sysctl.vm.percpu_pagelist_high_fraction=8";

/// The time limit of a run.
const LIMIT: Duration = Duration::from_secs(3600);

/// The results of a run.
pub struct Run {
    /// The counts.
    pub output: Output,
    /// The owners of physical memory, from our kernel.
    pub owners: Option<Owners>,
    /// The program's standard output.
    pub stdout: Vec<u8>,
}

impl Run {
    /// Returns whether the CPUs were kept in step. On a busy machine a CPU is let go at times. Medians and
    /// means are not affected as long as that is at most one round in fifty.
    pub fn in_step(&self) -> bool {
        let rounds = self.output.rounds().len() as u64;
        self.output.escapes <= 20 + rounds / 50
    }
}

/// A kernel for the meter.
pub struct Guest<'a> {
    /// The system.
    pub system: System,
    /// Its symbols.
    pub kernel: &'a Kernel,
    /// The plugin's file.
    pub plugin: &'a Path,
    /// The option for huge pages.
    pub huge: Huge,
}

/// Runs a job with the plugin. If the guest does not boot, starts another one: about one in several hundred
/// stock kernels does not.
pub fn run(guest: &Guest<'_>, job: &Job, settings: Settings) -> Result<Run> {
    boot(|| Attempt::new(guest, job, settings))?.result(job)
}

fn boot(mut attempt: impl FnMut() -> Result<Attempt>) -> Result<Attempt> {
    let first = attempt()?;
    let End::Unbooted(why) = &first.outcome.end else { return Ok(first) };
    terminal::message(format_args!("once more: {why}"));
    attempt()
}

/// A guest that has ended, and its results.
struct Attempt {
    outcome: Outcome,
    stdout: Sink,
    stderr: Sink,
    scratch: Scratch,
}

impl Attempt {
    fn new(guest: &Guest<'_>, job: &Job, settings: Settings) -> Result<Self> {
        let scratch = Scratch::new()?;
        let (stdout, stderr) = (Sink::buffer(), Sink::buffer());
        let streams = Streams { stdout: stdout.clone(), stderr: stderr.clone(), stdin: false };
        let outcome = session::run_unwatched(plan(guest, job, settings, streams, &scratch)?)?;
        Ok(Self { outcome, stdout, stderr, scratch })
    }

    /// Returns the plugin's counts, if the program succeeded.
    fn result(self, job: &Job) -> Result<Run> {
        match self.outcome.end {
            End::Exited(0) | End::Enough => {}
            end => bail!("{}", failure(&job.program.name(), &end, &self.stderr.take())),
        }
        let output = Output::read(&self.scratch.counts())?;
        ensure!(
            output.ignored_windows == 0,
            "the program marks {} windows more: one can be counted",
            output.ignored_windows
        );
        ensure!(
            !output.rounds().is_empty(),
            "no round lies wholly in the window: let the program do more of them (--iterations)"
        );
        Ok(Run { output, owners: self.outcome.owners, stdout: self.stdout.take() })
    }
}

fn plan(
    guest: &Guest<'_>,
    job: &Job,
    settings: Settings,
    streams: Streams,
    scratch: &Scratch,
) -> Result<Plan> {
    let Settings { cpus, memory, .. } = settings;
    let mut plan = system::plan(guest.system, job, Size { cpus, memory, accel: Accel::Tcg }, streams)?;
    adapt(&mut plan, guest.system, guest.huge);
    // Our kernel reports at the end what its memory was used for. The stock one has nothing more to report.
    plan.wanted = (guest.system == System::Linux && settings.rounds > 0).then(|| scratch.counts());
    // Every instruction of the boot is watched, too: with 4 CPUs that takes 5 of these 140 s.
    plan.boot_limit = boot_clock::limit_or(Duration::from_secs(60 + 20 * u64::from(cpus)));
    plan.limit = Some(LIMIT);
    plan.plugin =
        Some(scratch.plugin(guest.plugin, settings, guest.kernel).context("cannot set up the meter")?);
    Ok(plan)
}

/// Applies the differences from a guest that is not metered.
fn adapt(plan: &mut Plan, system: System, huge: Huge) {
    plan.farewell = Farewell::Asked;
    // The places of regions decide the shape of trees of regions, and so their cost.
    plan.command_line += " norandmaps";
    plan.command_line += &system::huge(system, huge);
    match system {
        System::Radixvm(..) => {
            // As for Linux: without the hypervisor bit waiters do not nap, and programs clear and copy by
            // words.
            plan.machine.cpu_model = system::CPU_MODEL;
            plan.command_line += " meter";
        }
        System::Linux => plan.command_line += LINUX,
    }
}

/// Describes the end of the program, with its output on stderr.
fn failure(program: &str, end: &End, stderr: &[u8]) -> String {
    let how = match end {
        End::Exited(status) => format!("{program} ended with status {status}"),
        End::Killed(signal) => format!("signal {signal} killed {program}"),
        End::Failed(why) | End::Unbooted(why) => why.clone(),
        End::Refused(why) => format!("{program} cannot be run: {why}"),
        End::Enough => "stopped".to_owned(),
        End::Interrupted(signal) => format!("interrupted by signal {signal}"),
    };
    let said = String::from_utf8_lossy(stderr);
    if said.trim().is_empty() { how } else { format!("{how}; it said:\n{}", said.trim_end()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::output::tests::FIXTURE;

    #[test]
    fn a_guest_that_does_not_boot_is_tried_once_more() {
        let unbooted = || End::Unbooted("the guest did not boot within 9 s".to_owned());
        for (ends, last) in [
            (vec![End::Exited(0)], End::Exited(0)),
            (vec![End::Failed(String::new())], End::Failed(String::new())),
            (vec![End::Exited(3), unbooted()], End::Exited(3)),
            (vec![unbooted(), unbooted()], unbooted()),
        ] {
            let mut ends = ends;
            let attempt = boot(|| {
                let end = ends.pop().unwrap();
                let outcome = Outcome { end, stats: None, crash: None, owners: None, lost_changes: false };
                Ok(Attempt {
                    outcome,
                    stdout: Sink::buffer(),
                    stderr: Sink::buffer(),
                    scratch: Scratch::new()?,
                })
            });
            assert_eq!(attempt.unwrap().outcome.end, last);
            assert!(ends.is_empty(), "{ends:?}");
        }
    }

    #[test]
    fn a_failing_program_is_heard() {
        let text = failure("mine", &End::Exited(2), b"mine: no such option\n");
        assert_eq!(text, "mine ended with status 2; it said:\nmine: no such option");
        assert_eq!(failure("mine", &End::Killed(11), b""), "signal 11 killed mine");
    }

    #[test]
    fn many_escapes_spoil_a_run() {
        let with = |escapes: u64| {
            let text = FIXTURE.replace(r#""escapes":0"#, &format!(r#""escapes":{escapes}"#));
            Run { output: Output::parse(&text).unwrap(), owners: None, stdout: Vec::new() }
        };
        assert!(with(20).in_step() && !with(21).in_step());
    }
}
