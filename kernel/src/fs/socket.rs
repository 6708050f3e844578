//! Sockets of the Unix domain, and of the Internet domains, within the guest and by the
//! [`network`](super::network): [`Stream`] for bytes in order, [`Datagrams`] for messages.
//!
//! An address leads to what is reached there by a list ([`addresses`]), or by the file that `bind` makes for
//! a Unix socket ([`Name`]).

mod address;
mod addresses;
mod channel;
pub(super) mod credentials;
mod datagrams;
mod inbox;
mod rights;
mod stream;
mod time_limits;

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::Errno;
use abi::file::S_IFSOCK;
use abi::socket::Ucred;
use sync::SpinLock;

pub use address::{Address, Domain};
pub(super) use credentials::NamesSenders;
pub use credentials::unknown as unknown_sender;
pub use datagrams::{Datagrams, deliver};
use inbox::Inbox;
pub use inbox::Message;
pub use rights::{MOST_SENT, QueueId, Rights};
pub use stream::{Carried, Listener, Stream, WithRights, listener_at, offer};
pub use time_limits::TimeLimits;

use super::content::Content;
use super::node::NodeRef;
use super::open_file::OpenFile;
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;

/// A socket of either kind.
#[derive(Clone, Copy)]
pub enum Socket<'a> {
    /// For bytes in order.
    Stream(&'a Stream),
    /// For messages.
    Datagrams(&'a Datagrams),
}

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For bytes in order.
    Stream,
    /// For messages in order, on a connection.
    Packets,
    /// For messages.
    Datagrams,
}

/// The bit of a socket's options by which it asks for the names of senders (SO_PASSCRED).
pub const NAMES_SENDERS: u32 = 1 << 5;

/// A socket for messages that keep their bounds.
pub trait Messages {
    /// Returns the most bytes of a message.
    fn most(&self) -> usize;

    /// Sends a message, to the address `to` or else to its peer, and takes it out of `message`. `to` has the
    /// file of a Unix socket's address.
    ///
    /// # Errors
    /// ENOTCONN or EDESTADDRREQ without an address, those of the table at the head of [`datagrams`], EPIPE
    /// after `shutdown`. EAGAIN, EINTR, ENOMEM.
    fn send(
        &self,
        message: &mut Option<Message>,
        to: Option<(&Address, Option<&NodeRef>)>,
        wait: bool,
    ) -> Result<(), Errno>;

    /// Takes the next message, or copies it if it is to stay. Returns `None` if no more come.
    ///
    /// # Errors
    /// ENOTCONN, ECONNREFUSED if nothing was where it sent a message, EAGAIN, EINTR.
    fn receive(&self, stays: bool, wait: bool) -> Result<Option<Message>, Errno>;
}

/// Takes a message of which as many bytes are of interest as there is room for.
fn read_message(socket: &impl Messages, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
    Ok(socket.receive(false, wait)?.map_or(0, |message| message.copy_to(into)))
}

/// Sends bytes as a message to the peer.
fn write_message(socket: &impl Messages, from: &[u8], wait: bool) -> Result<usize, Errno> {
    let mut pages = fallible::empty(1)?;
    pages.push(fallible::copied(from)?);
    socket.send(&mut Some(Message::new(pages)?), None, wait).map(|()| from.len())
}

/// Opens a socket. `flags` are `O_*`.
///
/// # Errors
/// ENOMEM.
pub fn open(kind: Kind, domain: Domain, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    match kind {
        Kind::Stream | Kind::Packets => stream::open(domain, kind == Kind::Packets, flags),
        Kind::Datagrams => datagrams::open(domain, flags),
    }
}

/// Opens two sockets for `process` that are connected.
///
/// # Errors
/// ENOMEM.
pub fn pair(kind: Kind, flags: u32, process: Ucred) -> Result<[StaticOrArc<OpenFile>; 2], Errno> {
    match kind {
        Kind::Stream | Kind::Packets => stream::pair(kind == Kind::Packets, flags, process),
        Kind::Datagrams => datagrams::pair(flags, process),
    }
}

