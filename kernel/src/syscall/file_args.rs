//! Arguments of file calls: descriptors and paths.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::{AT_EMPTY_PATH, AT_FDCWD, PATH_MAX};

use super::Call;
use crate::fs::node::Node;
use crate::fs::path::Found;
use crate::fs::{FdTable, FsContext, InUse};
use crate::mm::lending::Borrowed;
use crate::mm::static_or_arc::StaticOrArc;
use crate::mm::user;

impl Call<'_> {
    /// Returns the caller's descriptors.
    pub(super) fn files(&self) -> &FdTable {
        &self.task.shared().files
    }

    /// Returns the caller's root, directory and umask.
    pub(super) fn fs_context(&self) -> &FsContext {
        &self.task.shared().fs
    }

    /// Returns the file whose descriptor is argument `index`.
    #[inline]
    pub(super) fn file(&self, index: usize) -> Result<Borrowed, Errno> {
        self.files().borrow(self.int(index))
    }

    /// Returns the file whose descriptor is argument `index`, for a call that reads or writes it.
    #[inline]
    pub(super) fn file_in_use(&self, index: usize) -> Result<InUse, Errno> {
        self.files().in_use(self.int(index))
    }

    /// Returns the path that argument `index` points to.
    pub(super) fn path(&self, index: usize) -> Result<Vec<u8>, Errno> {
        user::read_cstr(self.arg(index), PATH_MAX)
    }

    /// Looks `path` up from the directory `from` (a descriptor or `AT_FDCWD`).
    pub(super) fn find_from(&self, from: i32, path: &[u8], follow: bool) -> Result<Found, Errno> {
        let start = match from {
            // The start of an absolute path does not matter.
            _ if path.first() == Some(&b'/') => self.fs_context().directory(),
            AT_FDCWD => self.fs_context().directory(),
            fd => self.files().borrow(fd)?.node().clone(),
        };
        self.fs_context().find(&start, path, follow)
    }

    /// Looks the path in argument `path` up from the current directory.
    pub(super) fn find(&self, path: usize, follow: bool) -> Result<Found, Errno> {
        self.find_from(AT_FDCWD, &self.path(path)?, follow)
    }

    /// Looks the path in argument `path` up from the directory in argument `directory`.
    pub(super) fn find_at(&self, directory: usize, path: usize, follow: bool) -> Result<Found, Errno> {
        self.find_from(self.int(directory), &self.path(path)?, follow)
    }

    /// Returns the existing node of a path. For an empty path, if `flags` allow that, it is that of the
    /// descriptor itself.
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
            fd if path.is_empty() && flags & AT_EMPTY_PATH != 0 => {
                Ok(self.files().borrow(fd)?.node().clone())
            }
            fd => self.find_from(fd, &path, follow)?.existing().cloned(),
        }
    }
}
