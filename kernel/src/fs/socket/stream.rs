//! Sockets for bytes in order, and for messages in order on a connection (SOCK_SEQPACKET). A connection is
//! two [channels](Channel), one in each direction.
//!
//! | a socket is | after | has |
//! |---|---|---|
//! | new | `socket` | perhaps an address, by `bind` |
//! | listening | `listen` | a queue of connections that were made and not accepted |
//! | connected | `connect`, `accept`, `socketpair` | a [`Link`], for good: reads and writes take no lock of the socket |
//!
//! A listener leaves [`ADDRESSES`], or the file of its address, when its socket closes, and then ends the
//! connections in its queue.
//!
//! Lock order: a socket's `setup`, its `connecting`, then the network, `ADDRESSES` or the lock of a
//! listener's queue.

mod remote;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use abi::file::{O_RDWR, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM, S_IFSOCK};
use abi::socket::Ucred;
use sync::{SetOnce, SpinLock};

pub use remote::{listener_at, offer};

use super::addresses::Addresses;
use super::channel::{Channel, Side};
use super::credentials;
use super::inbox::{MOST_UNIX, Message};
use super::time_limits::TimeLimits;
use super::{Address, Domain, Messages, NAMES_SENDERS, Name, QueueId, Reached, Rights};
use crate::fs::content::{Content, WriteAt};
use crate::fs::holders::Holders;
use crate::fs::network::{self, Far};
use crate::fs::node::{Node, NodeRef, Volume};
use crate::fs::open_file::OpenFile;
use crate::fs::pipe::{Senders, if_set};
use crate::fs::readiness;
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;
use crate::sched::WaitQueue;

/// The most connections that wait to be accepted by one listener.
const MOST_WAITING: usize = 128;

/// A socket for bytes in order.
pub struct Stream {
    domain: Domain,
    /// Set if it is for messages.
    keeps_bounds: bool,
    link: SetOnce<Link>,
    setup: SpinLock<Setup>,
    /// A connection by the network that is being made, or could not be made. `link` is set with it locked.
    connecting: SpinLock<Option<Arc<Far>>>,
    /// Options that a program sets and gets, a bit each. Relaxed: they order nothing.
    pub options: AtomicU32,
    /// How long its calls wait.
    pub limits: TimeLimits,
    holders: Holders,
}

/// The state of a socket that is not connected.
#[derive(Default)]
struct Setup {
    address: Option<Address>,
    /// The file of a Unix socket's address.
    name: Option<NodeRef>,
    listener: Option<Arc<Listener>>,
    only_v6: bool,
}

/// One side of a connection.
#[derive(Clone)]
struct Link {
    incoming: Channel,
    outgoing: Channel,
    local: Address,
    peer: Address,
    /// The process that made the other side.
    peer_process: Ucred,
    /// The network's part, if the other side is there.
    far: Option<Arc<Far>>,
}

/// A socket that listens.
pub struct Listener {
    address: Address,
    /// The process that made it listen.
    process: Ucred,
    /// Set if its connections are for messages.
    pub keeps_bounds: bool,
    queue: SpinLock<Queue>,
    arrived: WaitQueue,
    accepted: WaitQueue,
}

struct Queue {
    links: VecDeque<Link>,
    most: usize,
    /// Connections that have arrived.
    arrivals: u64,
    is_closed: bool,
}

static ADDRESSES: Addresses<Listener> = Addresses::new();
/// Those of sockets for messages.
static ADDRESSES_FOR_MESSAGES: Addresses<Listener> = Addresses::new();

/// Opens a socket, for messages if it `keeps_bounds`. `flags` are `O_*`.
///
/// # Errors
/// ENOMEM.
pub fn open(domain: Domain, keeps_bounds: bool, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    with(domain, keeps_bounds, None, flags, 0)
}

/// Opens two sockets that are connected.
///
/// # Errors
/// ENOMEM.
pub fn pair(keeps_bounds: bool, flags: u32, process: Ucred) -> Result<[StaticOrArc<OpenFile>; 2], Errno> {
    let side = || (Address::unnamed(Domain::Unix), process);
    let open = |link| with(Domain::Unix, keeps_bounds, Some(link), flags, 0);
    let [one, other] = connection(keeps_bounds, side(), side())?;
    Ok([open(one)?, open(other)?])
}

