//! `radixvm why`: where the kernel makes a program slow with more threads, by the places in the program.
//!
//! ```text
//!   program, libraries ──▶ guest of each system ── plugin ──▶ sites: call, instruction, stack, counts
//!        │                                                      │
//!        └──▶ modules: files, symbols, unwind tables ──▶ places in words ──▶ comparison, verdict, page
//! ```
//!
//! The program needs no markers: without them everything from its start to its end counts.

mod modules;
mod page;
mod place;
mod words;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use abi::config::Huge;
use anyhow::{Context, Result};
use serde::Serialize;

use super::experiment::Tools;
use super::model;
use super::names::Kernel;
use super::output::{Output, TRANSFERS};
use super::plugin::Settings;
use super::run::{self, Guest, Run};
use crate::guest::file_arg::FileArg;
use crate::guest::libraries;
use crate::guest::system::{self, Job, System};
use crate::program::Program;
use crate::progress::Step;
pub use modules::Frame;
use modules::Modules;
pub use page::page;
pub use words::{text, verdict};

/// The places of a system in the results.
const PLACES: usize = 300;
/// The kernel's functions of each.
const FUNCTIONS: usize = 4;
/// The frames of each.
const FRAMES: usize = 12;

/// A program, and the systems on which to ask why it is slow.
pub struct Question {
    /// The program, by an absolute path.
    pub program: Program,
    /// Its name as the user gave it, and its arguments. `{cpus}` stands for the number of CPUs.
    pub argv: Vec<OsString>,
    /// Its environment, `K=V` each.
    pub environment: Vec<OsString>,
    /// The files that it sees besides itself and its libraries.
    pub files: Vec<FileArg>,
    /// The folders that are searched for libraries before others.
    pub library_path: OsString,
    /// The number of CPUs.
    pub cpus: u16,
    /// The bytes of memory of every guest.
    pub memory: u64,
    /// The systems.
    pub systems: Vec<System>,
    /// The option for huge pages, on either kernel.
    pub huge: Huge,
    /// The instructions that a CPU may run ahead.
    pub slack: u64,
}

/// The counts of a program on one system.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The system's name in tables.
    pub system: String,
    /// Set if it is the stock kernel.
    pub is_linux: bool,
    /// The version of its kernel.
    pub kernel: String,
    /// Virtual CPUs.
    pub cpus: u16,
    /// Set if the program has marked its rounds: then counts are from the first to the last round only.
    pub marked: bool,
    /// The times that a CPU could not be kept in step with the others.
    pub escapes: u64,
    /// Instructions of the program.
    pub user_instructions: u64,
    /// Instructions of the kernel.
    pub kernel_instructions: u64,
    /// Cache lines that a CPU took from another in the program's own code.
    pub user_lines: u64,
    /// Cache lines that a CPU took from another in the kernel.
    pub kernel_lines: u64,
    /// Interrupts that CPUs sent to each other.
    pub interrupts: u64,
    /// The part of all cycles that the kernel's lines and interrupts take by the cost model, 0 to 1.
    pub kernel_part: f64,
    /// The part of all cycles that the program's own lines take, 0 to 1.
    pub user_part: f64,
    /// The kernel's counts by call, those with most lines first.
    pub calls: Vec<Counts>,
    /// The kernel's counts by call and place, those with most lines first.
    pub places: Vec<Place>,
    /// The program's own instructions that took most lines.
    pub own: Vec<Own>,
}

/// The kernel's counts for one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// The call, or another cause.
    pub call: String,
    /// The number of calls.
    pub count: u64,
    /// Instructions of the kernel.
    pub instructions: u64,
    /// Lines that the CPU took from another.
    pub lines: u64,
    /// Copies that other CPUs lost.
    pub invalidations: u64,
    /// Interrupts sent.
    pub interrupts: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.count += other.count;
        self.instructions += other.instructions;
        self.lines += other.lines;
        self.invalidations += other.invalidations;
        self.interrupts += other.interrupts;
    }

    /// Returns the cycles that its lines and interrupts take by the cost model.
    pub fn cycles(&self, cpus: u16) -> f64 {
        let cpus = f64::from(cpus);
        self.lines as f64 * model::WRITE.cycles(cpus) + self.interrupts as f64 * model::answer(cpus)
    }

    /// Returns a count per call.
    pub fn per_call(&self, count: u64) -> f64 {
        count as f64 / self.count.max(1) as f64
    }
}

