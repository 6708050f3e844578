//! A program on several systems with several numbers of CPUs: runs, repeats, and the results in order.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use abi::config::Huge;
use anyhow::{Context, Result};

use super::benchmarks;
use super::blame;
use super::kallsyms::Kallsyms;
use super::names::{Kernel, Loaded, Names};
use super::output::Output;
use super::owner;
use super::plugin::Settings;
use super::row::{Cell, Label};
use super::run::{self, Guest, Run};
use super::statistics::{Summary, median};
use crate::artifacts;
use crate::exit_status::is_interrupt;
use crate::guest::file_arg::FileArg;
use crate::guest::qemu;
use crate::guest::system::{self, Job, System};
use crate::program::Program;
use crate::progress::Step;

/// A program, the systems and the numbers of CPUs to run it on, and the number of runs.
pub struct Experiment {
    /// The text of the progress step.
    pub step: String,
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments. `{cpus}` stands for the number of CPUs, `{rounds}` for the rounds of a thread, and
    /// `{warmup}` for the rounds that it does before.
    pub arguments: Vec<String>,
    /// The rounds of all threads together.
    pub rounds: u64,
    /// Its files.
    pub files: Vec<FileArg>,
    /// Its environment, `K=V` each.
    pub environment: Vec<OsString>,
    /// The numbers of CPUs.
    pub cpus: Vec<u16>,
    /// The systems.
    pub systems: Vec<System>,
    /// The runs of every combination, of which the median one counts.
    pub repeats: u32,
    /// The bytes of memory of every guest.
    pub memory: u64,
    /// The option for huge pages, on either kernel.
    pub huge: Huge,
    /// The instructions that a CPU may run ahead. The default is [`benchmarks::SLACK`], or less if rounds are
    /// short.
    pub slack: Option<u64>,
}

/// The plugin, and the kernels with their symbols and versions.
pub(super) struct Tools {
    pub(super) plugin: PathBuf,
    ours: Option<Kernel>,
    linux: Option<Kernel>,
    qemu: String,
}

impl Experiment {
    /// Runs everything, and returns the results by system, then by CPUs. The first combination that fails is
    /// an error.
    pub fn run(&self) -> Result<Vec<Cell>> {
        self.cells(Err)
    }

    /// Does the same, but skips a combination that fails and adds its error to `refused`. The other results
    /// are kept.
    pub fn run_what_can_be(&self, refused: &mut Vec<anyhow::Error>) -> Result<Vec<Cell>> {
        self.cells(|error| {
            refused.push(error);
            Ok(())
        })
    }

    fn cells(&self, mut refuse: impl FnMut(anyhow::Error) -> Result<()>) -> Result<Vec<Cell>> {
        let tools = Tools::prepare(&self.systems)?;
        let step = Step::new(&self.step);
        let mut runs: BTreeMap<(usize, u16), Vec<Cell>> = BTreeMap::new();
        let plan = self.plan();
        for (number, &(cpus, place)) in plan.iter().enumerate() {
            let system = self.systems[place];
            let what = format!("{} on {system} with {cpus} CPUs", self.name());
            step.tell(&format!("run {} of {}: {what}", number + 1, plan.len()));
            // An error of the program or its files would be the same every time.
            let job = self.job(system, cpus)?;
            match self.cell(&tools, system, cpus, &job) {
                Ok(cell) => runs.entry((place, cpus)).or_default().push(cell),
                Err(error) if is_interrupt(&error) => return Err(error.context(what)),
                Err(error) => refuse(error.context(what))?,
            }
        }
        Ok(runs.into_values().filter_map(|cells| median(cells, Cell::cost)).collect())
    }

    /// Returns all runs in their order, each a number of CPUs and an index into the list of systems.
    fn plan(&self) -> Vec<(u16, usize)> {
        let systems = 0..self.systems.len();
        let once = self.cpus.iter().flat_map(|cpus| systems.clone().map(|system| (*cpus, system)));
        let once: Vec<_> = once.collect();
        once.repeat(self.repeats as usize)
    }

    fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn cell(&self, tools: &Tools, system: System, cpus: u16, job: &Job) -> Result<Cell> {
        let kernel = tools.kernel(system)?;
        let slack = self.slack.unwrap_or(benchmarks::SLACK);
        let settings = Settings { cpus, memory: self.memory, slack, rounds: self.window(cpus), sites: false };
        let guest = Guest { system, kernel, plugin: &tools.plugin, huge: self.huge };
        let Run { output, owners, stdout } = self.fine_enough(&guest, job, settings)?;
        let begin = output.begin.map(|address| address.0);
        let names = Names { kernel, program: Loaded::new(&self.program, &job.program.bytes, begin) };
        let blame = blame::name(&output.lines, output.ended(), owners.as_ref(), &names);
        let label = Label {
            program: &job.program.name(),
            system,
            huge: self.huge,
            qemu: &tools.qemu,
            kernel: &system.version()?,
        };
        let mut cell = Cell { stdout, ..Cell::new(&label, &output, blame) };
        cell.row.by_owner = owner::transfers(&output.lines, output.ended(), owners.as_ref());
        Ok(cell)
    }

    /// Repeats a run with a smaller slack until its rounds are long beside the slack, unless the user has
    /// chosen the slack.
    fn fine_enough(&self, guest: &Guest<'_>, job: &Job, mut settings: Settings) -> Result<Run> {
        loop {
            let run = in_step(guest, job, settings)?;
            let Some(coarse) = TooCoarse::find(&run.output) else { return Ok(run) };
            if self.slack.is_some() || coarse.most() < LEAST_SLACK {
                return Err(coarse.into());
            }
            settings.slack = coarse.next();
        }
    }

    /// Returns the number of rounds to count. The threads do more. If the window ended when the first thread
    /// is done, the fastest one would decide in how many rounds the others are seen.
    fn window(&self, cpus: u16) -> u64 {
        let chosen = self.arguments.iter().any(|word| word.contains("{rounds}"));
        if chosen { rounds_each(self.rounds, cpus) * u64::from(cpus) } else { 0 }
    }

    fn job(&self, system: System, cpus: u16) -> Result<Job> {
        let program = Program::load(&self.program)?;
        let share = rounds_each(self.rounds, cpus);
        // Locks of the stock kernel are not fair.
        let rounds = share * if system == System::Linux { 16 } else { 2 };
        let numbers = [("{cpus}", cpus.into()), ("{rounds}", rounds), ("{warmup}", (share / 4).max(8))];
        let arguments = self.arguments.iter().map(|word| fill(word, &numbers).into());
        let mut job = Job::new(program, arguments);
        job.files = self.files.clone();
        job.envp = system::environment(self.environment.iter().cloned());
        Ok(job)
    }
}

/// Returns a run whose CPUs were kept in step. If the machine was too busy, tries a second time.
fn in_step(guest: &Guest<'_>, job: &Job, settings: Settings) -> Result<Run> {
    let first = run::run(guest, job, settings)?;
    if first.in_step() {
        return Ok(first);
    }
    let second = run::run(guest, job, settings)?;
    if second.in_step() {
        return Ok(second);
    }
    let (escapes, rounds) = (second.output.escapes, second.output.rounds().len());
    Err(OutOfStep { escapes, rounds, slack: settings.slack }.into())
}

/// The error that this machine was too busy to keep the guest's CPUs in step.
#[derive(Debug)]
struct OutOfStep {
    escapes: u64,
    rounds: usize,
    slack: u64,
}

impl fmt::Display for OutOfStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfStep { escapes, rounds, slack } = self;
        write!(
            f,
            "{escapes} times in {rounds} rounds a CPU could not be kept within {slack} instructions of the others, twice: \
             this machine is too busy; try again, with fewer --cpus, or with a larger --slack"
        )
    }
}

impl std::error::Error for OutOfStep {}

/// The least length of a round in slacks. In shorter rounds the order of accesses is decided by the host.
const SLACKS_OF_A_ROUND: u64 = 5;
/// The least slack. CPUs are kept in step block by block, and a block has a few instructions.
const LEAST_SLACK: u64 = 4;

/// The error that rounds are too short for the slack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooCoarse {
    round: u64,
    slack: u64,
}

