//! `/proc/PID/mem`: the memory of a process, by address. A write to private pages changes this process alone.
//! As on Linux it stays the memory that the process had when the file was opened: there is nothing to read
//! once the process runs another program.

use alloc::sync::Weak;

use abi::Errno;

use crate::bytes::{after, after_mut};
use crate::fs::content::{Content, WriteAt};
use crate::process::{Memory, remote};

/// See the module.
pub struct MemoryFile(Weak<Memory>);

impl MemoryFile {
    /// Returns the file of this memory.
    pub fn of(memory: Weak<Memory>) -> Self {
        Self(memory)
    }

    /// Calls `f` with the memory and the number of bytes done, until `len` are done or it fails. Returns the
    /// number of bytes, which is 0 once the memory is gone.
    fn each_part(
        &self,
        len: usize,
        mut f: impl FnMut(&Memory, usize) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let Some(memory) = self.0.upgrade() else { return Ok(0) };
        let mut done = 0;
        while done < len {
            match f(&memory, done) {
                Ok(part) => done += part,
                Err(_) if done > 0 => break,
                Err(Errno::EBUSY) => return Err(Errno::EBUSY),
                Err(_) => return Err(Errno::EIO),
            }
        }
        Ok(done)
    }
}

impl Content for MemoryFile {
    fn is_always_writable(&self) -> bool {
        true
    }

    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        self.each_part(into.len(), |memory, done| {
            remote::read(memory, at.wrapping_add(done as u64), after_mut(into, done))
        })
    }

    fn write(&self, at: WriteAt, from: &[u8], _wait: bool) -> Result<usize, Errno> {
        let WriteAt::Offset(at) = at else { return Err(Errno::EIO) };
        self.each_part(from.len(), |memory, done| {
            remote::write(memory, at.wrapping_add(done as u64), after(from, done))
        })
    }
}
