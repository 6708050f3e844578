//! The files of the host that runs the guest, read by 9P2000.L, and an overlay in memory for changes.
//!
//! ```text
//!   tree of names   node (in memory) ──▶ Place ──▶ Client ──▶ the host's file, read-only
//!                     │ names, permissions, time, link target: asked for once
//!                     └ pages: read when they are used, dropped when memory is short
//! ```
//!
//! Nothing is ever written to the host. Changes stay in the guest's memory:
//!
//! | change | what happens |
//! |---|---|
//! | a name is added, removed or moved | the directory, which has been listed, is a directory in memory like any other |
//! | permissions or time | the node in memory has the new ones |
//! | a file is opened for writing, or truncated | its name gets [another node](super::tree::writable), whose pages begin as the file's. Descriptors and mappings from before keep the old one, as in Linux's overlayfs |
//!
//! | state of a node | when | known then |
//! |---|---|---|
//! | named | its directory was listed | name, type, inode number |
//! | settled | a look-up found it | permissions, time, length, target of a link |
//! | listed (directories) | a name in it was looked up, or all were | the names in it |
//!
//! 1. Names, lengths and permissions stay as they were when they were asked for. Bytes are those of the
//!    moment at which a page is read. A file that is shorter by then ends in zeroes, and one that is longer
//!    at its old length. A name whose file is gone before it is settled is removed.
//! 2. A request waits for its answer with interrupts on and the CPU held, also under the lock of a slot or
//!    inside a look-up: the answer depends on nothing that another core of the guest does.
//! 3. Lock order: a place's `state`, then the client's channel. A place locks its own state only, and asks
//!    for its parent's fid before.

mod client;
mod place;

use alloc::boxed::Box;
use alloc::sync::Arc;

use abi::Errno;
use abi::file::S_IFREG;

pub use place::Place;

use super::content::{Content, WriteAt};
use super::memory_file::MemoryFile;
use super::page_cache::PageCache;
use crate::mm::fallible;

/// Connects to the host's files, and returns the place of their root directory.
///
/// # Errors
/// ENODEV if the machine has no device for that, EIO if the device or the host does not do what it should,
/// ENOMEM.
pub fn connect() -> Result<Arc<Place>, Errno> {
    client::connect()?;
    Place::root()
}

/// A regular file of the host.
pub struct HostFile(Arc<PageCache>);

impl HostFile {
    /// Creates the contents of the file at `place`, whose length is not known yet.
    pub fn new(place: &Arc<Place>) -> Result<Self, Errno> {
        fallible::arc(PageCache::of_host(place.clone())).map(Self)
    }

    /// Returns contents that begin as these, and can be changed.
    fn changeable(&self) -> Result<Box<dyn Content>, Errno> {
        let file: Box<dyn Content> = fallible::boxed(MemoryFile::over(&self.0)?)?;
        Ok(file)
    }
}

impl Content for HostFile {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        self.0.read(at, into)
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EROFS)
    }

    fn pages(&self) -> Option<&Arc<PageCache>> {
        Some(&self.0)
    }

    fn set_len(&self, _len: u64) -> Result<(), Errno> {
        Err(Errno::EROFS)
    }

    fn changeable(&self) -> Option<Result<Box<dyn Content>, Errno>> {
        Some(HostFile::changeable(self))
    }
}

/// A device, named pipe or socket of the host. It cannot be used.
pub struct HostSpecial(pub u32);

impl Content for HostSpecial {
    fn kind(&self) -> u32 {
        self.0
    }

    fn is_stream(&self) -> bool {
        self.0 != S_IFREG
    }

    fn read(&self, _at: u64, _into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::ENXIO)
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::ENXIO)
    }
}
