//! One run of one program, metered or by its own report.

use std::collections::BTreeMap;

use abi::config::Huge;
use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use super::plan::Run;
use launch::guest::file_arg::FileArg;
use launch::guest::qemu::Accel;
use launch::guest::system::Size;
use launch::measure::{Task, measure};
use launch::meter::benchmarks;
use launch::meter::model::Load;
use launch::meter::row::Row;
use launch::place;
use launch::progress::Step;

/// What a run left.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measured {
    /// Counts per round.
    Metered {
        /// As `contend` writes them.
        row: Box<Row>,
        /// What the cost model takes.
        load: Load,
    },
    /// The kernel's own counters over the run.
    Reported(BTreeMap<String, u64>),
}

impl Measured {
    /// Counts per round, if it was metered.
    pub fn row(&self) -> Option<&Row> {
        match self {
            Measured::Metered { row, .. } => Some(row),
            Measured::Reported(_) => None,
        }
    }
}

/// A full run does no fewer rounds, of all threads: those of a guest may come in kinds, and a few may all be of one.
const LEAST_ROUNDS: u64 = 256;

/// How much is run.
#[derive(Clone, Copy)]
pub struct Effort {
    /// An eighth of the rounds, one boot.
    pub quick: bool,
    /// Bytes of memory of every guest.
    pub memory: u64,
}

impl Effort {
    fn rounds(self, rounds: u64) -> u64 {
        if self.quick { rounds / 8 } else { rounds.max(LEAST_ROUNDS) }
    }

    /// How many times over a job's text is read.
    fn size(self) -> &'static str {
        if self.quick { "2" } else { "40" }
    }
}

/// Runs it. `step` is what a waiting person sees.
pub fn run(run: &Run, effort: Effort, step: String) -> Result<Measured> {
    if run.metered { metered(run, effort, step) } else { reported(run, effort, &step) }
}

fn metered(run: &Run, effort: Effort, step: String) -> Result<Measured> {
    let system = run.on.system().map_err(|why| anyhow!(why))?;
    let arguments = arguments(run, effort);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut experiment =
        benchmarks::experiment(run.work.program, &words, &[run.cpus], &[system], effort.memory)?;
    experiment.step = step;
    experiment.rounds = effort.rounds(experiment.rounds);
    experiment.files = files(run).iter().map(|file| FileArg::parse(file)).collect::<Result<_>>()?;
    let cell = experiment.run()?.pop().context("nothing was measured")?;
    Ok(Measured::Metered { row: Box::new(cell.row), load: cell.load })
}

fn reported(run: &Run, effort: Effort, step: &str) -> Result<Measured> {
    let _step = Step::new(step);
    let system = run.on.system().map_err(|why| anyhow!(why))?;
    let threads = ["--threads".to_owned(), run.cpus.to_string()];
    let arguments = threads.into_iter().chain(arguments(run, effort)).collect();
    let task = Task { program: run.work.program, arguments, files: files(run) };
    let size = Size { cpus: run.cpus, memory: effort.memory, accel: Accel::Tcg };
    let report = measure(system, Huge::DEFAULT, &task, size)?;
    Ok(Measured::Reported(report.counters.context("this kernel counts nothing")?))
}

fn arguments(run: &Run, effort: Effort) -> Vec<String> {
    let file = files(run).concat();
    let fill = |word: &&str| {
        let word = word.replace("{file}", &file).replace("{size}", effort.size());
        word.replace("{x}", run.x.unwrap_or_default())
    };
    run.work.arguments.iter().map(fill).collect()
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
        let words = arguments(&run, Effort { quick: true, memory: 0 });
        assert_eq!(words[..2], ["--x=7", "2"]);
        assert!(std::path::Path::new(&words[2]).is_file(), "{words:?}");
    }
}
