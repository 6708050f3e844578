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

mod remote;

use alloc::sync::Arc;
use core::any::Any;
use core::mem::take;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use abi::Errno;
use abi::file::{O_RDWR, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM, S_IFSOCK};
use abi::socket::Ucred;
use sync::SpinLock;

pub use remote::deliver;

use super::addresses::Addresses;
use super::channel::Side;
use super::credentials;
use super::inbox::{Inbox, MOST_UNIX, Message, Sender};
use super::time_limits::TimeLimits;
use super::{Address, Domain, Messages, Name, QueueId, Reached};
use crate::fs::content::{Content, WriteAt};
use crate::fs::holders::Holders;
use crate::fs::node::{Node, NodeRef, Volume};
use crate::fs::open_file::OpenFile;
use crate::fs::pipe::if_set;
use crate::fs::readiness;
use crate::mm::static_or_arc::StaticOrArc;

/// The most bytes of a message of UDP, as on Linux.
const MOST_UDP: usize = 65_507;

static ADDRESSES: Addresses<Inbox> = Addresses::new();

/// A socket for messages.
pub struct Datagrams {
    domain: Domain,
    inbox: Arc<Inbox>,
    setup: SpinLock<Setup>,
    /// The process that made it and its peer as a pair.
    peer_process: Option<Ucred>,
    /// Set if nothing was at the address of its peer, until a call has said so.
    was_refused: AtomicBool,
    /// How often that was. Relaxed, as it: the lock of who waits orders them.
    refusals: AtomicU64,
    /// Options that a program sets and gets, a bit each. Relaxed: they order nothing.
    pub options: AtomicU32,
    /// How long its calls wait.
    pub limits: TimeLimits,
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
    /// Set if its program chose the port.
    chose_port: bool,
    /// The address that its program chose for ports that it does not.
    wished: Option<Address>,
    /// A message of UDP of which more follows, and where it goes: to the peer if `None`.
    begun: Option<(Message, Option<Address>)>,
}

/// The socket that another one is connected to.
#[derive(Clone)]
struct Peer {
    address: Address,
    /// The inbox of a Unix socket, for good. Of UDP it is looked up for each message.
    inbox: Option<Arc<Inbox>>,
}

/// Opens a socket. `flags` are `O_*`.
///
/// # Errors
/// ENOMEM.
pub fn open(domain: Domain, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    with(domain, Inbox::new(domain, false)?, None, None, flags)
}

/// Opens two sockets of the Unix domain that are connected.
///
/// # Errors
/// ENOMEM.
pub fn pair(flags: u32, process: Ucred) -> Result<[StaticOrArc<OpenFile>; 2], Errno> {
    let (one, other) = (Inbox::new(Domain::Unix, false)?, Inbox::new(Domain::Unix, false)?);
    one.take_only(Some(other.as_sender()));
    other.take_only(Some(one.as_sender()));
    let to = |inbox: &Arc<Inbox>| {
        Some(Peer { address: Address::unnamed(Domain::Unix), inbox: Some(inbox.clone()) })
    };
    Ok([
        with(Domain::Unix, one.clone(), to(&other), Some(process), flags)?,
        with(Domain::Unix, other.clone(), to(&one), Some(process), flags)?,
    ])
}

