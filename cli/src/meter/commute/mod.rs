//! Runs tests of pairs of calls that commute on several systems, and reports the lines over which the calls
//! conflict and the results that differ from the model. `docs/design/commute.md` has the method.
//!
//! The plugin lists conflicts in the order in which the program marks the tests, and the program prints the
//! results of each test with its number. Here both are put together.

mod compare;
mod heat;
mod report;

use std::collections::BTreeMap;

use abi::config::Huge;
use anyhow::{Context, Result, ensure};
use commute::case::Case;
use serde::{Deserialize, Serialize};

use super::experiment::Tools;
use super::names::{Loaded, Names};
use super::output::{Conflict, Test};
use super::owner::Namer;
use super::plugin::Settings;
use super::run::{self, Guest, Run};
use crate::artifacts;
use crate::guest::file_arg::FileArg;
use crate::guest::system::{self, Job, System};
use crate::program::Program;
use crate::progress::Step;

pub use compare::compare;
pub use heat::picture;
pub use report::{markdown, text};

/// The program that runs the tests.
const PROGRAM: &str = "commute";
/// The file with the tests, in the guest.
const FILE: &str = "/tests-of-calls";
/// The instructions that a CPU may run ahead. Calls do not overlap, so more would do no harm.
const SLACK: u64 = 2000;
/// The bytes of memory of a guest.
const MEMORY: u64 = 1 << 30;
/// The most lines that a test keeps.
const LINES: usize = 256;

/// The tests to run, and where.
pub struct Experiment {
    /// The tests.
    pub cases: Vec<Case>,
    /// The marked repeats of each.
    pub repeats: usize,
    /// The systems.
    pub systems: Vec<System>,
}

/// The outcome of a test on a system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The mode, the setup and the calls, which name the test.
    pub key: String,
    /// The names of the two operations.
    pub calls: [String; 2],
    /// The system.
    pub system: String,
    /// The number of lines over which the calls conflict.
    pub conflicts: usize,
    /// The number of interrupts that the calls send.
    pub interrupts: u64,
    /// The first result that is not the model's, if there is one.
    pub difference: Option<String>,
    /// The first lines of these.
    pub lines: Vec<Contended>,
}

impl Outcome {
    /// Returns whether the calls neither share a line that one writes nor interrupt.
    pub fn is_free(&self) -> bool {
        self.conflicts == 0 && self.interrupts == 0
    }

    /// Returns whether these are its two calls, in either order.
    fn is_of(&self, one: &str, other: &str) -> bool {
        self.calls == [one, other] || self.calls == [other, one]
    }
}

/// A line over which two calls conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contended {
    /// The object that contains it.
    pub owner: String,
    /// The first place in code that wrote it.
    pub writer: String,
    /// The first place of the other call that wrote it, or else that read it.
    pub other: String,
    /// Set if both calls wrote it.
    pub both_write: bool,
    /// Set if they touched different bytes.
    pub false_sharing: bool,
}

/// Returns the name of a test.
pub fn key(case: &Case) -> String {
    format!("{}/{}", case.mode.name(), case.key)
}

impl Experiment {
    /// Runs all tests on each system.
    pub fn run(&self) -> Result<Vec<Outcome>> {
        ensure!(!self.cases.is_empty(), "no test is chosen");
        let tools = Tools::prepare(&self.systems)?;
        let step = Step::new("metering");
        let mut outcomes = Vec::new();
        for system in &self.systems {
            step.tell(&format!("{} tests on {system}", self.cases.len()));
            let found = self.on_system(&tools, *system);
            outcomes.extend(found.with_context(|| format!("{} tests on {system}", self.cases.len()))?);
        }
        Ok(outcomes)
    }

    fn on_system(&self, tools: &Tools, system: System) -> Result<Vec<Outcome>> {
        let file = tempfile::NamedTempFile::new().context("no place for the tests")?;
        let lines: String = self.cases.iter().map(|case| format!("{case}\n")).collect();
        std::fs::write(file.path(), lines).context("cannot write the tests")?;
        let job = self.job(&file.path().display().to_string())?;
        let kernel = tools.kernel(system)?;
        let guest = Guest { system, kernel, plugin: &tools.plugin, huge: Huge::DEFAULT };
        let settings = Settings { cpus: 2, memory: MEMORY, slack: SLACK, rounds: 0, sites: false };
        let Run { output, owners, stdout } = run::run(&guest, &job, settings)?;
        let program = Loaded::new(&job.program.path, &job.program.bytes, None);
        let names = Names { kernel, program };
        let namer = Namer::new(&names, owners.as_ref(), &output.lines);
        let contended = |conflict: &Conflict| Contended {
            owner: namer.name_at(conflict.address.0, conflict.linear.0),
            writer: names.code(conflict.writer.0),
            other: names.code(conflict.other.0),
            both_write: conflict.both_write,
            false_sharing: conflict.disjoint,
        };
        let answers = answers(&String::from_utf8_lossy(&stdout))?;
        ensure!(
            output.tests.len() == self.cases.len() * self.repeats,
            "the program marked {} tests, not {} times {}",
            output.tests.len(),
            self.cases.len(),
            self.repeats
        );
        let tests = output.tests.chunks(self.repeats);
        let outcome = |(number, (case, repeats)): (usize, (&Case, &[Test]))| {
            let test = typical(repeats);
            Outcome {
                key: key(case),
                calls: case.calls.map(|call| call.op.name().to_owned()),
                system: system::word(&system),
                conflicts: test.conflicts.len(),
                interrupts: test.sent,
                difference: difference(case, answers.get(&number)),
                lines: test.conflicts.iter().take(LINES).map(contended).collect(),
            }
        };
        Ok(self.cases.iter().zip(tests).enumerate().map(outcome).collect())
    }

