//! Sockets for messages: datagrams of the Unix domain, and UDP within the guest.
//!
//! A socket has an [`Inbox`]. A sender finds that of the receiver and puts the message there. A message keeps
//! its bounds: a read takes one, and what does not fit is lost.
//!
//! | | Unix | UDP |
//! |---|---|---|
//! | the inbox is full | the sender waits | the message is lost |
//! | nothing is at the address | ECONNREFUSED | lost, and a connected sender's next call says ECONNREFUSED |
//! | a receiver that is connected | takes messages of its peer only: EPERM for others | the same: others are lost |
//!
//! No lock is taken under another one, except that of [`ADDRESSES`] under a socket's `setup`.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::mem::take;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use abi::file::{O_RDWR, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM, S_IFSOCK};
use sync::SpinLock;

use super::addresses::Addresses;
use super::{Address, Domain, Name, QueueId, Reached, Rights};
use crate::bytes::{after_mut, copy_prefix, prefix};
use crate::fs::buffers::Buffers;
use crate::fs::content::{Content, WriteAt};
use crate::fs::holders::Holders;
use crate::fs::node::{Node, NodeRef, Volume};
use crate::fs::open_file::OpenFile;
use crate::fs::pipe::if_set;
use crate::fs::readiness;
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;
use crate::sched::WaitQueue;

/// The most messages in an inbox, and their bytes, as on Linux. One message may have all bytes, also if a
/// quarter of them is taken.
const MOST_MESSAGES: usize = 512;
const MOST_BYTES: usize = 212_992;
/// The bytes that a message counts besides its own, as on Linux.
const OVERHEAD: usize = 768;
/// The most bytes of a message, as on Linux.
const MOST_UNIX: usize = MOST_BYTES - 32;
const MOST_UDP: usize = 65_507;

static ADDRESSES: Addresses<Inbox> = Addresses::new();

/// A socket for messages.
pub struct Datagrams {
    domain: Domain,
    inbox: Arc<Inbox>,
    setup: SpinLock<Setup>,
    /// The process that made it and its peer as a pair.
    peer_pid: Option<u32>,
    /// Set if nothing was at the address of its peer, until a call has said so.
    was_refused: AtomicBool,
    /// How often that was. Relaxed, as it: the lock of who waits orders them.
    refusals: AtomicU64,
    /// Options that a program sets and gets, a bit each. Relaxed: they order nothing.
    pub options: AtomicU32,
    holders: Holders,
}

#[derive(Default)]
struct Setup {
    address: Option<Address>,
    /// The file of a Unix socket's address.
    name: Option<NodeRef>,
    peer: Option<Peer>,
    only_v6: bool,
    /// Set if it sends no more.
    has_ended: bool,
}

/// The socket that another one is connected to.
#[derive(Clone)]
struct Peer {
    address: Address,
    /// The inbox of a Unix socket, for good. Of UDP it is looked up for each message.
    inbox: Option<Arc<Inbox>>,
}

/// The messages that have arrived at a socket.
pub struct Inbox {
    domain: Domain,
    queue: SpinLock<Queue>,
    arrived: WaitQueue,
    left: WaitQueue,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    /// Messages that have arrived, and that have left. Changes of the rest count as both.
    arrivals: u64,
    departures: u64,
    /// Whose messages it takes, if not all.
    only_from: Option<Sender>,
    /// Set if its socket receives no more.
    has_ended: bool,
    /// Set if its socket is closed.
    is_closed: bool,
}

/// A sender, as receivers tell them apart.
#[derive(Clone, PartialEq, Eq)]
enum Sender {
    /// A socket of the Unix domain: the address of its inbox.
    Inbox(QueueId),
    /// An address of the Internet.
    Address(Address),
}

/// A message.
pub struct Message {
    pages: Arc<Vec<Vec<u8>>>,
    len: usize,
    /// The sender's address.
    pub from: Address,
    /// Descriptors that are sent with it.
    pub rights: Option<Rights>,
}

/// Opens a socket. `flags` are `O_*`.
///
/// # Errors
/// ENOMEM.
pub fn open(domain: Domain, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    with(domain, Inbox::new(domain)?, None, None, flags)
}

