//! All processes read the same block of one file, always the same bytes: FxMark's DRBH, by which the LODIC
//! paper measures how pages of files are counted. With --by-threads the readers are threads of one process.
//!
//! Processes share the open file and the page, and threads the table of descriptors too. A round changes none
//! of them, so it moves a line only if the kernel counts or locks what a call uses. 64 bytes instead of a
//! page leave little but the count. With --mapped each process maps the block and asks the kernel to count
//! its reads there, as LODIC does (`read_refs=lodic`).

use std::cell::{Cell, RefCell};
use std::env;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use abi::memory::MADV_COUNT_READS;
use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::memory::{PAGE, map_file_at};
use programs::require;
use serde_json::{Map, json};

const PROGRAM: Program = Program {
    usage: "usage: drbh [OPTIONS]\nEach process reads the same block of one file.",
    options: "  --bytes N       bytes of the block, 1 to 4096 (default 4096)\n  \
         --by-threads    threads of one process read, instead of processes\n  \
         --mapped        each process maps the block and has its reads counted there\n",
    pages: (0, 0),
    iterations: 10_000,
};

/// The readers and the bytes that each reads.
struct Reading {
    bytes: usize,
    by_threads: bool,
    mapped: bool,
}

fn reading(args: &mut Args) -> Parsed<Reading> {
    let bytes = args.number("--bytes", PAGE as u64, 1..=PAGE as u64)? as usize;
    Ok(Reading { bytes, by_threads: args.flag("--by-threads"), mapped: args.flag("--mapped") })
}

/// Memory to read into, in a page of its own: no two readers write to one line.
#[repr(align(4096))]
struct Buffer([u8; PAGE]);

impl Buffer {
    fn new() -> Box<Self> {
        Box::new(Self([0; PAGE]))
    }
}

/// Makes a file of one page that has no name any more.
fn block() -> File {
    let path = env::temp_dir().join(format!("drbh-{}", std::process::id()));
    require(std::fs::write(&path, [7; PAGE]), "writing the file");
    let file = require(File::open(&path), "opening the file");
    require(std::fs::remove_file(&path), "removing the file's name");
    file
}

/// Maps the block, for as long as the process lives, and asks the kernel to count reads there. Other kernels
/// do not know this advice.
fn map(file: &File) {
    let file = OwnedFd::from(require(file.try_clone(), "dup"));
    // SAFETY: without MAP_FIXED no mapping is replaced, and the file is not written. The page is mapped for
    // reading, and the advice changes no contents.
    unsafe {
        let at = require(map_file_at((0, PAGE), libc::PROT_READ, libc::MAP_SHARED, &file, 0), "mmap");
        (at as *const u64).read_volatile();
        libc::madvise(at as *mut _, PAGE, MADV_COUNT_READS as i32);
    }
}

fn main() {
    let (options, Reading { bytes, by_threads, mapped }) =
        Options::parse_with(&PROGRAM, |args, _| reading(args));
    let file = block();
    let read = |buffer: &mut Buffer| require(file.read_exact_at(&mut buffer.0[..bytes], 0), "pread");
    if by_threads {
        let more = Map::from_iter([("bytes".to_string(), json!(bytes))]);
        options.run_with("drbh", more, |_| Buffer::new(), |_, own, _| read(own));
    } else {
        // Each process has a copy, which it touches in its first rounds.
        let (own, to_map) = (RefCell::new(Buffer::new()), Cell::new(mapped));
        options.run_processes("drbh", |_| {
            if to_map.take() {
                map(&file);
            }
            read(&mut own.borrow_mut());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_a_page_of_a_file_without_a_name() {
        let (file, mut page) = (block(), [0; PAGE]);
        file.read_exact_at(&mut page, 0).unwrap();
        assert_eq!((page, file.metadata().unwrap().len()), ([7; PAGE], PAGE as u64));
    }
}