    fn job(&self, file: &str) -> Result<Job> {
        let program = Program::load(&artifacts::program(PROGRAM)?)?;
        let arguments = ["--repeats", &self.repeats.to_string(), FILE].map(Into::into);
        let mut job = Job::new(program, arguments);
        job.files = vec![FileArg::parse(&format!("{file}:{FILE}"))?];
        Ok(job)
    }
}

/// Returns the repeat that counts. The repeats have the two orders of the calls by turns: of each order it is
/// the one with the median number of conflicts and interrupts, and of these two the one with more.
fn typical(repeats: &[Test]) -> &Test {
    let orders = (0..2).filter_map(|order| median(repeats.iter().skip(order).step_by(2)));
    orders.max_by_key(|test| cost(test)).expect("a test is repeated once at least")
}

fn cost(test: &Test) -> u64 {
    test.conflicts.len() as u64 + test.sent
}

/// Returns the repeat with the median cost. Repeats in which the timer ticked do not count, unless it ticked
/// in all.
fn median<'t>(repeats: impl Iterator<Item = &'t Test> + Clone) -> Option<&'t Test> {
    let quiet: Vec<&Test> = repeats.clone().filter(|test| test.ticks == 0).collect();
    let mut counted = if quiet.is_empty() { repeats.collect() } else { quiet };
    counted.sort_by_key(|test| cost(test));
    counted.get(counted.len().saturating_sub(1) / 2).copied()
}

/// The different values that repeats of a test gave, call by call.
type Answers = Vec<Vec<Vec<i64>>>;

/// Parses the program's output.
fn answers(text: &str) -> Result<BTreeMap<usize, Answers>> {
    let mut answers: BTreeMap<usize, Answers> = BTreeMap::new();
    for line in text.lines() {
        let parsed = parse(line).with_context(|| format!("the program printed {line:?}"))?;
        answers.entry(parsed.0).or_default().push(parsed.1);
    }
    Ok(answers)
}

fn parse(line: &str) -> Option<(usize, Vec<Vec<i64>>)> {
    let (number, values) = line.split_once(' ')?;
    let calls = values.split(';').map(|values| values.split(',').map(|value| value.parse().ok()).collect());
    Some((number.parse().ok()?, calls.collect::<Option<_>>()?))
}

/// Returns the first difference between a kernel's values and the model's.
fn difference(case: &Case, answers: Option<&Answers>) -> Option<String> {
    let Some(answers) = answers else { return Some("no result".to_owned()) };
    match case.expected() {
        Ok(expected) => answers.iter().find_map(|values| case.difference(&expected, values)),
        Err(wrong) => Some(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outcome of a test with some conflicts.
    pub(super) fn outcome(key: &str, calls: [&str; 2], system: &str, conflicts: usize) -> Outcome {
        let line = Contended {
            owner: "table".to_owned(),
            writer: "lock".to_owned(),
            other: "look_up".to_owned(),
            both_write: false,
            false_sharing: false,
        };
        Outcome {
            key: key.to_owned(),
            calls: calls.map(str::to_owned),
            system: system.to_owned(),
            conflicts,
            interrupts: 0,
            difference: None,
            lines: vec![line; conflicts],
        }
    }

    #[test]
    fn of_each_order_the_median_of_the_repeats_without_ticks_counts() {
        let test = |sent, ticks| Test { sent, ticks, conflicts: Vec::new() };
        let first_order = [test(9, 1), test(2, 0), test(5, 0), test(3, 0)];
        assert_eq!(median(first_order.iter()).unwrap().sent, 3);
        assert_eq!(median([test(9, 1), test(3, 2)].iter()).unwrap().sent, 3);
        assert!(median([].iter()).is_none());
    }

    #[test]
    fn a_conflict_in_one_order_of_the_calls_is_one() {
        let test = |sent| Test { sent, ticks: 0, conflicts: Vec::new() };
        assert_eq!(typical(&[test(0), test(3), test(0), test(3)]).sent, 3);
        assert_eq!(typical(&[test(4), test(0), test(4), test(0)]).sent, 4);
        assert_eq!(typical(&[test(1)]).sent, 1);
    }

    #[test]
    fn every_repeat_is_compared_with_the_model() {
        let case: Case = "k;threads;0:creat.0.1;fstat.3 stat.4;".parse().unwrap();
        let found = |text: &str| difference(&case, answers(text).unwrap().get(&5));
        assert_eq!(found("5 0,1,1,0;-2"), None);
        assert!(found("5 0,1,1,0;-2\n5 0,1,1,0;-13").unwrap().contains("stat.4"));
        assert!(found("4 0,1,1,0;-2").is_some());
        assert!(answers("5 x").is_err());
    }
}
