//! `eventfd`: a counter that is a file. A write adds to it, a read takes all of it, or one.

use abi::Errno;
use abi::file::{EFD_SEMAPHORE, O_RDWR, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};
use sync::SpinLock;

use super::content::{Content, WriteAt};
use super::holders::Holders;
use super::node::{Node, Volume};
use super::open_file::OpenFile;
use super::readiness;
use crate::mm::static_or_arc::StaticOrArc;
use crate::sched::WaitQueue;

/// The bytes of each read and write.
const BYTES: usize = 8;
/// The largest value of the counter.
const MOST: u64 = u64::MAX - 1;

/// A counter, and the number of changes that it had.
struct State {
    count: u64,
    changes: u64,
}

struct EventFd {
    state: SpinLock<State>,
    is_semaphore: bool,
    readers: WaitQueue,
    writers: WaitQueue,
    holders: Holders,
}

/// Opens a counter that begins with `count`. `flags` are `EFD_*` and `O_*`.
///
/// # Errors
/// ENOMEM.
pub fn open(count: u64, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    let content = EventFd {
        state: SpinLock::new(State { count, changes: 0 }),
        is_semaphore: flags & EFD_SEMAPHORE != 0,
        readers: WaitQueue::new(),
        writers: WaitQueue::new(),
        holders: Holders::new(),
    };
    OpenFile::new(Node::file(Volume::System, 0o600, content)?, O_RDWR | flags & !EFD_SEMAPHORE)
}

impl State {
    /// Takes what a read returns, if there is something.
    fn take(&mut self, one: bool) -> Option<u64> {
        let taken = if one { self.count.min(1) } else { self.count };
        self.count -= taken;
        self.changes += u64::from(taken > 0);
        Some(taken).filter(|&taken| taken > 0)
    }

    /// Adds to the counter, if there is room.
    fn add(&mut self, more: u64) -> Option<()> {
        self.count = self.count.checked_add(more).filter(|&count| count <= MOST)?;
        self.changes += 1;
        Some(())
    }
}

impl Content for EventFd {
    fn kind(&self) -> u32 {
        0
    }

    fn label(&self) -> Option<&'static str> {
        Some("[eventfd]")
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let into = into.first_chunk_mut::<BYTES>().ok_or(Errno::EINVAL)?;
        let take = || self.state.lock().take(self.is_semaphore);
        let taken = self.readers.attempt(wait, take)?;
        *into = taken.to_le_bytes();
        self.writers.wake_all();
        readiness::changed();
        Ok(BYTES)
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        let more = u64::from_le_bytes(*from.first_chunk().ok_or(Errno::EINVAL)?);
        if more > MOST {
            return Err(Errno::EINVAL);
        }
        self.writers.attempt(wait, || self.state.lock().add(more))?;
        self.readers.wake_all();
        readiness::changed();
        Ok(BYTES)
    }

    fn ready(&self) -> i16 {
        let count = self.state.lock().count;
        let readable = if count > 0 { POLLIN | POLLRDNORM } else { 0 };
        readable | if count < MOST { POLLOUT | POLLWRNORM } else { 0 }
    }

    fn changes(&self) -> Option<u64> {
        Some(self.state.lock().changes)
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }
}
