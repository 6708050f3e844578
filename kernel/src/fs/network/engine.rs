//! The card, smoltcp and all connections, under one lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use abi::Errno;
use smoltcp::iface::{
    Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet, SocketStorage,
};
use smoltcp::socket::{raw, tcp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpProtocol, IpVersion, Ipv4Address};

use super::card::Port;
use super::connection::{Connection, Waits};
use super::datagram::{self, HEADS};
use super::far::Far;
use super::packet::{Ends, Judgement, is_single, judge};
use super::{CROWDED, OWN, ROUTER, Timer};
use crate::arch::{self, Card, PACKET_BYTES};
use crate::fs::socket::{Address, Domain, deliver, listener_at};
use crate::mm::fallible;
use crate::sched::{Alarm, Setting};

/// The most connections.
pub const MOST: usize = 128;
/// The bytes of each direction of a connection, beside its pipe.
pub const WINDOW: usize = 32 << 10;
/// The longest message: a packet's, without the heads.
pub const MOST_MESSAGE: usize = PACKET_BYTES - 14 - HEADS;
/// Messages, and their bytes, that wait for the next look.
const MESSAGES: usize = 64;
const MESSAGE_BYTES: usize = 64 << 10;
/// The packets that one look takes, and the rounds of packets that it sends.
const MOST_PACKETS: usize = 32;
const MOST_ROUNDS: usize = 32;
/// The bits of the guest's address that are the network's.
const PREFIX: u8 = 24;
/// The ports that are tried for a connection that did not choose one.
const TRIES: usize = 64;
/// The least time until the next look, and that until one for which memory or room is missing.
const LEAST_NS: u64 = 1_000_000;
const RETRY_NS: u64 = 10_000_000;

/// The card, smoltcp and all connections.
pub struct Engine {
    card: Port,
    interface: Interface,
    sockets: SocketSet<'static>,
    /// The socket for all messages.
    messages: SocketHandle,
    connections: Vec<Connection>,
    timer: Arc<Alarm<Timer>>,
    /// The time of the next look, if one is set.
    next_look: Option<u64>,
}

