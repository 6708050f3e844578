//! Sockets: connections and messages of the Unix domain, and of the Internet domains within the guest.

use abi::Errno;
use abi::file::{O_CLOEXEC, O_NONBLOCK, S_IFSOCK};
use abi::socket::*;
use abi::users::CAP_NET_BIND_SERVICE;
use alloc::vec::Vec;
use percore::pin;

use super::{Call, Outcome};
use crate::bytes::{after, prefix};
use crate::fs::node::NodeRef;
use crate::fs::socket::{self, Address, Datagrams, Domain, Kind, Socket, Stream};
use crate::fs::{Opened, rights, tree};
use crate::mm::{fallible, user};
use crate::sched;

/// The most bytes of an address.
const ADDRESS_BYTES: usize = 128;

/// Opens a socket.
pub fn socket(call: &mut Call<'_>) -> Outcome {
    let (kind, domain, flags) = kind(call)?;
    Ok(call.files().add(socket::open(kind, domain, flags & O_NONBLOCK)?, 0, flags & O_CLOEXEC != 0)? as u64)
}

/// Returns the kind, the domain and the flags of arguments 0 to 2.
fn kind(call: &Call<'_>) -> Result<(Kind, Domain, u32), Errno> {
    let (kind, protocol) = (call.arg(1) as u32, call.arg(2) as u32);
    let (flags, kind) = (kind & !SOCK_TYPE_MASK, kind & SOCK_TYPE_MASK);
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let domain = Domain::of(call.arg(0) as u32).ok_or(Errno::EAFNOSUPPORT)?;
    let kind = match kind {
        SOCK_STREAM => Kind::Stream,
        SOCK_DGRAM => Kind::Datagrams,
        SOCK_SEQPACKET if domain == Domain::Unix => Kind::Packets,
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    let own_protocol = if domain == Domain::Unix { AF_UNIX } else { protocol_of(kind) };
    if protocol != 0 && protocol != own_protocol {
        return Err(Errno::EPROTONOSUPPORT);
    }
    Ok((kind, domain, flags))
}

/// Returns the protocol of sockets of the Internet.
pub(super) fn protocol_of(kind: Kind) -> u32 {
    match kind {
        Kind::Stream | Kind::Packets => IPPROTO_TCP,
        Kind::Datagrams => IPPROTO_UDP,
    }
}

fn process(call: &Call<'_>) -> Ucred {
    let (pid, pin) = (call.task.process().pid(), pin());
    let of = call.task.thread.credentials.peek(&pin);
    Ucred { pid, uid: of.users.effective, gid: of.groups.effective }
}

/// Makes two sockets that are connected.
pub fn socketpair(call: &mut Call<'_>) -> Outcome {
    let (kind, domain, flags) = kind(call)?;
    if domain != Domain::Unix {
        return Err(Errno::EOPNOTSUPP);
    }
    let close_on_exec = flags & O_CLOEXEC != 0;
    let [first, second] = socket::pair(kind, flags & O_NONBLOCK, process(call))?;
    let open = |file| Opened::new(file).ok_or(Errno::EBADF);
    let (first, second) = (open(first)?, open(second)?);
    let files = call.files();
    let (one, other) = (files.reserve(0)?, files.reserve(0)?);
    user::write(call.arg(3), &[one.number(), other.number()])?;
    one.fill(first, close_on_exec);
    other.fill(second, close_on_exec);
    Ok(0)
}

/// Parses an address for the socket itself. As on Linux, any one of version 4 needs no domain.
fn own_address(bytes: &[u8], domain: Domain) -> Result<Address, Errno> {
    if domain == Domain::Inet && family(bytes)? == AF_UNSPEC && bytes.len() >= 16 {
        let is_any = bytes.iter().skip(4).take(4).all(|&byte| byte == 0);
        let port = after(bytes, 2).first_chunk::<2>().map(|port| u16::from_be_bytes(*port));
        return port.filter(|_| is_any).map(Address::any_v4).ok_or(Errno::EAFNOSUPPORT);
    }
    Address::parse(domain, bytes)
}

/// Returns the domain that an address names.
///
/// # Errors
/// EINVAL if it is too short.
pub(super) fn family(bytes: &[u8]) -> Result<u32, Errno> {
    bytes.first_chunk::<2>().map(|family| u16::from_le_bytes(*family).into()).ok_or(Errno::EINVAL)
}

pub(super) fn address_bytes(at: u64, len: i32) -> Result<Vec<u8>, Errno> {
    let len = usize::try_from(len).ok().filter(|&len| len <= ADDRESS_BYTES).ok_or(Errno::EINVAL)?;
    let mut bytes: Vec<u8> = fallible::zeroes(len)?;
    user::copy_in(&mut bytes, at)?;
    Ok(bytes)
}

/// Refuses an address that no socket of this machine can have, and that the network does not reach.
///
/// # Errors
/// EINVAL for no name, ENETUNREACH.
pub(super) fn must_be_here(address: &Address, domain: Domain) -> Result<(), Errno> {
    match domain {
        _ if address.is_here() || address.is_remote() => Ok(()),
        Domain::Unix => Err(Errno::EINVAL),
        _ => Err(Errno::ENETUNREACH),
    }
}

/// Returns the file of a Unix socket's address, if it is one with a path.
///
/// # Errors
/// ECONNREFUSED if the file is no socket, those of a look-up.
pub(super) fn name(call: &Call<'_>, address: &Address) -> Result<Option<NodeRef>, Errno> {
    let Some(path) = address.path() else { return Ok(None) };
    let node = call.find(path, &pin(), true)?.existing()?.clone();
    rights::permit(&node, rights::WRITE)?;
    Some(node).filter(|node| node.kind() == S_IFSOCK).ok_or(Errno::ECONNREFUSED).map(Some)
}

pub fn bind(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    let address = own_address(&address_bytes(call.arg(1), call.int(2))?, socket.domain())?;
    if !address.is_here() {
        return Err(if socket.domain() == Domain::Unix { Errno::EINVAL } else { Errno::EADDRNOTAVAIL });
    }
    if address.is_privileged() && !sched::with_credentials(|of| of.can(CAP_NET_BIND_SERVICE)) {
        return Err(Errno::EACCES);
    }
    if !socket.can_bind() {
        return Err(Errno::EINVAL);
    }
    let name = address.path().map(|path| make_name(call, path)).transpose()?;
    socket.bind(address, name).map(|()| 0)
}

/// Makes the file of a Unix socket's address.
fn make_name(call: &Call<'_>, path: &[u8]) -> Result<NodeRef, Errno> {
    let mode = call.fs_context().masked(0o777);
    let pin = pin();
    tree::make_special(&call.find(path, &pin, false)?, mode, socket::name()).map_err(|error| match error {
        Errno::EEXIST => Errno::EADDRINUSE,
        error => error,
    })
}

pub fn listen(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    // A number below zero is a large one.
    socket::of(&file)?.stream()?.listen(call.arg(1) as u32 as usize, process(call)).map(|()| 0)
}

pub fn connect(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    let bytes = address_bytes(call.arg(1), call.int(2))?;
    let address = match socket {
        Socket::Datagrams(datagrams) if family(&bytes)? == AF_UNSPEC => {
            datagrams.disconnect();
            return Ok(0);
        }
        Socket::Datagrams(datagrams) => peer_address(datagrams, &bytes)?,
        Socket::Stream(_) => Address::parse(socket.domain(), &bytes)?,
    };
    must_be_here(&address, socket.domain())?;
    let name = name(call, &address)?;
    match socket {
        Socket::Stream(stream) => stream.connect(&address, name.as_ref(), file.may_wait(), process(call))?,
        Socket::Datagrams(datagrams) => datagrams.connect(&address, name.as_ref())?,
    }
    Ok(0)
}

/// Parses the address of a peer of a socket for messages.
fn peer_address(socket: &Datagrams, bytes: &[u8]) -> Result<Address, Errno> {
    let address = Address::parse_for_messages(socket.domain(), bytes)?;
    match address.is_v4_of_v6() && socket.only_v6(None) {
        true if family(bytes)? == AF_INET => Err(Errno::EAFNOSUPPORT),
        true => Err(Errno::ENETUNREACH),
        false => Ok(address),
    }
}

pub fn accept(call: &mut Call<'_>) -> Outcome {
    accept_with(call, 0)
}

pub fn accept4(call: &mut Call<'_>) -> Outcome {
    accept_with(call, call.arg(3) as u32)
}

fn accept_with(call: &Call<'_>, flags: u32) -> Outcome {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?.stream()?;
    // First, because a connection that is accepted cannot be put back.
    let number = call.files().reserve(0)?;
    let accepted = socket.accept(file.may_wait(), flags & O_NONBLOCK)?;
    let accepted = Opened::new(accepted).ok_or(Errno::EBADF)?;
    if call.arg(1) != 0 {
        let peer = accepted.get().ok_or(Errno::EBADF).and_then(socket::of)?.peer()?;
        write_address(&peer, call.arg(1), call.arg(2))?;
    }
    Ok(number.fill(accepted, flags & O_CLOEXEC != 0) as u64)
}

/// Ends one direction or both.
pub fn shutdown(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    let how = call.arg(1) as u32;
    if how > SHUT_RDWR {
        return Err(Errno::EINVAL);
    }
    match socket {
        Socket::Stream(stream) => shut_down(stream, how)?,
        Socket::Datagrams(datagrams) => datagrams.shut_down(how != SHUT_WR, how != SHUT_RD)?,
    }
    Ok(0)
}

fn shut_down(stream: &Stream, how: u32) -> Result<(), Errno> {
    if how != SHUT_WR && stream.stop_listening() {
        return Ok(());
    }
    if how != SHUT_WR {
        stream.end_incoming()?;
    }
    if how != SHUT_RD {
        stream.end_outgoing()?;
    }
    Ok(())
}

/// Returns the socket's own address.
pub fn getsockname(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    write_address(&socket::of(&file)?.local(), call.arg(1), call.arg(2))
}

/// Returns the address of the other side.
pub fn getpeername(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    write_address(&socket::of(&file)?.peer()?, call.arg(1), call.arg(2))
}

/// Writes an address, as far as there is room, and its length.
fn write_address(address: &Address, to: u64, length: u64) -> Outcome {
    let room = u32::try_from(user::read::<i32>(length)?).map_err(|_| Errno::EINVAL)?;
    address.with_bytes(|bytes| {
        user::copy_out(to, prefix(bytes, room.into()))?;
        user::write(length, &(bytes.len() as u32))
    })??;
    Ok(0)
}
