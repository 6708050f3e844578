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

/// The models of a crate, each with its configuration and the time that it takes, the quickest first.
pub struct Models(Vec<(String, usize, Duration)>);

/// The outcome of one run of a model.
#[derive(PartialEq)]
enum End {
    Passed,
    Failed,
    TimedOut,
}

impl Models {
    /// Runs those models of the crate as it is whose time is not known yet. They must pass. There is a binary
    /// for each configuration.
    pub fn measure(binaries: &[PathBuf], results: &mut Results) -> Result<Self> {
        let mut times = Vec::new();
        for (configuration, binary) in binaries.iter().enumerate() {
            for model in list(binary)? {
                let time = match results.time_of(&model) {
                    Some(time) => time,
                    None => {
                        let start = Instant::now();
                        ensure!(
                            run(binary, &model, 0, LONGEST)? == End::Passed,
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
        Ok(Models(times))
    }

    /// Runs the models in these binaries on a mutant until one fails. The number 0 stands for binaries
    /// without switches.
    pub fn judge(&self, binaries: &[PathBuf], mutant: u32) -> Result<Outcome> {
        for (model, configuration, time) in &self.0 {
            match run(&binaries[*configuration], model, mutant, *time * SLOWDOWN + SLACK)? {
                End::Passed => {}
                End::Failed => return Ok(Outcome::KilledBy(model.clone())),
                End::TimedOut => return Ok(Outcome::TimedOut(model.clone())),
            }
        }
        Ok(Outcome::Survived)
    }
}

/// Returns the configurations of a crate's models.
pub fn configurations(name: &str) -> &'static [&'static str] {
    if name == WIDE { &CONFIGURATIONS } else { &CONFIGURATIONS[..1] }
}

/// Returns the words for cargo that build a crate's models.
pub fn build_words(name: &str) -> String {
    format!("test --release --package radixvm-{name} --test loom --no-run")
}

/// Builds the models and returns a binary for each configuration, or none if one does not build.
pub fn build_all(tree: &Tree, name: &str) -> Result<Option<Vec<PathBuf>>> {
    configurations(name).iter().map(|configuration| build(tree, name, configuration)).collect()
}

fn build(tree: &Tree, name: &str, configuration: &str) -> Result<Option<PathBuf>> {
    let mut command = tree.cargo(&build_words(name), configuration);
    command.args(["--locked", "--quiet", "--message-format=json"]).stderr(Stdio::null());
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
fn run(binary: &PathBuf, model: &str, mutant: u32, limit: Duration) -> Result<End> {
    let mut command = Command::new(binary);
    command.env("MUTANT", mutant.to_string());
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
