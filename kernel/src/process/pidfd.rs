//! Descriptors that stand for a process: readable when it has ended.

use alloc::sync::Arc;
use core::any::Any;

use abi::Errno;
use abi::file::{O_RDWR, POLLIN, POLLRDNORM};

use super::Process;
use crate::fs::OpenFile;
use crate::fs::content::{Content, WriteAt};
use crate::fs::holders::Holders;
use crate::fs::node::{Node, Volume};
use crate::mm::static_or_arc::StaticOrArc;

struct PidFd(Arc<Process>, Holders);

/// Opens a file that stands for `process`.
///
/// # Errors
/// ENOMEM.
pub fn open(process: Arc<Process>, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    OpenFile::new(Node::file(Volume::System, 0o600, PidFd(process, Holders::new()))?, O_RDWR | flags)
}

/// Returns the process that `file` stands for.
///
/// # Errors
/// EBADF if it stands for none.
pub fn process(file: &OpenFile) -> Result<&Arc<Process>, Errno> {
    let object = file.node().content().and_then(Content::stands_for);
    object.and_then(<dyn Any>::downcast_ref).ok_or(Errno::EBADF)
}

impl Content for PidFd {
    fn kind(&self) -> u32 {
        0
    }

    fn label(&self) -> Option<&'static str> {
        Some("[pidfd]")
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, _into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    fn ready(&self) -> i16 {
        if self.0.has_ended() { POLLIN | POLLRDNORM } else { 0 }
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.1)
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(&self.0)
    }
}
