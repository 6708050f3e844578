//! The contents of a file: bytes, a device, one end of a pipe.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;

use abi::Errno;
use abi::file::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, S_IFREG};

use super::holders::Holders;
use super::host::MountFile;
use super::page_cache::PageCache;

/// Readable and writable without waiting.
pub const ALWAYS_READY: i16 = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;

/// The position of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAt {
    /// At this offset.
    Offset(u64),
    /// At the end, wherever that is by then.
    End,
}

/// Takes bytes and returns how many it took.
pub type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<usize, Errno>;

/// The operations of a file. Buffers are the kernel's and at most a page long. A call may do less than asked
/// for.
///
/// A stream (see [`Content::is_stream`]) has no offsets and ignores them. `wait` tells a call that can do
/// nothing yet to wait (EINTR if a signal ends the wait). Otherwise it returns EAGAIN.
pub trait Content: Send + Sync {
    /// Returns the type of the file, `S_IF*`.
    fn kind(&self) -> u32 {
        S_IFREG
    }

    /// Returns whether bytes come and go in order, without offsets.
    fn is_stream(&self) -> bool {
        false
    }

    /// Returns whether `epoll` takes it, because it may become ready.
    fn is_polled(&self) -> bool {
        self.is_stream()
    }

    /// Returns whether it may be written though its volume cannot be changed.
    fn is_always_writable(&self) -> bool {
        false
    }

    /// Returns the size that `stat` reports.
    fn len(&self) -> u64 {
        0
    }

    /// Reads from `at` on, and returns the number of bytes: 0 at the end of the file.
    fn read(&self, _at: u64, _into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }

    /// Reads the bytes of a stream after the first `_skipped` ones, which stay.
    fn peek(&self, _skipped: usize, _into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Passes at most `most` bytes from `at` on to `take`, and returns how many it took. Contents that are
    /// made while they are read are copied only once in this way. Returns `None` if the file has only
    /// [`read`](Self::read).
    fn show(&self, _at: u64, _most: usize, _take: Take<'_>) -> Option<Result<usize, Errno>> {
        None
    }

    /// Writes at `_at` and returns the number of bytes.
    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }

    /// Truncates the file, or extends it with zeroes.
    fn set_len(&self, _len: u64) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// Returns all bytes at once, if they stay in memory for ever.
    fn bytes(&self) -> Option<&'static [u8]> {
        None
    }

    /// Returns its pages, if they can be mapped.
    fn pages(&self) -> Option<&Arc<PageCache>> {
        None
    }

    /// Returns other contents that begin as these and can be changed, if these cannot be.
    fn changeable(&self) -> Option<Result<Box<dyn Content>, Errno>> {
        None
    }

    /// Returns it as a file whose changes are written back to the host, if it is one.
    fn mount_file(&self) -> Option<&MountFile> {
        None
    }

    /// Returns the operations that would not wait, as `POLL*`.
    fn ready(&self) -> i16 {
        ALWAYS_READY
    }

    /// Returns a number that changes with each event after which an operation may be possible, if it counts
    /// them.
    fn changes(&self) -> Option<u64> {
        None
    }

    /// Returns the number of bytes that can be read from `at` on without waiting (FIONREAD).
    fn waiting(&self, at: u64) -> u64 {
        self.len().saturating_sub(at)
    }

    /// Returns the count of the descriptors and calls that keep it open, if it tells another end when there
    /// are none left.
    fn holders(&self) -> Option<&Holders> {
        None
    }

    /// Tells the other end that this one is closed. Called when the last of the [`Holders`] has left.
    fn closed(&self) {}

    /// Tells contents that have [`Holders`] that the running process closes a descriptor. There may be
    /// others.
    fn descriptor_closed(&self) {}

    /// Returns the name of its kind in `/proc/PID/fd`, as Linux has it, if it has no number.
    fn label(&self) -> Option<&'static str> {
        None
    }

    /// Returns what a descriptor stands for that is no file, such as a process.
    fn stands_for(&self) -> Option<&dyn Any> {
        None
    }

    /// Returns the major and minor number of a device.
    fn device(&self) -> (u32, u32) {
        (0, 0)
    }
}
