//! The names in a directory, and its parent.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use abi::Errno;
use abi::file::S_IFDIR;
use percore::{Pinned, pin};

use super::{Body, Directory, Node, NodeRef, Parent};
use crate::fs::directory::{Change, Entries, hash_of};
use crate::fs::path::At;
use crate::mm::fallible;

/// A name, and the node that has it.
type Named = (Box<[u8]>, NodeRef);

/// An entry of a listing.
pub struct Listed<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode number.
    pub ino: u64,
    /// The type, `S_IF*`.
    pub kind: u32,
    /// The position from which a listing goes on after it.
    pub position: u64,
}

impl Node {
    /// Returns the names in it.
    ///
    /// # Errors
    /// ENOTDIR unless it is a directory, EROFS for those of `/proc`, which are generated.
    pub fn names(&self) -> Result<&Entries, Errno> {
        match &self.body {
            Body::Directory(directory) => self.listed(directory),
            Body::Folder(_) => Err(Errno::EROFS),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Returns the names in `directory`, its own, with those on the host if there are any.
    #[inline]
    fn listed<'a>(&self, directory: &'a Directory) -> Result<&'a Entries, Errno> {
        if let Some(place) = &self.host {
            place.list(&directory.names)?;
        }
        Ok(&directory.names)
    }

    /// Returns the names in this directory and their nodes, without asking the host for its names.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn known_names(&self) -> Result<Vec<Named>, Errno> {
        let (mut all, mut pushed) = (Vec::new(), Ok(()));
        if let Body::Directory(directory) = &self.body {
            directory.names.after(0, &mut |_, entry| {
                pushed = fallible::copied(&entry.name)
                    .and_then(|name| fallible::push(&mut all, (name.into_boxed_slice(), entry.node.clone())));
                pushed.is_ok()
            });
        }
        pushed.map(|()| all)
    }

    /// Locks a name in it for a change.
    ///
    /// # Errors
    /// As above, and EROFS if boot made the names.
    pub fn change<'a>(&'a self, pin: &'a Pinned, name: &[u8]) -> Result<Change<'a>, Errno> {
        self.names()?.change(pin, name)
    }

    /// Makes this directory and its names immutable: listing them then writes no cache line.
    pub fn freeze(&self) {
        if let Body::Directory(directory) = &self.body {
            directory.names.freeze();
            directory.parent.freeze();
        }
    }

    /// Returns the directory that this directory is in, or was in when it was removed.
    pub fn parent(&self) -> Option<NodeRef> {
        match &self.body {
            Body::Directory(directory) => directory.parent.look().directory.upgrade(),
            Body::Folder(folder) => folder.parent(),
            _ => None,
        }
    }

    /// Returns the parent, the hash of the name of this directory there, or 0 if it is not known, and how
    /// often both have changed.
    pub fn place(&self) -> Option<(NodeRef, u64, u64)> {
        match &self.body {
            Body::Directory(directory) => {
                let parent = directory.parent.look();
                Some((parent.directory.upgrade()?, parent.name_hash, parent.changes))
            }
            _ => self.parent().map(|parent| (parent, 0, 0)),
        }
    }

    /// Sets the directory that this directory is in, and its name there.
    pub fn set_parent(&self, new: &NodeRef, name: &[u8]) {
        if let Body::Directory(directory) = &self.body {
            let (new, name_hash) = (new.downgrade(), hash_of(name));
            // The old reference is dropped without the lock.
            let _old = directory.parent.change().map(|mut parent| {
                let changes = parent.changes + 1;
                core::mem::replace(&mut *parent, Parent { directory: new, name_hash, changes })
            });
        }
    }

    /// Keeps the parent alive as long as this directory, which was removed from it.
    pub fn keep_parent(&self) {
        if let Body::Directory(directory) = &self.body {
            *directory.removed_from.lock() = self.parent();
        }
    }

    /// Returns the node called `name`, which is neither `.` nor `..`, in this directory.
    fn entry<'a>(&'a self, pin: &'a Pinned, name: &[u8]) -> Result<At<'a>, Errno> {
        match &self.body {
            Body::Directory(directory) => {
                let names = self.listed(directory)?;
                let found = names.peek(pin, name).ok_or(Errno::ENOENT)?;
                found.settle().inspect_err(|&error| forget(names, pin, name, found, error))?;
                Ok(Cow::Borrowed(found))
            }
            Body::Folder(folder) => folder.lookup(name).map(Cow::Owned),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Sets what is only known to the host, so that the node can be used.
    ///
    /// # Errors
    /// Those of [`Place::settle`](crate::fs::host::Place::settle).
    #[inline]
    fn settle(&self) -> Result<(), Errno> {
        self.host.as_ref().map_or(Ok(()), |place| place.settle(self))
    }

    /// Passes the names after `position` to `show` until that returns false.
    pub fn list(&self, position: u64, show: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        let above = self.parent().map_or(self.ino, |parent| parent.ino);
        for (index, name, ino) in [(1, &b"."[..], self.ino), (2, b"..", above)] {
            if position < index && !show(Listed { name, ino, kind: S_IFDIR, position: index }) {
                return Ok(());
            }
        }
        match &self.body {
            Body::Folder(folder) => folder.list(position.max(2), show),
            _ => self.names()?.after(position, &mut |position, entry| {
                let (ino, kind) = (entry.node.ino, entry.node.kind());
                show(Listed { name: &entry.name, ino, kind, position })
            }),
        }
        Ok(())
    }
}

/// Removes a name if the `error` says that the host has removed the file before anything was known of it.
#[cold]
fn forget(names: &Entries, pin: &Pinned, name: &[u8], node: &NodeRef, error: Errno) {
    if error == Errno::ENOENT
        && let Ok(mut change) = names.change(pin, name)
        && change.get(name).is_some_and(|named| named.is(node))
    {
        change.remove(name);
    }
}

impl NodeRef {
    /// Returns the node called `name` in this directory.
    pub fn lookup(&self, name: &[u8]) -> Result<Self, Errno> {
        self.peek(&pin(), name).map(Cow::into_owned)
    }

    /// Does the same without counting the node, if the directory keeps it. The caller uses it only until the
    /// core sleeps or is quiescent.
    pub fn peek<'a>(&'a self, pin: &'a Pinned, name: &[u8]) -> Result<At<'a>, Errno> {
        match name {
            b"." | b"" if self.is_directory() => Ok(Cow::Borrowed(self)),
            b".." if self.is_directory() => self.parent().map(Cow::Owned).ok_or(Errno::ENOENT),
            _ => self.entry(pin, name),
        }
    }
}
