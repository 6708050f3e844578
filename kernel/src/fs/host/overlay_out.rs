//! The changes that programs have made to the host's files, which stay in the guest: as an archive for the
//! command, when the machine ends (`--overlay-out`). It is written to a directory of the host that is no part
//! of the tree of names, in cpio's "newc" format. Names are paths without the first slash.
//!
//! | change | entries |
//! |---|---|
//! | a file, link or directory is new, has been opened for writing or moved, or has other permissions or another time | it, and what a new or moved directory contains |
//! | a name of the host's is gone | an empty file `.wh.NAME` |
//! | another directory has the name of one of the host's | the directory, and an empty file `.wh..wh..opq` in it |
//!
//! Files of the guest's own (`/dev`, `/proc`, the boot image), mounted directories and, unless it is wanted,
//! `/tmp` are left out. A name is noted when it is removed, if the host has it then. Files that have several
//! names here have the same inode number in the archive, and otherwise none.

use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

use abi::Errno;
use abi::file::{S_IFDIR, S_IFLNK, S_IFREG};
use sync::SetOnce;

use super::attributes::without_set_ids_of;
use super::client::{self, Mount, WRITE_BYTES};
use crate::bytes::prefix_mut;
use crate::fs::node::{self, Body, Node, NodeRef, Owner, Volume};
use crate::mm::fallible::{self, Text};
use crate::options;
use crate::sched;

/// The name of the archive in its directory.
const NAME: &[u8] = b"changes";
/// The name in front of that of a removed file, and the one that hides what the host's directory contains.
const REMOVED: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const TRAILER: &[u8] = b"TRAILER!!!";
/// The permissions of an entry that only says that something is gone.
const MARK: u32 = S_IFREG | 0o644;
const NS_PER_SECOND: u64 = 1_000_000_000;
const PAGE: usize = 4096;

/// The directory of the host in which the archive is made. Set at boot, if it is wanted.
static OUT: SetOnce<Mount> = SetOnce::new();
/// Set if a removed name could not be noted. Relaxed: read when all programs have ended.
static IS_INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Called with a file that could not be written, and the reason.
pub type Failed<'a> = &'a mut dyn FnMut(&[u8], Errno);

/// Connects to the directory of the archive, which is that of this device.
///
/// # Errors
/// ENODEV, EIO.
pub fn connect(device: usize) -> Result<(), Errno> {
    let mount = Mount::numbered(device)?;
    mount.connect()?;
    OUT.set(mount);
    Ok(())
}

/// Notes that a name in `directory` is removed, if changes are wanted and the host has the name.
pub fn note_removed(directory: &Node, name: &[u8]) {
    if OUT.get().is_none() {
        return;
    }
    if let Some(place) = directory.host_place().filter(|place| !place.is_mounted())
        && place.note_removed(name).is_err()
    {
        IS_INCOMPLETE.store(true, Ordering::Relaxed);
    }
}

/// Writes the archive, if it is wanted. All programs have ended. Calls `failed` with the files that cannot be
/// read.
///
/// # Errors
/// The host's, ENOMEM, also if a removed name was not noted.
pub fn write(failed: Failed<'_>) -> Result<(), Errno> {
    let Some(&mount) = OUT.get() else { return Ok(()) };
    if IS_INCOMPLETE.load(Ordering::Relaxed) {
        return Err(Errno::ENOMEM);
    }
    let mut archive = Archive::create(mount)?;
    archive.add_tree(failed)?;
    archive.finish()
}

/// A directory whose names are to be looked at.
struct Left {
    path: Vec<u8>,
    node: NodeRef,
    /// Set if the archive has all that it contains.
    is_whole: bool,
}

/// An archive that is being written.
struct Archive {
    mount: Mount,
    fid: u32,
    /// The bytes that the host has.
    written: u64,
    /// Those that come next.
    buffer: Vec<u8>,
    /// The files with several names that are in the archive. Their places here are their inode numbers there.
    linked: Vec<NodeRef>,
    left: Vec<Left>,
}