fn with(
    domain: Domain,
    inbox: Arc<Inbox>,
    peer: Option<Peer>,
    peer_process: Option<Ucred>,
    flags: u32,
) -> Result<StaticOrArc<OpenFile>, Errno> {
    let socket = Datagrams {
        domain,
        inbox,
        setup: SpinLock::new(Setup { peer, ..Setup::default() }),
        peer_process,
        was_refused: AtomicBool::new(false),
        refusals: AtomicU64::new(0),
        options: AtomicU32::new(0),
        limits: TimeLimits::default(),
        holders: Holders::new(),
    };
    OpenFile::new(Node::file(Volume::System, 0o777, socket)?, O_RDWR | flags)
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

    /// Sets whether messages to it and from it name their senders.
    pub fn name_senders(&self, wanted: bool) {
        self.inbox.names_senders.set(Side::Receiver, wanted);
    }

    /// Drops all messages that have arrived.
    pub fn drop_messages(&self) {
        self.inbox.clear(|_| ());
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
        let Some(address) = &setup.address else {
            return setup.wished.clone().unwrap_or(Address::unnamed(self.domain));
        };
        // As on Linux, a connection chooses the address of which it had any.
        setup.peer.as_ref().map_or_else(|| address.clone(), |peer| address.as_sender_to(&peer.address))
    }

    /// Returns the process that made it and its peer, if it is one of a pair.
    pub fn peer_process(&self) -> Option<Ucred> {
        self.peer_process
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
            None => {
                setup.chose_port = !address.is_without_port();
                setup.wished = address.without_port();
                setup.register(address, &self.inbox)?;
            }
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

    /// Disconnects it. As on Linux, a port that its program did not choose goes.
    pub fn disconnect(&self) {
        self.set_peer(None, None);
        if self.domain != Domain::Unix {
            let mut setup = self.setup.lock();
            if !setup.chose_port {
                setup.address.take().iter().for_each(|address| ADDRESSES.forget(address));
            }
        }
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
            let wished = setup.wished.clone().unwrap_or(Address::any(self.domain));
            setup.register(wished, &self.inbox)?;
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

    /// Sends a message of the Unix domain to its `peer` or to another address.
    fn send_unix(
        &self,
        message: &mut Option<Message>,
        to: Option<(&Address, Option<&NodeRef>)>,
        peer: Option<Peer>,
        wait: bool,
    ) -> Result<(), Errno> {
        let inbox = match to {
            Some((address, name)) => self.look_up(address, name)?.ok_or(Errno::ECONNREFUSED)?,
            None => peer.and_then(|peer| peer.inbox).ok_or(Errno::ENOTCONN)?,
        };
        if let Some(message) = message.as_mut() {
            message.from = self.local();
            if self.inbox.names_senders.get() || inbox.names_senders.get() {
                message.sender.get_or_insert_with(credentials::this_process);
            }
        }
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

    /// Adds to the message of which more follows, or begins one. If more follows again, it stays until later.
    ///
    /// # Errors
    /// EMSGSIZE if it gets too long: all of it is lost. EDESTADDRREQ, ENOMEM.
    pub fn gather(&self, message: Message, to: Option<Address>, more_follows: bool) -> Result<(), Errno> {
        self.say_refused()?;
        let (mut whole, to) = {
            let mut setup = self.setup.lock();
            if to.is_none() && setup.peer.is_none() && setup.begun.is_none() {
                return Err(Errno::EDESTADDRREQ);
            }
            match setup.begun.take() {
                Some((begun, to)) => (begun, to),
                None => (Message::new(Default::default())?, to),
            }
        };
        if whole.len() + message.len() > MOST_UDP {
            return Err(Errno::EMSGSIZE);
        }
        whole.append(message)?;
        if more_follows {
            self.setup.lock().begun = Some((whole, to));
            return Ok(());
        }
        Messages::send(self, &mut Some(whole), to.as_ref().map(|to| (to, None)), false)
    }

    /// Returns whether a message was begun of which more follows.
    pub fn has_begun(&self) -> bool {
        self.setup.lock().begun.is_some()
    }

    /// Disconnects it from a peer that is closed, as on Linux.
    fn lose(&self, closed: &Arc<Inbox>) {
        let is_peer = |peer: &Peer| peer.inbox.as_ref().is_some_and(|inbox| Arc::ptr_eq(inbox, closed));
        if self.setup.lock().peer.as_ref().is_some_and(is_peer) {
            self.disconnect();
        }
    }

    fn send_udp(&self, message: &mut Option<Message>, to: &Address, is_peer: bool) -> Result<(), Errno> {
        if to.is_remote() {
            return self.send_remote(message, to);
        }
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
            self.inbox.end();
        } else {
            self.inbox.wake();
        }
        Ok(())
    }
}

impl Messages for Datagrams {
    fn most(&self) -> usize {
        if self.domain == Domain::Unix { MOST_UNIX } else { MOST_UDP }
    }

    fn send(
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
        if self.domain == Domain::Unix {
            return self.limits.sending(wait, || self.send_unix(message, to, peer, wait));
        }
        self.be_bound(&Address::any(self.domain))?;
        let is_peer = to.is_none();
        let to = to.map(|(address, _)| address.clone()).or(peer.map(|peer| peer.address));
        self.send_udp(message, &to.ok_or(Errno::EDESTADDRREQ)?, is_peer)
    }

    fn receive(&self, stays: bool, wait: bool) -> Result<Option<Message>, Errno> {
        self.limits.receiving(wait, || self.inbox.take(stays, wait, || self.say_refused()))
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
        super::read_message(self, into, wait)
    }

    fn write(&self, _at: WriteAt, from: &[u8], wait: bool) -> Result<usize, Errno> {
        super::write_message(self, from, wait)
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
        self.inbox.queue.lock().waiting()
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn closed(&self) {
        let Setup { address, name, peer, begun, .. } = take(&mut *self.setup.lock());
        match name.as_ref().and_then(Name::of) {
            Some(name) => name.set(Reached::Nothing),
            None => address.iter().for_each(|address| ADDRESSES.forget(address)),
        }
        drop((peer, begun));
        self.inbox.clear(|queue| queue.is_closed = true);
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
