//! Each thread maps a private region in the shared address space, writes to all of its pages and unmaps it.
//!
//! The pattern of allocators with per-thread pools, and the best case of the design: no page is ever seen by
//! two cores, so nothing need be shared and nobody interrupted.

use programs::benchmark::Options;
use programs::memory::Region;
use programs::require;

const USAGE: &str =
    "usage: local [OPTIONS]\nEach thread maps a region, writes to all of its pages, unmaps it.";

fn main() {
    let options = Options::parse(USAGE, 1, 10_000);
    options.run("local", |worker, round| {
        let mut region = require(Region::map(options.pages), "mmap");
        region.write(round ^ worker.index as u64);
        require(region.unmap(), "munmap");
    });
}
