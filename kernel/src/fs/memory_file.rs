//! A file in memory, which consists of its pages only.

use alloc::sync::Arc;

use abi::Errno;

use super::content::{Content, WriteAt};
use super::page_cache::PageCache;
use crate::mm::fallible;

/// A file in memory.
pub struct MemoryFile(Arc<PageCache>);

impl MemoryFile {
    /// Creates an empty file.
    pub fn new() -> Result<Self, Errno> {
        fallible::arc(PageCache::of_file()).map(Self)
    }

    /// Creates an empty file that is in no directory: its pages are memory of the programs that have it open.
    /// Seals can be added if it is sealable.
    pub fn anonymous(is_sealable: bool) -> Result<Self, Errno> {
        fallible::arc(PageCache::anonymous(0, is_sealable)).map(Self)
    }

    /// Creates a file that begins as `under`, whose pages never change.
    pub fn over(under: &Arc<PageCache>) -> Result<Self, Errno> {
        fallible::arc(PageCache::over(under.clone(), false)).map(Self)
    }

    /// Creates a file that begins with `bytes`.
    pub fn with(bytes: &[u8]) -> Result<Self, Errno> {
        let file = Self::new()?;
        match file.0.write(WriteAt::Offset(0), bytes)? {
            done if done == bytes.len() => Ok(file),
            _ => Err(Errno::ENOSPC),
        }
    }
}

impl Content for MemoryFile {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        self.0.read(at, into)
    }

    fn write(&self, at: WriteAt, from: &[u8], _wait: bool) -> Result<usize, Errno> {
        self.0.write(at, from)
    }

    fn pages(&self) -> Option<&Arc<PageCache>> {
        Some(&self.0)
    }

    fn set_len(&self, len: u64) -> Result<(), Errno> {
        self.0.set_len(len)
    }
}