/// Returns the socket that `file` is.
///
/// # Errors
/// ENOTSOCK if it is none.
pub fn of(file: &OpenFile) -> Result<Socket<'_>, Errno> {
    let object = file.node().content().and_then(Content::stands_for).ok_or(Errno::ENOTSOCK)?;
    let stream = object.downcast_ref().map(Socket::Stream);
    stream.or_else(|| object.downcast_ref().map(Socket::Datagrams)).ok_or(Errno::ENOTSOCK)
}

/// Returns the socket for messages that `contents` are.
pub fn messages(contents: &dyn Content) -> Option<&dyn Messages> {
    let object = contents.stands_for()?;
    let stream = object.downcast_ref().map(Socket::Stream);
    stream.or_else(|| object.downcast_ref().map(Socket::Datagrams))?.messages()
}

impl<'a> Socket<'a> {
    /// Returns it if it is for bytes in order.
    ///
    /// # Errors
    /// EOPNOTSUPP.
    pub fn stream(self) -> Result<&'a Stream, Errno> {
        match self {
            Socket::Stream(stream) => Ok(stream),
            Socket::Datagrams(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Returns it if it is for messages.
    pub fn messages(self) -> Option<&'a dyn Messages> {
        match self {
            Socket::Stream(stream) => stream.keeps_bounds().then_some(stream as &dyn Messages),
            Socket::Datagrams(datagrams) => Some(datagrams),
        }
    }

    /// Returns how long its calls wait.
    pub fn limits(self) -> &'a TimeLimits {
        match self {
            Socket::Stream(stream) => &stream.limits,
            Socket::Datagrams(datagrams) => &datagrams.limits,
        }
    }

    /// Returns whether it asks for the names of senders.
    pub fn asks_for_senders(self) -> bool {
        self.options().load(Ordering::Relaxed) & NAMES_SENDERS != 0
    }

    /// Follows a change of its options.
    pub fn options_changed(self) {
        match self {
            Socket::Stream(stream) => stream.name_senders(),
            Socket::Datagrams(datagrams) => datagrams.name_senders(self.asks_for_senders()),
        }
    }

    /// Returns its kind.
    pub fn kind(self) -> Kind {
        match self {
            Socket::Stream(stream) if stream.keeps_bounds() => Kind::Packets,
            Socket::Stream(_) => Kind::Stream,
            Socket::Datagrams(_) => Kind::Datagrams,
        }
    }

    /// Returns its domain.
    pub fn domain(self) -> Domain {
        match self {
            Socket::Stream(stream) => stream.domain(),
            Socket::Datagrams(datagrams) => datagrams.domain(),
        }
    }

