//! Some threads touch the pages of regions of their own for the first time, one page a round, while the
//! others map and unmap elsewhere, one region a round.
//!
//! This is the pattern of a program whose threads grow their heaps. Faults and maps are at different places,
//! so nothing need be shared. Kernels that guard a process's mappings by one lock make every fault wait for
//! every map.
//!
//! The round that needs a new region unmaps the old one, which has been touched to its end. So frames are
//! reused, and a run of any length takes the same memory. With `--mmap-fraction` one thread maps for that
//! fraction of its time: section 7.3 of the Bonsai paper. For the contention meter faults are phase 0, maps
//! phase 1, a mapper's waiting phase 2.

use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::cores::cycles;
use programs::memory::Region;
use programs::{marker, require};
use serde_json::{Map, json};

const PROGRAM: Program = Program {
    usage: "usage: faultstorm [OPTIONS]\nSome threads touch pages of their own for the first time, the others map and \
            unmap elsewhere.",
    options: "  --mappers M     how many of the threads map and unmap (default: half, and no less than one faults)\n  \
              --mmap-fraction F  percent of its time that a mapper maps and unmaps, waiting else (default 100; if given, \
              there is one mapper)\n",
    pages: (64, 1 << 20),
    iterations: 10_000,
};

/// The phase of threads that map.
const MAPPING: usize = 1;
/// The phase of threads that wait between maps.
const WAITING: usize = 2;
/// Pages that a mapper maps at a time.
const MAPPED: usize = 16;

/// A region and the part of it that has not been touched.
struct Fresh {
    region: Option<Region>,
    next: usize,
}

impl Fresh {
    fn map(pages: usize) -> Fresh {
        Fresh { region: Some(require(Region::map(pages), "mmap")), next: 0 }
    }

    /// Touches the next page, of a new region if this one has none left.
    fn touch(&mut self, pages: usize, word: u64) {
        if self.next == pages {
            self.region.take().into_iter().for_each(|used| require(used.unmap(), "munmap"));
            *self = Fresh::map(pages);
        }
        self.region.iter_mut().for_each(|region| region.write_page(self.next, word));
        self.next += 1;
    }
}

/// A thread that maps for a fraction of its time: in `percent` of a hundred rounds it maps, and in each of
/// the others it waits as long as its last map took.
struct Mapper {
    percent: u64,
    took: u64,
}

impl Mapper {
    fn new(percent: u64) -> Mapper {
        marker::phase(MAPPING);
        let mut mapper = Mapper { percent, took: 0 };
        mapper.map_and_unmap();
        mapper
    }

    fn round(&mut self, number: u64) {
        if maps(number, self.percent) { self.map_and_unmap() } else { self.wait() }
    }

    fn map_and_unmap(&mut self) {
        let start = cycles();
        require(require(Region::map(MAPPED), "mmap").unmap(), "munmap");
        self.took = cycles() - start;
    }

    fn wait(&self) {
        marker::phase(WAITING);
        let start = cycles();
        while cycles() - start < self.took {
            std::hint::spin_loop();
        }
        marker::phase(MAPPING);
    }
}

/// Returns whether this round is one of the `percent` in a hundred that map. They are spread evenly.
fn maps(round: u64, percent: u64) -> bool {
    (round + 1) * percent / 100 > round * percent / 100
}

/// The work of a thread.
enum Role {
    Fault(Fresh),
    Map(Mapper),
}

/// The division of the threads.
struct Roles {
    mappers: usize,
    percent: u64,
}

impl Roles {
    fn parse(args: &mut Args, threads: usize) -> Parsed<Roles> {
        let given = args.value("--mmap-fraction")?;
        let most = threads as u64 - 1;
        let usual = if given.is_some() { most.min(1) } else { threads as u64 / 2 };
        let mappers = args.number("--mappers", usual, 0..=most)? as usize;
        Ok(Roles { mappers, percent: given.as_deref().map_or(Ok(100), percent)? })
    }

    fn role(&self, index: usize, options: &Options) -> Role {
        let faulters = options.threads - self.mappers;
        if index < faulters {
            Role::Fault(Fresh::map(options.pages))
        } else {
            Role::Map(Mapper::new(self.percent))
        }
    }
}

fn percent(text: &str) -> Parsed<u64> {
    let number = text.parse().ok().filter(|number| *number <= 100);
    number.ok_or_else(|| {
        format!("--mmap-fraction {text}: give a whole number from 0 to 100, percent of the time")
    })
}

fn main() {
    let (options, roles) = Options::parse_with(&PROGRAM, Roles::parse);
    let more = [("mappers", json!(roles.mappers)), ("mmap_fraction", json!(roles.percent))];
    let more = Map::from_iter(more.map(|(name, value)| (name.to_string(), value)));
    options.run_with(
        "faultstorm",
        more,
        |worker| roles.role(worker.index, &options),
        |_, role, round| match role {
            Role::Fault(fresh) => fresh.touch(options.pages, round),
            Role::Map(mapper) => mapper.round(round),
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_map_are_spread_over_a_hundred() {
        for percent in 0..=100 {
            let mapping: Vec<u64> = (0..1000).filter(|round| maps(*round, percent)).collect();
            assert_eq!(mapping.len() as u64, 10 * percent);
            let gaps = mapping.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(gaps.max().is_none_or(|gap| gap <= 100_u64.div_ceil(percent)), "{percent}");
        }
    }
}
