//! Each thread maps a private region in the shared address space, writes to all of its pages and unmaps it.
//!
//! This is the pattern of allocators with per-thread pools, and the best case of the design: no page is ever
//! seen by two cores, so nothing need be shared and no core interrupted.

use std::thread;
use std::time::Duration;

use programs::benchmark::{Options, Program};
use programs::memory::Region;
use programs::require;

const PROGRAM: Program<'_> = Program {
    usage: "usage: local [OPTIONS]\nEach thread maps a region, writes to all of its pages, unmaps it.",
    options: "  --sleep N       milliseconds that each thread sleeps in a round, behind the rest (default 0: none)\n",
    pages: (1, programs::benchmark::MOST_PAGES),
    iterations: 10_000,
};
/// A minute, in milliseconds.
const LONGEST_SLEEP: u64 = 60_000;

fn main() {
    let (options, sleep) =
        Options::parse_with(&PROGRAM, |args, _| args.number("--sleep", 0, 0..=LONGEST_SLEEP));
    options.run("local", |worker, round| {
        let mut region = require(Region::map(options.pages), "mmap");
        region.write(round ^ worker.index as u64);
        require(region.unmap(), "munmap");
        if sleep > 0 {
            thread::sleep(Duration::from_millis(sleep));
        }
    });
}
