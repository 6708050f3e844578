//! Arguments of file calls: descriptors and paths.

use alloc::vec::Vec;

use abi::Errno;
use abi::file::{AT_EMPTY_PATH, AT_FDCWD, PATH_MAX};
use percore::Pinned;

use super::Call;
use crate::fs::path::{At, Found};
use crate::fs::{FdTable, FsContext, InUse, Transfer};
use crate::mm::lending::Borrowed;
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

    /// Does the same for a call that reads or writes, which `access` says.
    #[inline]
    pub(super) fn file_in_use_for(&self, index: usize, access: Transfer) -> Result<InUse, Errno> {
        self.files().in_use_for(self.int(index), access)
    }

    /// Returns the path that argument `index` points to.
    pub(super) fn path(&self, index: usize) -> Result<Vec<u8>, Errno> {
        user::read_cstr(self.arg(index), PATH_MAX)
    }

    /// Looks `path` up from the directory `from` (a descriptor or `AT_FDCWD`). The caller uses the result
    /// only until it sleeps, pauses or touches user memory. So it reads all paths first.
    pub(super) fn find_from<'a>(
        &'a self,
        from: i32,
        path: &[u8],
        pin: &'a Pinned,
        follow: bool,
    ) -> Result<Found<'a>, Errno> {
        let start = match from {
            // The start of an absolute path does not matter.
            _ if path.first() == Some(&b'/') => self.fs_context().peek_directory(pin),
            AT_FDCWD => self.fs_context().peek_directory(pin),
            fd => self.files().peek(pin, fd)?.node(),
        };
        self.fs_context().find(pin, start, path, follow)
    }

    /// Looks `path` up from the current directory, as [`Call::find_from`] does.
    pub(super) fn find<'a>(&'a self, path: &[u8], pin: &'a Pinned, follow: bool) -> Result<Found<'a>, Errno> {
        self.find_from(AT_FDCWD, path, pin, follow)
    }

    /// Looks `path` up from the directory in argument `directory`, as [`Call::find_from`] does.
    pub(super) fn find_at<'a>(
        &'a self,
        directory: usize,
        path: &[u8],
        pin: &'a Pinned,
        follow: bool,
    ) -> Result<Found<'a>, Errno> {
        self.find_from(self.int(directory), path, pin, follow)
    }

    /// Returns the existing node of a path, as [`Call::find_from`] does. For an empty path, if `flags` allow
    /// that, it is that of the descriptor itself.
    pub(super) fn node_at<'a>(
        &'a self,
        directory: usize,
        path: &[u8],
        pin: &'a Pinned,
        follow: bool,
        flags: u32,
    ) -> Result<At<'a>, Errno> {
        match self.int(directory) {
            AT_FDCWD if path.is_empty() && flags & AT_EMPTY_PATH != 0 => {
                Ok(At::Borrowed(self.fs_context().peek_directory(pin)))
            }
            fd if path.is_empty() && flags & AT_EMPTY_PATH != 0 => {
                Ok(At::Borrowed(self.files().peek(pin, fd)?.node()))
            }
            fd => self.find_from(fd, path, pin, follow)?.node.ok_or(Errno::ENOENT),
        }
    }
}
