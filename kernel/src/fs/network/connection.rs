//! One connection by the network: the bytes between the pipes of its socket and smoltcp, and its end.

use alloc::sync::Arc;

use abi::Errno;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{self, State};
use smoltcp::time::{Duration, Instant};

use super::far::Far;
use crate::bytes::{prefix, prefix_mut};
use crate::fs::page_cache::PAGE;
use crate::fs::socket::{Listener, offer};

/// The time after which a connection that is not answered fails, as on Linux.
const MOST_TO_CONNECT: Duration = Duration::from_secs(127);
/// The time after which a closed connection is given up whose peer says nothing any more.
const MOST_TO_END: Duration = Duration::from_secs(60);

/// The time between two probes of a peer that has unconfirmed bytes, or no room for more. QEMU does not tell
/// when its program has made room, and smoltcp does not ask by itself.
const PROBE: Duration = Duration::from_millis(10);

/// One connection.
pub struct Connection {
    /// Its socket of smoltcp.
    pub handle: SocketHandle,
    /// The part that it shares with its socket.
    pub far: Arc<Far>,
    /// The listener that has not taken it yet, if it came from outside.
    listener: Option<Arc<Listener>>,
    since: Instant,
    is_made: bool,
    /// Set once the peer has said that it sends no more, and once this side has.
    peer_has_sent: bool,
    has_sent: bool,
    /// Set once its socket has got the end of what comes.
    has_told: bool,
    /// Set once the limit of time for its end runs.
    is_ending: bool,
    /// Set once its socket knows why it has ended.
    is_settled: bool,
}

/// The things that a connection waits for besides its peer and its program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    /// For memory.
    pub for_memory: bool,
    /// For room at its listener.
    pub for_listener: bool,
}

/// Asks the peer again and again while bytes wait for it.
fn probe(socket: &mut tcp::Socket<'_>) {
    let wanted = (socket.send_queue() > 0).then_some(PROBE);
    if socket.keep_alive() != wanted {
        socket.set_keep_alive(wanted);
    }
}

impl Connection {
    /// Begins one, for a `listener` if it comes from outside. `socket` is its socket of smoltcp.
    pub fn new(
        handle: SocketHandle,
        socket: &mut tcp::Socket<'_>,
        far: Arc<Far>,
        listener: Option<Arc<Listener>>,
        since: Instant,
    ) -> Self {
        // Each write of a program is sent at once, and each piece of what arrives confirmed.
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        socket.set_timeout(Some(MOST_TO_CONNECT));
        Self {
            handle,
            far,
            listener,
            since,
            is_made: false,
            peer_has_sent: false,
            has_sent: false,
            has_told: false,
            is_ending: false,
            is_settled: false,
        }
    }

    /// Moves bytes in both directions, and passes on what has become of the connection.
    pub fn exchange(&mut self, socket: &mut tcp::Socket<'_>) -> Waits {
        if !self.is_made && socket.may_send() {
            self.is_made = true;
            socket.set_timeout(None);
            self.far.connected();
        }
        let mut waits = Waits::default();
        // A reset closes it without one of these.
        let is_last =
            |state| matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
        self.peer_has_sent |= is_last(socket.state());
        if self.is_made {
            self.offer(socket, &mut waits);
            self.receive(socket, &mut waits);
            self.send(socket);
            probe(socket);
        }
        if self.far.is_closed() && !self.is_ending {
            self.is_ending = true;
            if self.is_made { socket.set_timeout(Some(MOST_TO_END)) } else { socket.abort() }
        }
        waits
    }

    /// Offers it to its listener.
    fn offer(&mut self, socket: &mut tcp::Socket<'_>, waits: &mut Waits) {
        let Some(listener) = &self.listener else { return };
        match offer(listener, &self.far) {
            Ok(()) => self.listener = None,
            Err(Errno::EAGAIN) => waits.for_listener = true,
            Err(Errno::ENOMEM) => waits.for_memory = true,
            Err(_) => {
                self.listener = None;
                self.far.abandon();
                socket.abort();
            }
        }
    }

    /// Returns whether bytes have arrived that its program may still read.
    pub fn has_unread(&self, socket: &tcp::Socket<'_>) -> bool {
        socket.can_recv() && !self.far.is_closed()
    }

    /// Puts what has arrived into the pipe, as far as there is room.
    fn receive(&mut self, socket: &mut tcp::Socket<'_>, waits: &mut Waits) {
        let mut is_stalled = false;
        while socket.can_recv() {
            if self.far.is_closed() {
                // As on Linux, bytes that nothing reads any more end the connection.
                return socket.abort();
            }
            let put = socket.recv(|bytes| match self.far.incoming.write(prefix(bytes, PAGE as u64), false) {
                Ok(len) => (len, Ok(())),
                // The program wants no more (`shutdown`): they are lost.
                Err(Errno::EPIPE) => (bytes.len(), Ok(())),
                Err(error) => (0, Err(error)),
            });
            match put {
                Ok(Ok(())) => continue,
                Ok(Err(Errno::EAGAIN)) if !is_stalled => {
                    // It is noted before the second look: a reader that makes room meanwhile sees it.
                    is_stalled = true;
                    self.far.set_stalled(true);
                    continue;
                }
                Ok(Err(Errno::EAGAIN)) | Err(_) => {}
                Ok(Err(_)) => waits.for_memory = true,
            }
            break;
        }
        if !socket.can_recv() {
            self.far.set_stalled(false);
        }
        if self.peer_has_sent && !socket.can_recv() && !self.has_told {
            self.has_told = true;
            self.far.incoming.close_writer();
        }
    }

    /// Takes what is to be sent out of the pipe, as far as there is room.
    fn send(&mut self, socket: &mut tcp::Socket<'_>) {
        while socket.can_send() {
            let taken =
                socket.send(|room| match self.far.outgoing.read(prefix_mut(room, PAGE as u64), false) {
                    Ok(len) => (len, Some(len)),
                    Err(_) => (0, None),
                });
            match taken {
                // The end.
                Ok(Some(0)) => {
                    self.has_sent = true;
                    socket.close();
                }
                Ok(Some(_)) => continue,
                Ok(None) | Err(_) => {}
            }
            break;
        }
    }

    /// Returns whether it is over, and tells its socket so. As on Linux, bytes that have arrived can be read
    /// before that.
    pub fn is_over(&mut self, socket: &tcp::Socket<'_>, now: Instant) -> bool {
        match socket.state() {
            // A connection from outside that came to nothing.
            State::Listen => true,
            State::Closed => {
                self.settle(now);
                let is_over = !self.has_unread(socket);
                if is_over {
                    self.far.incoming.close_writer();
                }
                is_over
            }
            _ => false,
        }
    }

    /// Tells the socket of a connection that has ended why, and lets it send no more, once.
    fn settle(&mut self, now: Instant) {
        if core::mem::replace(&mut self.is_settled, true) {
            return;
        }
        match self.is_made {
            true if self.peer_has_sent && self.has_sent => {}
            true => self.far.fail(Errno::ECONNRESET),
            false if now >= self.since + MOST_TO_CONNECT => self.far.fail(Errno::ETIMEDOUT),
            false => self.far.fail(Errno::ECONNREFUSED),
        }
        self.far.outgoing.close_reader();
    }

    /// Returns whether bytes are left to be sent, or confirmed by the peer.
    pub fn has_unsent(&self, socket: &tcp::Socket<'_>) -> bool {
        let is_open = !matches!(socket.state(), State::Closed | State::FinWait2 | State::TimeWait);
        self.is_made && is_open && (self.far.is_closed() || socket.send_queue() > 0)
    }
}
