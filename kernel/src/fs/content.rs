//! What is behind a file: bytes, a device, one end of a pipe.

use alloc::sync::Arc;

use abi::Errno;
use abi::file::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, S_IFREG};

use super::page_cache::PageCache;
use crate::process::Process;

/// Readable and writable without waiting.
pub const ALWAYS_READY: i16 = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAt {
    /// At this offset.
    Offset(u64),
    /// At the end, wherever that is by then.
    End,
}

/// Takes bytes to where they are wanted, and returns how many it took.
pub type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<usize, Errno>;

/// The operations of a file. Buffers are the kernel's, at most a page long; a call may do less than asked for.
///
/// A stream (see [`Content::is_stream`]) has no offsets and ignores those it is given. `wait` says whether a call
/// that can do nothing yet waits (EINTR if a signal ends that) or returns EAGAIN.
pub trait Content: Send + Sync {
    /// `S_IF*`.
    fn kind(&self) -> u32 {
        S_IFREG
    }

    /// Whether bytes come and go in order, without offsets.
    fn is_stream(&self) -> bool {
        false
    }

    /// The size that `stat` reports.
    fn len(&self) -> u64 {
        0
    }

    /// Reads from `at` on; 0 is the end of the file.
    fn read(&self, _at: u64, _into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }

    /// Reads at most `most` bytes from `at` on to `take`, which may be told of less: what is made as it is read is copied once so.
    /// None: there is only [`read`](Self::read).
    fn show(&self, _at: u64, _most: usize, _take: Take<'_>) -> Option<Result<usize, Errno>> {
        None
    }

    /// Writes to `place`.
    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }

    /// Truncates the file, or extends it with zeroes.
    fn set_len(&self, _len: u64) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// All bytes at once, where they lie in memory for ever.
    fn bytes(&self) -> Option<&'static [u8]> {
        None
    }

    /// Its pages, if they can be mapped.
    fn pages(&self) -> Option<&Arc<PageCache>> {
        None
    }

    /// `POLL*`: what would not wait.
    fn ready(&self) -> i16 {
        ALWAYS_READY
    }

    /// Bytes that can be read without waiting (FIONREAD), from `at` on.
    fn waiting(&self, at: u64) -> u64 {
        self.len().saturating_sub(at)
    }

    /// The process that a descriptor of one stands for.
    fn process(&self) -> Option<&Arc<Process>> {
        None
    }

    /// Major and minor number of a device.
    fn device(&self) -> (u32, u32) {
        (0, 0)
    }
}