/// Opens two sockets of the Unix domain that are connected.
///
/// # Errors
/// ENOMEM.
pub fn pair(flags: u32, pid: u32) -> Result<[StaticOrArc<OpenFile>; 2], Errno> {
    let (one, other) = (Inbox::new(Domain::Unix)?, Inbox::new(Domain::Unix)?);
    one.take_only(Some(other.as_sender()));
    other.take_only(Some(one.as_sender()));
    let to = |inbox: &Arc<Inbox>| {
        Some(Peer { address: Address::unnamed(Domain::Unix), inbox: Some(inbox.clone()) })
    };
    Ok([
        with(Domain::Unix, one.clone(), to(&other), Some(pid), flags)?,
        with(Domain::Unix, other.clone(), to(&one), Some(pid), flags)?,
    ])
}

fn with(
    domain: Domain,
    inbox: Arc<Inbox>,
    peer: Option<Peer>,
    peer_pid: Option<u32>,
    flags: u32,
) -> Result<StaticOrArc<OpenFile>, Errno> {
    let socket = Datagrams {
        domain,
        inbox,
        setup: SpinLock::new(Setup { peer, ..Setup::default() }),
        peer_pid,
        was_refused: AtomicBool::new(false),
        refusals: AtomicU64::new(0),
        options: AtomicU32::new(0),
        holders: Holders::new(),
    };
    OpenFile::new(Node::file(Volume::System, 0o777, socket)?, O_RDWR | flags)
}

impl Message {
    /// Makes a message of these pages, whose sender is not known yet.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(pages: Vec<Vec<u8>>) -> Result<Self, Errno> {
        let len = pages.iter().map(Vec::len).sum();
        Ok(Self { pages: fallible::arc(pages)?, len, from: Address::unnamed(Domain::Unix), rights: None })
    }

    /// Returns it without its descriptors.
    fn shown(&self) -> Self {
        Self { pages: self.pages.clone(), len: self.len, from: self.from.clone(), rights: None }
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
}

impl Inbox {
    fn new(domain: Domain) -> Result<Arc<Self>, Errno> {
        let queue = SpinLock::new(Queue::default());
        fallible::arc(Self { domain, queue, arrived: WaitQueue::new(), left: WaitQueue::new() })
    }

    fn id(self: &Arc<Self>) -> QueueId {
        Arc::as_ptr(self).addr()
    }

    fn as_sender(self: &Arc<Self>) -> Sender {
        Sender::Inbox(self.id())
    }

    fn take_only(&self, from: Option<Sender>) {
        self.queue.lock().only_from = from;
    }

    /// Puts a message in, once there is room if it `waits`. Takes it out of `message` then.
    ///
    /// # Errors
    /// ECONNREFUSED if it is closed, EPIPE if it receives no more or the sender `has_ended`, EPERM if it
    /// takes others' messages only. EAGAIN, EINTR, ENOMEM.
    fn put(
        &self,
        message: &mut Option<Message>,
        sender: &Sender,
        wait: bool,
        has_ended: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        self.left.attempt(wait, || match has_ended() {
            true => Some(Err(Errno::EPIPE)),
            false => self.queue.lock().put(message, sender),
        })??;
        self.arrived.wake_all();
        readiness::changed();
        Ok(())
    }

    /// Takes the next message, or copies it if it is to stay, unless there is an `error` first. Returns
    /// `None` if no more come, and as on Linux EAGAIN if it would not `wait` for them.
    fn take(
        &self,
        stays: bool,
        wait: bool,
        error: impl Fn() -> Result<(), Errno>,
    ) -> Result<Option<Message>, Errno> {
        let taken = self.arrived.attempt(wait, || match error() {
            Ok(()) => self.queue.lock().take(stays, wait).map(Ok),
            Err(error) => Some(Err(error)),
        })??;
        if !stays {
            self.left.wake_all();
            readiness::changed();
        }
        Ok(taken)
    }

    /// Removes all messages, after a `change` of the queue.
    fn clear(&self, change: impl FnOnce(&mut Queue)) {
        let messages = {
            let mut queue = self.queue.lock();
            change(&mut queue);
            (queue.bytes, queue.arrivals, queue.departures) = (0, queue.arrivals + 1, queue.departures + 1);
            take(&mut queue.messages)
        };
        drop(messages);
        self.wake();
    }

