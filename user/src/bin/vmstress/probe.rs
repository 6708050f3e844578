//! Touches memory that may not be there, without dying of it: the kernel is asked to touch it, and returns
//! EFAULT if it may not. That needs no signal handler, and tests the kernel's own copying.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// A pipe through which the kernel copies memory to and fro. It holds at most a page at a time, so nothing
/// here ever waits.
pub struct Probe {
    from: File,
    to: File,
}

impl Probe {
    /// Opens the pipe.
    pub fn open() -> io::Result<Probe> {
        let mut ends = [0; 2];
        // SAFETY: the call fills the array.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptors are fresh and not owned elsewhere.
        let [from, to] = ends.map(|end: RawFd| unsafe { File::from_raw_fd(end) });
        Ok(Probe { from, to })
    }

    /// Copies the memory at `address` into `words`, if it may be read.
    pub fn read(&self, address: usize, words: &mut [u64]) -> io::Result<()> {
        let length = size_of_val(words);
        self.push(address, length)?;
        self.pull(words.as_mut_ptr() as usize, length)
    }

    /// Copies `words` to the memory at `address`, which must be writable.
    pub fn write(&self, address: usize, words: &[u64]) -> io::Result<()> {
        let length = size_of_val(words);
        self.push(words.as_ptr() as usize, length)?;
        self.pull(address, length)
    }

    fn push(&self, address: usize, length: usize) -> io::Result<()> {
        // SAFETY: the kernel only reads, and refuses memory that it cannot read.
        let count = unsafe { libc::write(self.to.as_raw_fd(), address as *const _, length) };
        whole(count, length)
    }

    fn pull(&self, address: usize, length: usize) -> io::Result<()> {
        // SAFETY: the memory is a buffer of the caller's, or pages that the caller holds locked.
        let count = unsafe { libc::read(self.from.as_raw_fd(), address as *mut _, length) };
        whole(count, length)
    }
}

/// Asks the kernel to write to memory at `address` that it should refuse to write to.
pub fn write_refused(address: usize) -> io::Result<()> {
    // SAFETY: `address` lies in pages that the caller holds locked: if the kernel wrongly writes to them,
    // that is the error to report. This is the raw call, because the C library reads the clock without the
    // kernel.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, address) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn whole(count: isize, length: usize) -> io::Result<()> {
    match usize::try_from(count) {
        Ok(count) if count == length => Ok(()),
        Ok(count) => Err(io::Error::other(format!("{count} of {length} bytes"))),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use programs::memory::{self, PAGE};

    #[test]
    fn memory_that_is_there_is_copied_and_other_memory_refused() {
        let (probe, mut found) = (Probe::open().unwrap(), [0; 4]);
        let memory = memory::map(2 * PAGE, memory::READ_WRITE).unwrap();
        probe.write(memory, &[1, 2, 3, 4]).unwrap();
        probe.read(memory, &mut found).unwrap();
        assert_eq!(found, [1, 2, 3, 4]);
        // SAFETY: nothing refers to the memory.
        unsafe { memory::protect(memory, PAGE, libc::PROT_READ).unwrap() };
        assert_eq!(write_refused(memory).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        assert!(write_refused(memory + PAGE).is_ok());
        // SAFETY: nothing refers to the memory.
        unsafe { memory::unmap(memory, 2 * PAGE).unwrap() };
        assert_eq!(probe.read(memory, &mut found).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    }
}