    /// Returns the options that a program sets and gets, a bit each. Relaxed: they order nothing.
    pub fn options(self) -> &'a AtomicU32 {
        match self {
            Socket::Stream(stream) => &stream.options,
            Socket::Datagrams(datagrams) => &datagrams.options,
        }
    }

    /// Sets or returns whether it is reached by version 6 only.
    pub fn only_v6(self, new: Option<bool>) -> bool {
        match self {
            Socket::Stream(stream) => stream.only_v6(new),
            Socket::Datagrams(datagrams) => datagrams.only_v6(new),
        }
    }

    /// Returns its address.
    pub fn local(self) -> Address {
        match self {
            Socket::Stream(stream) => stream.local(),
            Socket::Datagrams(datagrams) => datagrams.local(),
        }
    }

    /// Returns the address of the other side.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer(self) -> Result<Address, Errno> {
        match self {
            Socket::Stream(stream) => stream.peer(),
            Socket::Datagrams(datagrams) => datagrams.peer(),
        }
    }

    /// Returns the process that made the other side, or that listens here, if it is known.
    pub fn peer_process(self) -> Option<Ucred> {
        match self {
            Socket::Stream(stream) => stream.peer_process(),
            Socket::Datagrams(datagrams) => datagrams.peer_process(),
        }
    }

    /// Returns what tells it from other sockets.
    fn id(self) -> usize {
        match self {
            Socket::Stream(stream) => core::ptr::from_ref(stream).addr(),
            Socket::Datagrams(datagrams) => core::ptr::from_ref(datagrams).addr(),
        }
    }

    /// Calls `f` with the queue of its messages, or with those of the connections that wait to be accepted.
    fn each_queue(self, f: impl FnMut(QueueId)) {
        match self {
            Socket::Stream(stream) => stream.each_queue(f),
            Socket::Datagrams(datagrams) => Some(datagrams.queue()).into_iter().for_each(f),
        }
    }

    /// Drops the descriptors that have arrived, with the messages that they are in.
    fn drop_messages(self) {
        match self {
            Socket::Stream(stream) => stream.drop_rights(),
            Socket::Datagrams(datagrams) => datagrams.drop_messages(),
        }
    }

    /// Returns whether it may get an address.
    pub fn can_bind(self) -> bool {
        match self {
            Socket::Stream(stream) => stream.can_bind(),
            Socket::Datagrams(datagrams) => datagrams.can_bind(),
        }
    }

    /// Gives it an address. `name` is the file of one of the Unix domain.
    ///
    /// # Errors
    /// EINVAL if it has one, EADDRINUSE, ENOMEM.
    pub fn bind(self, address: Address, name: Option<NodeRef>) -> Result<(), Errno> {
        match self {
            Socket::Stream(stream) => stream.bind(address, name),
            Socket::Datagrams(datagrams) => datagrams.bind(address, name),
        }
    }
}

/// The contents of the file of a Unix socket's address: what is reached there.
pub struct Name(SpinLock<Reached>);

#[derive(Clone)]
enum Reached {
    Nothing,
    Listener(Arc<Listener>),
    Inbox(Arc<Inbox>),
}

/// Makes the contents of the file of a Unix socket's address.
pub fn name() -> impl Content + 'static {
    Name(SpinLock::new(Reached::Nothing))
}

impl Name {
    /// Returns the contents of a file, if it is one of an address.
    fn of(node: &NodeRef) -> Option<&Self> {
        node.content().and_then(Content::stands_for).and_then(<dyn Any>::downcast_ref)
    }

    fn set(&self, reached: Reached) {
        let _before = core::mem::replace(&mut *self.0.lock(), reached);
    }

    fn reached(&self) -> Reached {
        self.0.lock().clone()
    }

    /// Returns the listener that is reached at a file.
    ///
    /// # Errors
    /// ECONNREFUSED if there is none, EPROTOTYPE if a socket of another kind is there.
    fn listener(node: &NodeRef, keeps_bounds: bool) -> Result<Arc<Listener>, Errno> {
        match Self::of(node).map_or(Reached::Nothing, Self::reached) {
            Reached::Nothing => Err(Errno::ECONNREFUSED),
            Reached::Listener(listener) if listener.keeps_bounds == keeps_bounds => Ok(listener),
            Reached::Listener(_) | Reached::Inbox(_) => Err(Errno::EPROTOTYPE),
        }
    }

    /// Returns the inbox that is reached at a file.
    ///
    /// # Errors
    /// ECONNREFUSED if there is none, EPROTOTYPE if a listener is there.
    fn inbox(node: &NodeRef) -> Result<Arc<Inbox>, Errno> {
        match Self::of(node).map_or(Reached::Nothing, Self::reached) {
            Reached::Nothing => Err(Errno::ECONNREFUSED),
            Reached::Listener(_) => Err(Errno::EPROTOTYPE),
            Reached::Inbox(inbox) => Ok(inbox),
        }
    }
}

impl Content for Name {
    fn kind(&self) -> u32 {
        S_IFSOCK
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, _into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::ENXIO)
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
