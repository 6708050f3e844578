//! What file calls have in common: descriptors and paths as arguments.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::{AT_EMPTY_PATH, AT_FDCWD, PATH_MAX};

use super::Call;
use crate::fs::StaticOrArc;
use crate::fs::node::Node;
use crate::fs::path::Found;
use crate::fs::{FdTable, FsContext, OpenFile};
use crate::mm::user;

impl Call<'_> {
    /// The caller's descriptors.
    pub(super) fn files(&self) -> &FdTable {
        &self.task.shared().files
    }

    /// Where the caller is in the tree of names.
    pub(super) fn fs_context(&self) -> &FsContext {
        &self.task.shared().fs
    }

    /// The file whose descriptor argument `index` is.
    pub(super) fn file(&self, index: usize) -> Result<StaticOrArc<OpenFile>, Errno> {
        self.files().get(self.int(index))
    }

    /// The path that argument `index` points to.
    pub(super) fn path(&self, index: usize) -> Result<Vec<u8>, Errno> {
        user::read_cstr(self.arg(index), PATH_MAX)
    }

    /// What `path` leads to, from directory `from` (a descriptor or `AT_FDCWD`).
    pub(super) fn find_from(&self, from: i32, path: &[u8], follow: bool) -> Result<Found, Errno> {
        let start = match from {
            // Where an absolute path is counted from does not matter.
            _ if path.first() == Some(&b'/') => self.fs_context().directory(),
            AT_FDCWD => self.fs_context().directory(),
            fd => self.files().get(fd)?.node().clone(),
        };
        self.fs_context().find(&start, path, follow)
    }

    /// What the path in argument `path` leads to, from the current directory.
    pub(super) fn find(&self, path: usize, follow: bool) -> Result<Found, Errno> {
        self.find_from(AT_FDCWD, &self.path(path)?, follow)
    }

    /// What the path in argument `path` leads to, from the directory in argument `directory`.
    pub(super) fn find_at(&self, directory: usize, path: usize, follow: bool) -> Result<Found, Errno> {
        self.find_from(self.int(directory), &self.path(path)?, follow)
    }

    /// The existing node of a path, or, for an empty path if `flags` allow that, of the descriptor itself.
    pub(super) fn node_at(
        &self,
        directory: usize,
        path: usize,
        follow: bool,
        flags: u32,
    ) -> Result<StaticOrArc<Node>, Errno> {
        let path = self.path(path)?;
        match self.int(directory) {
            AT_FDCWD if path.is_empty() && flags & AT_EMPTY_PATH != 0 => Ok(self.fs_context().directory()),
            fd if path.is_empty() && flags & AT_EMPTY_PATH != 0 => Ok(self.files().get(fd)?.node().clone()),
            fd => self.find_from(fd, &path, follow)?.existing().cloned(),
        }
    }
}
