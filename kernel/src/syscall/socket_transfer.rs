//! Sending and receiving by sockets: bytes and messages, one or several.

use core::mem::offset_of;

use abi::Errno;
use abi::file::IOV_MAX;
use abi::socket::*;
use abi::time::Timespec;

use super::io::raise_sigpipe;
use super::messages::{self, To};
use super::sockets::{address_bytes, family, must_be_here, name};
use super::{Call, Outcome, transfer};
use crate::arch;
use crate::bytes::{copy_prefix, prefix};
use crate::fs::OpenFile;
use crate::fs::buffers::Buffers;
use crate::fs::socket::{
    self, Address, Carried, Datagrams, Domain, Message, Messages, Socket, Stream, WithRights,
};
use crate::mm::user;
use crate::sched;

pub fn sendto(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let to = (call.arg(4), call.int(5));
    let mut buffers = Buffers::one(call.arg(1), call.arg(2))?;
    send(call, &file, &mut buffers, Carried::default(), to, call.arg(3) as u32)
}

pub fn sendmsg(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    send_message(call, &file, call.arg(1), call.arg(2) as u32)
}

/// Sends several messages.
pub fn sendmmsg(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    socket::of(&file)?;
    several(call, |call, at| {
        let len = send_message(call, &file, at, call.arg(3) as u32)?;
        write_len(at, len).map(|()| true)
    })
}