fn with(
    domain: Domain,
    keeps_bounds: bool,
    link: Option<Link>,
    flags: u32,
    options: u32,
) -> Result<StaticOrArc<OpenFile>, Errno> {
    let socket = Stream {
        domain,
        keeps_bounds,
        link: SetOnce::new(),
        setup: SpinLock::new(Setup::default()),
        connecting: SpinLock::new(None),
        options: AtomicU32::new(options),
        limits: TimeLimits::default(),
        holders: Holders::new(),
    };
    link.into_iter().for_each(|link| socket.link.set(link));
    OpenFile::new(Node::file(Volume::System, 0o777, socket)?, O_RDWR | flags)
}

/// Makes both sides of a connection, each from its address and its process.
fn connection(
    keeps_bounds: bool,
    (one, one_process): (Address, Ucred),
    (other, other_process): (Address, Ucred),
) -> Result<[Link; 2], Errno> {
    let (there, back) = (Channel::new(keeps_bounds)?, Channel::new(keeps_bounds)?);
    Ok([
        Link {
            incoming: back.clone(),
            outgoing: there.clone(),
            local: one.clone(),
            peer: other.clone(),
            peer_process: other_process,
            far: None,
        },
        Link {
            incoming: there.clone(),
            outgoing: back.clone(),
            local: other,
            peer: one,
            peer_process: one_process,
            far: None,
        },
    ])
}

impl Link {
    fn close(&self) {
        if let Some(far) = &self.far {
            return far.close();
        }
        self.incoming.close_reader();
        self.outgoing.close_writer();
    }

    /// Lets messages in both directions name their senders, as far as this side decides.
    fn name_senders(&self, wanted: bool) {
        if self.far.is_some() {
            // The other side is no process.
            return;
        }
        self.incoming.name_senders(Side::Receiver, wanted);
        self.outgoing.name_senders(Side::Sender, wanted);
    }
}

impl Stream {
    /// Returns its domain.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Returns whether it is for messages.
    pub fn keeps_bounds(&self) -> bool {
        self.keeps_bounds
    }

