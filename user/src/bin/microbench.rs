//! Measures one memory call, or one touch, in each round, and nothing else. These are the five
//! microbenchmarks of the CortenMM paper (SOSP 2025), and `mprotect`.
//!
//! ```text
//! low contention: every thread has regions of its own,     high contention: all work on one, whose pages go round
//! with gaps, so that each is a mapping of its own
//!
//!   0000 .... 0000 ....        1111 .... 1111 ....           0123 0123 0123 0123
//! ```
//! The regions of all rounds are made before the first. With high contention no page has two users either:
//! threads share the mapping, the kernel's records of it, and the page tables.

use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::memory::{self, PAGE, PRIVATE, READ_WRITE};
use programs::{die, require};
use serde_json::{Map, json};

const PROGRAM: Program = Program {
    usage: "usage: microbench KIND [OPTIONS]\nOne call, or one touch, in each round. KIND: mmap, mmap-PF, PF, unmap-virt, \
            unmap, mprotect.",
    options: "  --contention C  low: regions of each thread's own; high: all threads in one region (default low)\n",
    pages: (1, 512),
    iterations: 4000,
};

/// Bytes of address space for one thread's regions.
const PART: usize = 1 << 30;
/// Start of the first thread's regions: above the program, and below the mappings that kernels place
/// themselves.
const FIRST_PART: usize = 64 << 30;

/// The call of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Maps a region.
    Map,
    /// Maps a region and writes to its pages.
    MapTouch,
    /// Writes to the pages of a region for the first time.
    Fault,
    /// Unmaps a region that was never touched.
    Unmap,
    /// Unmaps a region whose pages are in memory.
    UnmapTouched,
    /// Makes pages that are in memory read-only.
    Protect,
}

/// Kinds by their names. These are the papers' names where they have one.
const KINDS: [(&str, Kind); 6] = [
    ("mmap", Kind::Map),
    ("mmap-PF", Kind::MapTouch),
    ("PF", Kind::Fault),
    ("unmap-virt", Kind::Unmap),
    ("unmap", Kind::UnmapTouched),
    ("mprotect", Kind::Protect),
];

impl Kind {
    fn needs_regions(self) -> bool {
        !matches!(self, Kind::Map | Kind::MapTouch)
    }

    fn needs_contents(self) -> bool {
        matches!(self, Kind::UnmapTouched | Kind::Protect)
    }
}

/// The program's own options.
struct Choice {
    name: &'static str,
    kind: Kind,
    /// Whether all threads work in one region.
    shared: bool,
}

impl Choice {
    fn parse(args: &mut Args) -> Parsed<Choice> {
        let shared = shared(args)?;
        let word = args.word();
        let known = KINDS.into_iter().find(|(name, _)| word.as_deref() == Some(name));
        let (name, kind) = known.ok_or("which kind? mmap, mmap-PF, PF, unmap-virt, unmap or mprotect")?;
        Ok(Choice { name, kind, shared })
    }

    fn contention(&self) -> &'static str {
        if self.shared { "high" } else { "low" }
    }

    fn layout(&self, index: usize, threads: usize, pages: usize) -> Layout {
        let length = pages * PAGE;
        if self.shared { Layout::shared(index, threads, length) } else { Layout::own(index, length) }
    }
}

/// Returns whether `--contention` is high.
fn shared(args: &mut Args) -> Parsed<bool> {
    match args.value("--contention")?.as_deref() {
        None | Some("low") => Ok(false),
        Some("high") => Ok(true),
        Some(word) => Err(format!("--contention {word}: give low or high")),
    }
}

/// The place of one thread's regions.
#[derive(Clone, Copy)]
struct Layout {
    first: usize,
    stride: usize,
    length: usize,
}

impl Layout {
    /// Places the regions in a part of the address space that is the thread's own, with gaps as long as a
    /// region.
    fn own(index: usize, length: usize) -> Layout {
        Layout { first: FIRST_PART + index * PART, stride: 2 * length, length }
    }

    /// Places the regions between those of the other threads, without gaps.
    fn shared(index: usize, threads: usize, length: usize) -> Layout {
        Layout { first: FIRST_PART + index * length, stride: threads * length, length }
    }

