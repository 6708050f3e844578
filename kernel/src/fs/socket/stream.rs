//! Sockets for bytes in order. A connection is two pipes, one in each direction.
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
//! Lock order: a socket's `setup`, then `ADDRESSES` or the lock of a listener's queue.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::AtomicU32;

use abi::Errno;
use abi::file::{O_RDWR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM, S_IFSOCK};
use sync::{SetOnce, SpinLock};

use super::addresses::Addresses;
use super::{Address, Domain, Name, QueueId, Reached, Rights};
use crate::fs::content::{Content, WriteAt};
use crate::fs::holders::Holders;
use crate::fs::node::{Node, NodeRef, Volume};
use crate::fs::open_file::OpenFile;
use crate::fs::pipe::{Pipe, if_set};
use crate::fs::readiness;
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;
use crate::sched::WaitQueue;

/// The most connections that wait to be accepted by one listener.
const MOST_WAITING: usize = 128;

/// A socket for bytes in order.
pub struct Stream {
    domain: Domain,
    link: SetOnce<Link>,
    setup: SpinLock<Setup>,
    /// Options that a program sets and gets, a bit each. Relaxed: they order nothing.
    pub options: AtomicU32,
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
struct Link {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    local: Address,
    peer: Address,
    /// The process that made the other side.
    peer_pid: u32,
}

/// A socket that listens.
pub struct Listener {
    address: Address,
    /// The process that made it listen.
    pid: u32,
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

/// Opens a socket. `flags` are `O_*`.
///
/// # Errors
/// ENOMEM.
pub fn open(domain: Domain, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    with(domain, None, flags)
}

/// Opens two sockets that are connected.
///
/// # Errors
/// ENOMEM.
pub fn pair(flags: u32, pid: u32) -> Result<[StaticOrArc<OpenFile>; 2], Errno> {
    let side = || (Address::unnamed(Domain::Unix), pid);
    let [one, other] = connection(side(), side())?;
    Ok([with(Domain::Unix, Some(one), flags)?, with(Domain::Unix, Some(other), flags)?])
}

fn with(domain: Domain, link: Option<Link>, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    let socket = Stream {
        domain,
        link: SetOnce::new(),
        setup: SpinLock::new(Setup::default()),
        options: AtomicU32::new(0),
        holders: Holders::new(),
    };
    link.into_iter().for_each(|link| socket.link.set(link));
    OpenFile::new(Node::file(Volume::System, 0o777, socket)?, O_RDWR | flags)
}

/// Makes both sides of a connection, each from its address and its process.
fn connection(
    (one, one_pid): (Address, u32),
    (other, other_pid): (Address, u32),
) -> Result<[Link; 2], Errno> {
    let pipes = [Pipe::new()?, Pipe::new()?];
    let [there, back] = &pipes;
    Ok([
        Link {
            incoming: back.clone(),
            outgoing: there.clone(),
            local: one.clone(),
            peer: other.clone(),
            peer_pid: other_pid,
        },
        Link { incoming: there.clone(), outgoing: back.clone(), local: other, peer: one, peer_pid: one_pid },
    ])
}

impl Link {
    fn close(&self) {
        self.incoming.close_reader();
        self.outgoing.close_writer();
    }
}

impl Stream {
    /// Returns its domain.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Sets or returns whether it takes connections of version 6 only.
    pub fn only_v6(&self, new: Option<bool>) -> bool {
        let mut setup = self.setup.lock();
        setup.only_v6 = new.unwrap_or(setup.only_v6);
        setup.only_v6
    }

    /// Calls `f` with the queue of what comes in, or with those of the connections that wait to be accepted.
    pub fn each_queue(&self, f: impl FnMut(QueueId)) {
        let id = |link: &Link| Pipe::id(&link.incoming);
        if let Some(link) = self.link.get() {
            return Some(id(link)).into_iter().for_each(f);
        }
        let listener = self.setup.lock().listener.clone();
        if let Some(listener) = listener {
            listener.queue.lock().links.iter().map(id).for_each(f);
        }
    }

    /// Drops the descriptors that have arrived, also in connections that wait to be accepted.
    pub fn drop_rights(&self) {
        if let Some(link) = self.link.get() {
            return link.incoming.drop_rights();
        }
        let Some(listener) = self.setup.lock().listener.clone() else { return };
        let waiting = |at| listener.queue.lock().links.get(at).map(|link: &Link| link.incoming.clone());
        (0..).map_while(waiting).for_each(|incoming| incoming.drop_rights());
    }

    fn link(&self) -> Result<&Link, Errno> {
        self.link.get().ok_or(Errno::ENOTCONN)
    }

    /// Returns the error of a read if it is not connected.
    fn unread(&self) -> Errno {
        if self.domain == Domain::Unix { Errno::EINVAL } else { Errno::ENOTCONN }
    }

    /// Returns whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.link.get().is_some()
    }

    /// Returns whether it listens.
    pub fn listens(&self) -> bool {
        self.setup.lock().listener.is_some()
    }

