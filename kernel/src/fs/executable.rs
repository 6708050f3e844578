//! A file that is to be executed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use abi::file::S_IFREG;

use super::content::Content;
use super::node::Node;
use super::path::{self, Found};

/// See the module.
pub struct Executable {
    node: Arc<Node>,
    /// Its absolute path, as far as it is known.
    pub path: Vec<u8>,
}

impl Executable {
    /// What a path led to.
    ///
    /// # Errors
    /// ENOENT; what [`Executable::open`] says.
    pub fn found(found: &Found) -> Result<Self, Errno> {
        let node = found.existing()?.clone();
        let mut path = path::of(&found.parent).unwrap_or_default();
        path.try_reserve(found.name.len() + 1).map_err(|_| Errno::ENOMEM)?;
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(&found.name);
        Self::open(node, path)
    }

    /// `node`, which may be called `path`.
    ///
    /// # Errors
    /// EACCES unless it is a file that may be executed.
    pub fn open(node: Arc<Node>, path: Vec<u8>) -> Result<Self, Errno> {
        let may = node.kind() == S_IFREG && node.permissions() & 0o111 != 0;
        if may { Ok(Self { node, path }) } else { Err(Errno::EACCES) }
    }

    /// Its contents.
    ///
    /// # Errors
    /// EACCES if it has none.
    pub fn content(&self) -> Result<&dyn Content, Errno> {
        self.node.content().ok_or(Errno::EACCES)
    }
}