impl Engine {
    /// Makes the engine.
    ///
    /// # Errors
    /// ENOMEM, EINVAL if the card's address is that of a group.
    pub fn new(card: Card, timer: Arc<Alarm<Timer>>, seed: u64) -> Result<Self, Errno> {
        let address = EthernetAddress(card.mac);
        if !address.is_unicast() {
            return Err(Errno::EINVAL);
        }
        let mut card = Port(card);
        let mut config = Config::new(address.into());
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut card, now());
        interface.update_ip_addrs(|all| {
            // There is room for one: it is the first.
            let _fits = all.push(IpCidr::new(IpAddress::from(Ipv4Address::from(OWN)), PREFIX));
        });
        let _fits = interface.routes_mut().add_default_ipv4_route(Ipv4Address::from(ROUTER));
        let storage: Vec<SocketStorage<'static>> = fallible::empty(MOST + 1)?;
        let mut sockets = SocketSet::new(storage);
        let buffer = || -> Result<raw::PacketBuffer<'static>, Errno> {
            let mut heads = fallible::empty(MESSAGES)?;
            heads.resize(MESSAGES, raw::PacketMetadata::EMPTY);
            Ok(raw::PacketBuffer::new(heads, fallible::zeroes(MESSAGE_BYTES)?))
        };
        let messages = raw::Socket::new(IpVersion::Ipv4, IpProtocol::Udp, buffer()?, buffer()?);
        let messages = sockets.add(messages);
        let connections = fallible::empty(MOST)?;
        Ok(Self { card, interface, sockets, messages, connections, timer, next_look: None })
    }

    /// Takes packets that have arrived, moves bytes, sends packets. Returns whether arrived ones are left.
    pub fn run(&mut self) -> bool {
        let now = now();
        self.take_packets(now);
        self.take_messages();
        let waits = self.exchange();
        let is_full = self.send_packets(now);
        self.remove_over(now);
        self.card.0.tell();
        self.set_timer(now, waits, is_full);
        self.card.0.incoming.packet().is_some() && self.card.0.outgoing.has_room()
    }

    fn take_packets(&mut self, now: Instant) {
        for _ in 0..MOST_PACKETS {
            let Some(packet) = self.card.0.incoming.packet() else { break };
            let judgement = judge(packet);
            let is_taken = match judgement {
                Judgement::Drop => false,
                Judgement::Pass => true,
                Judgement::Connects(ends) => self.admit(ends, now),
            };
            if !is_taken {
                self.card.0.incoming.drop_packet();
                continue;
            }
            let taken = self.interface.poll_ingress_single(now, &mut self.card, &mut self.sockets);
            if judgement != Judgement::Pass {
                // Its socket listens still if the packet was not as it should be.
                self.remove_over(now);
            }
            if matches!(taken, PollIngressSingleResult::None) {
                break;
            }
        }
    }

    /// Makes a socket for a connection that a packet begins, if a program listens there. Returns whether
    /// smoltcp gets the packet.
    fn admit(&mut self, ends: Ends, now: Instant) -> bool {
        let local = Address::of_v4(Domain::Inet, OWN, ends.port);
        let peer = Address::of_v4(Domain::Inet, ends.peer, ends.peer_port);
        if let Some(at) = self.find(&local, &peer) {
            // Sent again, or the next one after one that has just ended.
            if !self.is_just_ended(at) {
                return true;
            }
            self.remove(at);
        }
        let Some(listener) = listener_at(&local) else { return true };
        let far = Far::new(local, peer);
        let socket = far.and_then(|far| self.add_socket().map(|handle| (far, handle)));
        let Ok((far, handle)) = socket else { return false };
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
        let _is_new = socket.listen((IpAddress::from(Ipv4Address::from(OWN)), ends.port));
        self.connections.push(Connection::new(handle, socket, far, Some(listener), now));
        true
    }

    fn find(&self, local: &Address, peer: &Address) -> Option<usize> {
        let is_it = |one: &Connection| one.far.local.is_same(local) && one.far.peer.is_same(peer);
        self.connections.iter().position(is_it)
    }

    /// Returns whether a connection only waits for packets that come late.
    fn is_just_ended(&self, at: usize) -> bool {
        let is_it = |one: &Connection| {
            let socket = self.sockets.get::<tcp::Socket<'_>>(one.handle);
            socket.state() == tcp::State::TimeWait && !one.has_unread(socket)
        };
        self.connections.get(at).is_some_and(is_it)
    }

    /// Makes a socket of smoltcp, for which there is room in `connections` then.
    ///
    /// # Errors
    /// ENOBUFS if there are too many, ENOMEM.
    fn add_socket(&mut self) -> Result<SocketHandle, Errno> {
        if self.connections.len() >= MOST {
            let ended = (0..self.connections.len()).find(|&at| self.is_just_ended(at));
            self.remove(ended.ok_or(Errno::ENOBUFS)?);
        }
        let buffer = || fallible::zeroes(WINDOW).map(tcp::SocketBuffer::new);
        Ok(self.sockets.add(tcp::Socket::new(buffer()?, buffer()?)))
    }

    /// Begins a connection from a port of the guest.
    ///
    /// # Errors
    /// As [`super::connect`].
    pub fn connect(&mut self, local: &Address, peer: &Address) -> Result<Arc<Far>, Errno> {
        let (ip, port) =
            peer.v4().filter(|(ip, port)| is_single(*ip) && *port != 0).ok_or(Errno::ENETUNREACH)?;
        let local = self.free_address(local, peer)?;
        let from = local.v4().map(|(_, port)| port).filter(|port| *port != 0).ok_or(Errno::EADDRNOTAVAIL)?;
        let far = Far::new(local, peer.clone())?;
        let handle = self.add_socket()?;
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
        let remote = (IpAddress::from(Ipv4Address::from(ip)), port);
        let own = (IpAddress::from(Ipv4Address::from(OWN)), from);
        let begun = socket.connect(self.interface.context(), remote, own);
        self.connections.push(Connection::new(handle, socket, far.clone(), None, now()));
        if begun.is_err() {
            self.remove(self.connections.len() - 1);
            return Err(Errno::EADDRNOTAVAIL);
        }
        Ok(far)
    }

    /// Returns the guest's address with the port of `local`, or one that no connection to `peer` has.
    fn free_address(&mut self, local: &Address, peer: &Address) -> Result<Address, Errno> {
        let is_chosen = local.v4().is_some_and(|(_, port)| port != 0);
        for _ in 0..if is_chosen { 1 } else { TRIES } {
            let address = local.on_network();
            match self.find(&address, peer) {
                None => return Ok(address),
                Some(at) if self.is_just_ended(at) => {
                    self.remove(at);
                    return Ok(address);
                }
                Some(_) => {}
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    /// Moves the bytes of all connections.
    fn exchange(&mut self) -> Waits {
        let (mut all, mut crowded) = (Waits::default(), 0);
        for one in &mut self.connections {
            let waits = one.exchange(self.sockets.get_mut(one.handle));
            all.for_memory |= waits.for_memory;
            crowded += usize::from(waits.for_listener);
        }
        // Relaxed: the lock of the listener's queue orders it, and the timer looks again.
        CROWDED.store(crowded, Ordering::Relaxed);
        all.for_listener = crowded > 0;
        all
    }

    /// Sends packets, as far as there is room. Returns whether there is none left.
    fn send_packets(&mut self, now: Instant) -> bool {
        for _ in 0..MOST_ROUNDS {
            let sent = self.interface.poll_egress(now, &mut self.card, &mut self.sockets);
            if !self.card.0.outgoing.has_room() {
                return true;
            }
            if matches!(sent, PollResult::None) {
                break;
            }
        }
        false
    }

    /// Removes the connections that are over.
    fn remove_over(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(one) = self.connections.get_mut(at) {
            if one.is_over(self.sockets.get(one.handle), now) {
                self.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn remove(&mut self, at: usize) {
        if at < self.connections.len() {
            let one = self.connections.swap_remove(at);
            self.sockets.remove(one.handle);
        }
    }

    /// Sends a message.
    pub fn send_message(&mut self, from: &Address, to: &Address, pages: &[Vec<u8>]) {
        let Some(((_, from), to)) = from.v4().zip(to.v4()) else { return };
        let len: usize = pages.iter().map(Vec::len).sum();
        if len > MOST_MESSAGE || !is_single(to.0) {
            return;
        }
        let socket = self.sockets.get_mut::<raw::Socket<'_>>(self.messages);
        if let Ok(packet) = socket.send(HEADS + len) {
            datagram::write(packet, from, to, pages);
        }
    }

    /// Passes the messages on that have arrived.
    fn take_messages(&mut self) {
        let socket = self.sockets.get_mut::<raw::Socket<'_>>(self.messages);
        while let Ok(packet) = socket.recv() {
            if let Some(((peer, peer_port), port, bytes)) = datagram::parse(packet) {
                let to = Address::of_v4(Domain::Inet, OWN, port);
                deliver(Address::of_v4(Domain::Inet, peer, peer_port), &to, bytes);
            }
        }
    }

    /// Sets the timer to the next look that smoltcp, or something that is missing, needs.
    fn set_timer(&mut self, now: Instant, waits: Waits, is_full: bool) {
        let time = now.total_micros() as u64 * 1_000;
        let of_tcp =
            self.interface.poll_at(now, &self.sockets).map(|at| at.total_micros().max(0) as u64 * 1_000);
        let lacks = waits.for_memory || waits.for_listener;
        let next =
            [of_tcp, lacks.then_some(time + RETRY_NS), is_full.then_some(time)].into_iter().flatten().min();
        let Some(next) = next.map(|next| next.max(time + LEAST_NS)) else { return };
        if self.next_look.is_none_or(|set| next < set) {
            // Without memory for it, the next look sets it. Its ring takes the lock of the engine.
            let is_set = self.timer.set_while_it_rings(Setting { deadline: Some(next), interval: 0 });
            self.next_look = is_set.ok().map(|_| next);
        }
    }

    /// Notes that the timer has rung.
    pub fn timer_has_rung(&mut self) {
        self.next_look = None;
    }

    /// Returns whether a closed connection has bytes, or its end, that its peer has not confirmed.
    pub fn has_unsent(&self) -> bool {
        self.connections.iter().any(|one| one.has_unsent(self.sockets.get(one.handle)))
    }

    /// Drops all connections.
    pub fn drop_all(&mut self) {
        while !self.connections.is_empty() {
            self.remove(0);
        }
    }
}

/// Returns the time as smoltcp has it.
fn now() -> Instant {
    Instant::from_micros((arch::now_ns() / 1_000) as i64)
}
