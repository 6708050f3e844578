//! Sockets: pairs of connected ones of the Unix domain.

use abi::Errno;
use abi::file::{IoVec, O_CLOEXEC, O_NONBLOCK};
use abi::socket::*;

use super::io::raise_sigpipe;
use super::{Call, Outcome, transfer};
use crate::fs::buffers::Buffers;
use crate::fs::{OpenFile, Opened, socket};
use crate::mm::user;

/// Makes two sockets that are connected.
pub fn socketpair(call: &mut Call<'_>) -> Outcome {
    let (domain, kind, protocol) = (call.arg(0) as u32, call.arg(1) as u32, call.int(2));
    let (flags, kind) = (kind & !SOCK_TYPE_MASK, kind & SOCK_TYPE_MASK);
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    match (domain, kind) {
        (AF_UNIX, SOCK_STREAM) if protocol == 0 || protocol == AF_UNIX as i32 => {}
        (AF_UNIX, SOCK_STREAM) => return Err(Errno::EPROTONOSUPPORT),
        (AF_UNIX, _) => return Err(Errno::ESOCKTNOSUPPORT),
        _ => return Err(Errno::EAFNOSUPPORT),
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

/// Ends one direction or both.
pub fn shutdown(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    let how = call.arg(1) as u32;
    if how > SHUT_RDWR {
        return Err(Errno::EINVAL);
    }
    if how != SHUT_WR {
        socket.end_incoming();
    }
    if how != SHUT_RD {
        socket.end_outgoing();
    }
    Ok(0)
}

pub fn sendto(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    // A pair is connected, so Linux refuses an address.
    if call.arg(4) != 0 {
        socket::of(&file)?;
        return Err(Errno::EISCONN);
    }
    send(&file, &mut Buffers::one(call.arg(1), call.arg(2))?, call.arg(3) as u32)
}

pub fn recvfrom(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let done = receive(&file, &mut Buffers::one(call.arg(1), call.arg(2))?, call.arg(3) as u32)?;
    if call.arg(4) != 0 {
        write_address(0, call.arg(5))?;
    }
    Ok(done)
}

pub fn sendmsg(call: &mut Call<'_>) -> Outcome {
    let (file, message) = (call.file_in_use(0)?, user::read::<MsgHdr>(call.arg(1))?);
    socket::of(&file)?;
    if message.name != 0 && message.name_len != 0 {
        return Err(Errno::EISCONN);
    }
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
    if flags & !(MSG_DONTWAIT | MSG_WAITALL | MSG_CMSG_CLOEXEC | MSG_NOSIGNAL) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let wait = file.may_wait() && flags & MSG_DONTWAIT == 0;
    let mut done = transfer::receive(file, buffers, wait)?;
    while flags & MSG_WAITALL != 0 && wait && buffers.left() > 0 {
        match transfer::receive(file, buffers, true) {
            Ok(0) | Err(_) => break,
            Ok(more) => done += more,
        }
    }
    Ok(done as u64)
}

/// Returns the address of a socket without a name: its domain.
pub fn getsockname(call: &mut Call<'_>) -> Outcome {
    socket::of(&*call.file_in_use(0)?)?;
    write_address(call.arg(1), call.arg(2))
}

pub fn getpeername(call: &mut Call<'_>) -> Outcome {
    getsockname(call)
}

/// Writes the address of a socket without a name, as far as there is room, and its length.
fn write_address(address: u64, length: u64) -> Outcome {
    const DOMAIN: [u8; 2] = (AF_UNIX as u16).to_le_bytes();
    let room = u32::try_from(user::read::<i32>(length)?).map_err(|_| Errno::EINVAL)?;
    if address != 0 {
        user::copy_out(address, crate::bytes::prefix(&DOMAIN, room.into()))?;
        user::write(length, &(DOMAIN.len() as u32))?;
    } else {
        user::write(length, &0_u32)?;
    }
    Ok(0)
}

pub fn getsockopt(call: &mut Call<'_>) -> Outcome {
    socket::of(&*call.file_in_use(0)?)?;
    let value: u32 = match (call.arg(1) as u32, call.arg(2) as u32) {
        (SOL_SOCKET, SO_TYPE) => SOCK_STREAM,
        (SOL_SOCKET, SO_DOMAIN) => AF_UNIX,
        (SOL_SOCKET, SO_ERROR | SO_PROTOCOL | SO_ACCEPTCONN) => 0,
        (SOL_SOCKET, SO_SNDBUF | SO_RCVBUF) => crate::fs::pipe::CAPACITY as u32,
        (SOL_SOCKET, _) => return Err(Errno::ENOPROTOOPT),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let room = u32::try_from(user::read::<i32>(call.arg(4))?).map_err(|_| Errno::EINVAL)?;
    let bytes = value.to_le_bytes();
    let shown = crate::bytes::prefix(&bytes, room.into());
    user::copy_out(call.arg(3), shown)?;
    user::write(call.arg(4), &(shown.len() as u32))?;
    Ok(0)
}

pub fn setsockopt(call: &mut Call<'_>) -> Outcome {
    socket::of(&*call.file_in_use(0)?)?;
    match (call.arg(1) as u32, call.arg(2) as u32) {
        // Sizes are advice.
        (SOL_SOCKET, SO_SNDBUF | SO_RCVBUF) => Ok(0),
        (SOL_SOCKET, _) => Err(Errno::ENOPROTOOPT),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

const _: () = assert!(size_of::<IoVec>() == 16);