    /// Returns its address.
    pub fn local(&self) -> Address {
        let bound = || self.setup.lock().address.clone();
        match self.link.get() {
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
    pub fn peer_pid(&self) -> Option<u32> {
        let listener = || self.setup.lock().listener.as_ref().map(|listener| listener.pid);
        self.link.get().map_or_else(listener, |link| Some(link.peer_pid))
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
        let address = if name.is_some() { address } else { ADDRESSES.register(address, setup.only_v6)? };
        (setup.address, setup.name) = (Some(address), name);
        Ok(())
    }

    /// Begins to listen for process `pid`, or changes the number of connections that may wait.
    ///
    /// # Errors
    /// EINVAL if it is connected, or has no address and is of the Unix domain. ENOMEM, EADDRINUSE.
    pub fn listen(&self, most: usize, pid: u32) -> Result<(), Errno> {
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
            None => ADDRESSES.register(Address::any(self.domain), setup.only_v6)?,
        };
        setup.address = Some(address.clone());
        let queue = Queue { links: VecDeque::new(), most, arrivals: 0, is_closed: false };
        let listener = fallible::arc(Listener {
            address: address.clone(),
            pid,
            queue: SpinLock::new(queue),
            arrived: WaitQueue::new(),
            accepted: WaitQueue::new(),
        })?;
        match setup.name.as_ref().and_then(Name::of) {
            Some(name) => name.set(Reached::Listener(listener.clone())),
            None => ADDRESSES.set_target(&address, &listener),
        }
        setup.listener = Some(listener);
        Ok(())
    }

    /// Connects it for process `pid` to the listener at an address. `name` is the file of one of the Unix
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
        pid: u32,
    ) -> Result<(), Errno> {
        if self.is_connected() {
            return Err(Errno::EISCONN);
        }
        let listener = match name {
            Some(name) => Name::listener(name)?,
            None => ADDRESSES.find(address).ok_or(Errno::ECONNREFUSED)?,
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
        let [mine, mut theirs] = connection((local, pid), (peer, listener.pid))?;
        theirs.peer = theirs.peer.seen_from(&listener.address);
        theirs.local = theirs.local.seen_from(&listener.address);
        listener.put(theirs, wait)?;
        let setup = self.setup.lock();
        if self.is_connected() {
            drop(setup);
            // Another thread was faster. The listener finds this connection at its end.
            mine.close();
            return Err(Errno::EISCONN);
        }
        self.link.set(mine);
        drop(setup);
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
        let link = listener.take(wait)?;
        let ends = (link.incoming.clone(), link.outgoing.clone());
        with(self.domain, Some(link), flags).inspect_err(|_| {
            ends.0.close_reader();
            ends.1.close_writer();
        })
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
        self.link().map(|link| link.outgoing.close_writer())
    }
}

/// A stream whose reads and writes take descriptors with them.
pub struct WithRights<'a> {
    stream: &'a Stream,
    rights: SpinLock<Option<Rights>>,
}

impl<'a> WithRights<'a> {
    /// Begins a transfer: with the descriptors to send, or none to receive some.
    pub fn new(stream: &'a Stream, rights: Option<Rights>) -> Self {
        Self { stream, rights: SpinLock::new(rights) }
    }

    /// Returns the descriptors that were received, or not sent.
    pub fn into_rights(self) -> Option<Rights> {
        self.rights.lock().take()
    }
}

impl Content for WithRights<'_> {
    /// Bytes after those with descriptors are left for the next call.
    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        if self.rights.lock().is_some() {
            return Err(Errno::EAGAIN);
        }
        let link = self.stream.link.get().ok_or(self.stream.unread())?;
        let (len, rights) = link.incoming.read_with_rights(into, wait)?;
        *self.rights.lock() = rights;
        Ok(len)
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        let link = self.stream.link.get().ok_or(Errno::ENOTCONN)?;
        let mut rights = self.rights.lock().take();
        if let Some(rights) = &rights {
            rights.go_to(Pipe::id(&link.outgoing));
        }
        let done = link.outgoing.write_with_rights(from, &mut rights, wait);
        *self.rights.lock() = rights;
        done
    }

    fn ready(&self) -> i16 {
        self.stream.ready()
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
        self.link.get().ok_or(self.unread())?.incoming.read(into, wait)
    }

    fn peek(&self, skipped: usize, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        self.link.get().ok_or(self.unread())?.incoming.peek(skipped, into, wait)
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        // As on Linux, the end of a stream that was never connected.
        let unconnected = if self.domain == Domain::Unix { Errno::ENOTCONN } else { Errno::EPIPE };
        self.link.get().ok_or(unconnected)?.outgoing.write(from, wait)
    }

    /// As on Linux, the end of what comes in can be read.
    fn ready(&self) -> i16 {
        let Some(link) = self.link.get() else {
            let listener = self.setup.lock().listener.clone();
            return match listener {
                Some(listener) => if_set(!listener.queue.lock().links.is_empty(), POLLIN | POLLRDNORM),
                None => POLLOUT | POLLWRNORM | POLLHUP,
            };
        };
        let ((bytes, ended), (room, left)) = (link.incoming.readable(), link.outgoing.writable());
        if_set(bytes || ended, POLLIN | POLLRDNORM)
            | if_set(ended, POLLRDHUP)
            | if_set(room || left, POLLOUT | POLLWRNORM)
            | if_set(ended && left, POLLHUP)
    }

    fn changes(&self) -> Option<u64> {
        match self.link.get() {
            Some(link) => Some(1 + link.incoming.arrivals().wrapping_add(link.outgoing.departures())),
            None => {
                let listener = self.setup.lock().listener.clone();
                Some(listener.map_or(0, |listener| listener.queue.lock().arrivals))
            }
        }
    }

    fn waiting(&self, _at: u64) -> u64 {
        self.link.get().map_or(0, |link| link.incoming.waiting())
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn closed(&self) {
        let Setup { address, name, listener, .. } = core::mem::take(&mut *self.setup.lock());
        match name.as_ref().and_then(Name::of) {
            Some(name) => name.set(Reached::Nothing),
            None => address.iter().for_each(|address| ADDRESSES.forget(address)),
        }
        listener.iter().for_each(|listener| listener.close());
        self.link.get().into_iter().for_each(Link::close);
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
