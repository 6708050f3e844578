//! A directory's names, and where it is itself.

use alloc::sync::{Arc, Weak};

use abi::Errno;
use abi::file::S_IFDIR;
use sync::SpinLock;

use super::{Body, Node};
use crate::fs::directory::Entries;

/// A line of a listing.
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: u64,
    /// `S_IF*`.
    pub kind: u32,
    /// Where a listing goes on after it.
    pub position: u64,
}

impl Node {
    /// The names in it: ENOTDIR unless it has some, EROFS for those of `/proc`.
    pub fn names(&self) -> Result<&SpinLock<Entries>, Errno> {
        match &self.body {
            Body::Directory { names, .. } => Ok(names),
            Body::Folder(_) => Err(Errno::EROFS),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The directory that this directory is in, or was in when it was removed.
    pub fn parent(self: &Arc<Self>) -> Option<Arc<Node>> {
        match &self.body {
            Body::Directory { parent, .. } => parent.lock().upgrade(),
            Body::Folder(folder) => folder.parent(),
            _ => None,
        }
    }

    /// Says which directory this directory is in.
    pub fn set_parent(&self, directory: Weak<Node>) {
        if let Body::Directory { parent, .. } = &self.body {
            let _old = core::mem::replace(&mut *parent.lock(), directory);
        }
    }

    /// Says that this directory was removed: its parent, which it has no name in any more, lives as long as it does.
    pub fn keep_parent(self: &Arc<Self>) {
        if let Body::Directory { kept, .. } = &self.body {
            *kept.lock() = self.parent();
        }
    }

    fn take_kept(&mut self) -> Option<Arc<Node>> {
        match &self.body {
            Body::Directory { kept, .. } => kept.lock().take(),
            _ => None,
        }
    }

    /// What `name` names in this directory.
    pub fn lookup(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Node>, Errno> {
        match (&self.body, name) {
            (Body::Directory { .. } | Body::Folder(_), b"." | b"") => Ok(self.clone()),
            (Body::Directory { .. } | Body::Folder(_), b"..") => self.parent().ok_or(Errno::ENOENT),
            (Body::Directory { names, .. }, _) => names.lock().get(name).cloned().ok_or(Errno::ENOENT),
            (Body::Folder(folder), _) => folder.lookup(name),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Shows the names after `position` until `show` returns false.
    pub fn list(
        self: &Arc<Self>,
        position: u64,
        show: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<(), Errno> {
        let above = self.parent().map_or(self.ino, |parent| parent.ino);
        for (index, name, ino) in [(1, &b"."[..], self.ino), (2, b"..", above)] {
            if position < index && !show(Listed { name, ino, kind: S_IFDIR, position: index }) {
                return Ok(());
            }
        }
        match &self.body {
            Body::Folder(folder) => folder.list(position.max(2), show),
            _ => list_entries(&self.names()?.lock(), position, show),
        }
        Ok(())
    }
}

/// Removed directories may keep one another in a long chain, which is let go link by link: no recursion.
impl Drop for Node {
    fn drop(&mut self) {
        let mut above = self.take_kept();
        while let Some(node) = above {
            above = Arc::into_inner(node).and_then(|mut last| last.take_kept());
        }
    }
}

fn list_entries(names: &Entries, position: u64, show: &mut dyn FnMut(Listed<'_>) -> bool) {
    for entry in names.after(position) {
        let node = &entry.node;
        let listed = Listed { name: &entry.name, ino: node.ino, kind: node.kind(), position: entry.key };
        if !show(listed) {
            break;
        }
    }
}
