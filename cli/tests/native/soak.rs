//! A mix of rules, workloads and programs in all ways, on a machine that is busy besides: each CPU has four
//! threads that compute. No run may hang, or end or print otherwise than plainly.
//!
//! `cargo xtask fuzz` runs the ignored test, for `SOAK_SECONDS` (3,600).

use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Seen, in_way_for, rules, see};

/// Threads that compute, for each CPU.
const LOAD: usize = 4;
/// The longest that one run may take, in seconds. A run that hangs is ended then, which is a failure.
const LONGEST: u32 = 1800;
/// Random calls of rules.
const SEEDS: usize = 10_000;
/// The ways to run a program that are compared with a plain run.
const WAYS: [&[&str]; 3] = [&["--pool"], &["--strict"], &["--isolate"]];
/// The files of rules.
const RULES: [&str; 13] = [
    "threads",
    "memory",
    "reservations",
    "signals",
    "sharing",
    "taken",
    "process",
    "buffers",
    "files",
    "children",
    "forks",
    "delivery",
    "timers",
];
/// Workloads, with their sizes.
const WORKLOADS: [(&str, &str); 6] = [
    ("matrix_multiply", "200"),
    ("kmeans", "2000"),
    ("pca", "200"),
    ("swaptions", "100"),
    ("fluidanimate", "3000"),
    ("blackscholes", "500"),
];
/// Programs that are on every machine, as a shell runs them.
const LINES: [&str; 3] = [
    "seq 60000 | sort --parallel=3 -S 1M -rn | cksum",
    "seq 60000 | gzip | gzip -dc | cksum",
    "for word in a b c d e; do echo $word | cat; done; (exit 7); echo $?",
];

/// A program and its arguments.
struct Job {
    program: PathBuf,
    words: Vec<String>,
    /// The ways in which it prints what it prints plainly.
    ways: Vec<&'static [&'static str]>,
}

impl Job {
    fn all(folder: &Path) -> Vec<Self> {
        let rules = RULES.into_iter().flat_map(|name| {
            let program = rules::compile(name, folder, &[]);
            let rules = rules::names(&program);
            rules.into_iter().map(move |rule| Job {
                program: program.clone(),
                ways: WAYS.into_iter().filter(|way| rules::is_kept(way, &rule)).collect(),
                words: vec![rule],
            })
        });
        let workloads = WORKLOADS.into_iter().map(|(name, size)| Job {
            program: launch::artifacts::workload(name).expect("the workload can be built"),
            words: ["--threads", "3", "--size", size].map(str::to_owned).into(),
            ways: WAYS.into(),
        });
        let lines = LINES.into_iter().map(|line| Job {
            program: "sh".into(),
            words: ["-c", line].map(str::to_owned).into(),
            ways: WAYS.into(),
        });
        rules.chain(workloads).chain(lines).collect()
    }

    fn run(&self, way: &[&str], seed: usize) -> Seen {
        let mut command = in_way_for(LONGEST, way, &self.program);
        // Rules that make random calls make others.
        command.args(&self.words).env("SEED", seed.to_string());
        see(command)
    }

    /// Runs it plainly and in one of its ways, and returns what is different, or what does not hold plainly.
    fn compare(&self, dice: usize) -> Option<String> {
        let way = self.ways.get(dice % self.ways.len().max(1))?;
        let seed = dice % SEEDS;
        let (plain, other) = (self.run(&[], seed), self.run(way, seed));
        let name = self.program.display();
        let is_kept = !matches!(plain.status, Some(98 | 99 | 124 | 137));
        (plain != other || !is_kept)
            .then(|| format!("SEED={seed} {name} {:?}\nplain: {plain:?}\n{way:?}: {other:?}", self.words))
    }
}

/// Says that a soak is over, also when a thread cannot be made.
struct Over<'s>(&'s AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs jobs in an order that looks random, one for each CPU at a time, as long as there are `more`. The rest
/// of the machine computes. Says how many were compared.
#[allow(clippy::disallowed_macros)] // a test's own words
fn soak(more: impl Fn(usize) -> bool + Sync) {
    let folder = tempfile::tempdir().unwrap();
    let jobs = Job::all(folder.path());
    let cpus = thread::available_parallelism().map_or(2, usize::from);
    let [next, compared] = [const { AtomicUsize::new(0) }; 2];
    let (is_over, different) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let work = || {
        let numbers = iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|&at| more(at));
        numbers.map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).for_each(|dice| {
            let found = jobs[dice % jobs.len()].compare(dice / jobs.len());
            different.lock().unwrap().extend(found);
            compared.fetch_add(1, Ordering::Relaxed);
        });
    };
    let compute = || {
        while !is_over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        let _over = Over(&is_over);
        (0..LOAD * cpus).for_each(|_| _ = scope.spawn(compute));
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        let ends: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        assert!(ends.iter().all(Result::is_ok));
    });
    println!("soak: {} pairs of runs", compared.into_inner());
    let different = different.into_inner().unwrap();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn a_mix_on_a_busy_machine_runs_as_plainly() {
    soak(|number| number < 16);
}

#[test]
#[ignore = "an hour: `./radixvm test fuzz soak`"]
fn soak_for_long() {
    let seconds = std::env::var("SOAK_SECONDS").map_or(3600, |text| text.parse().expect("SOAK_SECONDS"));
    let end = Instant::now() + Duration::from_secs(seconds);
    soak(|_| Instant::now() < end);
}