/// The kernel's counts for one place in the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// The place in words.
    pub place: String,
    /// The functions between it and the kernel, the outermost first.
    pub via: Vec<String>,
    /// The callers, the innermost first.
    pub frames: Vec<Frame>,
    /// The kernel's functions that took most lines, and how many.
    pub kernel: Vec<(String, u64)>,
}

/// A place in the program whose own accesses took lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Own {
    /// The place in words.
    pub place: String,
    /// The lines.
    pub lines: u64,
}

impl Question {
    /// Runs the program on every system.
    pub fn answer(&self) -> Result<Vec<Measured>> {
        let job = self.job()?;
        let tools = Tools::prepare(&self.systems)?;
        let step = Step::new("asking why");
        let measured = self.systems.iter().map(|system| {
            let what = format!("{} on {system} with {} CPUs", self.program.name(), self.cpus);
            step.tell(&what);
            self.measure(&tools, *system, &job).context(what)
        });
        measured.collect()
    }

    /// Returns the job: the program and its libraries at their own paths, on either system.
    pub fn job(&self) -> Result<Job> {
        let argv = self.argv.iter().map(|word| match word.to_str() {
            Some(word) => word.replace("{cpus}", &self.cpus.to_string()).into(),
            None => word.clone(),
        });
        let mut job = Job::new(self.program.clone(), []);
        job.argv = argv.collect();
        job.envp = system::environment(self.environment.iter().cloned());
        job.is_at_own_path = true;
        job.files = libraries::of(&self.program.path, &self.library_path)?;
        let is_new = |file: &&FileArg| !job.files.iter().any(|known| known.guest == file.guest);
        let given: Vec<_> = self.files.iter().filter(is_new).cloned().collect();
        job.files.extend(given);
        Ok(job)
    }

    fn settings(&self) -> Settings {
        Settings { cpus: self.cpus, memory: self.memory, slack: self.slack, rounds: 0, sites: true }
    }

    fn measure(&self, tools: &Tools, system: System, job: &Job) -> Result<Measured> {
        let kernel = tools.kernel(system)?;
        let guest = Guest { system, kernel, plugin: &tools.plugin, huge: self.huge };
        let Run { output, .. } = run::run(&guest, job, self.settings())?;
        let files: Vec<PathBuf> = [self.program.path.clone()]
            .into_iter()
            .chain(job.files.iter().map(|file| file.host.clone()))
            .collect();
        let modules = Modules::find(&files, &output.code);
        Ok(measured(system, &system.version()?, &output, kernel, &modules))
    }
}

fn measured(system: System, version: &str, output: &Output, kernel: &Kernel, modules: &Modules) -> Measured {
    let total = |privilege: &str, names: &[&str]| -> u64 {
        let totals =
            output.totals.iter().filter(|total| privilege.is_empty() || total.privilege == privilege);
        totals.flat_map(|total| names.iter().filter_map(|name| total.counts.get(*name))).sum()
    };
    let places = place::places(&output.sites, kernel, modules);
    let mut measured = Measured {
        system: system.to_string(),
        is_linux: system == System::Linux,
        kernel: version.to_owned(),
        cpus: output.cpus,
        marked: output.marked,
        escapes: output.escapes,
        user_instructions: total("user", &["instructions"]),
        kernel_instructions: total("kernel", &["instructions"]),
        user_lines: total("user", &TRANSFERS),
        kernel_lines: total("kernel", &TRANSFERS),
        interrupts: total("", &["ipis_sent"]),
        kernel_part: 0.0,
        user_part: 0.0,
        calls: calls(&places),
        places,
        own: own(output, modules),
    };
    measured.places.truncate(PLACES);
    measured.weigh();
    measured
}

