//! All processes read the same block of one file, always the same bytes: FxMark's DRBH, by which the LODIC
//! paper measures how pages of files are counted. With --by-threads the readers are threads of one process.
//!
//! Processes share the open file and the page, and threads the table of descriptors too. A round changes none
//! of them, so it moves a line only if the kernel counts or locks what a call uses. 64 bytes instead of a
//! page leave little but the count. With --mapped each process maps the block and asks the kernel to count
//! its reads there, as LODIC does (`read_refs=lodic`).
//!
//! With --noise some processes disturb the readers instead (`noise.rs`): they map, touch and unmap the block
//! all the time (the paper's figure 15), or change the file, or make the kernel drop pages of another file.
//! For the meter, a read is phase 1 and a disturbance phase 2.

mod noise;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use programs::args::{Args, Parsed};
use programs::benchmark::{MAX_THREADS, Options, Program};
use programs::memory::PAGE;
use programs::shared_file::{Buffer, Sharers, map_counted, unnamed, unnamed_empty};
use programs::{marker, require};
use serde_json::{Map, json};

use crate::noise::{Noise, Way};

const PROGRAM: Program = Program {
    usage: "usage: drbh [OPTIONS]\nEach process reads the same block of one file.",
    options: "  --bytes N       bytes of the block, 1 to 4096 (default 4096)\n  \
         --by-threads    threads of one process read, instead of processes\n  \
         --each N        threads of each process, as far as there are so many (default 1)\n  \
         --mapped        each process maps the block and has its reads counted there\n  \
         --inherit       with --mapped, the processes are children of the one that has mapped it\n  \
         --regions N     and names N regions, the block's first (default 1)\n  \
         --sharers N     more processes that map the block, and then do nothing (default 0)\n  \
         --among N       as many more that N processes have mapped the block in all (default 0)\n  \
         --noise N       N of the processes map and unmap the block instead of reading it\n  \
         --beside WAY    or do this: extends (the file, and truncate it), truncates (the block),\n                  \
         drops=FILE (pages of another file), sweeps=FILE (touch them)\n",
    pages: (0, 0),
    iterations: 10_000,
};

/// Phases for the meter.
const RESTING: usize = 0;
const READING: usize = 1;
const DISTURBING: usize = 2;

/// The readers and the bytes that each reads.
struct Reading {
    bytes: usize,
    by_threads: bool,
    each: usize,
    mapped: bool,
    inherit: bool,
    regions: usize,
    sharers: usize,
    /// The number of processes that disturb, if phases are told apart.
    noise: Option<usize>,
    beside: Way,
}

fn reading(args: &mut Args, threads: usize) -> Parsed<Reading> {
    const NONE: u64 = u64::MAX;
    let mut number = |name, default, least, most| args.number(name, default, least..=most);
    let bytes = number("--bytes", PAGE as u64, 1, PAGE as u64)? as usize;
    let each = number("--each", 1, 1, MAX_THREADS)?.min(threads as u64) as usize;
    let regions = number("--regions", 1, 1, 64)? as usize;
    let sharers = number("--sharers", 0, 0, MAX_THREADS)? as usize;
    let among = number("--among", 0, 0, MAX_THREADS)? as usize;
    let sharers = sharers.max(among.saturating_sub(threads / each));
    let noise = Some(number("--noise", NONE, 0, threads as u64 - 1)?).filter(|given| *given != NONE);
    let beside = Way::parse(args)?;
    let [by_threads, mapped, inherit] = ["--by-threads", "--mapped", "--inherit"].map(|name| args.flag(name));
    if !threads.is_multiple_of(each) || noise.is_some() && each > 1 {
        return Err(format!("--each {each}: give a number that divides {threads} threads, without --noise"));
    }
    if by_threads && (noise.is_some() || each > 1 || mapped || inherit || regions > 1 || sharers > 0) {
        return Err("--by-threads: threads only read, so give it alone or with --bytes".to_owned());
    }
    if !mapped && (inherit || regions > 1) {
        return Err("--inherit and --regions are about what is mapped: give --mapped, too".to_owned());
    }
    if beside != Way::Maps && noise.is_none_or(|noise| noise == 0) {
        return Err("--beside: no process disturbs, so give --noise N, too".to_owned());
    }
    let noise = noise.map(|noise| noise as usize);
    Ok(Reading { bytes, by_threads, each, mapped, inherit, regions, sharers, noise, beside })
}

