//! Processes share the pages of a file, and then the file loses all its pages: what their counters cost in
//! memory, and how a kernel finds out that no read holds a page any more (the LODIC paper's figures 9 to 12).
//!
//! One process writes the file, has the others read it at the same time, and truncates it. The others read on
//! several CPUs, so that a kernel which counts reads in the page sees them contend. With --mapped they have
//! mapped the pages, touch them, and ask the kernel to count reads there (`read_refs=lodic`). With
//! --untouched they have mapped them and do no more, so a kernel that looks for mappings finds no page.
//!
//! With --file it is a file of the boot image or of the host, which has its pages from there. The process
//! does not truncate it, but advises the kernel to drop its pages (POSIX_FADV_DONTNEED), as the paper's does.
//!
//! RadixVM frees a page some epochs after its file has dropped it, and asks then whether it is read. It
//! hurries if a program asks how much room is left, which the truncation therefore ends with. For the meter
//! it is phase 1. With --keep the file stays, so the counters of the kernel over the window show what the
//! processes share it with.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use abi::memory::MADV_COUNT_READS;
use programs::args::{Args, Parsed};
use programs::benchmark::{MAX_THREADS, MOST_PAGES, Options, Program};
use programs::memory::{PAGE, map_file_at};
use programs::processes::{spawn, wait};
use programs::shared_file::unnamed_empty;
use programs::{cores, marker, require};
use serde_json::{Map, json};

const PROGRAM: Program = Program {
    usage: "usage: hotfile [OPTIONS]\nProcesses share the pages of a file, which loses them in each round.",
    options: "  --processes N   processes that share the file (default 4)\n  \
         --pages N       pages of the file (default 1)\n  \
         --hot N         percent of the pages that they share, the first ones (default 100)\n  \
         --reads N       reads of each of these by each process in a round (default 0)\n  \
         --mapped        they have mapped these, touch them, and have reads counted there\n  \
         --untouched     they have mapped these\n  \
         --keep          the file keeps its pages\n  \
         --file PATH     a file with as many pages, which are dropped by advice\n",
    pages: (0, 0),
    iterations: 20,
};

/// Phases for the meter.
const RESTING: usize = 0;
const DROPPING: usize = 1;
/// Bytes of a read.
const READ: usize = 64;

/// The processes and their work.
#[derive(Clone, Debug, PartialEq)]
struct Sharing {
    processes: usize,
    pages: usize,
    hot: usize,
    reads: usize,
    mapped: bool,
    untouched: bool,
    keep: bool,
    path: Option<PathBuf>,
}

fn sharing(args: &mut Args) -> Parsed<Sharing> {
    let mut number = |name, default, least, most| args.number(name, default, least..=most);
    let processes = number("--processes", 4, 0, MAX_THREADS)? as usize;
    let pages = number("--pages", 1, 1, MOST_PAGES)? as usize;
    let percent = number("--hot", 100, 0, 100)? as usize;
    let reads = number("--reads", 0, 0, 1 << 20)? as usize;
    let [mapped, untouched, keep] = ["--mapped", "--untouched", "--keep"].map(|name| args.flag(name));
    let path = args.value("--file")?.map(PathBuf::from);
    if mapped && untouched {
        return Err("--untouched: it maps the pages as --mapped does, so give one of them".to_owned());
    }
    let hot = (pages * percent).div_ceil(100);
    Ok(Sharing { processes, pages, hot, reads, mapped, untouched, keep, path })
}

/// A process that shares the file, which does its part whenever a byte is written to it.
struct Sharer {
    process: i32,
    tell: PipeWriter,
}

/// The file, and the processes that share it.
struct Shared {
    sharing: Sharing,
    file: OwnedFd,
    sharers: Vec<Sharer>,
    ready: PipeReader,
}

impl Sharing {
    /// Maps the hot pages if they are to be mapped, and returns the address.
    fn map(&self, file: &OwnedFd) -> Option<usize> {
        let length = self.hot * PAGE;
        if length == 0 || !(self.mapped || self.untouched) {
            return None;
        }
        // SAFETY: without MAP_FIXED no mapping is replaced. The advice changes no contents, and kernels that
        // do not know it refuse it.
        unsafe {
            let at = require(map_file_at((0, length), libc::PROT_READ, libc::MAP_SHARED, file, 0), "mmap");
            if self.mapped {
                libc::madvise(at as *mut _, length, MADV_COUNT_READS as i32);
            }
            Some(at)
        }
    }

    /// Touches and reads the hot pages.
    fn share(&self, file: &File, mapping: Option<usize>) {
        if let Some(at) = mapping.filter(|_| self.mapped) {
            // SAFETY: the pages are mapped, and the file has them until this process is ready.
            (0..self.hot).for_each(|page| unsafe {
                ((at + page * PAGE) as *const u64).read_volatile();
            });
        }
        let mut buffer = [0; READ];
        for _ in 0..self.reads {
            for page in 0..self.hot {
                require(file.read_exact_at(&mut buffer, (page * PAGE) as u64), "pread");
            }
        }
    }

