//! Pipes of 64 KiB.
//!
//! A transfer into the pipe has at most a page, and goes in whole or not at all. That is the atomicity that
//! POSIX requires of writes up to `PIPE_BUF`. An end closes when its last descriptor does, and no call uses
//! it any more.

use alloc::boxed::Box;
use alloc::sync::Arc;

use abi::Errno;
use abi::file::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, S_IFIFO};
use sync::SpinLock;

use super::content::{Content, WriteAt};
use super::holders::Holders;
use super::node::{Node, NodeRef, Volume};
use super::page_cache::PAGE;
use super::readiness;
use crate::bytes::{after, after_mut, copy_prefix, prefix};
use crate::mm::fallible;
use crate::sched::WaitQueue;

const PAGES: usize = 16;
/// The bytes that a pipe holds.
pub const CAPACITY: usize = PAGES * PAGE;

struct Pipe {
    state: SpinLock<State>,
    /// Readers that wait for bytes or for the end of the writers.
    readers: WaitQueue,
    /// Writers that wait for room or for the end of the readers.
    writers: WaitQueue,
}

/// Byte `n` of all that ever went through the pipe is in page `n / PAGE % PAGES`.
struct State {
    pages: [Option<Box<[u8]>>; PAGES],
    read: u64,
    written: u64,
    has_reader: bool,
    has_writer: bool,
}

/// Creates a pipe, and returns its read end and its write end.
pub fn new() -> Result<[NodeRef; 2], Errno> {
    let state =
        State { pages: [const { None }; PAGES], read: 0, written: 0, has_reader: true, has_writer: true };
    let pipe = Pipe { state: SpinLock::new(state), readers: WaitQueue::new(), writers: WaitQueue::new() };
    let pipe = fallible::arc(pipe)?;
    let reader = Node::file(Volume::System, 0o600, ReadEnd(pipe.clone(), Holders::new()))?;
    let writer = reader.other_end(WriteEnd(pipe, Holders::new()))?;
    Ok([reader, writer])
}

impl State {
    fn waiting(&self) -> usize {
        (self.written - self.read) as usize
    }

    fn room(&self) -> usize {
        CAPACITY - self.waiting()
    }

    /// Takes bytes. Returns `None` if there are none yet, and `Some(0)` at the end.
    fn take(&mut self, into: &mut [u8]) -> Option<usize> {
        let len = self.waiting().min(into.len());
        if len == 0 && self.has_writer && !into.is_empty() {
            return None;
        }
        let mut done = 0;
        while done < len {
            let (page, offset) = place(self.read);
            let bytes = (PAGE - offset).min(len - done);
            if let Some(Some(page)) = self.pages.get(page) {
                copy_prefix(after_mut(into, done), prefix(after(page, offset), bytes as u64));
            }
            self.read += bytes as u64;
            done += bytes;
        }
        Some(len)
    }

    /// Puts all of `from` into the pipe. Returns `None` if there is no room yet.
    fn put(&mut self, from: &[u8]) -> Option<Result<usize, Errno>> {
        if !self.has_reader {
            return Some(Err(Errno::EPIPE));
        }
        (self.room() >= from.len()).then(|| self.copy_in(from))
    }

    fn copy_in(&mut self, from: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < from.len() {
            let (page, offset) = place(self.written + done as u64);
            let bytes = (PAGE - offset).min(from.len() - done);
            copy_prefix(after_mut(self.page(page)?, offset), prefix(after(from, done), bytes as u64));
            done += bytes;
        }
        self.written += done as u64;
        Ok(done)
    }

    /// Closes an end. The bytes go with the second one, though the pipe itself may stay for its readers.
    fn close(&mut self, end: impl Fn(&mut Self) -> &mut bool) {
        *end(self) = false;
        if !self.has_reader && !self.has_writer {
            self.pages = [const { None }; PAGES];
        }
    }

    fn page(&mut self, index: usize) -> Result<&mut [u8], Errno> {
        let page = self.pages.get_mut(index).ok_or(Errno::EIO)?;
        if page.is_none() {
            *page = Some(fallible::zeroes(PAGE)?.into_boxed_slice());
        }
        page.as_deref_mut().ok_or(Errno::EIO)
    }
}

fn place(byte: u64) -> (usize, usize) {
    let byte = byte as usize;
    (byte / PAGE % PAGES, byte % PAGE)
}

/// Calls `attempt`, and if it returns `None`, waits and calls it again if `wait` allows it.
fn attempt<R>(queue: &WaitQueue, wait: bool, mut attempt: impl FnMut() -> Option<R>) -> Result<R, Errno> {
    match attempt() {
        Some(value) => Ok(value),
        None if wait => queue.wait_until(attempt),
        None => Err(Errno::EAGAIN),
    }
}

struct ReadEnd(Arc<Pipe>, Holders);

impl Content for ReadEnd {
    fn kind(&self) -> u32 {
        S_IFIFO
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let len = attempt(&self.0.readers, wait, || self.0.state.lock().take(into))?;
        self.0.writers.wake_all();
        readiness::changed();
        Ok(len)
    }

    fn ready(&self) -> i16 {
        let state = self.0.state.lock();
        let bytes = if state.waiting() > 0 { POLLIN | POLLRDNORM } else { 0 };
        bytes | if state.has_writer { 0 } else { POLLHUP }
    }

    fn waiting(&self, _at: u64) -> u64 {
        self.0.state.lock().waiting() as u64
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.1)
    }

    fn closed(&self) {
        self.0.state.lock().close(|state| &mut state.has_reader);
        self.0.writers.wake_all();
        readiness::changed();
    }
}

struct WriteEnd(Arc<Pipe>, Holders);

impl Content for WriteEnd {
    fn kind(&self) -> u32 {
        S_IFIFO
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        let len = attempt(&self.0.writers, wait, || self.0.state.lock().put(from))??;
        self.0.readers.wake_all();
        readiness::changed();
        Ok(len)
    }

    fn ready(&self) -> i16 {
        let state = self.0.state.lock();
        let room = if state.room() >= PAGE { POLLOUT | POLLWRNORM } else { 0 };
        room | if state.has_reader { 0 } else { POLLERR }
    }

    fn waiting(&self, _at: u64) -> u64 {
        self.0.state.lock().waiting() as u64
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.1)
    }

    fn closed(&self) {
        self.0.state.lock().close(|state| &mut state.has_writer);
        self.0.readers.wake_all();
        readiness::changed();
    }
}
