//! Addresses of sockets, as values and as programs write them (unix(7), ip(7), ipv6(7)).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU16, Ordering};

use abi::Errno;
use abi::socket::{AF_INET, AF_INET6, AF_UNIX};

use crate::bytes::{after, prefix};
use crate::fs::network;
use crate::mm::fallible;

/// The domain of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Within the machine, by names.
    Unix,
    /// Internet, version 4.
    Inet,
    /// Internet, version 6, and version 4 by mapped addresses.
    Inet6,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A name of a Unix socket, a path or abstract, or none.
    Name(Option<Arc<Vec<u8>>>),
    /// An Internet address and port.
    Port(Domain, [u8; 16], u16),
}

/// Any address of either version.
const ANY: [u8; 16] = [0; 16];
/// Addresses of version 4 as ones of version 6.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const LOOPBACK6: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The first port that any user may bind, as on Linux.
const FIRST_FREE_PORT: u16 = 1024;

/// The ports of sockets that did not choose one, as on Linux.
const FREE_PORTS: core::ops::Range<u16> = 32_768..61_000;

/// The ports that are tried: no more than a fraction of all is in use.
const MOST_TRIES: usize = 256;

/// The next such port. Relaxed: a listener checks that it is free.
static NEXT_PORT: AtomicU16 = AtomicU16::new(FREE_PORTS.start);

fn next_port() -> u16 {
    let count = FREE_PORTS.end - FREE_PORTS.start;
    FREE_PORTS.start + NEXT_PORT.fetch_add(1, Ordering::Relaxed) % count
}

fn mapped(v4: [u8; 4]) -> [u8; 16] {
    let mut all = ANY;
    for (to, from) in all.iter_mut().zip(MAPPED.into_iter().chain(v4)) {
        *to = from;
    }
    all
}

fn is_v4(ip: &[u8; 16]) -> bool {
    ip.starts_with(&MAPPED)
}

fn is_any(ip: &[u8; 16]) -> bool {
    *ip == ANY || *ip == mapped([0; 4])
}

/// Returns whether it is the guest's address on the network, if there is one.
fn is_own(ip: &[u8; 16]) -> bool {
    *ip == mapped(network::OWN) && network::is_up()
}

fn is_loopback(ip: &[u8; 16]) -> bool {
    *ip == LOOPBACK6 || is_v4(ip) && after(ip, MAPPED.len()).first() == Some(&127)
}

impl Domain {
    /// Returns its number, `AF_*`.
    pub fn number(self) -> u32 {
        match self {
            Domain::Unix => AF_UNIX,
            Domain::Inet => AF_INET,
            Domain::Inet6 => AF_INET6,
        }
    }

    /// Returns the domain with this number.
    pub fn of(number: u32) -> Option<Self> {
        [Domain::Unix, Domain::Inet, Domain::Inet6].into_iter().find(|domain| domain.number() == number)
    }
}

impl Address {
    /// Returns the address of a socket that has none.
    pub fn unnamed(domain: Domain) -> Self {
        match domain {
            Domain::Unix => Address::Name(None),
            Domain::Inet => Address::Port(domain, mapped([0; 4]), 0),
            Domain::Inet6 => Address::Port(domain, ANY, 0),
        }
    }

    /// Returns any address of a domain, without a port.
    pub fn any(domain: Domain) -> Self {
        Self::unnamed(domain)
    }

    /// Returns the address of a client that did not choose one and connects to `to`.
    pub fn of_client(domain: Domain, to: &Address) -> Self {
        match to.reached() {
            Address::Port(_, ip, _) if domain != Domain::Unix => Address::Port(domain, ip, next_port()),
            _ => Self::unnamed(domain),
        }
    }

    /// Returns any address of version 4 with this port.
    pub fn any_v4(port: u16) -> Self {
        Address::Port(Domain::Inet, mapped([0; 4]), port)
    }

    /// Returns whether it is one of version 4 that a socket of version 6 names.
    pub fn is_v4_of_v6(&self) -> bool {
        matches!(self, Address::Port(Domain::Inet6, ip, _) if is_v4(ip))
    }

    /// Parses as `parse` does, for a socket for messages: one of version 6 takes addresses of version 4 in
    /// their own form too.
    ///
    /// # Errors
    /// Those of `parse`.
    pub fn parse_for_messages(domain: Domain, bytes: &[u8]) -> Result<Self, Errno> {
        let is_v4 = bytes.first_chunk::<2>() == Some(&(AF_INET as u16).to_le_bytes());
        match domain {
            Domain::Inet6 if is_v4 => {
                Self::parse(Domain::Inet, bytes).map(|v4| v4.seen_from(&Self::any(domain)))
            }
            _ => Self::parse(domain, bytes),
        }
    }

