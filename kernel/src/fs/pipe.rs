//! Pipes of 64 KiB.
//!
//! A transfer into the pipe has at most a page, and goes in whole or not at all. That is the atomicity that
//! POSIX requires of writes up to `PIPE_BUF`. An end closes when its last descriptor does, and no call uses
//! it any more.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::mem::take;

use abi::Errno;
use abi::file::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, S_IFIFO};
use abi::socket::Ucred;
use sync::SpinLock;

use super::content::{Content, WriteAt};
use super::holders::Holders;
use super::node::{Node, NodeRef, Volume};
use super::page_cache::PAGE;
use super::readiness;
use super::socket::{NamesSenders, QueueId, Rights, credentials};
use crate::bytes::{after, after_mut, copy_prefix, prefix, prefix_mut};
use crate::mm::fallible;
use crate::sched::WaitQueue;

const PAGES: usize = 16;
/// The bytes that a pipe holds.
pub const CAPACITY: usize = PAGES * PAGE;

/// A pipe. Sockets that are connected have two.
pub(super) struct Pipe {
    state: SpinLock<State>,
    /// Readers that wait for bytes or for the end of the writers.
    readers: WaitQueue,
    /// Writers that wait for room or for the end of the readers.
    writers: WaitQueue,
    /// Whether bytes name their senders.
    pub(super) names_senders: NamesSenders,
}

/// Byte `n` of all that ever went through the pipe is in page `n / PAGE % PAGES`.
struct State {
    pages: [Option<Box<[u8]>>; PAGES],
    read: u64,
    written: u64,
    has_reader: bool,
    has_writer: bool,
    /// Set if the reader wants no more than what is there.
    wants_no_more: bool,
    /// Descriptors and names of senders that go with some of the bytes, in their order.
    attached: VecDeque<Attached>,
}

/// Descriptors and a name that go with bytes `start` to `end` of all that ever went through the pipe.
struct Attached {
    start: u64,
    end: u64,
    rights: Option<Rights>,
    /// The process that wrote them, if that was asked for.
    sender: Option<Ucred>,
}

/// The senders whose bytes a read takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Senders {
    /// All, without their names.
    All,
    /// That of the first byte.
    First,
    /// This one, because bytes before were its.
    Only(Ucred),
}

/// The result of a read.
#[derive(Default)]
pub(super) struct Taken {
    pub len: usize,
    pub rights: Option<Rights>,
    pub sender: Option<Ucred>,
}

