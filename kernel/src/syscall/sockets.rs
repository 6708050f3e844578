//! Sockets: connections and messages of the Unix domain, and of the Internet domains within the guest.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::file::{IOV_MAX, O_CLOEXEC, O_NONBLOCK, S_IFSOCK};
use abi::socket::*;
use percore::pin;

use super::io::raise_sigpipe;
use super::messages::{self, To};
use super::{Call, Outcome, transfer};
use crate::bytes::prefix;
use crate::fs::buffers::Buffers;
use crate::fs::node::NodeRef;
use crate::fs::pipe::CAPACITY;
use crate::fs::socket::{
    self, Address, Datagrams, Domain, Kind, Message, Rights, Socket, Stream, WithRights,
};
use crate::fs::{OpenFile, Opened, tree};
use crate::mm::{fallible, user};

/// The domain of an address that ends the connection of a socket for messages (AF_UNSPEC).
const NO_DOMAIN: [u8; 2] = [0; 2];
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
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    let own_protocol = if domain == Domain::Unix { AF_UNIX } else { protocol_of(kind) };
    if protocol != 0 && protocol != own_protocol {
        return Err(Errno::EPROTONOSUPPORT);
    }
    Ok((kind, domain, flags))
}

/// Returns the protocol of sockets of the Internet.
fn protocol_of(kind: Kind) -> u32 {
    match kind {
        Kind::Stream => IPPROTO_TCP,
        Kind::Datagrams => IPPROTO_UDP,
    }
}

fn pid(call: &Call<'_>) -> u32 {
    call.task.process().pid()
}

/// Makes two sockets that are connected.
pub fn socketpair(call: &mut Call<'_>) -> Outcome {
    let (kind, domain, flags) = kind(call)?;
    if domain != Domain::Unix {
        return Err(Errno::EOPNOTSUPP);
    }
    let close_on_exec = flags & O_CLOEXEC != 0;
    let [first, second] = socket::pair(kind, flags & O_NONBLOCK, pid(call))?;
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
    Address::parse(domain, &address_bytes(call.arg(1), call.int(2))?)
}

fn address_bytes(at: u64, len: i32) -> Result<Vec<u8>, Errno> {
    let len = usize::try_from(len).ok().filter(|&len| len <= ADDRESS_BYTES).ok_or(Errno::EINVAL)?;
    let mut bytes: Vec<u8> = fallible::zeroes(len)?;
    user::copy_in(&mut bytes, at)?;
    Ok(bytes)
}

/// Refuses an address that no socket of this machine can have.
///
/// # Errors
/// EINVAL for no name, ENETUNREACH.
fn must_be_here(address: &Address, domain: Domain) -> Result<(), Errno> {
    match domain {
        _ if address.is_here() => Ok(()),
        Domain::Unix => Err(Errno::EINVAL),
        _ => Err(Errno::ENETUNREACH),
    }
}

/// Returns the file of a Unix socket's address, if it is one with a path.
///
/// # Errors
/// ECONNREFUSED if the file is no socket, those of a look-up.
fn name(call: &Call<'_>, address: &Address) -> Result<Option<NodeRef>, Errno> {
    let Some(path) = address.path() else { return Ok(None) };
    let node = call.find(path, &pin(), true)?.existing()?.clone();
    Some(node).filter(|node| node.kind() == S_IFSOCK).ok_or(Errno::ECONNREFUSED).map(Some)
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
    socket::of(&file)?.stream()?.listen(call.arg(1) as u32 as usize, pid(call)).map(|()| 0)
}