impl Measured {
    /// Computes the parts of all cycles by the cost model, without the lines that idle CPUs take.
    fn weigh(&mut self) {
        let cpus = f64::from(self.cpus);
        let line = model::WRITE.cycles(cpus);
        let busy = self.kernel_lines.saturating_sub(self.call(place::OTHER).lines);
        let kernel = busy as f64 * line + self.interrupts as f64 * model::answer(cpus);
        let user = self.user_lines as f64 * line;
        let work = (self.user_instructions + self.kernel_instructions) as f64 / model::IPC;
        let all = (kernel + user + work).max(1.0);
        (self.kernel_part, self.user_part) = (kernel / all, user / all);
    }

    /// Returns the counts of a call, or zeros.
    pub fn call(&self, name: &str) -> Counts {
        let found = self.calls.iter().find(|counts| counts.call == name).cloned();
        found.unwrap_or_else(|| Counts { call: name.to_owned(), ..Counts::default() })
    }

    /// Returns the counts of a call at a place, or zeros.
    pub fn at(&self, place: &Place) -> Counts {
        let same = |other: &&Place| other.counts.call == place.counts.call && other.place == place.place;
        let found = self.places.iter().find(same).map(|place| place.counts.clone());
        found.unwrap_or_else(|| Counts { call: place.counts.call.clone(), ..Counts::default() })
    }
}

/// Adds the counts of each call.
fn calls(places: &[Place]) -> Vec<Counts> {
    let mut calls: BTreeMap<&str, Counts> = BTreeMap::new();
    for place in places {
        let call = &place.counts.call;
        let counts = calls.entry(call).or_insert_with(|| Counts { call: call.clone(), ..Counts::default() });
        counts.add(&place.counts);
    }
    let mut calls: Vec<Counts> = calls.into_values().collect();
    calls.sort_by_key(|counts| std::cmp::Reverse((counts.lines, counts.interrupts, counts.instructions)));
    calls
}

/// Returns the places of the program's own accesses that took most lines.
fn own(output: &Output, modules: &Modules) -> Vec<Own> {
    let mut places: BTreeMap<String, u64> = BTreeMap::new();
    let pairs = output.lines.iter().flat_map(|line| &line.pairs);
    for pair in pairs.filter(|pair| pair.to.0 < super::names::KERNEL_HALF) {
        let frame = modules.at(pair.to.0).into_iter().next();
        *places.entry(frame.map_or_else(|| "?".to_owned(), |frame| frame.describe())).or_default() +=
            pair.count;
    }
    let mut own: Vec<Own> = places.into_iter().map(|(place, lines)| Own { place, lines }).collect();
    own.sort_by_key(|own| std::cmp::Reverse(own.lines));
    own.truncate(FRAMES);
    own
}

#[cfg(test)]
mod tests {
    use super::words::tests::example;
    use super::*;

    #[test]
    fn lines_of_idle_cpus_cost_no_cycles() {
        let mut one = example().remove(1);
        one.interrupts = 0;
        one.weigh();
        assert!(one.kernel_part > 0.5, "{}", one.kernel_part);
        let call = place::OTHER.to_owned();
        one.calls = vec![Counts { call, lines: one.kernel_lines, ..Counts::default() }];
        one.weigh();
        assert_eq!(one.kernel_part, 0.0);
    }

    #[test]
    fn counts_of_a_call_are_those_of_its_places() {
        let places = example().remove(1).places;
        let twice: Vec<Place> = places.iter().chain(&places).cloned().collect();
        let calls = calls(&twice);
        assert_eq!((calls[0].call.as_str(), calls[0].lines, calls[0].count), ("munmap", 28_200, 200));
        assert_eq!(calls.len(), 3);
        assert_eq!(calls[0].per_call(calls[0].lines), 141.0);
    }
}
