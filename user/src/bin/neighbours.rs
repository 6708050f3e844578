//! Each thread maps, touches and unmaps pages of its own, always the same ones, in a range that all threads
//! share.
//!
//! The pages of different threads lie in one leaf of the kernel's radix tree, and in one page table, but
//! never on one cache line of either. So two threads share only the leaf itself, whose used slots are
//! counted: every map is an inc of that count, every unmap a dec. With Refcache these stay on their cores.

use programs::benchmark::{Options, Program};
use programs::memory::{self, PAGE, PRIVATE, READ_WRITE};
use programs::require;
use serde_json::{Map, json};

const PROGRAM: Program = Program {
    usage: "usage: neighbours [OPTIONS]\nEach thread maps, touches and unmaps its own pages of a range that all threads \
            share.",
    options: "",
    pages: (1, STRIDE as u64 - 1),
    iterations: 10_000,
};

/// Pages from one thread's first page to the next one's: 8 entries of a page table are a line, and slots are
/// larger.
const STRIDE: usize = 8;
/// Number of pages that a leaf covers, aligned.
const LEAF: usize = 512;

/// Returns the first page of a thread, counted from the start of the first leaf.
fn first_page(index: usize) -> usize {
    index * STRIDE
}

/// Returns the address where the first leaf starts. The range stays reserved without access except for the
/// threads' own pages, so that no leaf is ever empty.
fn reserve(threads: usize) -> usize {
    let leaves = first_page(threads).div_ceil(LEAF);
    let room = require(memory::map((leaves + 1) * LEAF * PAGE, libc::PROT_NONE), "mmap of the range");
    room.next_multiple_of(LEAF * PAGE)
}

fn map(address: usize, length: usize) {
    // SAFETY: the pages are this thread's alone, and it holds no reference into them.
    let mapped = unsafe { memory::map_at(address, length, READ_WRITE, PRIVATE | libc::MAP_FIXED) };
    require(mapped, "mmap");
}

fn touch(address: usize, pages: usize, word: u64) {
    for page in 0..pages {
        // SAFETY: the page was mapped writable by this thread, and is its own.
        unsafe { ((address + page * PAGE) as *mut u64).write_volatile(word) };
    }
}

fn unmap(address: usize, length: usize) {
    // SAFETY: as for `map`.
    require(unsafe { memory::unmap(address, length) }, "munmap");
}

fn main() {
    let (options, ()) = Options::parse_with(&PROGRAM, |_, _| Ok(()));
    let base = reserve(options.threads);
    let length = options.pages * PAGE;
    let more = Map::from_iter([("stride".to_string(), json!(STRIDE))]);
    options.run_with(
        "neighbours",
        more,
        |worker| base + first_page(worker.index) * PAGE,
        |_, address, round| {
            map(*address, length);
            touch(*address, options.pages, round);
            unmap(*address, length);
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_leaves_but_never_a_line() {
        assert_eq!(first_page(LEAF / STRIDE), LEAF);
        let line = |page: usize| page * 8 / 64;
        let last_page = |index| first_page(index) + PROGRAM.pages.1 as usize - 1;
        assert!((1..256).all(|index| line(last_page(index - 1)) < line(first_page(index))));
    }

    #[test]
    fn the_range_starts_at_a_leaf() {
        assert!(reserve(65).is_multiple_of(LEAF * PAGE));
    }
}