pub fn connect(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    let bytes = address_bytes(call.arg(1), call.int(2))?;
    if let (Socket::Datagrams(datagrams), Some(&NO_DOMAIN)) = (socket, bytes.first_chunk::<2>()) {
        datagrams.disconnect();
        return Ok(0);
    }
    let address = Address::parse(socket.domain(), &bytes)?;
    must_be_here(&address, socket.domain())?;
    let name = name(call, &address)?;
    match socket {
        Socket::Stream(stream) => stream.connect(&address, name.as_ref(), file.may_wait(), pid(call))?,
        Socket::Datagrams(datagrams) => datagrams.connect(&address, name.as_ref())?,
    }
    Ok(0)
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

pub fn sendto(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let to = (call.arg(4), call.int(5));
    send(call, &file, &mut Buffers::one(call.arg(1), call.arg(2))?, None, to, call.arg(3) as u32)
}

pub fn sendmsg(call: &mut Call<'_>) -> Outcome {
    let (file, message) = (call.file_in_use(0)?, message(call)?);
    let mut buffers = Buffers::many(message.list, message.count)?;
    let rights = match socket::of(&file)?.domain() {
        Domain::Unix => messages::rights_to_send(call, &message)?,
        _ if message.control != 0 && message.control_len != 0 => return Err(Errno::EOPNOTSUPP),
        _ => None,
    };
    send(call, &file, &mut buffers, rights, (message.name, message.name_len as i32), call.arg(2) as u32)
}

/// Reads the head of a message in argument 1.
///
/// # Errors
/// EINVAL for a negative length of the address, EMSGSIZE for more than `IOV_MAX` buffers, EFAULT.
fn message(call: &Call<'_>) -> Result<MsgHdr, Errno> {
    let message = user::read::<MsgHdr>(call.arg(1))?;
    match message {
        _ if message.name != 0 && (message.name_len as i32) < 0 => Err(Errno::EINVAL),
        _ if message.count > IOV_MAX as u64 => Err(Errno::EMSGSIZE),
        _ => Ok(message),
    }
}

/// Sends what the buffers have, to the address at `to` or else to the peer.
fn send(
    call: &Call<'_>,
    file: &OpenFile,
    buffers: &mut Buffers,
    rights: Option<Rights>,
    to: (u64, i32),
    flags: u32,
) -> Outcome {
    let socket = socket::of(file)?;
    let has_address = to.0 != 0 && to.1 != 0;
    if flags & !(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_MORE | MSG_CONFIRM) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let wait = file.may_wait() && flags & MSG_DONTWAIT == 0;
    let sent = match socket {
        Socket::Stream(stream) => {
            refuse_address(stream, has_address)?;
            match rights {
                None => transfer::send(file, buffers, wait),
                rights => transfer::send_to(&WithRights::new(stream, rights), buffers, wait),
            }
        }
        Socket::Datagrams(datagrams) => {
            let to = if has_address { Some(destination(call, socket.domain(), to)?) } else { None };
            return messages::send(datagrams, buffers, rights, to.as_ref(), wait).map(|sent| sent as u64);
        }
    };
    if flags & MSG_NOSIGNAL != 0 { sent.map(|sent| sent as u64) } else { raise_sigpipe(sent) }
}

fn destination(call: &Call<'_>, domain: Domain, (at, len): (u64, i32)) -> Result<To, Errno> {
    let address = Address::parse(domain, &address_bytes(at, len)?)?;
    must_be_here(&address, domain)?;
    if matches!(address, Address::Port(_, _, 0)) {
        return Err(Errno::EINVAL);
    }
    let name = name(call, &address)?;
    Ok((address, name))
}

/// Refuses an address for bytes of a stream, which one of the Internet ignores once it is connected.
fn refuse_address(stream: &Stream, has_address: bool) -> Result<(), Errno> {
    match (has_address, stream.is_connected()) {
        (true, true) if stream.domain() == Domain::Unix => Err(Errno::EISCONN),
        (true, false) if stream.domain() == Domain::Unix => Err(Errno::EOPNOTSUPP),
        _ => Ok(()),
    }
}

pub fn recvfrom(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let received = receive(&file, &mut Buffers::one(call.arg(1), call.arg(2))?, false, call.arg(3) as u32)?;
    if call.arg(4) != 0 && call.arg(5) != 0 {
        let room = user::read::<i32>(call.arg(5))?;
        user::write(call.arg(5), &write_sender(received.from.as_ref(), call.arg(4), room)?)?;
    }
    Ok(received.len)
}

pub fn recvmsg(call: &mut Call<'_>) -> Outcome {
    let (file, at) = (call.file_in_use(0)?, call.arg(1));
    let message = message(call)?;
    let (mut buffers, flags) = (Buffers::many(message.list, message.count)?, call.arg(2) as u32);
    let received = receive(&file, &mut buffers, true, flags)?;
    let name_len = match message.name {
        0 => message.name_len,
        name => write_sender(received.from.as_ref(), name, message.name_len as i32)?,
    };
    let close_on_exec = flags & MSG_CMSG_CLOEXEC != 0;
    let (control_len, lost) = messages::receive_rights(call, &message, received.rights, close_on_exec);
    let flags = received.flags | lost | flags & MSG_CMSG_CLOEXEC;
    user::write(at, &MsgHdr { name_len, control_len, flags, ..message })?;
    Ok(received.len)
}

/// The result of receiving.
struct Received {
    /// The result of the call.
    len: u64,
    /// The sender of a message. A stream names none.
    from: Option<Address>,
    /// `MSG_*` of the message.
    flags: u32,
    /// The descriptors that came with it.
    rights: Option<Rights>,
}

/// Receives bytes or a message, with descriptors if they are wanted. Others are closed.
fn receive(
    file: &OpenFile,
    buffers: &mut Buffers,
    wants_rights: bool,
    flags: u32,
) -> Result<Received, Errno> {
    let wait = file.may_wait() && flags & MSG_DONTWAIT == 0;
    let all = MSG_PEEK | MSG_DONTWAIT | MSG_WAITALL | MSG_CMSG_CLOEXEC | MSG_NOSIGNAL;
    match socket::of(file)? {
        Socket::Stream(_) if flags & !all != 0 => Err(Errno::EOPNOTSUPP),
        Socket::Stream(stream)
            if wants_rights && stream.domain() == Domain::Unix && flags & MSG_PEEK == 0 =>
        {
            let with_rights = WithRights::new(stream, None);
            let len = receive_bytes(buffers, flags, wait, |buffers, wait| {
                transfer::receive_from(&with_rights, buffers, wait)
            })?;
            Ok(Received { len, from: None, flags: 0, rights: with_rights.into_rights() })
        }
        Socket::Stream(_) => {
            let len = match flags & MSG_PEEK {
                0 => receive_bytes(buffers, flags, wait, |buffers, wait| {
                    transfer::receive(file, buffers, wait)
                })?,
                _ => transfer::peek(file, buffers, wait)? as u64,
            };
            Ok(Received { len, from: None, flags: 0, rights: None })
        }
        Socket::Datagrams(_) if flags & !(all | MSG_TRUNC) != 0 => Err(Errno::EOPNOTSUPP),
        Socket::Datagrams(datagrams) => receive_message(datagrams, buffers, flags, wait),
    }
}

fn receive_message(
    socket: &Datagrams,
    buffers: &mut Buffers,
    flags: u32,
    wait: bool,
) -> Result<Received, Errno> {
    let Some(message) = socket.receive(flags & MSG_PEEK != 0, wait)? else {
        return Ok(Received { len: 0, from: None, flags: 0, rights: None });
    };
    let copied = message.copy_out(buffers)?;
    let len = if flags & MSG_TRUNC != 0 { message.len() } else { copied } as u64;
    let flags = if copied < message.len() { MSG_TRUNC } else { 0 };
    let Message { from, rights, .. } = message;
    Ok(Received { len, from: Some(from), flags, rights })
}

fn receive_bytes(
    buffers: &mut Buffers,
    flags: u32,
    wait: bool,
    receive: impl Fn(&mut Buffers, bool) -> Result<usize, Errno>,
) -> Outcome {
    let mut done = receive(buffers, wait)?;
    while flags & MSG_WAITALL != 0 && wait && buffers.left() > 0 {
        match receive(buffers, true) {
            Ok(0) | Err(_) => break,
            Ok(more) => done += more,
        }
    }
    Ok(done as u64)
}

/// Writes the address of a sender, as far as there is room, and returns its length: 0 if it has none.
fn write_sender(from: Option<&Address>, to: u64, room: i32) -> Result<u32, Errno> {
    let room = u32::try_from(room).map_err(|_| Errno::EINVAL)?;
    let Some(from) = from.filter(|from| **from != Address::Name(None)) else { return Ok(0) };
    from.with_bytes(|bytes| user::copy_out(to, prefix(bytes, room.into())).map(|()| bytes.len() as u32))?
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
    if (call.arg(1) as u32, call.arg(2) as u32) == (SOL_SOCKET, SO_PEERCRED) {
        // All processes are root's. There is no user if there is no peer.
        let peer = socket.peer_pid().filter(|_| socket.domain() == Domain::Unix);
        let user = peer.map_or(u32::MAX, |_| 0);
        return write_option(call, [peer.unwrap_or(0), user, user].map(u32::to_le_bytes).as_flattened());
    }
    let value: u32 = match (call.arg(1) as u32, call.arg(2) as u32) {
        (SOL_SOCKET, SO_TYPE) => match socket.kind() {
            Kind::Stream => SOCK_STREAM,
            Kind::Datagrams => SOCK_DGRAM,
        },
        (SOL_SOCKET, SO_DOMAIN) => socket.domain().number(),
        (SOL_SOCKET, SO_PROTOCOL) if socket.domain() != Domain::Unix => protocol_of(socket.kind()),
        (SOL_SOCKET, SO_ACCEPTCONN) => socket.stream().is_ok_and(Stream::listens).into(),
        (SOL_SOCKET, SO_ERROR) => pending_error(socket),
        (SOL_SOCKET, SO_PROTOCOL) => 0,
        (SOL_SOCKET, SO_SNDBUF | SO_RCVBUF) => CAPACITY as u32,
        (IPPROTO_IPV6, IPV6_V6ONLY) => socket.only_v6(None).into(),
        (level, option) => match flag(level, option) {
            Some(bit) => socket.options().load(Ordering::Relaxed) >> bit & 1,
            None => return Err(refused(level)),
        },
    };
    write_option(call, &value.to_le_bytes())
}

/// Writes the value of an option, as far as there is room, and its length.
fn write_option(call: &Call<'_>, value: &[u8]) -> Outcome {
    let room = u32::try_from(user::read::<i32>(call.arg(4))?).map_err(|_| Errno::EINVAL)?;
    let shown = prefix(value, room.into());
    user::copy_out(call.arg(3), shown)?;
    user::write(call.arg(4), &(shown.len() as u32))?;
    Ok(0)
}

/// Takes the error that the next call would say.
fn pending_error(socket: Socket<'_>) -> u32 {
    match socket {
        Socket::Stream(_) => 0,
        Socket::Datagrams(datagrams) => {
            datagrams.say_refused().err().map_or(0, |error| error.number() as u32)
        }
    }
}

/// Returns the place of an option that a program sets and gets, and that makes no difference for connections
/// within one machine.
fn flag(level: u32, option: u32) -> Option<u32> {
    const FLAGS: [(u32, u32); 5] = [
        (SOL_SOCKET, SO_REUSEADDR),
        (SOL_SOCKET, SO_BROADCAST),
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
            socket.options().fetch_or(1 << bit, Ordering::Relaxed);
        }
        Some(bit) => {
            socket.options().fetch_and(!(1 << bit), Ordering::Relaxed);
        }
        None => return Err(refused(level)),
    }
    Ok(0)
}