    fn wake(&self) {
        self.arrived.wake_all();
        self.left.wake_all();
        readiness::changed();
    }

    /// Returns whether a sender would not wait, whatever its message is.
    fn has_room(&self) -> bool {
        let queue = self.queue.lock();
        queue.is_closed || queue.has_ended || queue.has_much_room()
    }
}

impl Queue {
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

    fn take(&mut self, stays: bool, wait: bool) -> Option<Option<Message>> {
        let Some(first) = self.messages.front() else { return (self.has_ended && wait).then_some(None) };
        if stays {
            return Some(Some(first.shown()));
        }
        self.bytes -= first.cost();
        self.departures += 1;
        Some(self.messages.pop_front())
    }
}

impl Datagrams {
    /// Returns its domain.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Returns the queue of its messages.
    pub fn queue(&self) -> QueueId {
        self.inbox.id()
    }

    /// Drops all messages that have arrived.
    pub fn drop_messages(&self) {
        self.inbox.clear(|_| ());
    }

    /// Returns the most bytes of a message.
    pub fn most(&self) -> usize {
        if self.domain == Domain::Unix { MOST_UNIX } else { MOST_UDP }
    }

    /// Sets or returns whether it is reached by version 6 only.
    pub fn only_v6(&self, new: Option<bool>) -> bool {
        let mut setup = self.setup.lock();
        setup.only_v6 = new.unwrap_or(setup.only_v6);
        setup.only_v6
    }

    /// Returns its address.
    pub fn local(&self) -> Address {
        let setup = self.setup.lock();
        let Some(address) = &setup.address else { return Address::unnamed(self.domain) };
        // As on Linux, a connection chooses the address of which it had any.
        setup.peer.as_ref().map_or_else(|| address.clone(), |peer| address.as_sender_to(&peer.address))
    }

    /// Returns the process that made it and its peer, if it is one of a pair.
    pub fn peer_pid(&self) -> Option<u32> {
        self.peer_pid
    }