    fn addresses(&self) -> &'static Addresses<Listener> {
        if self.keeps_bounds { &ADDRESSES_FOR_MESSAGES } else { &ADDRESSES }
    }

    /// Returns whether it asks for the names of senders.
    pub fn asks_for_senders(&self) -> bool {
        self.options.load(Ordering::Relaxed) & NAMES_SENDERS != 0
    }

    /// Follows a change of its options.
    pub fn name_senders(&self) {
        self.linked().into_iter().for_each(|link| link.name_senders(self.asks_for_senders()));
    }

    /// Sets or returns whether it takes connections of version 6 only.
    pub fn only_v6(&self, new: Option<bool>) -> bool {
        let mut setup = self.setup.lock();
        setup.only_v6 = new.unwrap_or(setup.only_v6);
        setup.only_v6
    }

    /// Calls `f` with the queue of what comes in, or with those of the connections that wait to be accepted.
    pub fn each_queue(&self, f: impl FnMut(QueueId)) {
        let id = |link: &Link| link.incoming.id();
        if let Some(link) = self.linked() {
            return Some(id(link)).into_iter().for_each(f);
        }
        let listener = self.setup.lock().listener.clone();
        if let Some(listener) = listener {
            listener.queue.lock().links.iter().map(id).for_each(f);
        }
    }

    /// Drops the descriptors that have arrived, also in connections that wait to be accepted.
    pub fn drop_rights(&self) {
        if let Some(link) = self.linked() {
            return link.incoming.drop_rights();
        }
        let Some(listener) = self.setup.lock().listener.clone() else { return };
        let waiting = |at| listener.queue.lock().links.get(at).map(|link: &Link| link.incoming.clone());
        (0..).map_while(waiting).for_each(|incoming| incoming.drop_rights());
    }

    fn link(&self) -> Result<&Link, Errno> {
        self.linked().ok_or(Errno::ENOTCONN)
    }

    /// Returns the error of a read if it is not connected.
    fn unread(&self) -> Errno {
        if self.domain == Domain::Unix { Errno::EINVAL } else { Errno::ENOTCONN }
    }

    /// Returns whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.linked().is_some()
    }

    /// Returns whether it listens.
    pub fn listens(&self) -> bool {
        self.setup.lock().listener.is_some()
    }

    /// Returns its address.
    pub fn local(&self) -> Address {
        let bound = || self.setup.lock().address.clone();
        match self.linked() {
            Some(link) => link.local.clone(),
            None => bound().unwrap_or(Address::unnamed(self.domain)),
        }
    }

    /// Returns the address of the other side.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer(&self) -> Result<Address, Errno> {
        self.link().map(|link| link.peer.clone())
    }

    /// Returns the process that made the other side, or that listens here.
    pub fn peer_process(&self) -> Option<Ucred> {
        let listener = || self.setup.lock().listener.as_ref().map(|listener| listener.process);
        self.linked().map_or_else(listener, |link| Some(link.peer_process))
    }

    /// Returns whether it may get an address.
    pub fn can_bind(&self) -> bool {
        self.setup.lock().address.is_none() && !self.is_connected()
    }

    /// Gives it an address. `name` is the file of one of the Unix domain.
    ///
    /// # Errors
    /// EINVAL if it has one, EADDRINUSE, ENOMEM.
    pub fn bind(&self, address: Address, name: Option<NodeRef>) -> Result<(), Errno> {
        let mut setup = self.setup.lock();
        if setup.address.is_some() || self.is_connected() {
            return Err(Errno::EINVAL);
        }
        let address =
            if name.is_some() { address } else { self.addresses().register(address, setup.only_v6)? };
        (setup.address, setup.name) = (Some(address), name);
        Ok(())
    }

    /// Begins to listen for `process`, or changes the number of connections that may wait.
    ///
    /// # Errors
    /// EINVAL if it is connected, or has no address and is of the Unix domain. ENOMEM, EADDRINUSE.
    pub fn listen(&self, most: usize, process: Ucred) -> Result<(), Errno> {
        let most = most.min(MOST_WAITING);
        let mut setup = self.setup.lock();
        if self.is_connected() {
            return Err(Errno::EINVAL);
        }
        if let Some(listener) = &setup.listener {
            listener.queue.lock().most = most;
            return Ok(());
        }
        let address = match setup.address.clone() {
            Some(address) => address,
            None if self.domain == Domain::Unix => return Err(Errno::EINVAL),
            None => self.addresses().register(Address::any(self.domain), setup.only_v6)?,
        };
        setup.address = Some(address.clone());
        let queue = Queue { links: VecDeque::new(), most, arrivals: 0, is_closed: false };
        let listener = fallible::arc(Listener {
            address: address.clone(),
            process,
            keeps_bounds: self.keeps_bounds,
            queue: SpinLock::new(queue),
            arrived: WaitQueue::new(),
            accepted: WaitQueue::new(),
        })?;
        match setup.name.as_ref().and_then(Name::of) {
            Some(name) => name.set(Reached::Listener(listener.clone())),
            None => self.addresses().set_target(&address, &listener),
        }
        setup.listener = Some(listener);
        Ok(())
    }

    /// Connects it for `process` to the listener at an address. `name` is the file of one of the Unix
    /// domain.
    ///
    /// # Errors
    /// EISCONN, EINVAL if it listens, ECONNREFUSED, EAGAIN if that takes waiting and `wait` is not set,
    /// EINTR, ENOMEM.
    pub fn connect(
        &self,
        address: &Address,
        name: Option<&NodeRef>,
        wait: bool,
        process: Ucred,
    ) -> Result<(), Errno> {
        if self.is_connected() {
            return Err(Errno::EISCONN);
        }
        if address.is_remote() {
            return self.connect_remote(address, wait);
        }
        let listener = match name {
            Some(name) => Name::listener(name, self.keeps_bounds)?,
            None => self.addresses().find(address).ok_or(Errno::ECONNREFUSED)?,
        };
        let local = {
            let setup = self.setup.lock();
            if self.is_connected() {
                return Err(Errno::EISCONN);
            }
            if setup.listener.is_some() {
                return Err(Errno::EINVAL);
            }
            setup.address.clone()
        };
        let local = local.unwrap_or_else(|| Address::of_client(self.domain, address));
        let peer = if name.is_some() { listener.address.clone() } else { address.reached() };
        let [mine, mut theirs] = connection(self.keeps_bounds, (local, process), (peer, listener.process))?;
        theirs.peer = theirs.peer.seen_from(&listener.address);
        theirs.local = theirs.local.seen_from(&listener.address);
        mine.name_senders(self.asks_for_senders());
        // As on Linux, until the connection is accepted.
        theirs.incoming.name_senders(Side::Receiver, true);
        self.limits.sending(wait, || listener.put(theirs, wait))?;
        if let Err(mine) = self.set_link(mine) {
            // Another thread was faster. The listener finds this connection at its end.
            mine.close();
            return Err(Errno::EISCONN);
        }
        // Tasks that wait for the socket have seen it without a link.
        readiness::changed();
        Ok(())
    }

    /// Accepts a connection: opens a socket for it. `flags` are `O_*`.
    ///
    /// # Errors
    /// EINVAL unless it listens, EAGAIN, EINTR, ENOMEM.
    pub fn accept(&self, wait: bool, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
        let listener = self.setup.lock().listener.clone().ok_or(Errno::EINVAL)?;
        let link = self.limits.receiving(wait, || listener.take(wait))?;
        network::accepted();
        let unused = link.clone();
        let inherited = self.options.load(Ordering::Relaxed) & NAMES_SENDERS;
        link.name_senders(inherited != 0);
        with(self.domain, self.keeps_bounds, Some(link), flags, inherited).inspect_err(|_| unused.close())
    }

    /// Ends what comes in.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn end_incoming(&self) -> Result<(), Errno> {
        self.link().map(|link| link.incoming.end())
    }

    /// Stops listening, and returns whether it did listen. Its address stays.
    pub fn stop_listening(&self) -> bool {
        let listener = self.setup.lock().listener.take();
        listener.inspect(|listener| listener.close()).is_some()
    }

    /// Ends what goes out.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn end_outgoing(&self) -> Result<(), Errno> {
        self.link().map(|link| {
            link.outgoing.close_writer();
            link.tell_network();
        })
    }
}