impl TooCoarse {
    /// Returns the error if a run is too coarse. A single CPU needs no slack, and a run without marks is one
    /// long round.
    fn find(output: &Output) -> Option<Self> {
        let rounds = output.rounds().into_iter().map(|round| round.instructions());
        let coarse = TooCoarse { round: Summary::of(rounds).median as u64, slack: output.slack };
        (output.cpus > 1 && output.marked && coarse.slack > coarse.most()).then_some(coarse)
    }

    /// Returns the largest slack that these rounds allow.
    fn most(self) -> u64 {
        self.round / SLACKS_OF_A_ROUND
    }

    /// Returns the slack to try next. It is much less, because rounds that wait for each other become
    /// shorter.
    fn next(self) -> u64 {
        self.most().min(self.slack / 4).max(LEAST_SLACK)
    }
}

impl fmt::Display for TooCoarse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooCoarse { round, slack } = self;
        write!(f, "a round has {round} instructions, which is too short for a slack of {slack}: ")?;
        match self.most() {
            most @ LEAST_SLACK.. => write!(f, "give --slack {most} or less, or leave it to the command"),
            _ => write!(f, "let each round do more"),
        }
    }
}

impl std::error::Error for TooCoarse {}

/// Returns the rounds of each thread: its share, but enough for percentiles.
fn rounds_each(all: u64, cpus: u16) -> u64 {
    (all / u64::from(cpus)).max(24)
}

fn fill(word: &str, numbers: &[(&str, u64)]) -> String {
    numbers.iter().fold(word.to_owned(), |word, (name, number)| word.replace(name, &number.to_string()))
}

impl Tools {
    /// Builds, fetches and reads everything that the systems need, before the first run.
    pub(super) fn prepare(systems: &[System]) -> Result<Self> {
        let plugin = artifacts::meter()?;
        let ours = systems.iter().any(|system| *system != System::Linux);
        let ours = ours.then(|| Kernel::ours(&artifacts::kernel()?)).transpose()?;
        let linux = systems.contains(&System::Linux).then(Kallsyms::load).transpose()?;
        Ok(Tools { plugin, ours, linux: linux.map(Kernel::Linux), qemu: qemu_version()? })
    }

    /// Returns the kernel of a system.
    pub(super) fn kernel(&self, system: System) -> Result<&Kernel> {
        let kernel = if system == System::Linux { &self.linux } else { &self.ours };
        kernel.as_ref().context("this system was not prepared")
    }
}

/// Returns QEMU's version, which it prints as `QEMU emulator version 7.2.0 (...)`.
fn qemu_version() -> Result<String> {
    let output = Command::new(qemu::program()).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", qemu::program()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text
        .split("version ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or("?")
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::output::tests::FIXTURE;

    #[test]
    fn arguments_know_the_number_of_cpus() {
        let numbers = [("{cpus}", 8), ("{rounds}", 5)];
        assert_eq!(fill("--threads={cpus}", &numbers), "--threads=8");
        assert_eq!(fill("{rounds}", &numbers), "5");
        assert_eq!((rounds_each(2000, 4), rounds_each(2000, 128)), (500, 24));
    }

    /// Returns the result for the fixture's run, whose rounds have 2,920 instructions, with another slack.
    fn coarse(slack: u64, change: [&str; 2]) -> Option<TooCoarse> {
        let text = FIXTURE.replace("\"slack\":200", &format!("\"slack\":{slack}"));
        TooCoarse::find(&Output::parse(&text.replacen(change[0], change[1], 1)).unwrap())
    }

    #[test]
    fn a_round_has_a_few_slacks() {
        let as_it_is = ["", ""];
        assert_eq!(coarse(584, as_it_is), None);
        let found = coarse(1000, as_it_is).unwrap();
        assert_eq!((found, found.most(), found.next()), (TooCoarse { round: 2920, slack: 1000 }, 584, 250));
        assert!(
            found.to_string().ends_with("give --slack 584 or less, or leave it to the command"),
            "{found}"
        );
        assert_eq!(coarse(1000, [r#""marked":true"#, r#""marked":false"#]), None);
        assert_eq!(coarse(1000, [r#""cpus":2"#, r#""cpus":1"#]), None);
        let tiny = TooCoarse { round: 12, slack: 4 };
        assert!(
            tiny.to_string().contains("12 instructions")
                && tiny.to_string().ends_with("let each round do more")
        );
    }
}