    /// Returns the address of the other side.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer(&self) -> Result<Address, Errno> {
        self.setup.lock().peer.as_ref().map(|peer| peer.address.clone()).ok_or(Errno::ENOTCONN)
    }

    /// Returns whether it may get an address.
    pub fn can_bind(&self) -> bool {
        self.setup.lock().address.is_none()
    }

    /// Gives it an address. `name` is the file of one of the Unix domain.
    ///
    /// # Errors
    /// EINVAL if it has one, EADDRINUSE, ENOMEM.
    pub fn bind(&self, address: Address, name: Option<NodeRef>) -> Result<(), Errno> {
        let mut setup = self.setup.lock();
        if setup.address.is_some() {
            return Err(Errno::EINVAL);
        }
        match name.as_ref().and_then(Name::of) {
            Some(name) => {
                name.set(Reached::Inbox(self.inbox.clone()));
                setup.address = Some(address);
            }
            None => setup.register(address, &self.inbox)?,
        }
        setup.name = name;
        Ok(())
    }

    /// Connects it: messages go to `address`, and come from there only. `name` is the file of one of the Unix
    /// domain.
    ///
    /// # Errors
    /// ECONNREFUSED, EPROTOTYPE, EPERM if the Unix socket there is connected to another one, EADDRINUSE,
    /// ENOMEM.
    pub fn connect(&self, address: &Address, name: Option<&NodeRef>) -> Result<(), Errno> {
        if self.domain == Domain::Unix {
            let inbox = self.look_up(address, name)?.ok_or(Errno::ECONNREFUSED)?;
            let mine = self.inbox.as_sender();
            if inbox.queue.lock().only_from.as_ref().is_some_and(|only| *only != mine) {
                return Err(Errno::EPERM);
            }
            let from = inbox.as_sender();
            self.set_peer(Some(Peer { address: address.clone(), inbox: Some(inbox) }), Some(from));
            return Ok(());
        }
        let address = address.reached();
        self.be_bound(&address)?;
        self.was_refused.store(false, Ordering::Relaxed);
        let from = Sender::Address(address.clone());
        self.set_peer(Some(Peer { address, inbox: None }), Some(from));
        Ok(())
    }

    /// Disconnects it.
    pub fn disconnect(&self) {
        self.set_peer(None, None);
    }

    fn set_peer(&self, peer: Option<Peer>, only_from: Option<Sender>) {
        let before = core::mem::replace(&mut self.setup.lock().peer, peer);
        let is_other = self.inbox.queue.lock().only_from != only_from;
        // As on Linux: messages of a former peer of a Unix socket are lost.
        if is_other && before.is_some() && self.domain == Domain::Unix {
            self.inbox.clear(|queue| queue.only_from = only_from);
        } else {
            self.inbox.take_only(only_from);
        }
    }

    /// Sees to it that it has an address, from which messages go to `to`.
    fn be_bound(&self, to: &Address) -> Result<Address, Errno> {
        let mut setup = self.setup.lock();
        if setup.address.is_none() {
            setup.register(Address::any(self.domain), &self.inbox)?;
        }
        Ok(setup.address.as_ref().map_or(Address::unnamed(self.domain), |own| own.as_sender_to(to)))
    }

    /// Returns the inbox at an address, if there is one.
    fn look_up(&self, address: &Address, name: Option<&NodeRef>) -> Result<Option<Arc<Inbox>>, Errno> {
        match name {
            Some(name) => Name::inbox(name).map(Some),
            None => Ok(ADDRESSES.find(address)),
        }
    }

    /// Sends a message, to the address `to` or else to its peer. `to` has the file of a Unix socket's
    /// address.
    ///
    /// # Errors
    /// ENOTCONN or EDESTADDRREQ without an address, those of the table at the head of the module, EPIPE after
    /// `shutdown`. EAGAIN, EINTR, ENOMEM.
    pub fn send(
        &self,
        message: &mut Option<Message>,
        to: Option<(&Address, Option<&NodeRef>)>,
        wait: bool,
    ) -> Result<(), Errno> {
        self.say_refused()?;
        let (peer, has_ended) = {
            let setup = self.setup.lock();
            (setup.peer.clone(), setup.has_ended)
        };
        if has_ended {
            return Err(Errno::EPIPE);
        }
        let no_address = if self.domain == Domain::Unix { Errno::ENOTCONN } else { Errno::EDESTADDRREQ };
        if self.domain != Domain::Unix {
            self.be_bound(&Address::any(self.domain))?;
            let is_peer = to.is_none();
            let to = to.map(|(address, _)| address.clone()).or(peer.map(|peer| peer.address));
            return self.send_udp(message, &to.ok_or(no_address)?, is_peer);
        }
        if let Some(message) = message.as_mut() {
            message.from = self.local();
        }
        let inbox = match to {
            Some((address, name)) => self.look_up(address, name)?.ok_or(Errno::ECONNREFUSED)?,
            None => peer.and_then(|peer| peer.inbox).ok_or(no_address)?,
        };
        if let Some(rights) = message.as_ref().and_then(|message| message.rights.as_ref()) {
            rights.go_to(inbox.id());
        }
        let has_ended = || self.setup.lock().has_ended;
        let put = inbox.put(message, &self.inbox.as_sender(), wait, has_ended);
        if put == Err(Errno::ECONNREFUSED) {
            self.lose(&inbox);
        }
        put
    }

    /// Disconnects it from a peer that is closed, as on Linux.
    fn lose(&self, closed: &Arc<Inbox>) {
        let is_peer = |peer: &Peer| peer.inbox.as_ref().is_some_and(|inbox| Arc::ptr_eq(inbox, closed));
        if self.setup.lock().peer.as_ref().is_some_and(is_peer) {
            self.disconnect();
        }
    }

    fn send_udp(&self, message: &mut Option<Message>, to: &Address, is_peer: bool) -> Result<(), Errno> {
        let from = self.be_bound(to)?;
        let put = match ADDRESSES.find(to) {
            Some(inbox) => {
                let from = from.seen_from(&Address::unnamed(inbox.domain));
                if let Some(message) = message.as_mut() {
                    message.from = from.clone();
                }
                inbox.put(message, &Sender::Address(from), false, || false)
            }
            None => Err(Errno::ECONNREFUSED),
        };
        match put {
            Err(Errno::ENOMEM) => Err(Errno::ENOMEM),
            Err(Errno::ECONNREFUSED | Errno::EPERM) if is_peer => {
                self.was_refused.store(true, Ordering::Relaxed);
                self.refusals.fetch_add(1, Ordering::Relaxed);
                self.inbox.arrived.wake_all();
                readiness::changed();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Takes the next message, or copies it if it is to stay. Returns `None` if no more come.
    ///
    /// # Errors
    /// ECONNREFUSED if nothing was where it sent a message, EAGAIN, EINTR.
    pub fn receive(&self, stays: bool, wait: bool) -> Result<Option<Message>, Errno> {
        self.inbox.take(stays, wait, || self.say_refused())
    }

    /// Takes the error that is pending (SO_ERROR).
    ///
    /// # Errors
    /// ECONNREFUSED.
    pub fn say_refused(&self) -> Result<(), Errno> {
        let was_refused = || self.was_refused.load(Ordering::Relaxed);
        if was_refused() && self.was_refused.swap(false, Ordering::Relaxed) {
            return Err(Errno::ECONNREFUSED);
        }
        Ok(())
    }

    /// Ends what comes in, what goes out, or both.
    ///
    /// # Errors
    /// ENOTCONN for one of the Internet that is not connected.
    pub fn shut_down(&self, incoming: bool, outgoing: bool) -> Result<(), Errno> {
        let peer = {
            let mut setup = self.setup.lock();
            if self.domain != Domain::Unix && setup.peer.is_none() {
                return Err(Errno::ENOTCONN);
            }
            setup.has_ended |= outgoing;
            setup.peer.as_ref().and_then(|peer| peer.inbox.clone())
        };
        // Its own senders wait there.
        peer.iter().for_each(|inbox| inbox.left.wake_all());
        if incoming {
            let mut queue = self.inbox.queue.lock();
            queue.has_ended = true;
            queue.arrivals += 1;
        }
        self.inbox.wake();
        Ok(())
    }
}

impl Setup {
    fn register(&mut self, address: Address, inbox: &Arc<Inbox>) -> Result<(), Errno> {
        let address = ADDRESSES.register(address, self.only_v6)?;
        ADDRESSES.set_target(&address, inbox);
        self.address = Some(address);
        Ok(())
    }
}

impl Content for Datagrams {
    fn kind(&self) -> u32 {
        S_IFSOCK
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let Some(message) = self.receive(false, wait)? else { return Ok(0) };
        let mut done = 0;
        for page in message.pages.iter() {
            done += copy_prefix(after_mut(into, done), page);
        }
        Ok(done)
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        let mut pages = fallible::empty(1)?;
        pages.push(fallible::copied(from)?);
        self.send(&mut Some(Message::new(pages)?), None, wait).map(|()| from.len())
    }

    fn ready(&self) -> i16 {
        let (arrived, no_more) = {
            let queue = self.inbox.queue.lock();
            (!queue.messages.is_empty(), queue.has_ended)
        };
        let (peer, sends_no_more) = {
            let setup = self.setup.lock();
            (setup.peer.as_ref().and_then(|peer| peer.inbox.clone()), setup.has_ended)
        };
        let was_refused = self.was_refused.load(Ordering::Relaxed);
        let room = sends_no_more || peer.is_none_or(|inbox| inbox.has_room());
        if_set(arrived || no_more, POLLIN | POLLRDNORM)
            | if_set(room, POLLOUT | POLLWRNORM)
            | if_set(no_more, POLLRDHUP)
            | if_set(no_more && sends_no_more, POLLHUP)
            | if_set(was_refused, POLLERR)
    }

    fn changes(&self) -> Option<u64> {
        let peer = self.setup.lock().peer.as_ref().and_then(|peer| peer.inbox.clone());
        let departures = peer.map_or(0, |inbox| inbox.queue.lock().departures);
        let refused = self.refusals.load(Ordering::Relaxed);
        Some(self.inbox.queue.lock().arrivals.wrapping_add(departures).wrapping_add(refused))
    }

    fn waiting(&self, _at: u64) -> u64 {
        self.inbox.queue.lock().messages.front().map_or(0, |message| message.len as u64)
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn closed(&self) {
        let Setup { address, name, peer, .. } = take(&mut *self.setup.lock());
        match name.as_ref().and_then(Name::of) {
            Some(name) => name.set(Reached::Nothing),
            None => address.iter().for_each(|address| ADDRESSES.forget(address)),
        }
        drop(peer);
        self.inbox.clear(|queue| queue.is_closed = true);
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
