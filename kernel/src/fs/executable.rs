//! A file that is to be executed.

use abi::Errno;
use abi::file::{O_RDONLY, S_IFREG};

use super::OpenFile;
use super::content::Content;
use super::path::Found;
use crate::mm::static_or_arc::StaticOrArc;

/// An open file that may be executed.
pub struct Executable(StaticOrArc<OpenFile>);

impl Executable {
    /// Opens what a path led to.
    ///
    /// # Errors
    /// ENOENT if there is nothing, and those of [`Executable::open`].
    pub fn found(found: Found<'_>) -> Result<Self, Errno> {
        let node = found.existing()?.clone();
        Self::open(OpenFile::found(node, found.into_place(), O_RDONLY)?)
    }

    /// Checks that `file` may be executed.
    ///
    /// # Errors
    /// EACCES unless it is a regular file with an execute permission.
    pub fn open(file: StaticOrArc<OpenFile>) -> Result<Self, Errno> {
        let node = file.node();
        let may = node.kind() == S_IFREG && node.permissions() & 0o111 != 0;
        if may { Ok(Self(file)) } else { Err(Errno::EACCES) }
    }

    /// Returns the open file.
    pub fn file(&self) -> &StaticOrArc<OpenFile> {
        &self.0
    }

    /// Returns its contents.
    ///
    /// # Errors
    /// EACCES if it has none.
    pub fn content(&self) -> Result<&dyn Content, Errno> {
        self.0.content().map_err(|_| Errno::EACCES)
    }
}
