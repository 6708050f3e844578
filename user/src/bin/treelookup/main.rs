//! Some threads look up regions that are always there, the others map and unmap regions between them:
//! RadixVM's figures 6 and 7, for the radix map, the skip list and Bonsai.
//!
//! The maps are those of the kernel's crates, in this program's own memory. No system call is made while it
//! works. For the contention meter a round is a batch of lookups, or a region mapped and unmapped. Lookups
//! are phase 1 and changes phase 2. Phase 0 is the work of a core for the epochs, and each reader's first
//! pass through all regions.
//!
//! Lookups lock nothing and write nothing, in any of the maps. A writer takes from readers the cache lines
//! that lead to other regions too: towers of the skip list, rebuilt paths of Bonsai. The radix map has none
//! of those: a region's slots are a line of their own.

mod maps;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use baselines::SkipList;
use bonsai::Bonsai;
use maps::{Machine, Map, PAGES};
use percore::Pinned;
use programs::args::{Args, Parsed, options};
use programs::benchmark::{threads, window_json, window_text};
use programs::random::Random;
use programs::window::{Window, Worker, measure};
use programs::{marker, say};
use radixmap::RadixMap;
use serde_json::{Value, json};

const USAGE: &str = "usage: treelookup [OPTIONS]\nSome threads look up regions, the others map and unmap regions between them.\n\n  \
    --map MAP       radix, skiplist or bonsai (default radix)\n  \
    --threads N     pinned threads (default: one per CPU)\n  \
    --writers M     how many of the threads map and unmap (default 0; one looks up at least)\n  \
    --lookups N     lookups of each reader (default 1000000), in batches of 64\n  \
    --json          one JSON object instead of a line of text";

/// Number of regions that are always there. A writer's region lies behind one of them.
const REGIONS: u64 = 1024;
const STRIDE: u64 = 2 * PAGES;
const BATCH: u64 = 64;
/// Phases for the meter.
const RESTING: usize = 0;
const LOOKING: usize = 1;
const CHANGING: usize = 2;

struct Options {
    map: String,
    threads: usize,
    writers: usize,
    lookups: u64,
    json: bool,
}

impl Options {
    fn from(mut args: Args) -> Parsed<Options> {
        let threads = threads(&mut args)?;
        let options = Options {
            map: args.value("--map")?.unwrap_or_else(|| "radix".to_string()),
            threads,
            writers: args.number("--writers", 0, 0..=threads as u64 - 1)? as usize,
            lookups: args.number("--lookups", 1_000_000, BATCH..=1 << 40)? / BATCH * BATCH,
            json: args.flag("--json"),
        };
        match options.map.as_str() {
            "radix" | "skiplist" | "bonsai" => args.end().map(|()| options),
            other => Err(format!("--map {other}: give radix, skiplist or bonsai")),
        }
    }

    fn readers(&self) -> usize {
        self.threads - self.writers
    }
}

/// The result of one thread.
enum Done {
    Lookups(Duration),
    Changes(u64),
}

/// One run of a map.
struct Run<'a, M> {
    map: &'a M,
    machine: &'a Machine,
    options: &'a Options,
    /// Number of readers that have not finished. Relaxed: writers only stop a little later or earlier.
    reading: AtomicUsize,
}