impl Archive {
    fn create(mount: Mount) -> Result<Self, Errno> {
        mount.create(client::ROOT, NAME, 0o600)?;
        let named = mount.walk(client::ROOT, Some(NAME))?;
        let fid = mount.open_to_write(named)?;
        let (buffer, linked, left) = (fallible::empty(WRITE_BYTES)?, Vec::new(), Vec::new());
        Ok(Self { mount, fid, written: 0, buffer, linked, left })
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(WRITE_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == WRITE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.mount.write(self.fid, self.written, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the name or the bytes of an entry.
    fn pad(&mut self) -> Result<(), Errno> {
        let at = self.written + self.buffer.len() as u64;
        let missing = (at.next_multiple_of(4) - at) as usize;
        self.put(prefix_mut(&mut [0; 4], missing as u64))
    }

    /// Begins an entry with `size` bytes, which the caller puts behind it, and then calls [`Self::pad`].
    fn begin(
        &mut self,
        path: &[u8],
        mode: u32,
        (ino, links): (u32, u32),
        head: (u64, u32),
    ) -> Result<(), Errno> {
        let ((changed_ns, size), mut text) = (head, Text::default());
        let fields = [ino, mode, 0, 0, links, (changed_ns / NS_PER_SECOND) as u32, size, 0, 0, 0, 0];
        let formatted = text.write_str("070701").and_then(|()| {
            let last = [path.len() as u32 + 1, 0];
            fields.iter().chain(&last).try_for_each(|field| write!(text, "{field:08X}"))
        });
        formatted.map_err(|_| Errno::ENOMEM)?;
        self.put(&text.0)?;
        self.put(path)?;
        self.put(&[0])?;
        self.pad()
    }

    fn mark(&mut self, directory: &[u8], name: &[&[u8]]) -> Result<(), Errno> {
        let path =
            name.iter().try_fold(below(directory, b"")?, |path, part| fallible::extended(path, part))?;
        self.begin(&path, MARK, (0, 1), (0, 0))
    }

    fn finish(mut self) -> Result<(), Errno> {
        self.begin(TRAILER, 0, (0, 1), (0, 0))?;
        self.flush()
    }

    fn add_tree(&mut self, failed: Failed<'_>) -> Result<(), Errno> {
        let root = Left { path: Vec::new(), node: crate::fs::root(), is_whole: false };
        fallible::push(&mut self.left, root)?;
        while let Some(directory) = self.left.pop() {
            if directory.is_whole {
                // The host's names, if it was moved.
                let listed = directory.node.names().map(drop);
                listed.unwrap_or_else(|error| failed(&directory.path, error));
            }
            for (name, node) in directory.node.known_names()? {
                self.add(&directory, &name, node, failed)?;
                sched::pause();
            }
            self.add_removed(&directory)?;
        }
        Ok(())
    }

    /// Adds the names of the host's that are gone from a directory.
    fn add_removed(&mut self, directory: &Left) -> Result<(), Errno> {
        let Some(place) = directory.node.host_place().filter(|_| !directory.is_whole) else { return Ok(()) };
        for name in place.removed()? {
            if directory.node.lookup(&name).is_err() {
                self.mark(&directory.path, &[REMOVED, &name])?;
            }
        }
        Ok(())
    }

    /// Adds the file `name` of a directory, if it has changed, and notes a directory to be looked at.
    fn add(&mut self, directory: &Left, name: &[u8], node: NodeRef, failed: Failed<'_>) -> Result<(), Errno> {
        if is_left_out(directory, name, &node) {
            return Ok(());
        }
        let path = below(&directory.path, name)?;
        let (above, place) = (directory.node.host_place(), node.host_place());
        let is_there = place.is_some_and(|place| above.is_some_and(|above| place.is_at(above, name)));
        let is_whole = directory.is_whole || !is_there && !node.is_of_boot();
        let is_added = is_whole || place.is_some_and(|place| place.has_changed_attributes());
        if is_added && let Some(Err(error)) = place.map(|place| place.settle(&node)) {
            failed(&path, error);
            return Ok(());
        }
        if !node.is_directory() {
            return if is_added { self.add_file(&path, &node, failed) } else { Ok(()) };
        }
        if is_added {
            let mode = S_IFDIR | permissions_there(&node);
            self.begin(&path, mode, (0, 1), (node.changed_ns(), 0))?;
        }
        let hides = || above.is_some_and(|above| above.has_removed(name));
        if is_whole && !directory.is_whole && hides() {
            self.mark(&path, &[OPAQUE])?;
        }
        fallible::push(&mut self.left, Left { path, node, is_whole })
    }

    fn add_file(&mut self, path: &[u8], node: &NodeRef, failed: Failed<'_>) -> Result<(), Errno> {
        let numbers = self.numbers(node)?;
        match node.body() {
            Body::Link(link) => {
                let target = node::target(link);
                let head = (node.changed_ns(), target.len() as u32);
                self.begin(path, S_IFLNK | 0o777, numbers, head)?;
                self.put(target)?;
                self.pad()
            }
            Body::File(_) if node.kind() == S_IFREG => self.add_regular(path, node, numbers, failed),
            // Sockets and the like are nothing without a program.
            _ => Ok(()),
        }
    }

    /// Returns the inode number of a file in the archive, and the number of its names.
    fn numbers(&mut self, node: &NodeRef) -> Result<(u32, u32), Errno> {
        if node.links() < 2 {
            return Ok((0, 1));
        }
        let known = self.linked.iter().position(|other| other.is(node));
        let at = known.map_or_else(
            || fallible::push(&mut self.linked, node.clone()).map(|()| self.linked.len() - 1),
            Ok,
        )?;
        Ok((at as u32 + 1, node.links()))
    }

    fn add_regular(
        &mut self,
        path: &[u8],
        node: &Node,
        numbers: (u32, u32),
        failed: Failed<'_>,
    ) -> Result<(), Errno> {
        let (content, mut page) = (node.content().ok_or(Errno::EIO)?, fallible::zeroes(PAGE)?);
        // The first page is read before the entry begins, because what has begun must be finished.
        let size = u32::try_from(content.len()).map_err(|_| Errno::EFBIG);
        let size = match size.and_then(|size| content.read(0, &mut page, false).map(|_| size)) {
            Ok(size) => size,
            Err(error) => {
                failed(path, error);
                return Ok(());
            }
        };
        self.begin(path, S_IFREG | permissions_there(node), numbers, (node.changed_ns(), size))?;
        let mut done = 0;
        while done < u64::from(size) {
            let wanted = prefix_mut(&mut page, u64::from(size) - done);
            wanted.fill(0);
            content.read(done, wanted, false)?;
            done += wanted.len() as u64;
            self.put(wanted)?;
            sched::pause();
        }
        self.pad()
    }
}

/// Returns the permissions in the archive, which has no owners.
fn permissions_there(node: &Node) -> u32 {
    without_set_ids_of(node.permissions(), node.owner(), Owner::ROOT)
}

/// Returns whether a file is never part of the archive.
fn is_left_out(directory: &Left, name: &[u8], node: &Node) -> bool {
    let is_tmp = directory.path.is_empty() && name == b"tmp";
    node.volume() != Volume::Memory
        || is_tmp && !options::get().overlay_tmp
        || node.is_of_boot() && !node.is_directory()
}

/// Returns the path of `name` in a directory.
fn below(directory: &[u8], name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut path = fallible::copied(directory)?;
    if !path.is_empty() {
        path = fallible::extended(path, b"/")?;
    }
    fallible::extended(path, name)
}
