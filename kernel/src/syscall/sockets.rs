//! Sockets: connections of the Unix domain, and of the Internet domains within the guest.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::file::{O_CLOEXEC, O_NONBLOCK, S_IFSOCK};
use abi::socket::*;
use percore::pin;

use super::io::raise_sigpipe;
use super::{Call, Outcome, transfer};
use crate::bytes::prefix;
use crate::fs::buffers::Buffers;
use crate::fs::node::NodeRef;
use crate::fs::pipe::CAPACITY;
use crate::fs::socket::{self, Address, Domain};
use crate::fs::{OpenFile, Opened, tree};
use crate::mm::{fallible, user};

/// The most bytes of an address.
const ADDRESS_BYTES: usize = 128;

/// Opens a socket.
pub fn socket(call: &mut Call<'_>) -> Outcome {
    let (domain, flags) = kind(call)?;
    Ok(call.files().add(socket::open(domain, flags & O_NONBLOCK)?, 0, flags & O_CLOEXEC != 0)? as u64)
}

/// Returns the domain and the flags of arguments 0 to 2.
fn kind(call: &Call<'_>) -> Result<(Domain, u32), Errno> {
    let (kind, protocol) = (call.arg(1) as u32, call.arg(2) as u32);
    let (flags, kind) = (kind & !SOCK_TYPE_MASK, kind & SOCK_TYPE_MASK);
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let domain = Domain::of(call.arg(0) as u32).ok_or(Errno::EAFNOSUPPORT)?;
    let own_protocol = if domain == Domain::Unix { AF_UNIX } else { IPPROTO_TCP };
    match kind {
        SOCK_STREAM if protocol == 0 || protocol == own_protocol => Ok((domain, flags)),
        SOCK_STREAM => Err(Errno::EPROTONOSUPPORT),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// Makes two sockets that are connected.
pub fn socketpair(call: &mut Call<'_>) -> Outcome {
    let (domain, flags) = kind(call)?;
    if domain != Domain::Unix {
        return Err(Errno::EOPNOTSUPP);
    }
    let close_on_exec = flags & O_CLOEXEC != 0;
    let [first, second] = socket::pair(flags & O_NONBLOCK)?;
    let open = |file| Opened::new(file).ok_or(Errno::EBADF);
    let (first, second) = (open(first)?, open(second)?);
    let files = call.files();
    let (one, other) = (files.reserve(0)?, files.reserve(0)?);
    user::write(call.arg(3), &[one.number(), other.number()])?;
    one.fill(first, close_on_exec);
    other.fill(second, close_on_exec);
    Ok(0)
}

/// Reads the address in arguments 1 and 2.
fn address(call: &Call<'_>, domain: Domain) -> Result<Address, Errno> {
    let len = usize::try_from(call.int(2)).ok().filter(|&len| len <= ADDRESS_BYTES).ok_or(Errno::EINVAL)?;
    let mut bytes: Vec<u8> = fallible::zeroes(len)?;
    user::copy_in(&mut bytes, call.arg(1))?;
    Address::parse(domain, &bytes)
}

pub fn bind(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    let address = address(call, socket.domain())?;
    if !address.is_here() {
        return Err(if socket.domain() == Domain::Unix { Errno::EINVAL } else { Errno::EADDRNOTAVAIL });
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
    socket::of(&file)?.listen(call.arg(1) as u32 as usize).map(|()| 0)
}

pub fn connect(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    let address = address(call, socket.domain())?;
    if !address.is_here() {
        return Err(if socket.domain() == Domain::Unix { Errno::EINVAL } else { Errno::ENETUNREACH });
    }
    let name = match address.path() {
        Some(path) => {
            let node = call.find(path, &pin(), true)?.existing()?.clone();
            Some(node).filter(|node| node.kind() == S_IFSOCK).ok_or(Errno::ECONNREFUSED).map(Some)?
        }
        None => None,
    };
    socket.connect(&address, name.as_ref(), file.may_wait()).map(|()| 0)
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
    let socket = socket::of(&file)?;
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
    if how != SHUT_WR && socket.stop_listening() {
        return Ok(0);
    }
    if how != SHUT_WR {
        socket.end_incoming()?;
    }
    if how != SHUT_RD {
        socket.end_outgoing()?;
    }
    Ok(0)
}

pub fn sendto(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    refuse_address(socket, call.arg(4) != 0)?;
    send(&file, &mut Buffers::one(call.arg(1), call.arg(2))?, call.arg(3) as u32)
}

/// Refuses an address in a message, which a stream of the Internet ignores once it is connected.
fn refuse_address(socket: &socket::Socket, has_address: bool) -> Result<(), Errno> {
    match (has_address, socket.is_connected()) {
        (true, true) if socket.domain() == Domain::Unix => Err(Errno::EISCONN),
        (true, false) if socket.domain() == Domain::Unix => Err(Errno::EOPNOTSUPP),
        _ => Ok(()),
    }
}

pub fn recvfrom(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let done = receive(&file, &mut Buffers::one(call.arg(1), call.arg(2))?, call.arg(3) as u32)?;
    if call.arg(4) != 0 && call.arg(5) != 0 {
        // A stream names no sender.
        user::write(call.arg(5), &0_u32)?;
    }
    Ok(done)
}

pub fn sendmsg(call: &mut Call<'_>) -> Outcome {
    let (file, message) = (call.file_in_use(0)?, user::read::<MsgHdr>(call.arg(1))?);
    let socket = socket::of(&file)?;
    refuse_address(socket, message.name != 0 && message.name_len != 0)?;
    if message.control != 0 && message.control_len != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    send(&file, &mut Buffers::many(message.list, message.count)?, call.arg(2) as u32)
}

pub fn recvmsg(call: &mut Call<'_>) -> Outcome {
    let (file, at) = (call.file_in_use(0)?, call.arg(1));
    let message = user::read::<MsgHdr>(at)?;
    let done = receive(&file, &mut Buffers::many(message.list, message.count)?, call.arg(2) as u32)?;
    user::write(at, &MsgHdr { name_len: 0, control_len: 0, flags: 0, ..message })?;
    Ok(done)
}

fn send(file: &OpenFile, buffers: &mut Buffers, flags: u32) -> Outcome {
    socket::of(file)?;
    if flags & !(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_MORE) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let sent = transfer::send(file, buffers, file.may_wait() && flags & MSG_DONTWAIT == 0);
    if flags & MSG_NOSIGNAL != 0 { sent.map(|sent| sent as u64) } else { raise_sigpipe(sent) }
}

fn receive(file: &OpenFile, buffers: &mut Buffers, flags: u32) -> Outcome {
    socket::of(file)?;
    if flags & !(MSG_PEEK | MSG_DONTWAIT | MSG_WAITALL | MSG_CMSG_CLOEXEC | MSG_NOSIGNAL) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let wait = file.may_wait() && flags & MSG_DONTWAIT == 0;
    if flags & MSG_PEEK != 0 {
        return transfer::peek(file, buffers, wait).map(|seen| seen as u64);
    }
    let mut done = transfer::receive(file, buffers, wait)?;
    while flags & MSG_WAITALL != 0 && wait && buffers.left() > 0 {
        match transfer::receive(file, buffers, true) {
            Ok(0) | Err(_) => break,
            Ok(more) => done += more,
        }
    }
    Ok(done as u64)
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

pub fn getsockopt(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    let value: u32 = match (call.arg(1) as u32, call.arg(2) as u32) {
        (SOL_SOCKET, SO_TYPE) => SOCK_STREAM,
        (SOL_SOCKET, SO_DOMAIN) => socket.domain().number(),
        (SOL_SOCKET, SO_PROTOCOL) if socket.domain() != Domain::Unix => IPPROTO_TCP,
        (SOL_SOCKET, SO_ACCEPTCONN) => socket.listens().into(),
        (SOL_SOCKET, SO_ERROR | SO_PROTOCOL) => 0,
        (SOL_SOCKET, SO_SNDBUF | SO_RCVBUF) => CAPACITY as u32,
        (IPPROTO_IPV6, IPV6_V6ONLY) => socket.only_v6(None).into(),
        (level, option) => match flag(level, option) {
            Some(bit) => socket.options.load(Ordering::Relaxed) >> bit & 1,
            None => return Err(refused(level)),
        },
    };
    let room = u32::try_from(user::read::<i32>(call.arg(4))?).map_err(|_| Errno::EINVAL)?;
    let bytes = value.to_le_bytes();
    let shown = prefix(&bytes, room.into());
    user::copy_out(call.arg(3), shown)?;
    user::write(call.arg(4), &(shown.len() as u32))?;
    Ok(0)
}

/// Returns the place of an option that a program sets and gets, and that makes no difference for connections
/// within one machine.
fn flag(level: u32, option: u32) -> Option<u32> {
    const FLAGS: [(u32, u32); 4] = [
        (SOL_SOCKET, SO_REUSEADDR),
        (SOL_SOCKET, SO_KEEPALIVE),
        (IPPROTO_TCP, TCP_NODELAY),
        (IPPROTO_TCP, TCP_CORK),
    ];
    FLAGS.iter().position(|one| *one == (level, option)).map(|at| at as u32)
}

/// Returns whether setting an option makes no difference, and its value is not kept.
fn is_advice(level: u32, option: u32) -> bool {
    match level {
        SOL_SOCKET => matches!(option, SO_LINGER | SO_SNDBUF | SO_RCVBUF),
        IPPROTO_TCP => matches!(option, TCP_KEEPIDLE..=TCP_QUICKACK | TCP_USER_TIMEOUT),
        _ => false,
    }
}

fn refused(level: u32) -> Errno {
    match level {
        SOL_SOCKET | IPPROTO_TCP | IPPROTO_IPV6 => Errno::ENOPROTOOPT,
        _ => Errno::EOPNOTSUPP,
    }
}

pub fn setsockopt(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    let (level, option) = (call.arg(1) as u32, call.arg(2) as u32);
    if call.int(4) < size_of::<i32>() as i32 {
        return Err(Errno::EINVAL);
    }
    let is_set = user::read::<i32>(call.arg(3))? != 0;
    match flag(level, option) {
        _ if is_advice(level, option) => {}
        _ if (level, option) == (IPPROTO_IPV6, IPV6_V6ONLY) => {
            socket.only_v6(Some(is_set));
        }
        Some(bit) if is_set => {
            socket.options.fetch_or(1 << bit, Ordering::Relaxed);
        }
        Some(bit) => {
            socket.options.fetch_and(!(1 << bit), Ordering::Relaxed);
        }
        None => return Err(refused(level)),
    }
    Ok(0)
}