impl<M: Map> Run<'_, M> {
    /// Does one thread's work: the first threads read, the others write.
    fn work(&self, worker: &Worker) -> Done {
        self.machine.as_core(worker.index, |pin| match worker.index.checked_sub(self.options.readers()) {
            None => self.look_up(pin, worker.index as u64),
            Some(writer) => self.change(pin, writer as u64),
        })
    }

    fn look_up(&self, pin: &Pinned, reader: u64) -> Done {
        let mut random = Random::new(reader);
        (0..REGIONS).for_each(|region| self.find(pin, region * STRIDE));
        self.find_some(pin, &mut random);
        self.end_round(pin);
        let begin = Instant::now();
        for _ in 0..self.options.lookups / BATCH {
            marker::phase(LOOKING);
            self.find_some(pin, &mut random);
            self.end_round(pin);
        }
        let took = begin.elapsed();
        self.reading.fetch_sub(1, Relaxed);
        Done::Lookups(took)
    }

    fn find_some(&self, pin: &Pinned, random: &mut Random) {
        for _ in 0..BATCH {
            let (region, page) = (below(random, REGIONS), below(random, PAGES));
            self.find(pin, region * STRIDE + page);
        }
    }

    fn find(&self, pin: &Pinned, page: u64) {
        assert!(self.map.finds(pin, page), "page {page} was missed, which is always there");
    }

    /// Maps and unmaps until the last reader is done, at least once. Each writer does so behind regions of
    /// its own.
    fn change(&self, pin: &Pinned, writer: u64) -> Done {
        let (writers, mut random) = (self.options.writers as u64, Random::new(!writer));
        let mut changes = 0;
        loop {
            marker::phase(CHANGING);
            let region = below(&mut random, REGIONS / writers) * writers + writer;
            let start = region * STRIDE + PAGES;
            self.map.map(pin, start);
            self.map.unmap(pin, start);
            changes += 1;
            self.end_round(pin);
            if self.reading.load(Relaxed) == 0 {
                return Done::Changes(changes);
            }
        }
    }

    fn end_round(&self, pin: &Pinned) {
        marker::phase(RESTING);
        self.machine.rest(pin);
        marker::iter();
    }
}

fn below(random: &mut Random, bound: u64) -> u64 {
    random.below(bound as usize) as u64
}

fn measured<M: Map>(map: &M, machine: &Machine, options: &Options) -> Report {
    machine.as_core(0, |pin| (0..REGIONS).for_each(|region| map.map(pin, region * STRIDE)));
    let run = Run { map, machine, options, reading: AtomicUsize::new(options.readers()) };
    let (done, window) = measure(options.threads, |worker| run.work(worker));
    let mut report = Report { window, lookups_per_s: 0.0, changes: 0 };
    for done in done {
        match done {
            Done::Lookups(took) => report.lookups_per_s += options.lookups as f64 / took.as_secs_f64(),
            Done::Changes(changes) => report.changes += changes,
        }
    }
    report
}

/// The report of a run.
struct Report {
    window: Window,
    lookups_per_s: f64,
    changes: u64,
}

impl Report {
    fn json(&self, options: &Options) -> Value {
        let mut report = window_json("treelookup", &self.window);
        report["map"] = json!(options.map);
        report["threads"] = json!(options.threads);
        report["writers"] = json!(options.writers);
        report["lookups"] = json!(options.lookups * options.readers() as u64);
        report["lookups_per_s"] = json!(self.lookups_per_s);
        report["changes"] = json!(self.changes);
        report
    }

    fn text(&self, options: &Options) -> String {
        format!(
            "treelookup: {}, {} readers, {} writers: {:.0} lookups/s, {} changes in {:.3} s{}",
            options.map,
            options.readers(),
            options.writers,
            self.lookups_per_s,
            self.changes,
            self.window.seconds,
            window_text(&self.window)
        )
    }
}

fn radix(machine: &Machine, options: &Options) -> Report {
    let map = machine.as_core(0, |pin| RadixMap::new(pin, &machine.refcache).expect("memory for a node"));
    let report = measured(&map, machine, options);
    machine.as_core(0, |_| drop(map));
    report
}

fn main() {
    let options = &options(USAGE, Options::from);
    let machine = Machine::new(options.threads);
    let report = match options.map.as_str() {
        "skiplist" => measured(&SkipList::new(&machine.rcu), &machine, options),
        "bonsai" => measured(&Bonsai::new(&machine.rcu), &machine, options),
        _ => radix(&machine, options),
    };
    if options.json { say(report.json(options)) } else { say(report.text(options)) }
}