/// The work of a process.
enum Role {
    Reads(Box<Buffer>),
    Disturbs(Noise),
}

/// Does one round in a phase of its own.
fn in_phase(phase: usize, round: impl FnOnce()) {
    marker::phase(phase);
    round();
    marker::phase(RESTING);
}

impl Reading {
    /// Returns the role of a process, which has mapped the block if it is to. Threads of a process map it
    /// once.
    fn prepare(&self, file: &File, index: usize, readers: usize, block: &OnceLock<usize>) -> Role {
        if index >= readers {
            return Role::Disturbs(self.beside.prepare(file));
        }
        if self.mapped {
            let block = block.get_or_init(|| self.map(file));
            // SAFETY: it stays mapped. A child of the process that has mapped it has to touch it.
            unsafe { (*block as *const u64).read_volatile() };
        }
        Role::Reads(Buffer::new())
    }

    /// Maps the block and then other files, and has reads counted there. Returns the block's address.
    fn map(&self, file: &File) -> usize {
        let block = map_counted(file, 1);
        (1..self.regions).for_each(|_| _ = map_counted(&unnamed("drbh-other", &[7; PAGE]), 1));
        block
    }

    fn read(&self, file: &File, buffer: &mut Buffer) {
        require(file.read_exact_at(&mut buffer.0[..self.bytes], 0), "pread");
    }

    /// Reads the block, which may not be there at the moment.
    fn read_some(&self, file: &File, buffer: &mut Buffer) {
        require(file.read_at(&mut buffer.0[..self.bytes], 0), "pread");
    }

    fn round(&self, file: &File, role: &mut Role) {
        match role {
            Role::Reads(buffer) if self.noise.is_none() => self.read(file, buffer),
            Role::Reads(buffer) if self.beside == Way::Truncates => {
                in_phase(READING, || self.read_some(file, buffer))
            }
            Role::Reads(buffer) => in_phase(READING, || self.read(file, buffer)),
            Role::Disturbs(noise) => in_phase(DISTURBING, || noise.make()),
        }
    }
}

fn main() {
    let (options, reading) = Options::parse_with(&PROGRAM, reading);
    let file = unnamed_empty("drbh");
    require(file.write_all_at(&[7; PAGE], 0), "writing the file");
    if reading.by_threads {
        let more = Map::from_iter([("bytes".to_string(), json!(reading.bytes))]);
        options.run_with("drbh", more, |_| Buffer::new(), |_, own, _| reading.read(&file, own));
    } else {
        let _sharers = Sharers::start(&file, 1, reading.sharers);
        let (block, readers) = (OnceLock::new(), options.threads - reading.noise.unwrap_or(0));
        if reading.mapped && reading.inherit {
            block.get_or_init(|| reading.map(&file));
        }
        let prepare = |index| reading.prepare(&file, index, readers, &block);
        options.run_teams("drbh", reading.each, prepare, |role, _| reading.round(&file, role));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str, threads: usize) -> Parsed<Reading> {
        let mut args = Args::new(words.split_whitespace().map(Into::into))?;
        reading(&mut args, threads)
    }

    #[test]
    fn threads_of_processes_divide_all() {
        assert_eq!(parse("--each 16", 4).unwrap().each, 4);
        assert!(parse("--each 3", 4).is_err() && parse("--each 2 --noise 1", 4).is_err());
        assert_eq!(
            ["--among 60", "--among 3", "--among 4 --sharers 2"]
                .map(|words| parse(words, 4).unwrap().sharers),
            [56, 0, 2]
        );
        assert!(parse("--noise 4", 4).is_err() && parse("--noise 3", 4).unwrap().noise == Some(3));
        assert_eq!(parse("", 4).unwrap().noise, None);
        assert!(parse("--beside extends", 4).is_err() && parse("--noise 0 --beside extends", 4).is_err());
    }

    #[test]
    fn processes_that_map_read_nothing() {
        let (file, reading) = (unnamed("drbh-test", &[7; PAGE]), parse("--mapped --noise 1", 2).unwrap());
        let block = OnceLock::new();
        let mut roles = [0, 1].map(|index| reading.prepare(&file, index, 1, &block));
        roles.iter_mut().for_each(|role| reading.round(&file, role));
        assert!(block.get().is_some() && matches!(&roles[0], Role::Reads(buffer) if buffer.0 == [7; PAGE]));
        assert!(matches!(roles[1], Role::Disturbs(Noise::Maps(_))));
    }
}
