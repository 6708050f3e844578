//! A crate's loom models, run one at a time, the quickest first.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::mutants::results::{Outcome, Results};
use crate::mutants::tree::Tree;

/// The factor by which a model may be slower on a mutant than without one, and an addition, for a busy
/// machine.
const SLOWDOWN: u32 = 20;
const SLACK: Duration = Duration::from_secs(60);
/// The longest time of one model without a mutant.
const LONGEST: Duration = Duration::from_secs(1800);

/// The configurations in which the models of a crate are built. The binary of `loom_wide` has models in
/// radixmap only.
const CONFIGURATIONS: [&str; 2] = ["--cfg loom", "--cfg loom --cfg loom_wide"];
/// The crate with models of its own in the second one.
const WIDE: &str = "radixmap";

/// The models of a crate.
pub struct Models {
    name: String,
    /// Each with its configuration and the time that it takes, the quickest first.
    times: Vec<(String, usize, Duration)>,
}

/// The outcome of one run of a model.
#[derive(PartialEq)]
enum End {
    Passed,
    Failed,
    TimedOut,
}

impl Models {
    /// Builds the models of the crate as it is and runs those whose time is not known yet. They must pass.
    pub fn measure(tree: &Tree, name: &str, results: &mut Results) -> Result<Self> {
        let mut times = Vec::new();
        for (configuration, binary) in
            build_all(tree, name)?.context("the models do not build")?.iter().enumerate()
        {
            for model in list(binary)? {
                let time = match results.time_of(&model) {
                    Some(time) => time,
                    None => {
                        let start = Instant::now();
                        ensure!(
                            run(binary, &model, LONGEST)? == End::Passed,
                            "{model} fails without a mutant"
                        );
                        results.record_time(&model, start.elapsed())?;
                        start.elapsed()
                    }
                };
                times.push((model, configuration, time));
            }
        }
        times.sort_by_key(|&(_, _, time)| time);
        Ok(Models { name: name.to_owned(), times })
    }

    /// Builds the models of the crate in the tree, and runs them until one fails.
    pub fn run(&self, tree: &Tree) -> Result<Outcome> {
        let Some(binaries) = build_all(tree, &self.name)? else { return Ok(Outcome::Unbuilt) };
        for (model, configuration, time) in &self.times {
            match run(&binaries[*configuration], model, *time * SLOWDOWN + SLACK)? {
                End::Passed => {}
                End::Failed => return Ok(Outcome::KilledBy(model.clone())),
                End::TimedOut => return Ok(Outcome::TimedOut(model.clone())),
            }
        }
        Ok(Outcome::Survived)
    }
}

/// Builds the models and returns a binary for each configuration, or none if one does not build.
fn build_all(tree: &Tree, name: &str) -> Result<Option<Vec<PathBuf>>> {
    let configurations = if name == WIDE { &CONFIGURATIONS[..] } else { &CONFIGURATIONS[..1] };
    configurations.iter().map(|configuration| build(tree, name, configuration)).collect()
}

fn build(tree: &Tree, name: &str, configuration: &str) -> Result<Option<PathBuf>> {
    let words = format!("test --locked --release --quiet --package radixvm-{name} --test loom --no-run");
    let mut command = tree.cargo(&words, configuration);
    command.arg("--message-format=json").stderr(Stdio::null());
    let output = command.output().context("cannot run cargo")?;
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let binary = messages.split("\"executable\":\"").nth(1).and_then(|rest| rest.split('"').next());
    Ok(binary.filter(|_| output.status.success()).map(PathBuf::from))
}

/// Returns the names of the models in a binary.
fn list(binary: &PathBuf) -> Result<Vec<String>> {
    let output = Command::new(binary).arg("--list").output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs one model.
fn run(binary: &PathBuf, model: &str, limit: Duration) -> Result<End> {
    let mut command = Command::new(binary);
    command.args(["--exact", model]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| binary.display().to_string())?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { End::Passed } else { End::Failed });
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(End::TimedOut);
        }
        thread::sleep(Duration::from_millis(10));
    }
}
