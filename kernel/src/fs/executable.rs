//! A file that is to be executed.

use abi::Errno;
use abi::file::{O_RDONLY, S_IFREG};

use super::OpenFile;
use super::content::Content;
use super::path::Found;
use super::rights;
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
    /// EACCES unless it is a regular file and the running thread may execute it.
    pub fn open(file: StaticOrArc<OpenFile>) -> Result<Self, Errno> {
        let node = file.node();
        if node.kind() != S_IFREG {
            return Err(Errno::EACCES);
        }
        rights::permit(node, rights::EXECUTE)?;
        Ok(Self(file))
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