    fn place(self, round: usize) -> usize {
        self.first + round * self.stride
    }
}

/// One thread's regions.
struct Work {
    kind: Kind,
    layout: Layout,
    /// Whether the place of a new region matters.
    placed: bool,
    next: usize,
}

impl Work {
    /// Makes the regions. The one that all threads share is mapped already.
    fn prepare(kind: Kind, layout: Layout, shared: bool, rounds: usize) -> Work {
        let rounds = if kind.needs_regions() { rounds } else { 0 };
        for address in (0..rounds).map(|round| layout.place(round)) {
            if !shared {
                map_new(address, layout.length);
            }
            if kind.needs_contents() {
                touch(address, layout.length);
            }
        }
        Work { kind, layout, placed: shared, next: 0 }
    }

    #[inline(always)]
    fn place(&mut self) -> usize {
        self.next += 1;
        self.layout.place(self.next - 1)
    }

    #[inline(always)]
    fn map(&mut self) -> usize {
        let length = self.layout.length;
        if self.placed {
            map_new(self.place(), length)
        } else {
            require(memory::map(length, READ_WRITE), "mmap")
        }
    }

    #[inline(always)]
    fn round(&mut self) {
        let length = self.layout.length;
        match self.kind {
            Kind::Map => drop(self.map()),
            Kind::MapTouch => touch(self.map(), length),
            Kind::Fault => touch(self.place(), length),
            Kind::Unmap | Kind::UnmapTouched => {
                // SAFETY: each region is taken once, and nothing refers into it.
                require(unsafe { memory::unmap(self.place(), length) }, "munmap")
            }
            Kind::Protect => {
                // SAFETY: nothing writes to the region from now on.
                require(unsafe { memory::protect(self.place(), length, libc::PROT_READ) }, "mprotect")
            }
        }
    }
}

#[inline(always)]
fn map_new(address: usize, length: usize) -> usize {
    let flags = PRIVATE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: no mapping is replaced.
    require(unsafe { memory::map_at(address, length, READ_WRITE, flags) }, "mmap")
}

#[inline(always)]
fn touch(address: usize, length: usize) {
    for page in (address..address + length).step_by(PAGE) {
        // SAFETY: the pages were mapped writable, and the thread has them for itself.
        unsafe { (page as *mut u64).write_volatile(1) };
    }
}

/// Maps the region of all threads, as one mapping of small pages.
fn map_shared(length: usize) {
    require(memory::small_pages(map_new(FIRST_PART, length), length), "madvise");
}

fn main() {
    let (options, choice) = Options::parse_with(&PROGRAM, |args, _| Choice::parse(args));
    let rounds = (options.warm_up + options.iterations) as usize;
    let length = options.pages * PAGE;
    if rounds > PART / (2 * length) {
        die("that many rounds need too many addresses: fewer --iterations, or fewer --pages");
    }
    if choice.shared && choice.kind.needs_regions() {
        map_shared(options.threads * rounds * length);
    }
    let more = [("kind", json!(choice.name)), ("contention", json!(choice.contention()))];
    let layout = |index| choice.layout(index, options.threads, options.pages);
    options.run_with(
        "microbench",
        Map::from_iter(more.map(|(name, value)| (name.to_string(), value))),
        |worker| Work::prepare(choice.kind, layout(worker.index), choice.shared, rounds),
        |_, work, _| work.round(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_one_thread_have_gaps_between_them() {
        let layout = Layout::own(1, 2 * PAGE);
        assert_eq!((layout.place(0), layout.place(1)), (FIRST_PART + PART, FIRST_PART + PART + 4 * PAGE));
        assert_eq!(Layout::own(2, PAGE).place(0), layout.place(0) + PART);
    }

    #[test]
    fn shared_regions_fill_the_range_and_each_has_one_owner() {
        let places =
            (0..3).flat_map(|index| (0..5).map(move |round| Layout::shared(index, 3, PAGE).place(round)));
        let mut places: Vec<usize> = places.collect();
        places.sort_unstable();
        assert!(places.iter().copied().eq((0..15).map(|page| FIRST_PART + page * PAGE)));
    }
}