/// A stream whose reads and writes take descriptors with them.
pub struct WithRights<'a> {
    stream: &'a Stream,
    carried: SpinLock<Carried>,
}

/// The things that go with the bytes of a stream.
#[derive(Default)]
pub struct Carried {
    /// Descriptors.
    pub rights: Option<Rights>,
    /// The name of the sender.
    pub sender: Option<Ucred>,
}

impl<'a> WithRights<'a> {
    /// Begins a transfer: with what is to be sent, or nothing to receive some.
    pub fn new(stream: &'a Stream, carried: Carried) -> Self {
        Self { stream, carried: SpinLock::new(carried) }
    }

    /// Returns what was received, or not sent.
    pub fn into_carried(self) -> Carried {
        core::mem::take(&mut *self.carried.lock())
    }
}

impl Content for WithRights<'_> {
    /// Bytes after those with descriptors, or of another sender, are left for the next call.
    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let before = {
            let carried = self.carried.lock();
            if carried.rights.is_some() {
                return Err(Errno::EAGAIN);
            }
            carried.sender
        };
        let link = self.stream.link.get().ok_or(self.stream.unread())?;
        let bytes = link.incoming.bytes().ok_or(Errno::EINVAL)?;
        let senders = match before {
            _ if !self.stream.asks_for_senders() => Senders::All,
            None => Senders::First,
            Some(sender) => Senders::Only(sender),
        };
        let read = || bytes.read_with_rights(into, wait, senders);
        let taken = self.stream.limits.receiving(wait, read)?;
        *self.carried.lock() = Carried { rights: taken.rights, sender: before.or(taken.sender) };
        Ok(taken.len)
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        let link = self.stream.link.get().ok_or(Errno::ENOTCONN)?;
        let bytes = link.outgoing.bytes().ok_or(Errno::EINVAL)?;
        let Carried { mut rights, sender } = core::mem::take(&mut *self.carried.lock());
        if let Some(rights) = &rights {
            rights.go_to(link.outgoing.id());
        }
        let write = || bytes.write_with_rights(from, &mut rights, sender, wait);
        let done = self.stream.limits.sending(wait, write);
        *self.carried.lock() = Carried { rights, sender };
        done
    }

    fn ready(&self) -> i16 {
        self.stream.ready()
    }
}

impl Messages for Stream {
    fn most(&self) -> usize {
        MOST_UNIX
    }

    /// As on Linux, an address makes no difference.
    fn send(
        &self,
        message: &mut Option<Message>,
        _to: Option<(&Address, Option<&NodeRef>)>,
        wait: bool,
    ) -> Result<(), Errno> {
        let link = self.link()?;
        let inbox = link.outgoing.messages().ok_or(Errno::EOPNOTSUPP)?;
        if let Some(message) = message.as_mut() {
            message.from = link.local.clone();
            if inbox.names_senders.get() {
                message.sender.get_or_insert_with(credentials::this_process);
            }
            message.rights.iter().for_each(|rights| rights.go_to(inbox.id()));
        }
        // The messages of a connection have one sender.
        self.limits.sending(wait, || inbox.put(message, &inbox.as_sender(), wait, || false))
    }