/// Calls `transfer` with the address of each message in the list of arguments 1 and 2, as long as it returns
/// true, and returns how often it succeeded.
///
/// # Errors
/// That of the first message.
fn several(call: &Call<'_>, mut transfer: impl FnMut(&Call<'_>, u64) -> Result<bool, Errno>) -> Outcome {
    let count = u64::from(call.arg(2) as u32).min(IOV_MAX as u64);
    let mut done = 0;
    while done < count {
        match transfer(call, call.arg(1).wrapping_add(done * size_of::<MMsgHdr>() as u64)) {
            Ok(goes_on) => {
                done += 1;
                if !goes_on || !sched::pause() {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Writes the length of a message of several.
fn write_len(at: u64, len: u64) -> Result<(), Errno> {
    user::write(at.wrapping_add(offset_of!(MMsgHdr, len) as u64), &(len as u32))
}

/// Sends the message at `at`.
fn send_message(call: &Call<'_>, file: &OpenFile, at: u64, flags: u32) -> Outcome {
    let message = message(at)?;
    let mut buffers = Buffers::many(message.list, message.count)?;
    let carried = match socket::of(file)?.domain() {
        Domain::Unix => messages::carried_to_send(call, &message)?,
        _ if message.control != 0 && message.control_len != 0 => return Err(Errno::EOPNOTSUPP),
        _ => Carried::default(),
    };
    send(call, file, &mut buffers, carried, (message.name, message.name_len as i32), flags)
}

/// Reads the head of a message.
///
/// # Errors
/// EINVAL for a negative length of the address, EMSGSIZE for more than `IOV_MAX` buffers, EFAULT.
fn message(at: u64) -> Result<MsgHdr, Errno> {
    let message = user::read::<MsgHdr>(at)?;
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
    carried: Carried,
    to: (u64, i32),
    flags: u32,
) -> Outcome {
    let socket = socket::of(file)?;
    let has_address = to.0 != 0 && to.1 != 0;
    if flags & !(MSG_DONTROUTE | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_MORE | MSG_CONFIRM) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let wait = file.may_wait() && flags & MSG_DONTWAIT == 0;
    let sent = match socket {
        Socket::Stream(stream) if stream.keeps_bounds() => {
            return messages::send(stream, buffers, carried, None, wait).map(|sent| sent as u64);
        }
        Socket::Stream(stream) => {
            refuse_address(stream, has_address)?;
            match carried {
                Carried { rights: None, sender: None } => transfer::send(file, buffers, wait),
                carried => transfer::send_to(&WithRights::new(stream, carried), buffers, wait),
            }
        }
        Socket::Datagrams(datagrams) => {
            let to = if has_address { destination(call, datagrams, to)? } else { None };
            let more_follows = flags & MSG_MORE != 0;
            if datagrams.domain() != Domain::Unix && (more_follows || datagrams.has_begun()) {
                let (to, message) = (to.map(|to| to.0), messages::gather(datagrams, buffers)?);
                let len = message.len() as u64;
                return datagrams.gather(message, to, more_follows).map(|()| len);
            }
            return messages::send(datagrams, buffers, carried, to.as_ref(), wait).map(|sent| sent as u64);
        }
    };
    if flags & MSG_NOSIGNAL != 0 { sent.map(|sent| sent as u64) } else { raise_sigpipe(sent) }
}

/// Returns where a message goes, or `None` if it goes to the peer.
fn destination(call: &Call<'_>, socket: &Datagrams, (at, len): (u64, i32)) -> Result<Option<To>, Errno> {
    let mut bytes = address_bytes(at, len)?;
    let (domain, family) = (socket.domain(), family(&bytes)?);
    match (domain, family) {
        (Domain::Inet6, AF_UNSPEC) => return Ok(None),
        // As on Linux, an address without a domain is one of version 4.
        (Domain::Inet, AF_UNSPEC) => copy_prefix(&mut bytes, &(AF_INET as u16).to_le_bytes()),
        (Domain::Inet6, family) if family != AF_INET6 && family != AF_INET => return Err(Errno::EINVAL),
        _ => 0,
    };
    let address = Address::parse_for_messages(domain, &bytes)?;
    if address.is_v4_of_v6() && socket.only_v6(None) {
        return Err(Errno::ENETUNREACH);
    }
    must_be_here(&address, domain)?;
    if address.is_without_port() {
        return Err(Errno::EINVAL);
    }
    let name = name(call, &address)?;
    Ok(Some((address, name)))
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
    let file = call.file_in_use(0)?;
    receive_one(call, &file, call.arg(1), call.arg(2) as u32)
}

/// Receives several messages. As on Linux, the time is looked at after each.
pub fn recvmmsg(call: &mut Call<'_>) -> Outcome {
    let until = match call.arg(4) {
        0 => None,
        at => {
            let time = user::read::<Timespec>(at)?.to_ns().ok_or(Errno::EINVAL)?;
            Some(arch::now_ns().saturating_add(time))
        }
    };
    let file = call.file_in_use(0)?;
    socket::of(&file)?;
    let mut flags = call.arg(3) as u32;
    let done = several(call, |call, at| {
        let len = receive_one(call, &file, at, flags & !MSG_WAITFORONE)?;
        if flags & MSG_WAITFORONE != 0 {
            flags |= MSG_DONTWAIT;
        }
        write_len(at, len)?;
        Ok(until.is_none_or(|until| arch::now_ns() < until))
    })?;
    if let Some(until) = until {
        user::write(call.arg(4), &Timespec::from_ns(until.saturating_sub(arch::now_ns())))?;
    }
    Ok(done)
}

/// Receives the message at `at`.
fn receive_one(call: &Call<'_>, file: &OpenFile, at: u64, flags: u32) -> Outcome {
    let message = message(at)?;
    let mut buffers = Buffers::many(message.list, message.count)?;
    let received = receive(file, &mut buffers, true, flags)?;
    let name_len = match message.name {
        0 => message.name_len,
        name => write_sender(received.from.as_ref(), name, message.name_len as i32)?,
    };
    let close_on_exec = flags & MSG_CMSG_CLOEXEC != 0;
    let (control_len, lost) = messages::receive_carried(call, &message, received.carried, close_on_exec);
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
    /// The things that came with it.
    carried: Carried,
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
        Socket::Stream(stream) if stream.keeps_bounds() => {
            receive_message(socket::of(file)?, stream, buffers, flags, wait)
        }
        Socket::Stream(_) if flags & !all != 0 => Err(Errno::EOPNOTSUPP),
        Socket::Stream(stream)
            if wants_rights && stream.domain() == Domain::Unix && flags & MSG_PEEK == 0 =>
        {
            let with_rights = WithRights::new(stream, Carried::default());
            let len = receive_bytes(buffers, flags, wait, |buffers, wait| {
                transfer::receive_from(&with_rights, buffers, wait)
            })?;
            let mut carried = with_rights.into_carried();
            name_sender(socket::of(file)?, &mut carried);
            Ok(Received { len, from: None, flags: 0, carried })
        }
        Socket::Stream(_) => {
            let len = match flags & MSG_PEEK {
                0 => receive_bytes(buffers, flags, wait, |buffers, wait| {
                    transfer::receive(file, buffers, wait)
                })?,
                _ => transfer::peek(file, buffers, wait)? as u64,
            };
            Ok(Received { len, from: None, flags: 0, carried: Carried::default() })
        }
        Socket::Datagrams(datagrams) => receive_message(socket::of(file)?, datagrams, buffers, flags, wait),
    }
}

/// Adds the name of an unknown sender, if a socket asks for names and there is none.
fn name_sender(socket: Socket<'_>, carried: &mut Carried) {
    match socket.asks_for_senders() && socket.domain() == Domain::Unix {
        true => _ = carried.sender.get_or_insert_with(socket::unknown_sender),
        false => carried.sender = None,
    }
}

fn receive_message(
    socket: Socket<'_>,
    messages: &dyn Messages,
    buffers: &mut Buffers,
    flags: u32,
    wait: bool,
) -> Result<Received, Errno> {
    let all = MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT | MSG_WAITALL | MSG_CMSG_CLOEXEC | MSG_NOSIGNAL;
    if flags & !all != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let Some(message) = messages.receive(flags & MSG_PEEK != 0, wait)? else {
        let mut carried = Carried::default();
        name_sender(socket, &mut carried);
        return Ok(Received { len: 0, from: None, flags: 0, carried });
    };
    let copied = message.copy_out(buffers)?;
    let len = if flags & MSG_TRUNC != 0 { message.len() } else { copied } as u64;
    let flags = if copied < message.len() { MSG_TRUNC } else { 0 };
    let Message { from, rights, sender, .. } = message;
    let mut carried = Carried { rights, sender };
    name_sender(socket, &mut carried);
    Ok(Received { len, from: Some(from), flags, carried })
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
