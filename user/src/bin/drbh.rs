//! All processes read the same block of one file, always the same bytes: FxMark's DRBH, by which the LODIC
//! paper measures how pages of files are counted. With --by-threads the readers are threads of one process.
//!
//! Processes share the open file and the page, and threads the table of descriptors too. A round changes none
//! of them, so it moves a line only if the kernel counts or locks what a call uses. 64 bytes instead of a
//! page leave little but the count. With --mapped each process maps the block and asks the kernel to count
//! its reads there, as LODIC does (`read_refs=lodic`).

use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileExt;

use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::memory::PAGE;
use programs::require;
use programs::shared_file::{Buffer, map_counted, unnamed};
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

fn main() {
    let (options, Reading { bytes, by_threads, mapped }) =
        Options::parse_with(&PROGRAM, |args, _| reading(args));
    let file = unnamed("drbh", &[7; PAGE]);
    let read = |buffer: &mut Buffer| require(file.read_exact_at(&mut buffer.0[..bytes], 0), "pread");
    if by_threads {
        let more = Map::from_iter([("bytes".to_string(), json!(bytes))]);
        options.run_with("drbh", more, |_| Buffer::new(), |_, own, _| read(own));
    } else {
        // Each process has a copy, which it touches in its first rounds.
        let (own, to_map) = (RefCell::new(Buffer::new()), Cell::new(mapped));
        options.run_processes("drbh", |_| {
            if to_map.take() {
                map_counted(&file, 1);
            }
            read(&mut own.borrow_mut());
        });
    }
}