/// Creates a pipe, and returns its read end and its write end.
pub fn new() -> Result<[NodeRef; 2], Errno> {
    let pipe = Pipe::new()?;
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

    /// Takes bytes of these `senders`, the first descriptors that go with them, and the name of the sender if
    /// one is meant. Returns `None` if there are none yet, and 0 bytes at the end, or if they are another
    /// sender's.
    fn take(&mut self, into: &mut [u8], senders: Senders) -> Option<Taken> {
        if !self.attached.is_empty() || matches!(senders, Senders::Only(_)) {
            return self.take_attached(into, senders);
        }
        let len = self.copy_out(0, into)?;
        self.read += len as u64;
        Some(Taken { len, ..Taken::default() })
    }

    #[cold]
    fn take_attached(&mut self, into: &mut [u8], senders: Senders) -> Option<Taken> {
        let is_asked = senders != Senders::All;
        while !is_asked && self.attached.front().is_some_and(|first| first.rights.is_none()) {
            self.attached.pop_front();
        }
        let first = self.attached.front();
        let (start, end) = first.map_or((u64::MAX, u64::MAX), |first| (first.start, first.end));
        let is_unnamed = is_asked && self.read < start;
        let sender = first.and_then(|first| first.sender).filter(|_| !is_unnamed);
        if let Senders::Only(only) = senders
            && sender != Some(only)
            && self.waiting() > 0
        {
            return Some(Taken::default());
        }
        let until = if is_unnamed { start } else { end };
        let len = self.copy_out(0, prefix_mut(into, until - self.read))?;
        self.read += len as u64;
        if self.read <= start {
            return Some(Taken { len, ..Taken::default() });
        }
        let (rights, sender) =
            self.attached.front_mut().map_or((None, None), |first| (first.rights.take(), first.sender));
        if self.read >= end || sender.is_none() {
            self.attached.pop_front();
        }
        Some(Taken { len, rights, sender })
    }

    /// Copies the bytes after the first `skipped` ones, which stay. Returns as `take` does.
    fn copy_out(&self, skipped: usize, into: &mut [u8]) -> Option<usize> {
        let len = self.waiting().saturating_sub(skipped).min(into.len());
        if len == 0 && self.has_writer && !self.wants_no_more && !into.is_empty() {
            return None;
        }
        let mut done = 0;
        while done < len {
            let (page, offset) = place(self.read + (skipped + done) as u64);
            let bytes = (PAGE - offset).min(len - done);
            if let Some(Some(page)) = self.pages.get(page) {
                copy_prefix(after_mut(into, done), prefix(after(page, offset), bytes as u64));
            }
            done += bytes;
        }
        Some(len)
    }

    /// Puts all of `from` into the pipe. Returns `None` if there is no room yet.
    fn put(&mut self, from: &[u8]) -> Option<Result<usize, Errno>> {
        if !self.has_reader || !self.has_writer || self.wants_no_more {
            return Some(Err(Errno::EPIPE));
        }
        (self.room() >= from.len()).then(|| self.copy_in(from))
    }

    /// Does the same with descriptors, which it takes, and the name of the sender.
    fn put_with(
        &mut self,
        from: &[u8],
        rights: &mut Option<Rights>,
        sender: Option<Ucred>,
    ) -> Option<Result<usize, Errno>> {
        if self.attached.try_reserve(1).is_err() {
            return Some(Err(Errno::ENOMEM));
        }
        let start = self.written;
        let put = self.put(from)?;
        let end = self.written;
        if end > start && (rights.is_some() || sender.is_some()) {
            let goes_on = |last: &&mut Attached| {
                rights.is_none() && last.rights.is_none() && last.end == start && last.sender == sender
            };
            match self.attached.back_mut().filter(goes_on) {
                Some(last) => last.end = end,
                None => self.attached.push_back(Attached { start, end, rights: rights.take(), sender }),
            }
        }
        Some(put)
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
            self.read = self.written;
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

impl Pipe {
    /// Creates an empty pipe with both ends open.
    pub(super) fn new() -> Result<Arc<Self>, Errno> {
        let state = State {
            pages: [const { None }; PAGES],
            read: 0,
            written: 0,
            has_reader: true,
            has_writer: true,
            wants_no_more: false,
            attached: VecDeque::new(),
        };
        fallible::arc(Self {
            state: SpinLock::new(state),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            names_senders: NamesSenders::new(),
        })
    }

    pub(super) fn read(&self, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        // Descriptors that a plain read comes across are closed.
        self.read_with_rights(into, wait, Senders::All).map(|taken| taken.len)
    }

    /// Reads bytes of these `senders` and the descriptors that go with them. It ends after the bytes of the
    /// first ones.
    pub(super) fn read_with_rights(
        &self,
        into: &mut [u8],
        wait: bool,
        senders: Senders,
    ) -> Result<Taken, Errno> {
        let taken = self.readers.attempt(wait, || self.state.lock().take(into, senders))?;
        self.writers.wake_all();
        readiness::changed();
        Ok(taken)
    }

    /// Reads the bytes after the first `skipped` ones, which stay.
    pub(super) fn peek(&self, skipped: usize, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        self.readers.attempt(wait, || self.state.lock().copy_out(skipped, into))
    }

    pub(super) fn write(&self, from: &[u8], wait: bool) -> Result<usize, Errno> {
        if self.names_senders.get() {
            return self.write_with_rights(from, &mut None, None, wait);
        }
        let len = self.writers.attempt(wait, || self.state.lock().put(from))??;
        self.readers.wake_all();
        readiness::changed();
        Ok(len)
    }

    /// Does the same with descriptors, which go with these bytes, and the name of the `sender`, which is
    /// added if it is asked for.
    #[inline(never)]
    pub(super) fn write_with_rights(
        &self,
        from: &[u8],
        rights: &mut Option<Rights>,
        sender: Option<Ucred>,
        wait: bool,
    ) -> Result<usize, Errno> {
        let sender = sender.or_else(|| self.names_senders.get().then(credentials::this_process));
        let len = self.writers.attempt(wait, || self.state.lock().put_with(from, rights, sender))??;
        self.readers.wake_all();
        readiness::changed();
        Ok(len)
    }

    /// Returns what tells it from other queues of messages.
    pub(super) fn id(pipe: &Arc<Self>) -> QueueId {
        Arc::as_ptr(pipe).addr()
    }

    /// Closes the descriptors that wait to be read.
    pub(super) fn drop_rights(&self) {
        let attached = take(&mut self.state.lock().attached);
        drop(attached);
    }

    /// Returns whether bytes can be read, and whether no more will come.
    pub(super) fn readable(&self) -> (bool, bool) {
        let state = self.state.lock();
        (state.waiting() > 0, !state.has_writer || state.wants_no_more)
    }

    /// Returns whether a page can be written, and whether the reader is gone.
    pub(super) fn writable(&self) -> (bool, bool) {
        let state = self.state.lock();
        (state.room() >= PAGE, !state.has_reader || state.wants_no_more)
    }

    /// Returns the number of bytes that can be read.
    pub(super) fn waiting(&self) -> u64 {
        self.state.lock().waiting() as u64
    }

    /// Returns a number that changes when bytes or the end arrive.
    pub(super) fn arrivals(&self) -> u64 {
        let state = self.state.lock();
        state.written + u64::from(!state.has_writer) + u64::from(state.wants_no_more)
    }

    /// Returns a number that changes when room is made or the reader leaves.
    pub(super) fn departures(&self) -> u64 {
        let state = self.state.lock();
        state.read + u64::from(!state.has_reader) + u64::from(state.wants_no_more)
    }

    pub(super) fn close_reader(&self) {
        self.state.lock().close(|state| &mut state.has_reader);
        self.drop_rights();
        self.wake_both();
    }

    /// Ends the pipe after the bytes that are in it.
    pub(super) fn end(&self) {
        self.state.lock().wants_no_more = true;
        self.wake_both();
    }

    pub(super) fn close_writer(&self) {
        self.state.lock().close(|state| &mut state.has_writer);
        self.wake_both();
    }

    fn wake_both(&self) {
        self.readers.wake_all();
        self.writers.wake_all();
        readiness::changed();
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
        self.0.read(into, wait)
    }

    fn ready(&self) -> i16 {
        let (bytes, ended) = self.0.readable();
        if_set(bytes, POLLIN | POLLRDNORM) | if_set(ended, POLLHUP)
    }

    fn changes(&self) -> Option<u64> {
        Some(self.0.arrivals())
    }

    fn waiting(&self, _at: u64) -> u64 {
        self.0.waiting()
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.1)
    }

    fn closed(&self) {
        self.0.close_reader();
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
        self.0.write(from, wait)
    }

    fn ready(&self) -> i16 {
        let (room, ended) = self.0.writable();
        if_set(room, POLLOUT | POLLWRNORM) | if_set(ended, POLLERR)
    }

    fn changes(&self) -> Option<u64> {
        Some(self.0.departures())
    }

    fn waiting(&self, _at: u64) -> u64 {
        self.0.waiting()
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.1)
    }

    fn closed(&self) {
        self.0.close_writer();
    }
}

/// Returns the events if the condition holds.
pub(super) fn if_set(condition: bool, events: i16) -> i16 {
    if condition { events } else { 0 }
}
