//! A file that is to be executed.

use abi::Errno;
use abi::file::{O_RDONLY, S_IFREG};

use super::OpenFile;
use super::content::Content;
use super::path::Found;
use super::static_or_arc::StaticOrArc;

/// See the module.
pub struct Executable(StaticOrArc<OpenFile>);

impl Executable {
    /// What a path led to.
    ///
    /// # Errors
    /// ENOENT; what [`Executable::open`] says.
    pub fn found(found: Found) -> Result<Self, Errno> {
        let node = found.existing()?.clone();
        Self::open(OpenFile::found(node, found, O_RDONLY)?)
    }

    /// # Errors
    /// EACCES unless it is a file that may be executed.
    pub fn open(file: StaticOrArc<OpenFile>) -> Result<Self, Errno> {
        let node = file.node();
        let may = node.kind() == S_IFREG && node.permissions() & 0o111 != 0;
        if may { Ok(Self(file)) } else { Err(Errno::EACCES) }
    }

    /// The open file.
    pub fn file(&self) -> &StaticOrArc<OpenFile> {
        &self.0
    }

    /// Its contents.
    ///
    /// # Errors
    /// EACCES if it has none.
    pub fn content(&self) -> Result<&dyn Content, Errno> {
        self.0.content().map_err(|_| Errno::EACCES)
    }
}
