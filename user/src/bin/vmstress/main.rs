//! Many threads map, unmap, protect, write and read pages of one shared range, and check every byte against
//! its expected value.

mod away;
mod contents;
mod kind;
mod mappings;
mod pattern;
mod probe;
mod shadow;
mod stress;

use kind::{Kind, StepCounts};
use programs::args::{Args, Parsed, options};
use programs::benchmark::{threads, window_json, window_text};
use programs::memory::{self, PAGE};
use programs::window::{Window, Worker, measure};
use programs::{cores, require, say};
use serde_json::{Map, Value, json};
use shadow::{Access, Shadow, Shows, State};
use std::time::{Duration, Instant};
use stress::{Arena, Stress};

const USAGE: &str = "usage: vmstress [OPTIONS]\nMany threads map, unmap, protect, write and read pages of one range; every byte is checked.\n\n  \
    --threads N     pinned threads (default: one per CPU)\n  \
    --pages N       pages of the range (default 1024)\n  \
    --operations N  operations per thread (default 10000)\n  \
    --seconds N     go on for N seconds instead\n  \
    --seed N        other random choices (default 1)\n  \
    --json          one JSON object instead of text";

const HUGE_PAGE: usize = 2 << 20;
/// Beyond this many pages, each perhaps a mapping of its own, Linux runs out of mappings (vm.max_map_count).
const MOST_PAGES: u64 = 1 << 15;

struct Options {
    threads: usize,
    pages: usize,
    operations: u64,
    seconds: Option<u64>,
    seed: u64,
    json: bool,
}

impl Options {
    fn from(mut args: Args) -> Parsed<Options> {
        let seconds = args.number("--seconds", 0, 0..=1 << 20)?;
        let options = Options {
            threads: threads(&mut args)?,
            pages: args.number("--pages", 1024, 1..=MOST_PAGES)? as usize,
            operations: args.number("--operations", 10_000, 1..=1 << 40)?,
            seconds: Some(seconds).filter(|seconds| *seconds > 0),
            seed: args.number("--seed", 1, 0..=u64::MAX)?,
            json: args.flag("--json"),
        };
        args.end().map(|()| options)
    }

    /// Returns whether a thread has done enough.
    fn enough(&self, done: u64, start: Instant) -> bool {
        match self.seconds {
            Some(seconds) => done.is_multiple_of(64) && start.elapsed() >= Duration::from_secs(seconds),
            None => done >= self.operations,
        }
    }
}

fn main() {
    let options = options(USAGE, Options::from);
    let arena = arena(&options);
    let (all_counts, window) = measure(options.threads, |worker| work(worker, &options, &arena));
    let counts = Kind::ALL.map(|kind| all_counts.iter().map(|counts| counts[kind as usize]).sum());
    if options.json { say(report(&options, &counts, &window)) } else { say(text(&options, &counts, &window)) }
}

/// Reserves the range: mapped, but without access, so that nothing else is mapped there meanwhile.
fn arena(options: &Options) -> Arena {
    let room = require(memory::map(options.pages * PAGE + HUGE_PAGE, libc::PROT_NONE), "mmap of the range");
    let cpus = require(cores::allowed(), "sched_getaffinity");
    let reserved = State { access: Access::None, version: 0, shows: Shows::Memory };
    let shadow = Shadow::new(options.pages, reserved, options.threads > cpus.len());
    let file = require(memory::file(options.pages * PAGE), "memfd_create");
    Arena { base: room.next_multiple_of(HUGE_PAGE), shadow, file, cpus }
}

fn work(worker: &Worker, options: &Options, arena: &Arena) -> StepCounts {
    let mut stress = Stress::new(arena, worker.index, options.seed);
    let (mut counts, start) = (StepCounts::default(), Instant::now());
    for done in 1.. {
        counts[stress.step() as usize] += 1;
        if options.enough(done, start) {
            break;
        }
    }
    worker.barrier.wait();
    if worker.index == 0 {
        stress.check_all();
    }
    counts
}

fn report(options: &Options, counts: &StepCounts, window: &Window) -> Value {
    let kinds: Map<_, _> = named(counts).map(|(name, count)| (name.to_string(), json!(count))).collect();
    let mut report = window_json("vmstress", window);
    report["threads"] = json!(options.threads);
    report["pages"] = json!(options.pages);
    report["seed"] = json!(options.seed);
    report["operations"] = json!(counts.iter().sum::<u64>());
    report["kinds"] = Value::Object(kinds);
    report
}

fn text(options: &Options, counts: &StepCounts, window: &Window) -> String {
    let kinds: Vec<_> = named(counts).map(|(name, count)| format!("{count} {name}")).collect();
    format!(
        "vmstress: {} threads, {} pages, seed {}: {} operations in {:.3} s, all as they must be\n  {}{}",
        options.threads,
        options.pages,
        options.seed,
        counts.iter().sum::<u64>(),
        window.seconds,
        kinds.join(", "),
        window_text(window),
    )
}

fn named(counts: &StepCounts) -> impl Iterator<Item = (&'static str, u64)> {
    Kind::ALL.into_iter().map(|kind| (kind.name(), counts[kind as usize]))
}
