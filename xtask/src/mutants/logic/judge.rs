//! Runs the tests of a build on one mutant after the other.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::build::Binary;
use crate::mutants::results::Outcome;

/// The factor by which tests may be slower on a mutant than without one, and an addition, for a busy machine.
const SLOWDOWN: u32 = 5;
const SLACK: Duration = Duration::from_secs(10);
/// The same for the first try: another binary may kill a mutant sooner than one that does not end.
const FIRST_SLOWDOWN: u32 = 2;
const FIRST_SLACK: Duration = Duration::from_secs(1);
/// The longest time of one binary without a mutant.
const LONGEST: Duration = Duration::from_secs(1800);
/// The largest address space of a binary, in KiB: a mutant may allocate for ever.
const LARGEST: u64 = 16 << 20;

/// A failure matters, and not how it looks: a backtrace takes seconds, and a property that fails is tried
/// again hundreds of times to find a small case, which is then written to a file.
const QUICK_FAILURE: [(&str, &str); 3] = [
    ("RUST_BACKTRACE", "0"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
    ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true"),
];

/// The binaries, the quickest first, each with the time that it takes without a mutant.
pub struct Judges(Vec<(Binary, Duration)>);

/// The end of a run.
enum End {
    Passed,
    /// With the name of a test that failed, or nothing if the binary died otherwise.
    Failed(String),
    TimedOut,
}

impl Judges {
    /// Runs the binaries without a mutant. They must pass.
    pub fn measure(binaries: Vec<Binary>) -> Result<Self> {
        let mut judges = Vec::new();
        for binary in binaries {
            let start = Instant::now();
            let end = run(&binary, 0, LONGEST)?;
            ensure!(matches!(end, End::Passed), "{} fails without a mutant", binary.path.display());
            judges.push((binary, start.elapsed()));
        }
        judges.sort_by_key(|&(_, time)| time);
        Ok(Judges(judges))
    }

    /// Returns the sum of the times of all binaries without a mutant.
    pub fn time(&self) -> Duration {
        self.0.iter().map(|&(_, time)| time).sum()
    }

    /// Takes other binaries of the same tests, with the times of these.
    pub fn with(&self, binaries: &[Binary]) -> Self {
        let same = |old: &Binary| binaries.iter().find(|new| new.stem() == old.stem());
        Judges(self.0.iter().filter_map(|(old, time)| Some((same(old)?.clone(), *time))).collect())
    }

    /// Runs the binaries on the mutant until one fails. Those that do not end soon are tried again for
    /// longer: last, or as soon as there are two of them. The number 0 stands for a build without switches.
    pub fn judge(&self, mutant: u32) -> Result<Outcome> {
        let mut slow = Vec::new();
        for (binary, time) in &self.0 {
            match run(binary, mutant, *time * FIRST_SLOWDOWN + FIRST_SLACK)? {
                End::Passed => {}
                End::Failed(test) => return Ok(killed_by(binary, &test)),
                End::TimedOut => slow.push((binary, *time * SLOWDOWN + SLACK)),
            }
            if slow.len() == 2
                && let Some(outcome) = try_longer(&mut slow, mutant)?
            {
                return Ok(outcome);
            }
        }
        Ok(try_longer(&mut slow, mutant)?.unwrap_or(Outcome::Survived))
    }
}

/// Runs these binaries on the mutant, each for its time, until one fails or does not end.
fn try_longer(slow: &mut Vec<(&Binary, Duration)>, mutant: u32) -> Result<Option<Outcome>> {
    for (binary, limit) in slow.drain(..) {
        match run(binary, mutant, limit)? {
            End::Passed => {}
            End::Failed(test) => return Ok(Some(killed_by(binary, &test))),
            End::TimedOut => return Ok(Some(Outcome::TimedOut(binary.stem()))),
        }
    }
    Ok(None)
}

fn killed_by(binary: &Binary, test: &str) -> Outcome {
    Outcome::KilledBy(format!("{} {test}", binary.stem()).trim_end().to_owned())
}

fn run(binary: &Binary, mutant: u32, limit: Duration) -> Result<End> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {LARGEST}; exec \"$0\"")).arg(&binary.path);
    command.current_dir(&binary.folder).env("MUTANT", mutant.to_string());
    command.env("CARGO_MANIFEST_DIR", &binary.folder);
    command.envs(QUICK_FAILURE);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| binary.path.display().to_string())?;
    let end = watch(&mut child, limit)?;
    // The binary has ended, or its end no longer matters.
    let _ = child.kill();
    child.wait()?;
    Ok(end)
}

/// Waits until the binary ends, a test fails, or the time is over.
fn watch(child: &mut Child, limit: Duration) -> Result<End> {
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let lines = output.split(b'\n').map_while(Result::ok);
        let failed = lines.map(|line| String::from_utf8_lossy(&line).into_owned()).find_map(failed_test);
        // The receiver is gone if the time is over.
        let _ = tell.send(failed);
    });
    match told.recv_timeout(limit) {
        Ok(Some(test)) => Ok(End::Failed(test)),
        Ok(None) if child.wait()?.success() => Ok(End::Passed),
        Ok(None) => Ok(End::Failed(String::new())),
        Err(_) => Ok(End::TimedOut),
    }
}

/// Returns the name of the test, if the line of the test harness says that one failed.
fn failed_test(line: String) -> Option<String> {
    Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned())
}
