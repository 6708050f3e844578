//! A call on a range of pages, or a few related calls, in each round. Measures the price of size where little
//! of the range is used. `microbench` has the calls on single pages.

mod threads;

use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::memory::{self, PAGE, PRIVATE, READ_WRITE};
use programs::{die, require};
use serde_json::{Map, json};
use std::fs::File;
use std::io::Read;

const PROGRAM: Program = Program {
    usage: "usage: calls KIND [OPTIONS]\nA call on a range, or a few that belong together, in each round. KIND: map, stack, discard, \
            protect, mincore, scattered, thread, kept-thread, maps, stat.",
    options: "",
    pages: (2048, 1 << 22),
    iterations: 400,
};

/// Private memory that is not reserved: a range may be larger than the machine's memory.
const UNRESERVED: i32 = PRIVATE | libc::MAP_NORESERVE;
/// Start of the scattered pages: above the program, and below the mappings that kernels place themselves.
const SCATTERED: usize = 1 << 44;
/// Bytes from one scattered page to the next.
const STRIDE: usize = 1 << 31;
/// Bytes of addresses for scattered pages.
const ROOM: usize = 1 << 46;

/// The call of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Maps a range, writes to its first page, unmaps it.
    Map,
    /// Uses a range as a thread's stack: maps it without rights, makes it writable, writes its last page,
    /// unmaps it.
    Stack,
    /// Writes to the first and the last page of a range of small pages, and drops all of its contents.
    Discard,
    /// Takes away the right to write to a range of which two pages are in memory, and gives it back.
    Protect,
    /// Asks which pages of such a range are in memory.
    Mincore,
    /// Unmaps a range with pages that lie far apart, as many as `--pages` says, all touched.
    Scattered,
    /// Starts a thread whose stack is a new range, and waits for its end.
    Thread,
    /// Does the same with a stack that is kept. The thread drops its contents at its end, as glibc's do.
    KeptThread,
    /// Reads /proc/self/maps.
    Maps,
    /// Reads /proc/self/stat.
    Stat,
}

const KINDS: [(&str, Kind); 10] = [
    ("map", Kind::Map),
    ("stack", Kind::Stack),
    ("discard", Kind::Discard),
    ("protect", Kind::Protect),
    ("mincore", Kind::Mincore),
    ("scattered", Kind::Scattered),
    ("thread", Kind::Thread),
    ("kept-thread", Kind::KeptThread),
    ("maps", Kind::Maps),
    ("stat", Kind::Stat),
];

impl Kind {
    fn parse(args: &mut Args) -> Parsed<(&'static str, Kind)> {
        let word = args.word();
        let known = KINDS.into_iter().find(|(name, _)| word.as_deref() == Some(name));
        known.ok_or_else(|| format!("which kind? {}", KINDS.map(|(name, _)| name).join(", ")))
    }
}

/// The data of one thread's rounds.
struct Work {
    kind: Kind,
    /// Bytes of the range.
    length: usize,
    /// The range that is used in all rounds, or the place of the next round's.
    place: usize,
    /// Buffer for the answer of a call.
    answer: Vec<u8>,
}

impl Work {
    fn prepare(kind: Kind, pages: usize, rounds: usize) -> Work {
        let length = pages * PAGE;
        let place = match kind {
            Kind::KeptThread => map(length, READ_WRITE),
            Kind::Discard | Kind::Protect | Kind::Mincore => touched(length),
            Kind::Scattered => scatter(pages * rounds),
            _ => 0,
        };
        Work { kind, length, place, answer: vec![0; pages.max(1 << 16)] }
    }

    fn round(&mut self) {
        let Work { kind, length, place, .. } = *self;
        match kind {
            Kind::Map => {
                let range = map(length, READ_WRITE);
                touch(range);
                unmap(range, length);
            }
            Kind::Stack => {
                let range = map(length, libc::PROT_NONE);
                protect(range, length, READ_WRITE);
                touch(range + length - PAGE);
                unmap(range, length);
            }
            Kind::Discard => {
                touch(place);
                touch(place + length - PAGE);
                // SAFETY: nothing refers into the range.
                require(unsafe { memory::discard(place, length) }, "madvise");
            }
            Kind::Protect => {
                protect(place, length, libc::PROT_READ);
                protect(place, length, READ_WRITE);
            }
            Kind::Mincore => require(memory::resident(place, length, &mut self.answer), "mincore"),
            Kind::Scattered => {
                let span = length / PAGE * STRIDE;
                self.place += span;
                unmap(place, span);
            }
            Kind::Thread => threads::with_new_stack(length),
            Kind::KeptThread => threads::with_kept_stack(place, length),
            Kind::Maps => self.read("/proc/self/maps"),
            Kind::Stat => self.read("/proc/self/stat"),
        }
    }

    /// Reads a file to its end.
    fn read(&mut self, path: &str) {
        let mut file = require(File::open(path), path);
        while require(file.read(&mut self.answer), path) > 0 {}
    }
}

fn map(length: usize, rights: i32) -> usize {
    // SAFETY: no mapping is replaced.
    require(unsafe { memory::map_at(0, length, rights, UNRESERVED) }, "mmap")
}

/// Maps a range of small pages whose first and last page are in memory.
fn touched(length: usize) -> usize {
    let range = map(length, READ_WRITE);
    require(memory::small_pages(range, length), "madvise");
    touch(range);
    touch(range + length - PAGE);
    range
}

/// Maps and touches `pages` pages, each a stride from the next, and returns where they begin.
fn scatter(pages: usize) -> usize {
    for address in (0..pages).map(|page| SCATTERED + page * STRIDE) {
        let flags = PRIVATE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: no mapping is replaced.
        touch(require(unsafe { memory::map_at(address, PAGE, READ_WRITE, flags) }, "mmap"));
    }
    SCATTERED
}

fn touch(address: usize) {
    // SAFETY: the caller has mapped the page writable, for itself.
    unsafe { (address as *mut u64).write_volatile(1) };
}

fn protect(address: usize, length: usize, rights: i32) {
    // SAFETY: nothing refers into the range while it cannot be written.
    require(unsafe { memory::protect(address, length, rights) }, "mprotect")
}

fn unmap(address: usize, length: usize) {
    // SAFETY: the range was this round's, and nothing refers into it.
    require(unsafe { memory::unmap(address, length) }, "munmap")
}

fn main() {
    let (options, (name, kind)) = Options::parse_with(&PROGRAM, |args, _| Kind::parse(args));
    let rounds = (options.warm_up + options.iterations) as usize;
    if kind == Kind::Scattered && (options.threads > 1 || options.pages * rounds > ROOM / STRIDE) {
        die(
            "scattered pages are for one thread and need many addresses: fewer --iterations, or fewer --pages",
        );
    }
    options.run_with(
        "calls",
        Map::from_iter([("kind".to_string(), json!(name))]),
        |_| Work::prepare(kind, options.pages, rounds),
        |_, work, _| work.round(),
    );
}
