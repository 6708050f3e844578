//! Some threads touch the pages of regions of their own for the first time, one page a round, while the others map and
//! unmap elsewhere, one region a round.
//!
//! The pattern of a program whose threads grow their heaps. Faults and maps are at different places, so nothing need be
//! shared; kernels that guard a process's mappings by one lock make every fault wait for every map.
//!
//! A region that has been touched to its end is unmapped, and the next one mapped, in the round that needs it: frames go
//! round, and a run of any length takes the same memory. For the contention meter faults are phase 0, maps phase 1.

use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::memory::Region;
use programs::{marker, require};
use serde_json::{Map, json};

const PROGRAM: Program = Program {
    usage: "usage: faultstorm [OPTIONS]\nSome threads touch pages of their own for the first time, the others map and \
            unmap elsewhere.",
    options: "  --mappers M     how many of the threads map and unmap (default: half, and no less than one faults)\n",
    pages: (64, 1 << 20),
    iterations: 10_000,
};

/// The phase of threads that map.
const MAPPING: usize = 1;
/// Pages that a mapper maps at a time.
const MAPPED: usize = 16;

/// A region with what of it has not been touched.
struct Fresh {
    region: Option<Region>,
    next: usize,
}

impl Fresh {
    fn map(pages: usize) -> Fresh {
        Fresh { region: Some(require(Region::map(pages), "mmap")), next: 0 }
    }

    /// Touches the next page, of a new region if this one has none.
    fn touch(&mut self, pages: usize, word: u64) {
        if self.next == pages {
            self.region.take().into_iter().for_each(|used| require(used.unmap(), "munmap"));
            *self = Fresh::map(pages);
        }
        self.region.iter_mut().for_each(|region| region.write_page(self.next, word));
        self.next += 1;
    }
}

fn mappers(args: &mut Args, threads: usize) -> Parsed<usize> {
    let most = threads as u64 - 1;
    Ok(args.number("--mappers", threads as u64 / 2, 0..=most)? as usize)
}

fn map_and_unmap() {
    require(require(Region::map(MAPPED), "mmap").unmap(), "munmap");
}

fn main() {
    let (options, mappers) = Options::parse_with(&PROGRAM, mappers);
    let faulters = options.threads - mappers;
    let more = Map::from_iter([("mappers".to_string(), json!(mappers))]);
    let prepare = |index: usize| {
        marker::phase(if index < faulters { 0 } else { MAPPING });
        (index < faulters).then(|| Fresh::map(options.pages))
    };
    options.run_with(
        "faultstorm",
        more,
        |worker| prepare(worker.index),
        |_, fresh, round| match fresh {
            Some(fresh) => fresh.touch(options.pages, round),
            None => map_and_unmap(),
        },
    );
}
