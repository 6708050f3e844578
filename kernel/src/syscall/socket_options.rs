//! Options of sockets.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::socket::*;
use abi::time::Timeval;
use abi::users::NO_ID;
use abi::zerocopy::IntoBytes;

use super::sockets::protocol_of;
use super::{Call, Outcome};
use crate::bytes::prefix;
use crate::fs::pipe::CAPACITY;
use crate::fs::socket::{self, Domain, Kind, NAMES_SENDERS, Socket, Stream};
use crate::mm::user;

pub fn getsockopt(call: &mut Call<'_>) -> Outcome {
    let file = call.file_in_use(0)?;
    let socket = socket::of(&file)?;
    if (call.arg(1) as u32, call.arg(2) as u32) == (SOL_SOCKET, SO_PEERCRED) {
        // There is no user if there is no peer.
        let none = Ucred { pid: 0, uid: NO_ID, gid: NO_ID };
        let peer = socket.peer_process().filter(|_| socket.domain() == Domain::Unix);
        return write_option(call, peer.unwrap_or(none).as_bytes());
    }
    if let Some(limit) = time_limit(socket, call.arg(1) as u32, call.arg(2) as u32) {
        // A limit of less than a microsecond is one of none: see `set_time_limit`.
        let time = Timeval::from_ns(limit.load(Ordering::Relaxed));
        return write_option(call, time.as_bytes());
    }
    let value: u32 = match (call.arg(1) as u32, call.arg(2) as u32) {
        (SOL_SOCKET, SO_TYPE) => match socket.kind() {
            Kind::Stream => SOCK_STREAM,
            Kind::Packets => SOCK_SEQPACKET,
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
    let error = match socket {
        Socket::Stream(stream) => stream.say_error(),
        Socket::Datagrams(datagrams) => datagrams.say_refused(),
    };
    error.err().map_or(0, |error| error.number() as u32)
}

/// Returns the place of an option that a program sets and gets. All but the last make no difference for
/// connections within one machine.
fn flag(level: u32, option: u32) -> Option<u32> {
    const FLAGS: [(u32, u32); 6] = [
        (SOL_SOCKET, SO_REUSEADDR),
        (SOL_SOCKET, SO_BROADCAST),
        (SOL_SOCKET, SO_KEEPALIVE),
        (IPPROTO_TCP, TCP_NODELAY),
        (IPPROTO_TCP, TCP_CORK),
        (SOL_SOCKET, SO_PASSCRED),
    ];
    const _: () = assert!(NAMES_SENDERS == 1 << 5);
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
    if let Some(limit) = time_limit(socket, level, option) {
        return set_time_limit(call, limit);
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
    socket.options_changed();
    Ok(0)
}

/// Returns the limit of time that an option is.
fn time_limit<'a>(socket: Socket<'a>, level: u32, option: u32) -> Option<&'a AtomicU64> {
    match (level, option) {
        (SOL_SOCKET, SO_RCVTIMEO | SO_RCVTIMEO_NEW) => Some(&socket.limits().receive),
        (SOL_SOCKET, SO_SNDTIMEO | SO_SNDTIMEO_NEW) => Some(&socket.limits().send),
        _ => None,
    }
}

/// Sets a limit of time. As on Linux, 0 is none, and calls do not wait with a negative one.
fn set_time_limit(call: &Call<'_>, limit: &AtomicU64) -> Outcome {
    if call.int(4) < size_of::<Timeval>() as i32 {
        return Err(Errno::EINVAL);
    }
    let time: Timeval = user::read(call.arg(3))?;
    if !(0..1_000_000).contains(&time.microseconds) {
        return Err(Errno::EDOM);
    }
    let ns = if time.seconds < 0 { 1 } else { time.to_ns().ok_or(Errno::EDOM)? };
    limit.store(ns, Ordering::Relaxed);
    Ok(0)
}
