//! Takes memory until there is none: the program ends with ENOMEM, or is killed. Either is right, but a
//! kernel that hangs or panics is not. A line every 64 chunks tells how far it came.
//!
//! `--reserve` touches nothing, so that the kernel's own memory for mappings runs out. The chunk is the
//! middle one of three, and its neighbours are unmapped again, so that the remaining mappings cannot merge.

use programs::args::{Args, Parsed, options};
use programs::memory::{self, PAGE, READ_WRITE};
use programs::{die, say};
use std::io;

const USAGE: &str = "usage: exhaust [OPTIONS]\nTakes memory until there is none.\n\n  \
    --chunk SIZE  memory mapped at a time (default 1M)\n  \
    --limit SIZE  stop in good health after SIZE (default: never; mind the machine it runs on)\n  \
    --reserve     do not touch the memory, and leave a hole between chunks";

struct Options {
    chunk: usize,
    limit: usize,
    reserve: bool,
}

impl Options {
    fn from(mut args: Args) -> Parsed<Options> {
        let options = Options {
            chunk: (args.size("--chunk", 1 << 20, 1..=1 << 40)? as usize).next_multiple_of(PAGE),
            limit: args.size("--limit", 1 << 56, 1..=1 << 56)? as usize,
            reserve: args.flag("--reserve"),
        };
        args.end().map(|()| options)
    }

    /// Maps a chunk and uses it, unless it is only reserved.
    fn take(&self) -> io::Result<()> {
        if self.reserve {
            let three = memory::map(3 * self.chunk, libc::PROT_NONE)?;
            release(three, self.chunk)?;
            release(three + 2 * self.chunk, self.chunk)
        } else {
            touch(memory::map(self.chunk, READ_WRITE)?, self.chunk);
            Ok(())
        }
    }
}

fn touch(chunk: usize, length: usize) {
    for page in (chunk..chunk + length).step_by(PAGE) {
        // SAFETY: the chunk is mapped writable, and nothing else refers to it.
        unsafe { (page as *mut usize).write_volatile(page) };
    }
}

fn release(chunk: usize, length: usize) -> io::Result<()> {
    // SAFETY: nothing else refers to the chunk.
    unsafe { memory::unmap(chunk, length) }
}

fn main() {
    let options = options(USAGE, Options::from);
    for number in 0..options.limit.div_ceil(options.chunk) {
        let taken = format_args!("{number} chunks of {} KiB", options.chunk >> 10).to_string();
        match options.take() {
            Ok(()) if number.is_multiple_of(64) => say(format_args!("exhaust: {taken}")),
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                return say(format_args!("exhaust: no memory after {taken}"));
            }
            Err(error) => die(format_args!("mmap or munmap after {taken}: {error}")),
        }
    }
    say("exhaust: limit reached");
}
