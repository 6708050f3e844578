//! A file that many processes or threads read, for the benchmarks of how its pages are counted.

use std::env;
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::process;

use abi::memory::MADV_COUNT_READS;

use crate::memory::{PAGE, map_file_at};
use crate::processes::{spawn, wait};
use crate::require;

/// Memory to read into, in a page of its own: no two readers write to one line.
#[repr(align(4096))]
pub struct Buffer(pub [u8; PAGE]);

impl Buffer {
    /// Makes a buffer of zeroes.
    pub fn new() -> Box<Self> {
        Box::new(Self([0; PAGE]))
    }
}

/// Makes a file with these contents that has no name any more, and opens it for reading.
pub fn unnamed(program: &str, contents: &[u8]) -> File {
    let path = env::temp_dir().join(format!("{program}-{}", process::id()));
    require(fs::write(&path, contents), "writing the file");
    let file = require(File::open(&path), "opening the file");
    require(fs::remove_file(&path), "removing the file's name");
    file
}

/// Makes an empty file that has no name any more, and opens it for reading and writing.
pub fn unnamed_empty(program: &str) -> File {
    let path = env::temp_dir().join(format!("{program}-{}", process::id()));
    let mut options = File::options();
    let file =
        require(options.read(true).write(true).create(true).truncate(true).open(&path), "making the file");
    require(fs::remove_file(&path), "removing the file's name");
    file
}

/// Maps the first `pages` pages of the file, for as long as the process lives, touches them, and asks the
/// kernel to count reads there, as LODIC does (`read_refs=lodic`). Other kernels do not know this advice.
/// Returns the address.
pub fn map_counted(file: &File, pages: usize) -> usize {
    let file = OwnedFd::from(require(file.try_clone(), "dup"));
    let len = pages * PAGE;
    // SAFETY: without MAP_FIXED no mapping is replaced, and the file is not written. The pages are mapped for
    // reading, and the advice changes no contents.
    unsafe {
        let at = require(map_file_at((0, len), libc::PROT_READ, libc::MAP_SHARED, &file, 0), "mmap");
        (0..pages).for_each(|page| {
            ((at + page * PAGE) as *const u64).read_volatile();
        });
        libc::madvise(at as *mut _, len, MADV_COUNT_READS as i32);
        at
    }
}

/// Processes that have mapped the file as [`map_counted`] does, and do nothing until this is dropped.
pub struct Sharers {
    processes: Vec<i32>,
    /// They end with the last end of this pipe.
    stop: Option<PipeWriter>,
}

impl Sharers {
    /// Starts `number` processes, and waits until they have mapped the first `pages` pages. The caller has
    /// one thread.
    pub fn start(file: &File, pages: usize, number: usize) -> Self {
        let (mut ready, says_ready) = require(io::pipe(), "pipe");
        let (mut stops, stop) = require(io::pipe(), "pipe");
        let mut stop = Some(stop);
        let mut sharer = || {
            // A process that holds it open would wait for itself.
            drop(stop.take());
            map_counted(file, pages);
            require((&says_ready).write_all(b"r"), "write");
            require(stops.read_to_end(&mut Vec::new()), "read");
        };
        let processes = (0..number).map(|_| require(spawn(&mut sharer), "fork")).collect();
        // The wait below ends also when a process ends before it is ready.
        drop(says_ready);
        require(ready.read_exact(&mut vec![0; number]), "a process is not ready");
        Self { processes, stop }
    }
}

impl Drop for Sharers {
    fn drop(&mut self) {
        drop(self.stop.take());
        for &process in &self.processes {
            assert_eq!(require(wait(process), "waitpid"), Some(0), "a process failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn the_file_has_its_contents_and_no_name() {
        let (file, mut page) = (unnamed("shared-file", &[7; PAGE]), Buffer::new());
        map_counted(&file, 1);
        file.read_exact_at(&mut page.0, 0).unwrap();
        assert_eq!((page.0, file.metadata().unwrap().len()), ([7; PAGE], PAGE as u64));
    }
}
