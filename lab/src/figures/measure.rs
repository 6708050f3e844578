//! One run of one program, metered or by its own report.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use abi::config::Huge;
use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use super::plan::Run;
use launch::guest::file_arg::FileArg;
use launch::guest::qemu::Accel;
use launch::guest::system::Size;
use launch::measure::{Report, Task, measure};
use launch::meter::benchmarks;
use launch::meter::model::Load;
use launch::meter::row::Row;
use launch::place;
use launch::progress::Step;

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measured {
    /// Counts per round.
    Metered {
        /// The row as `contend` writes it.
        row: Box<Row>,
        /// The input of the cost model.
        load: Load,
        /// The kernel's own counters over the run, if the program reports them.
        #[serde(default)]
        counters: BTreeMap<String, f64>,
    },
    /// The kernel's own counters over the run.
    Reported(BTreeMap<String, i64>),
}

impl Measured {
    /// Returns the counts per round, if it was metered.
    pub fn row(&self) -> Option<&Row> {
        match self {
            Measured::Metered { row, .. } => Some(row),
            Measured::Reported(_) => None,
        }
    }
}

/// The smallest number of rounds of a full run, of all threads together. Rounds of a guest may come in kinds,
/// and a few rounds may all be of one kind.
const LEAST_ROUNDS: u64 = 256;

/// The extent of a measurement.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Set for an eighth of the rounds, and one boot.
    pub quick: bool,
    /// The most boots of a run.
    pub boots: usize,
    /// Bytes of memory of every guest.
    pub memory: u64,
    /// Bytes of text for a job, if it is not the usual one.
    pub size: Option<u64>,
}

impl Effort {
    fn rounds(self, rounds: u64) -> u64 {
        if self.quick { rounds / 8 } else { rounds.max(LEAST_ROUNDS) }
    }

    /// Returns how many times a job reads its text of `bytes` bytes.
    fn times(self, bytes: u64) -> u64 {
        let usual = if self.quick { 2 } else { 40 };
        self.size.map_or(usual, |size| size.div_ceil(bytes.max(1)).max(1))
    }
}

/// Measures a run. `step` is the text of the progress step.
pub fn run(run: &Run, effort: Effort, step: String) -> Result<Measured> {
    if run.metered { metered(run, effort, step) } else { reported(run, effort, &step) }
}

fn metered(run: &Run, effort: Effort, step: String) -> Result<Measured> {
    let system = run.on.system().map_err(|why| anyhow!(why))?;
    let arguments = arguments(run, effort)?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut experiment =
        benchmarks::experiment(run.work.program, &words, &[run.cpus], &[system], effort.memory)?;
    experiment.step = step;
    experiment.rounds = effort.rounds(experiment.rounds);
    experiment.files = files(run).iter().map(|file| FileArg::parse(file)).collect::<Result<_>>()?;
    let cell = experiment.run()?.pop().context("nothing was measured")?;
    let counters = counters(&cell.stdout);
    Ok(Measured::Metered { row: Box::new(cell.row), load: cell.load, counters })
}

/// Returns the counters in the report of a program with `--json`, or none of another.
fn counters(stdout: &[u8]) -> BTreeMap<String, f64> {
    let report: Option<Report> = serde_json::from_slice(stdout).ok();
    let counters = report.and_then(|report| report.counters).unwrap_or_default();
    counters.into_iter().map(|(name, count)| (name, count as f64)).collect()
}

fn reported(run: &Run, effort: Effort, step: &str) -> Result<Measured> {
    let _step = Step::new(step);
    let system = run.on.system().map_err(|why| anyhow!(why))?;
    let threads = ["--threads".to_owned(), run.cpus.to_string()];
    let arguments = threads.into_iter().chain(arguments(run, effort)?).collect();
    let task = Task { program: run.work.program, arguments, files: files(run) };
    let size = Size { cpus: run.cpus, memory: effort.memory, accel: Accel::Tcg };
    let report = measure(system, Huge::DEFAULT, &task, size)?;
    Ok(Measured::Reported(report.counters.context("this kernel counts nothing")?))
}

/// Returns the arguments of a run. If a job is to read more text than usual and has no option for that, its
/// path is given many times.
fn arguments(run: &Run, effort: Effort) -> Result<Vec<String>> {
    let file = files(run).concat();
    let times = if file.is_empty() { 1 } else { effort.times(bytes(Path::new(&file))?) };
    let repeats = run.work.arguments.contains(&"{size}");
    let fill = |word: &str| {
        let word = word.replace("{file}", &file).replace("{size}", &times.to_string());
        word.replace("{x}", run.x.unwrap_or_default())
    };
    let again = if repeats || effort.size.is_none() { 1 } else { times };
    let many = |word: &&'static str| if *word == "{file}" { again } else { 1 };
    let words = run.work.arguments.iter().flat_map(|word| (0..many(word)).map(move |_| *word));
    Ok(words.map(fill).collect())
}

/// Returns the length of a file, or of all files below a folder.
fn bytes(path: &Path) -> Result<u64> {
    let named = || path.display().to_string();
    if path.is_file() {
        return Ok(fs::metadata(path).with_context(named)?.len());
    }
    let entries = fs::read_dir(path).with_context(named)?;
    entries.map(|entry| bytes(&entry?.path())).sum()
}

fn files(run: &Run) -> Vec<String> {
    run.work.reads.iter().map(|path| place::root().join(path).display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{RADIX, Work};
    use super::*;

    #[test]
    fn arguments_know_the_file_the_size_and_what_is_varied() {
        let work = Work {
            program: "p",
            arguments: &["--x={x}", "{size}", "{file}"],
            reads: Some("LICENSE-APACHE"),
            apart: 0,
        };
        let run = Run { on: RADIX, work, x: Some("7"), cpus: 1, metered: true };
        let words = arguments(&run, Effort { quick: true, boots: 1, memory: 0, size: None }).unwrap();
        assert_eq!(words[..2], ["--x=7", "2"]);
        assert!(Path::new(&words[2]).is_file(), "{words:?}");
        let large = Effort { quick: true, boots: 1, memory: 0, size: Some(1 << 30) };
        let (words, length) = (arguments(&run, large).unwrap(), fs::metadata(&words[2]).unwrap().len());
        assert_eq!((words.len(), words[1].parse()), (3, Ok((1_u64 << 30).div_ceil(length))));
        let work = Work { arguments: &["{file}"], ..work };
        let words = arguments(&Run { work, ..run }, Effort { size: Some(3 * length), ..large }).unwrap();
        assert_eq!(words, vec![words[0].clone(); 3]);
    }
}
