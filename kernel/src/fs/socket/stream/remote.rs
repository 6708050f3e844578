//! Streams whose other side is reached by the network.
//!
//! `connect` of such a stream leaves its connection in `connecting` until it is made or has failed. The first
//! look at the socket after that makes it the socket's link.

use alloc::sync::Arc;

use abi::Errno;
use abi::file::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};

use super::{ADDRESSES, Channel, Link, Listener, Stream};
use crate::fs::network::{self, Far};
use crate::fs::socket::{Address, credentials};

/// Returns the listener that is reached at an address of the guest on the network.
pub fn listener_at(address: &Address) -> Option<Arc<Listener>> {
    ADDRESSES.find(address)
}

/// Puts a connection from the network into the queue of a listener.
///
/// # Errors
/// EAGAIN if there is no room, ECONNREFUSED if it listens no more, ENOMEM.
pub fn offer(listener: &Listener, far: &Arc<Far>) -> Result<(), Errno> {
    let mut link = Link::of_network(far);
    link.local = link.local.seen_from(&listener.address);
    link.peer = link.peer.seen_from(&listener.address);
    listener.put(link, false)
}

impl Link {
    fn of_network(far: &Arc<Far>) -> Self {
        Self {
            incoming: Channel::Bytes(far.incoming.clone()),
            outgoing: Channel::Bytes(far.outgoing.clone()),
            local: far.local.clone(),
            peer: far.peer.clone(),
            peer_process: credentials::unknown(),
            far: Some(far.clone()),
        }
    }

    /// Returns whether an error of the network is pending.
    pub(super) fn has_error(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.has_error())
    }

    /// Lets the network look at the pipes, if the other side is there.
    pub(super) fn tell_network(&self) {
        if self.far.is_some() {
            network::serve();
        }
    }
}

impl Stream {
    /// Returns the connection, if there is one.
    #[inline]
    pub(super) fn linked(&self) -> Option<&Link> {
        self.link.get().or_else(|| if network::is_up() { self.take_connected() } else { None })
    }

    /// Takes a connection that was made meanwhile as the socket's.
    #[cold]
    fn take_connected(&self) -> Option<&Link> {
        let mut connecting = self.connecting.lock();
        if let Some(far) = connecting.take_if(|far| far.is_connected())
            && self.link.get().is_none()
        {
            self.link.set(Link::of_network(&far));
        }
        self.link.get()
    }

    /// Makes `link` the socket's connection, or returns it if there is one, or one is being made.
    pub(super) fn set_link(&self, link: Link) -> Result<(), Link> {
        let connecting = self.connecting.lock();
        if connecting.is_some() || self.link.get().is_some() {
            return Err(link);
        }
        self.link.set(link);
        Ok(())
    }

    /// Connects it by the network.
    ///
    /// # Errors
    /// EINVAL if it listens or has an address of the loopback, EALREADY or EINPROGRESS if that takes waiting
    /// and `wait` is not set, EINTR: it goes on. ECONNREFUSED, ETIMEDOUT, and those of [`network::connect`].
    pub(super) fn connect_remote(&self, address: &Address, wait: bool) -> Result<(), Errno> {
        let (far, is_new) = self.begin_connecting(address)?;
        self.limits.sending(wait, || far.settle(wait)).map_err(|error| match error {
            Errno::EINPROGRESS if !is_new => Errno::EALREADY,
            error => error,
        })?;
        if far.has_failed() {
            let mut connecting = self.connecting.lock();
            let _failed = connecting.take_if(|other| Arc::ptr_eq(other, &far));
            return Err(far.say_error().err().unwrap_or(Errno::ECONNABORTED));
        }
        if self.linked().is_some() { Ok(()) } else { Err(Errno::ECONNABORTED) }
    }

    /// Returns the connection that is being made, and whether this began it.
    fn begin_connecting(&self, address: &Address) -> Result<(Arc<Far>, bool), Errno> {
        let setup = self.setup.lock();
        if setup.listener.is_some() {
            return Err(Errno::EINVAL);
        }
        let local = setup.address.clone().unwrap_or(Address::any(self.domain));
        if !local.can_leave() {
            return Err(Errno::EINVAL);
        }
        let mut connecting = self.connecting.lock();
        match connecting.as_ref() {
            Some(far) if !far.has_failed() || far.has_error() => return Ok((far.clone(), false)),
            // The error of the last one was said.
            _ => {}
        }
        if self.link.get().is_some() {
            return Err(Errno::EISCONN);
        }
        let far = network::connect(&local, address)?;
        *connecting = Some(far.clone());
        Ok((far, true))
    }

    /// Returns the events of a socket that neither listens nor is connected.
    pub(super) fn ready_unconnected(&self) -> i16 {
        let failed = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLHUP | POLLRDHUP;
        match self.connecting.lock().as_ref() {
            Some(far) if far.has_error() => failed | POLLERR,
            Some(far) if far.has_failed() => failed,
            Some(_) => 0,
            None => POLLOUT | POLLWRNORM | POLLHUP,
        }
    }

    /// Returns a number that changes when a connection that is being made has failed.
    pub(super) fn settled(&self) -> u64 {
        self.connecting.lock().as_ref().map_or(0, |far| if far.has_failed() { u64::MAX } else { 0 })
    }

    /// Takes the error of the network that is pending (SO_ERROR).
    ///
    /// # Errors
    /// That one.
    pub fn say_error(&self) -> Result<(), Errno> {
        if let Some(link) = self.linked() {
            return link.far.as_ref().map_or(Ok(()), |far| far.say_error());
        }
        let connecting = self.connecting.lock().clone();
        connecting.map_or(Ok(()), |far| far.say_error())
    }

    /// Gives up a connection that is being made.
    pub(super) fn stop_connecting(&self) {
        let connecting = self.connecting.lock().take();
        connecting.into_iter().for_each(|far| far.close());
    }
}
