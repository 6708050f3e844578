//! The messages that have arrived at a socket, of which each keeps its bounds.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::take;

use abi::Errno;
use abi::socket::Ucred;
use sync::SpinLock;

use super::credentials::NamesSenders;
use super::{Address, Domain, QueueId, Rights};
use crate::bytes::{after_mut, copy_prefix, prefix};
use crate::fs::buffers::Buffers;
use crate::fs::readiness;
use crate::mm::fallible;
use crate::sched::WaitQueue;

/// The most messages in an inbox, and their bytes, as on Linux. One message may have all bytes, also if a
/// quarter of them is taken.
const MOST_MESSAGES: usize = 512;
const MOST_BYTES: usize = 212_992;
/// The bytes that a message counts besides its own, as on Linux.
const OVERHEAD: usize = 768;
/// The most bytes of a message, as on Linux.
pub const MOST_UNIX: usize = MOST_BYTES - 32;

/// The messages that have arrived at a socket.
pub struct Inbox {
    pub domain: Domain,
    /// Set if it is one end of a connection for good.
    is_connected: bool,
    /// Whether messages name their senders.
    pub names_senders: NamesSenders,
    pub queue: SpinLock<Queue>,
    pub arrived: WaitQueue,
    pub left: WaitQueue,
}

/// The messages, in their order.
#[derive(Default)]
pub struct Queue {
    pub messages: VecDeque<Message>,
    bytes: usize,
    /// Messages that have arrived, and that have left. Changes of the rest count as both.
    pub arrivals: u64,
    pub departures: u64,
    /// Whose messages it takes, if not all.
    pub only_from: Option<Sender>,
    /// Set if its socket receives no more.
    pub has_ended: bool,
    /// Set if its socket is closed.
    pub is_closed: bool,
}

/// A sender, as receivers tell them apart.
#[derive(Clone, PartialEq, Eq)]
pub enum Sender {
    /// A socket of the Unix domain: the address of its inbox.
    Inbox(QueueId),
    /// An address of the Internet.
    Address(Address),
}

/// A message.
pub struct Message {
    pub pages: Arc<Vec<Vec<u8>>>,
    len: usize,
    /// The sender's address.
    pub from: Address,
    /// Descriptors that are sent with it.
    pub rights: Option<Rights>,
    /// The process that sent it, if that was asked for.
    pub sender: Option<Ucred>,
}

impl Message {
    /// Makes a message of these pages, whose sender is not known yet.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(pages: Vec<Vec<u8>>) -> Result<Self, Errno> {
        let len = pages.iter().map(Vec::len).sum();
        let from = Address::unnamed(Domain::Unix);
        Ok(Self { pages: fallible::arc(pages)?, len, from, rights: None, sender: None })
    }

    /// Adds the bytes of another one, which comes from the same sender.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn append(&mut self, more: Self) -> Result<(), Errno> {
        // Nothing else has the pages before the message is sent.
        let (Some(pages), Some(added)) = (Arc::get_mut(&mut self.pages), Arc::into_inner(more.pages)) else {
            return Err(Errno::ENOMEM);
        };
        pages.try_reserve(added.len()).map_err(|_| Errno::ENOMEM)?;
        pages.extend(added);
        self.len += more.len;
        Ok(())
    }

    /// Returns it without its descriptors.
    fn shown(&self) -> Self {
        Self {
            pages: self.pages.clone(),
            len: self.len,
            from: self.from.clone(),
            rights: None,
            sender: self.sender,
        }
    }

    /// Returns what it counts in an inbox.
    fn cost(&self) -> usize {
        self.len + OVERHEAD
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies as much of it as there is room for to the program, and returns the number of bytes.
    ///
    /// # Errors
    /// EFAULT.
    pub fn copy_out(&self, buffers: &mut Buffers) -> Result<usize, Errno> {
        let mut done = 0;
        for page in self.pages.iter() {
            let want = page.len().min(buffers.left());
            if buffers.copy_out(prefix(page, want as u64))? < want {
                return Err(Errno::EFAULT);
            }
            done += want;
        }
        Ok(done)
    }

    /// Copies as much of it as there is room for, and returns the number of bytes.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        self.pages.iter().fold(0, |done, page| done + copy_prefix(after_mut(into, done), page))
    }
}

impl Inbox {
    /// Makes an empty inbox.
    pub fn new(domain: Domain, is_connected: bool) -> Result<Arc<Self>, Errno> {
        fallible::arc(Self {
            domain,
            is_connected,
            names_senders: NamesSenders::new(),
            queue: SpinLock::new(Queue::default()),
            arrived: WaitQueue::new(),
            left: WaitQueue::new(),
        })
    }

    /// Returns what tells it from other queues of messages.
    pub fn id(self: &Arc<Self>) -> QueueId {
        Arc::as_ptr(self).addr()
    }

    /// Returns its socket as a sender.
    pub fn as_sender(self: &Arc<Self>) -> Sender {
        Sender::Inbox(self.id())
    }

