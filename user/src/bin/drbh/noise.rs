//! The work of the processes that do not read (--noise): each disturbs the readers in one way.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use programs::args::{Args, Parsed};
use programs::memory::{PAGE, Region, map_file_at, unmap};
use programs::require;
use programs::shared_file::Buffer;

/// Pages of another file that a round touches.
const PAGES: usize = 16;

/// Rounds from one truncation of the block to the next. Meanwhile the readers have its page.
const READS: usize = 64;

/// A way to disturb.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// Maps, touches and unmaps the block.
    Maps,
    /// Writes a second page of the file, and truncates it away.
    Extends,
    /// Truncates the block itself and writes it anew, in one of [`READS`] rounds, and reads it in the others.
    /// Reads may be short.
    Truncates,
    /// Touches pages of a mapping of another file, and has the file drop them by advice.
    Drops(String),
    /// Touches pages of a mapping of another file, beside memory of half its size. If both do not fit, the
    /// kernel has to reclaim pages of the file.
    Sweeps(String),
}

impl Way {
    /// Reads the option `--beside`.
    pub fn parse(args: &mut Args) -> Parsed<Way> {
        let Some(text) = args.value("--beside")? else { return Ok(Way::Maps) };
        match text.split_once('=') {
            None if text == "extends" => Ok(Way::Extends),
            None if text == "truncates" => Ok(Way::Truncates),
            Some(("drops", file)) => Ok(Way::Drops(file.to_owned())),
            Some(("sweeps", file)) => Ok(Way::Sweeps(file.to_owned())),
            _ => Err(format!("--beside {text}: give extends, truncates, drops=FILE or sweeps=FILE")),
        }
    }

    /// Returns the work of a process, for the file with the block.
    pub fn prepare(&self, file: &File) -> Noise {
        let file = require(file.try_clone(), "dup");
        match self {
            Way::Maps => Noise::Maps(file.into()),
            Way::Extends => Noise::Extends(file),
            Way::Truncates => Noise::Truncates(file, Buffer::new(), 0),
            Way::Drops(path) => Noise::Other(Sweep::new(path, true)),
            Way::Sweeps(path) => {
                let sweep = Sweep::new(path, false);
                fill(sweep.pages / 2);
                Noise::Other(sweep)
            }
        }
    }
}

/// The work of a process, with what it needs.
pub enum Noise {
    Maps(OwnedFd),
    Extends(File),
    Truncates(File, Box<Buffer>, usize),
    Other(Sweep),
}

impl Noise {
    /// Does it once.
    pub fn make(&mut self) {
        match self {
            Noise::Maps(file) => map_once(file),
            Noise::Extends(file) => cut(file, 1),
            Noise::Truncates(file, buffer, round) => {
                if round.is_multiple_of(READS) {
                    cut(file, 0);
                }
                require(file.read_exact_at(&mut buffer.0, 0), "pread");
                *round += 1;
            }
            Noise::Other(sweep) => sweep.step(),
        }
    }
}

/// Cuts the file off behind its first `pages` pages, and writes the next one.
fn cut(file: &File, pages: u64) {
    let end = pages * PAGE as u64;
    require(file.set_len(end), "ftruncate");
    require(file.write_all_at(&[7; PAGE], end), "pwrite");
}

/// Maps, touches and unmaps the block.
fn map_once(file: &OwnedFd) {
    // SAFETY: without MAP_FIXED no mapping is replaced, the file is not written, and the page is unmapped by
    // its only user.
    unsafe {
        let at = require(map_file_at((0, PAGE), libc::PROT_READ, libc::MAP_SHARED, file, 0), "mmap");
        (at as *const u64).read_volatile();
        require(unmap(at, PAGE), "munmap");
    }
}

/// Takes memory for as long as the process lives.
fn fill(pages: usize) {
    let mut memory = require(Region::map(pages), "mmap");
    (0..pages).for_each(|page| memory.write_page(page, 1));
    memory.into_address();
}

/// A mapping of a large file that is gone through, again and again.
pub struct Sweep {
    file: OwnedFd,
    start: usize,
    pages: usize,
    next: usize,
    drops: bool,
}

impl Sweep {
    fn new(path: &str, drops: bool) -> Self {
        let file = require(File::open(path), path);
        let pages = require(file.metadata(), path).len() as usize / PAGE / PAGES * PAGES;
        let file = OwnedFd::from(file);
        // SAFETY: without MAP_FIXED no mapping is replaced, and the file is not written.
        let mapped = unsafe { map_file_at((0, pages * PAGE), libc::PROT_READ, libc::MAP_SHARED, &file, 0) };
        Self { start: require(mapped, "mmap"), file, pages, next: 0, drops }
    }

    fn step(&mut self) {
        let first = self.start + self.next * PAGE;
        for page in 0..PAGES {
            // SAFETY: it lies in the mapping, which stays.
            unsafe { ((first + page * PAGE) as *const u64).read_volatile() };
        }
        if self.drops {
            let (at, len) = ((self.next * PAGE) as libc::off_t, (PAGES * PAGE) as libc::off_t);
            // SAFETY: advice changes no contents.
            let error =
                unsafe { libc::posix_fadvise(self.file.as_raw_fd(), at, len, libc::POSIX_FADV_DONTNEED) };
            assert_eq!(error, 0, "posix_fadvise");
        }
        self.next = (self.next + PAGES) % self.pages;
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;
    use programs::shared_file::unnamed_empty;

    fn way(words: &str) -> Parsed<Way> {
        Way::parse(&mut Args::new(words.split_whitespace().map(Into::into))?)
    }

    #[test]
    fn ways_have_names() {
        assert_eq!(way(""), Ok(Way::Maps));
        assert_eq!(way("--beside extends"), Ok(Way::Extends));
        assert_eq!(way("--beside drops=/big"), Ok(Way::Drops("/big".to_owned())));
        assert!(way("--beside drops").is_err() && way("--beside maps=1").is_err());
    }

    #[test]
    fn the_block_has_its_bytes_after_each_noise() {
        let this = env::current_exe().unwrap().display().to_string();
        for way in [Way::Extends, Way::Truncates, Way::Maps, Way::Sweeps(this.clone()), Way::Drops(this)] {
            let (file, mut block) = (unnamed_empty("drbh-noise"), [0; PAGE]);
            require(file.write_all_at(&[7; PAGE], 0), "pwrite");
            let mut noise = way.prepare(&file);
            (0..2).for_each(|_| noise.make());
            require(file.read_exact_at(&mut block, 0), "pread");
            let pages = if way == Way::Extends { 2 } else { 1 };
            assert_eq!((block, file.metadata().unwrap().len()), ([7; PAGE], pages * PAGE as u64), "{way:?}");
        }
    }
}