    /// Parses what a program wrote: `domain[2]`, and the rest by the domain.
    ///
    /// # Errors
    /// EINVAL if it is too short, EAFNOSUPPORT for another domain than the socket's, EADDRNOTAVAIL if the
    /// guest does not have the address, ENOMEM.
    pub fn parse(domain: Domain, bytes: &[u8]) -> Result<Self, Errno> {
        let number = bytes.first_chunk::<2>().ok_or(Errno::EINVAL)?;
        if u32::from(u16::from_le_bytes(*number)) != domain.number() {
            return Err(Errno::EAFNOSUPPORT);
        }
        let rest = after(bytes, 2);
        let port = || rest.first_chunk::<2>().map(|port| u16::from_be_bytes(*port)).ok_or(Errno::EINVAL);
        match domain {
            Domain::Unix if bytes.len() > 110 => Err(Errno::EINVAL),
            Domain::Unix => Self::name(rest),
            Domain::Inet if bytes.len() < 16 => Err(Errno::EINVAL),
            Domain::Inet => {
                let ip = after(rest, 2).first_chunk::<4>().ok_or(Errno::EINVAL)?;
                Ok(Address::Port(domain, mapped(*ip), port()?))
            }
            Domain::Inet6 if bytes.len() < 24 => Err(Errno::EINVAL),
            // Port, flow, address, scope.
            Domain::Inet6 => {
                let ip = after(rest, 6).first_chunk::<16>().ok_or(Errno::EINVAL)?;
                Ok(Address::Port(domain, *ip, port()?))
            }
        }
    }