    /// Opens the file of `--file`, or makes one.
    fn open(&self) -> File {
        let Some(path) = &self.path else { return unnamed_empty("hotfile") };
        let file = require(File::open(path), path.display().to_string());
        let (has, needs) = (require(file.metadata(), "fstat").len(), (self.pages * PAGE) as u64);
        assert!(has >= needs, "{}: has {has} bytes, not {needs}", path.display());
        file
    }

    /// Starts the processes, one on each of the CPUs, and again from the second on.
    fn start(&self, cpus: &[usize]) -> Shared {
        let file = OwnedFd::from(self.open());
        let (ready, says_ready) = require(io::pipe(), "pipe");
        let mut shared = Shared { sharing: self.clone(), file, sharers: Vec::new(), ready };
        for index in 0..self.processes {
            let (told, tell) = require(io::pipe(), "pipe");
            // It holds the other end too, so it ends by what it is told, and not by the end of the pipe.
            let body = || {
                require(cores::pin(cpus[(index + 1) % cpus.len()]), "sched_setaffinity");
                self.follow(&shared.file, &told, &says_ready);
            };
            let process = require(spawn(body), "fork");
            shared.sharers.push(Sharer { process, tell });
        }
        shared
    }

    /// Does its part for each 1 that is told.
    fn follow(&self, file: &OwnedFd, mut told: &PipeReader, mut says_ready: &PipeWriter) {
        let mapping = self.map(file);
        let file = File::from(require(file.try_clone(), "dup"));
        let mut word = [0];
        loop {
            require(told.read_exact(&mut word), "read");
            if word[0] == 0 {
                return;
            }
            self.share(&file, mapping);
            require(says_ready.write_all(&word), "write");
        }
    }
}

impl Shared {
    /// Tells all processes to do their part, or to end.
    fn tell(&mut self, word: u8) {
        self.sharers.iter_mut().for_each(|sharer| require(sharer.tell.write_all(&[word]), "write"));
    }

    /// Gives the file its pages, has the processes share them, and takes them away.
    fn round(&mut self) {
        let Sharing { pages, processes, keep, path, .. } = self.sharing.clone();
        let file = File::from(require(self.file.try_clone(), "dup"));
        if path.is_none() {
            (0..pages).for_each(|page| {
                require(file.write_all_at(&[7; PAGE], (page * PAGE) as u64), "write");
            });
        }
        self.tell(1);
        require(self.ready.read_exact(&mut vec![0; processes]), "a process is not ready");
        if !keep {
            marker::phase(DROPPING);
            match path {
                None => require(file.set_len(0), "ftruncate"),
                Some(_) => advise_to_drop(&file, pages * PAGE),
            }
            ask_for_room(&file);
            marker::phase(RESTING);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.tell(0);
        for sharer in &self.sharers {
            assert_eq!(require(wait(sharer.process), "waitpid"), Some(0), "a process failed");
        }
    }
}

/// Advises the kernel to drop the first `bytes` of the file.
fn advise_to_drop(file: &File, bytes: usize) {
    // SAFETY: it changes no contents.
    let error = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, bytes as i64, libc::POSIX_FADV_DONTNEED) };
    require(if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }, "posix_fadvise");
}

/// Asks how much room the file's file system has.
fn ask_for_room(file: &File) {
    // SAFETY: all zeroes are a valid `statfs`, which the call fills.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &mut std::mem::zeroed()) };
    require(if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }, "fstatfs");
}

fn main() {
    let (mut options, sharing) = Options::parse_with(&PROGRAM, |args, _| sharing(args));
    // The processes are children of one with one thread.
    options.threads = 1;
    let more = Map::from_iter([
        ("processes".to_owned(), json!(sharing.processes)),
        ("file_pages".to_owned(), json!(sharing.pages)),
        ("hot_pages".to_owned(), json!(sharing.hot)),
    ]);
    // The thread that starts them is pinned by then.
    let cpus = require(cores::allowed(), "sched_getaffinity");
    options.run_with("hotfile", more, |_| sharing.start(&cpus), |_, shared, _| shared.round());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Parsed<Sharing> {
        sharing(&mut Args::new(words.split_whitespace().map(Into::into))?)
    }

    #[test]
    fn a_part_of_the_pages_is_hot() {
        assert_eq!(parse("--pages 30 --hot 10").unwrap().hot, 3);
        assert_eq!(parse("--pages 5 --hot 10").unwrap().hot, 1);
        assert_eq!((parse("--hot 0").unwrap().hot, parse("").unwrap().hot), (0, 1));
        parse("--mapped --untouched").unwrap_err();
    }

    #[test]
    fn a_mapping_shows_the_file_that_is_written_later() {
        let (file, sharing) =
            (OwnedFd::from(unnamed_empty("hotfile-test")), parse("--mapped --reads 2 --pages 2").unwrap());
        let mapping = sharing.map(&file);
        let file = File::from(file);
        file.write_all_at(&[7; 2 * PAGE], 0).unwrap();
        sharing.share(&file, mapping);
        ask_for_room(&file);
        assert!(parse("--pages 2").unwrap().map(&file.into()).is_none() && mapping.is_some());
    }
}
