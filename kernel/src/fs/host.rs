//! The files of the host that runs the guest, by 9P2000.L.
//!
//! ```text
//!   tree of names   node (in memory) ──▶ Place ──▶ Mount ──▶ the host's file
//!                     │ names, permissions, time, link target: asked for once
//!                     └ pages: read when they are used, dropped when memory is short
//! ```
//!
//! The host's root is read only, and changes stay in the guest's memory. Directories that the command names
//! (`--rw`) are mounts of their own, with a device each. Their changes are the host's too:
//!
//! | change | below the root | in a mounted directory, besides |
//! |---|---|---|
//! | a name is added, removed or moved | the directory, which has been listed, is a directory in memory like any other | the host does it first, with the name locked. If that fails, nothing changes |
//! | permissions or time | the node in memory has the new ones | the host sets them first, without [set-id bits of another owner](attributes) |
//! | a file is opened for writing, or truncated | its name gets [another node](super::tree::writable), whose pages begin as the file's. Descriptors and mappings from before keep the old one, as in Linux's overlayfs | the host is asked whether it can be. The node stays. Changes are in memory until they are [written back](MountFile) |
//! | a socket or named pipe gets a name | as any file | the host does not see it |
//!
//! | state of a node | when | known then |
//! |---|---|---|
//! | named | its directory was listed | name, type, inode number |
//! | settled | a look-up found it | permissions, time, length, target of a link |
//! | listed (directories) | a name in it was looked up, or all were | the names in it |
//!
//! 1. Names, lengths and permissions stay as they were when they were asked for. Bytes are those of the
//!    moment at which a page is read. A file that is shorter by then ends in zeroes, and one that is longer
//!    at its old length. A name whose file is gone before it is settled is removed. A file of a mounted
//!    directory that the guest has not changed is asked for again when it is opened.
//! 2. A request waits for its answer with interrupts on and the CPU held, also under the lock of a slot or
//!    inside a look-up: the answer depends on nothing that another core of the guest does.
//! 3. Lock order: names, then the `state` of a file's place, that of a directory's, and a mount's channel. A
//!    place asks for its parent's fid before it locks its own state.
//! 4. A fid stands for a name on the host: QEMU changes lengths and permissions, and opens, by the name. In a
//!    mounted directory the place knows the names that the guest knows. Before one is removed, the fid gets
//!    another, and no request by the fid is under way meanwhile, since it holds `state`. Renames move the
//!    names of fids. A file that has no name is not asked for by its fid.

mod attributes;
mod client;
mod mount_file;
pub mod overlay_out;
mod place;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::file::S_IFREG;
use percore::pin;
use sync::SetOnce;

pub use client::Change;
pub use mount_file::MountFile;
pub use place::Place;

use client::Mount;

use super::content::{Content, WriteAt};
use super::memory_file::MemoryFile;
use super::node::{Node, NodeRef};
use super::page_cache::PageCache;
use super::{path, tree};
use crate::mm::fallible;
use crate::sched;

/// The root directories of the mounts, set at boot.
static MOUNTED: SetOnce<Vec<NodeRef>> = SetOnce::new();

/// Connects to the host's files, and returns the place of their root directory.
///
/// # Errors
/// ENODEV if the machine has no device for that, EIO if the device or the host does not do what it should,
/// ENOMEM.
pub fn connect() -> Result<Arc<Place>, Errno> {
    Mount::ROOT.connect()?;
    Place::root(Mount::ROOT)
}

/// Puts the mounted directories in their places below `root`. `paths` has a path for each device after the
/// first one, with a NUL after each. The last name of a path is added if it is not there.
///
/// # Errors
/// As above, and those of a look-up of the other names.
pub fn mount_all(root: &NodeRef, paths: &[u8]) -> Result<(), Errno> {
    let mut all = Vec::new();
    for (number, path) in paths.split(|&byte| byte == 0).filter(|path| !path.is_empty()).enumerate() {
        let mount = Mount::numbered(number + 1)?;
        mount.connect()?;
        let place = Place::root(mount)?;
        let mounted = Node::host_root(&place)?;
        place.set_node(&mounted);
        let pin = pin();
        let found = path::find(&pin, root, root, path, true)?;
        tree::mount(&found, &mounted)?;
        fallible::push(&mut all, mounted)?;
    }
    MOUNTED.set(all);
    Ok(())
}

/// Writes back the changed files of all mounted directories, and calls `failed` with those for which that
/// fails. If the machine `ends`, a killed task goes on.
///
/// # Errors
/// ENOMEM.
pub fn write_back(ends: bool, failed: &mut dyn FnMut(&[u8], Errno)) -> Result<(), Errno> {
    for_each(&mut |name, file| {
        let _told = file.write_back(ends).inspect_err(|&error| failed(name, error));
    })
}

/// Writes back all changed files of mounted directories, and gives their pages back. Returns whether there
/// were any.
pub fn make_room() -> bool {
    let mut made = false;
    let _no_memory = for_each(&mut |_, file| made |= file.make_room());
    made
}

/// Calls `visit` with the name and contents of each file of the mounted directories that the guest knows.
fn for_each(visit: &mut dyn FnMut(&[u8], &MountFile)) -> Result<(), Errno> {
    let mut left = Vec::new();
    for mounted in MOUNTED.get().into_iter().flatten() {
        fallible::push(&mut left, mounted.clone())?;
    }
    while let Some(directory) = left.pop() {
        for (name, node) in directory.known_names()? {
            if node.is_directory() {
                fallible::push(&mut left, node)?;
            } else if let Some(file) = node.content().and_then(Content::mount_file) {
                visit(&name, file);
            }
        }
        sched::pause();
    }
    Ok(())
}

/// A regular file of the host's root, which is only read.
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