    /// A path ends at its NUL. A name that begins with a NUL is abstract, and has all bytes.
    fn name(bytes: &[u8]) -> Result<Self, Errno> {
        let len = match bytes.first() {
            Some(0) | None => bytes.len(),
            Some(_) => bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()),
        };
        if len == 0 {
            return Ok(Address::Name(None));
        }
        Ok(Address::Name(Some(fallible::arc(fallible::copied(prefix(bytes, len as u64))?)?)))
    }

    /// Returns the path, if it is one of a file.
    pub fn path(&self) -> Option<&[u8]> {
        match self {
            Address::Name(Some(name)) if name.first().is_some_and(|&byte| byte != 0) => Some(name),
            _ => None,
        }
    }

    /// Returns whether a socket of this machine can have it.
    pub fn is_here(&self) -> bool {
        match self {
            Address::Name(name) => name.is_some(),
            Address::Port(_, ip, _) => is_any(ip) || is_loopback(ip) || is_own(ip),
        }
    }

    /// Returns whether it is reached by the network.
    pub fn is_remote(&self) -> bool {
        matches!(self, Address::Port(_, ip, _) if network::is_up() && is_v4(ip)) && !self.is_here()
    }

    /// Returns whether it has a port that only threads with CAP_NET_BIND_SERVICE bind.
    pub fn is_privileged(&self) -> bool {
        matches!(self, Address::Port(_, _, 1..FIRST_FREE_PORT))
    }

    /// Returns the address of version 4 and the port, if it is one.
    pub fn v4(&self) -> Option<([u8; 4], u16)> {
        match self {
            Address::Port(_, ip, port) if is_v4(ip) => {
                after(ip, MAPPED.len()).first_chunk::<4>().map(|ip| (*ip, *port))
            }
            _ => None,
        }
    }

    /// Returns an address of version 4 as a socket of `domain` names it.
    pub fn of_v4(domain: Domain, ip: [u8; 4], port: u16) -> Self {
        Address::Port(domain, mapped(ip), port)
    }

    /// Returns the guest's address on the network with the same port, or with another one if it has none.
    pub fn on_network(&self) -> Self {
        match self {
            Address::Port(domain, _, port) => {
                let port = if *port == 0 { next_port() } else { *port };
                Self::of_v4(*domain, network::OWN, port)
            }
            other => other.clone(),
        }
    }

    /// Returns whether a connection by the network can come from it.
    pub fn can_leave(&self) -> bool {
        matches!(self, Address::Port(_, ip, _) if is_any(ip) || is_own(ip))
    }

    /// Returns whether it is the same address and port, whatever the version of the socket.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Address::Port(_, ip, port), Address::Port(_, other_ip, other_port)) => {
                ip == other_ip && port == other_port
            }
            (one, other) => one == other,
        }
    }

    /// Returns the address that a connection to it reaches: any address is the machine itself.
    pub fn reached(&self) -> Self {
        match self {
            Address::Port(domain, ip, port) if is_any(ip) => {
                let v4 = *domain == Domain::Inet || is_v4(ip);
                Address::Port(*domain, if v4 { mapped([127, 0, 0, 1]) } else { LOOPBACK6 }, *port)
            }
            other => other.clone(),
        }
    }

    /// Returns the address that a message to `to` comes from, if it is the sender's.
    pub fn as_sender_to(&self, to: &Address) -> Self {
        if to.is_remote() {
            return if self.can_leave() { self.on_network() } else { self.clone() };
        }
        match (self, to.reached()) {
            (Address::Port(domain, ip, port), Address::Port(_, to, _)) if is_any(ip) => {
                Address::Port(*domain, to, *port)
            }
            (own, _) => own.clone(),
        }
    }

    /// Returns it as a socket of another Internet domain names it.
    pub fn seen_from(self, other: &Address) -> Self {
        match (self, other) {
            (Address::Port(_, ip, port), Address::Port(domain, ..)) => Address::Port(*domain, ip, port),
            (address, _) => address,
        }
    }

    /// Returns whether no other socket can be bound to `other` beside this one, if each takes all versions or
    /// version 6 only.
    pub fn excludes(&self, only_v6: bool, other: &Address, other_only_v6: bool) -> bool {
        match (self, other) {
            (Address::Port(_, one, port), Address::Port(_, two, other_port)) => {
                let covers = |any: &[u8; 16], only: bool, ip: &[u8; 16]| match is_v4(any) {
                    true => is_any(any) && is_v4(ip),
                    false => is_any(any) && !(only && is_v4(ip)),
                };
                let overlap = one == two || covers(one, only_v6, two) || covers(two, other_only_v6, one);
                port == other_port && overlap
            }
            (one, other) => one == other,
        }
    }

    /// Returns whether a connection to `to` reaches a listener with this address.
    pub fn is_reached_by(&self, to: &Address, only_v6: bool) -> bool {
        match (self, &to.reached()) {
            (Address::Port(_, here, port), Address::Port(_, ip, to_port)) => {
                let any = *here == ANY && !(only_v6 && is_v4(ip)) || *here == mapped([0; 4]) && is_v4(ip);
                port == to_port && (here == ip || any)
            }
            (here, to) => here == to,
        }
    }

    /// Returns whether it leaves the choice of a port to the kernel.
    pub fn is_without_port(&self) -> bool {
        matches!(self, Address::Port(_, _, 0))
    }

    /// Returns it without its port, if it has more than that: not any address.
    pub fn without_port(&self) -> Option<Self> {
        match self {
            Address::Port(domain, ip, _) if !is_any(ip) => Some(Address::Port(*domain, *ip, 0)),
            _ => None,
        }
    }

    /// Returns it with a port that `is_free`, if it has none, or `None` if it is not free.
    pub fn with_port(self, is_free: impl Fn(&Address) -> bool) -> Option<Self> {
        match self {
            Address::Port(domain, ip, 0) => {
                let mut ports = (0..MOST_TRIES).map(|_| Address::Port(domain, ip, next_port()));
                ports.find(is_free)
            }
            other => Some(other).filter(is_free),
        }
    }

    /// Passes it to `f` as programs read it.
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> Result<R, Errno> {
        let mut bytes = fallible::empty(128)?;
        match self {
            Address::Name(name) => {
                bytes.extend_from_slice(&(AF_UNIX as u16).to_le_bytes());
                bytes.extend_from_slice(name.as_ref().map_or(&[], |name| prefix(name, 108)));
                // A path is shown with its NUL.
                bytes.extend(self.path().filter(|path| path.len() < 108).map(|_| 0));
            }
            Address::Port(Domain::Inet6, ip, port) => {
                bytes.extend_from_slice(&(AF_INET6 as u16).to_le_bytes());
                bytes.extend_from_slice(&port.to_be_bytes());
                bytes.extend_from_slice(&[0; 4]);
                bytes.extend_from_slice(ip);
                bytes.extend_from_slice(&[0; 4]);
            }
            Address::Port(_, ip, port) => {
                bytes.extend_from_slice(&(AF_INET as u16).to_le_bytes());
                bytes.extend_from_slice(&port.to_be_bytes());
                bytes.extend_from_slice(after(ip, MAPPED.len()));
                bytes.extend_from_slice(&[0; 8]);
            }
        }
        Ok(f(&bytes))
    }
}
