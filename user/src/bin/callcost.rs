//! One memory call, or one touch, in each round, and nothing else: what that costs.
//!
//! What a round works on is made before the first one. Every region has nothing beside it, so that each is a mapping of its
//! own on any kernel.

use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::memory::{self, PAGE, PRIVATE, READ_WRITE};
use programs::require;
use serde_json::{Map, json};

const PROGRAM: Program = Program {
    usage: "usage: callcost KIND [OPTIONS]\nOne call in each round. KIND: mmap, mmap-touch, fault, munmap, \
            munmap-touched, mprotect.",
    options: "",
    pages: (1, 512),
    iterations: 4000,
};

/// Bytes of address space for one thread's regions.
const PART: usize = 1 << 30;
/// Where the first one's begin.
const FIRST_PART: usize = 64 << 30;

/// What a round does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Maps a region.
    Map,
    /// Maps one and writes to its pages.
    MapTouch,
    /// Writes to the pages of a region for the first time.
    Fault,
    /// Unmaps one that nobody has touched.
    Unmap,
    /// Unmaps one whose pages are in memory.
    UnmapTouched,
    /// Takes away the right to write to pages that are in memory.
    Protect,
}

impl Kind {
    fn parse(args: &mut Args) -> Parsed<Kind> {
        match args.word().as_deref() {
            Some("mmap") => Ok(Kind::Map),
            Some("mmap-touch") => Ok(Kind::MapTouch),
            Some("fault") => Ok(Kind::Fault),
            Some("munmap") => Ok(Kind::Unmap),
            Some("munmap-touched") => Ok(Kind::UnmapTouched),
            Some("mprotect") => Ok(Kind::Protect),
            _ => Err("which call? mmap, mmap-touch, fault, munmap, munmap-touched or mprotect".to_string()),
        }
    }

    fn needs_regions(self) -> bool {
        !matches!(self, Kind::Map | Kind::MapTouch)
    }

    fn needs_contents(self) -> bool {
        matches!(self, Kind::UnmapTouched | Kind::Protect)
    }
}

/// One thread's regions.
struct Work {
    kind: Kind,
    pages: usize,
    regions: std::vec::IntoIter<usize>,
}

impl Work {
    fn prepare(kind: Kind, index: usize, pages: usize, rounds: usize) -> Work {
        let rounds = if kind.needs_regions() { rounds } else { 0 };
        let regions: Vec<usize> = places(index, pages, rounds).collect();
        for &address in &regions {
            let flags = PRIVATE | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: nothing is replaced.
            require(unsafe { memory::map_at(address, pages * PAGE, READ_WRITE, flags) }, "mmap");
            if kind.needs_contents() {
                touch(address, pages);
            }
        }
        Work { kind, pages, regions: regions.into_iter() }
    }

    #[inline(always)]
    fn next(&mut self) -> usize {
        self.regions.next().expect("there is a region for each round")
    }

    #[inline(always)]
    fn round(&mut self) {
        let length = self.pages * PAGE;
        match self.kind {
            Kind::Map => drop(require(memory::map(length, READ_WRITE), "mmap")),
            Kind::MapTouch => touch(require(memory::map(length, READ_WRITE), "mmap"), self.pages),
            Kind::Fault => touch(self.next(), self.pages),
            Kind::Unmap | Kind::UnmapTouched => {
                // SAFETY: each region is taken once, and nothing refers into it.
                require(unsafe { memory::unmap(self.next(), length) }, "munmap")
            }
            Kind::Protect => {
                // SAFETY: nothing writes to the region from now on.
                require(unsafe { memory::protect(self.next(), length, libc::PROT_READ) }, "mprotect")
            }
        }
    }
}

/// Addresses of `rounds` regions with as much room between them, in a part of the address space that is the thread's own:
/// above what is loaded, and below where kernels put what may go anywhere.
fn places(index: usize, pages: usize, rounds: usize) -> impl Iterator<Item = usize> {
    let stride = 2 * pages * PAGE;
    assert!(stride * rounds <= PART, "fewer --iterations, or fewer --pages");
    (0..rounds).map(move |round| FIRST_PART + index * PART + round * stride)
}

#[inline(always)]
fn touch(address: usize, pages: usize) {
    for page in 0..pages {
        // SAFETY: the pages were mapped writable by this thread, which has told nobody.
        unsafe { ((address + page * PAGE) as *mut u64).write_volatile(1) };
    }
}

fn main() {
    let (options, kind) = Options::parse_with(&PROGRAM, |args, _| Kind::parse(args));
    let rounds = (options.warm_up + options.iterations) as usize;
    let more = Map::from_iter([("kind".to_string(), json!(format!("{kind:?}")))]);
    options.run_with(
        "callcost",
        more,
        |worker| Work::prepare(kind, worker.index, options.pages, rounds),
        |_, work, _| work.round(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_does_its_rounds() {
        let kinds = [Kind::Map, Kind::MapTouch, Kind::Fault, Kind::Unmap, Kind::UnmapTouched, Kind::Protect];
        for (index, kind) in kinds.into_iter().enumerate() {
            let mut work = Work::prepare(kind, index, 2, 3);
            (0..3).for_each(|_| work.round());
            assert!(work.regions.next().is_none(), "{kind:?}");
        }
    }

    #[test]
    fn regions_have_gaps_between_them() {
        let regions: Vec<usize> = places(1, 2, 3).collect();
        assert!(regions.windows(2).all(|pair| pair[1] - pair[0] == 4 * PAGE));
        assert_eq!(regions[0], places(0, 2, 1).next().unwrap() + PART);
    }
}