    /// Takes messages `from` one sender only, or from all.
    pub fn take_only(&self, from: Option<Sender>) {
        self.queue.lock().only_from = from;
    }

    /// Puts a message in, once there is room if it `waits`. Takes it out of `message` then.
    ///
    /// # Errors
    /// ECONNREFUSED if it is closed, EPIPE if it receives no more or the sender `has_ended`, EPERM if it
    /// takes others' messages only. EAGAIN, EINTR, ENOMEM.
    pub fn put(
        &self,
        message: &mut Option<Message>,
        sender: &Sender,
        wait: bool,
        has_ended: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        self.left.attempt(wait, || match has_ended() {
            true => Some(Err(Errno::EPIPE)),
            false => self.queue.lock().put(message, sender).map(|put| self.as_peer(put)),
        })??;
        self.arrived.wake_all();
        readiness::changed();
        Ok(())
    }

    /// Returns the result of `put` as one for a sender that is connected for good.
    fn as_peer(&self, put: Result<(), Errno>) -> Result<(), Errno> {
        match put {
            Err(Errno::ECONNREFUSED) if self.is_connected => Err(Errno::EPIPE),
            put => put,
        }
    }

    /// Ends it after the messages that are in it.
    pub fn end(&self) {
        {
            let mut queue = self.queue.lock();
            queue.has_ended = true;
            (queue.arrivals, queue.departures) = (queue.arrivals + 1, queue.departures + 1);
        }
        self.wake();
    }

    /// Takes the next message, or copies it if it is to stay, unless there is an `error` first. Returns
    /// `None` if no more come. As on Linux it is EAGAIN if it would not `wait` for them, except at the end of
    /// a connection.
    pub fn take(
        &self,
        stays: bool,
        wait: bool,
        error: impl Fn() -> Result<(), Errno>,
    ) -> Result<Option<Message>, Errno> {
        let taken = self.arrived.attempt(wait, || match error() {
            Ok(()) => self.queue.lock().take(stays, wait || self.is_connected).map(Ok),
            Err(error) => Some(Err(error)),
        })??;
        if !stays {
            self.left.wake_all();
            readiness::changed();
        }
        Ok(taken)
    }

    /// Removes all messages, after a `change` of the queue.
    pub fn clear(&self, change: impl FnOnce(&mut Queue)) {
        let messages = {
            let mut queue = self.queue.lock();
            change(&mut queue);
            (queue.bytes, queue.arrivals, queue.departures) = (0, queue.arrivals + 1, queue.departures + 1);
            take(&mut queue.messages)
        };
        drop(messages);
        self.wake();
    }

    /// Wakes all that wait for it.
    pub fn wake(&self) {
        self.arrived.wake_all();
        self.left.wake_all();
        readiness::changed();
    }

    /// Returns whether a sender would not wait, whatever its message is.
    pub fn has_room(&self) -> bool {
        let queue = self.queue.lock();
        queue.takes_no_more() || queue.has_much_room()
    }
}

impl Queue {
    /// Returns whether nothing more can be put in.
    pub fn takes_no_more(&self) -> bool {
        self.is_closed || self.has_ended
    }

    /// Returns the bytes of the next message.
    pub fn waiting(&self) -> u64 {
        self.messages.front().map_or(0, |message| message.len as u64)
    }

    /// Returns whether there is room for any message: as on Linux, if a quarter is taken at most.
    fn has_much_room(&self) -> bool {
        self.messages.len() < MOST_MESSAGES && self.bytes <= MOST_BYTES / 4
    }

    fn has_room(&self, cost: usize) -> bool {
        self.messages.len() < MOST_MESSAGES && (self.has_much_room() || self.bytes + cost <= MOST_BYTES)
    }

    fn put(&mut self, message: &mut Option<Message>, sender: &Sender) -> Option<Result<(), Errno>> {
        if self.is_closed {
            return Some(Err(Errno::ECONNREFUSED));
        }
        if self.only_from.as_ref().is_some_and(|only| only != sender) {
            return Some(Err(Errno::EPERM));
        }
        if self.has_ended {
            return Some(Err(Errno::EPIPE));
        }
        let cost = message.as_ref().map_or(0, Message::cost);
        if !self.has_room(cost) {
            return None;
        }
        if self.messages.try_reserve(1).is_err() {
            return Some(Err(Errno::ENOMEM));
        }
        self.bytes += cost;
        self.arrivals += 1;
        self.messages.extend(message.take());
        Some(Ok(()))
    }

    /// Returns `None` if there is nothing to take yet, and at the end nothing if that `is_told`.
    fn take(&mut self, stays: bool, is_told: bool) -> Option<Option<Message>> {
        let Some(first) = self.messages.front() else { return (self.has_ended && is_told).then_some(None) };
        if stays {
            return Some(Some(first.shown()));
        }
        self.bytes -= first.cost();
        self.departures += 1;
        Some(self.messages.pop_front())
    }
}