    fn receive(&self, stays: bool, wait: bool) -> Result<Option<Message>, Errno> {
        let inbox = self.link()?.incoming.messages().ok_or(Errno::EOPNOTSUPP)?;
        self.limits.receiving(wait, || inbox.take(stays, wait, || Ok(())))
    }
}

impl Listener {
    /// Adds a connection, once there is room.
    fn put(&self, link: Link, wait: bool) -> Result<(), Errno> {
        let mut link = Some(link);
        let put = self.accepted.attempt(wait, || {
            let mut queue = self.queue.lock();
            if queue.is_closed {
                return Some(Err(Errno::ECONNREFUSED));
            }
            if queue.links.len() > queue.most {
                return None;
            }
            if queue.links.try_reserve(1).is_err() {
                return Some(Err(Errno::ENOMEM));
            }
            queue.links.extend(link.take());
            queue.arrivals += 1;
            Some(Ok(()))
        });
        put??;
        self.arrived.wake_all();
        readiness::changed();
        Ok(())
    }

    fn take(&self, wait: bool) -> Result<Link, Errno> {
        let link = self.arrived.attempt(wait, || {
            let mut queue = self.queue.lock();
            if queue.is_closed { Some(Err(Errno::EINVAL)) } else { queue.links.pop_front().map(Ok) }
        })??;
        self.accepted.wake_all();
        Ok(link)
    }

    fn close(&self) {
        let links = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            core::mem::take(&mut queue.links)
        };
        links.iter().for_each(Link::close);
        self.arrived.wake_all();
        self.accepted.wake_all();
        readiness::changed();
    }
}

impl Content for Stream {
    fn kind(&self) -> u32 {
        S_IFSOCK
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let link = self.linked().ok_or(self.unread())?;
        match (&link.incoming, &link.far) {
            (Channel::Bytes(bytes), None) => self.limits.receiving(wait, || bytes.read(into, wait)),
            (Channel::Bytes(_), Some(far)) => self.limits.receiving(wait, || far.read(into, wait)),
            (Channel::Messages(_), _) => super::read_message(self, into, wait),
        }
    }

    fn peek(&self, skipped: usize, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let link = self.linked().ok_or(self.unread())?;
        let bytes = link.incoming.bytes().ok_or(Errno::EOPNOTSUPP)?;
        self.limits.receiving(wait, || bytes.peek(skipped, into, wait))
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        // As on Linux, the end of a stream that was never connected.
        let unconnected = if self.domain == Domain::Unix { Errno::ENOTCONN } else { Errno::EPIPE };
        let link = self.linked().ok_or(unconnected)?;
        match (&link.outgoing, &link.far) {
            (Channel::Bytes(bytes), None) => self.limits.sending(wait, || bytes.write(from, wait)),
            (Channel::Bytes(_), Some(far)) => self.limits.sending(wait, || far.write(from, wait)),
            (Channel::Messages(_), _) => super::write_message(self, from, wait),
        }
    }

    /// As on Linux, the end of what comes in can be read.
    fn ready(&self) -> i16 {
        let Some(link) = self.linked() else {
            let listener = self.setup.lock().listener.clone();
            return match listener {
                Some(listener) => if_set(!listener.queue.lock().links.is_empty(), POLLIN | POLLRDNORM),
                None => self.ready_unconnected(),
            };
        };
        let ((bytes, ended), (room, left)) = (link.incoming.readable(), link.outgoing.writable());
        if_set(bytes || ended, POLLIN | POLLRDNORM)
            | if_set(ended, POLLRDHUP)
            | if_set(room || left, POLLOUT | POLLWRNORM)
            | if_set(ended && left, POLLHUP)
            | if_set(link.has_error(), POLLERR)
    }

    fn changes(&self) -> Option<u64> {
        match self.linked() {
            Some(link) => Some(1 + link.incoming.arrivals().wrapping_add(link.outgoing.departures())),
            None => {
                let listener = self.setup.lock().listener.clone();
                Some(listener.map_or_else(|| self.settled(), |listener| listener.queue.lock().arrivals))
            }
        }
    }

    fn waiting(&self, _at: u64) -> u64 {
        self.linked().map_or(0, |link| link.incoming.waiting())
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn closed(&self) {
        let Setup { address, name, listener, .. } = core::mem::take(&mut *self.setup.lock());
        match name.as_ref().and_then(Name::of) {
            Some(name) => name.set(Reached::Nothing),
            None => address.iter().for_each(|address| self.addresses().forget(address)),
        }
        listener.iter().for_each(|listener| listener.close());
        self.linked().into_iter().for_each(Link::close);
        self.stop_connecting();
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
