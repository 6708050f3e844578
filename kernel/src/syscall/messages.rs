//! Messages of sockets: copying between them and a program's buffers, and the descriptors in them.

use alloc::vec::Vec;

use abi::Errno;
use abi::socket::{CmsgHdr, MSG_CTRUNC, MsgHdr, SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET};

use super::Call;
use crate::fs::Opened;
use crate::fs::buffers::Buffers;
use crate::fs::node::NodeRef;
use crate::fs::page_cache::PAGE;
use crate::fs::socket::{Address, Datagrams, MOST_SENT, Message, Rights};
use crate::mm::{fallible, user};
use crate::process::{retry, retry_on_enomem};
use crate::sched;

/// An address that a message is sent to, and the file of one of the Unix domain.
pub type To = (Address, Option<NodeRef>);

/// The most bytes of control messages, as on Linux.
const MOST_CONTROL: u64 = 20_480;
/// The bytes of the head of a control message.
const HEAD: u64 = size_of::<CmsgHdr>() as u64;
/// Control messages begin at multiples of this.
const ALIGNMENT: u64 = 8;
/// The bytes of a descriptor in one.
const FD: u64 = size_of::<i32>() as u64;

/// Sends all that the buffers have in one message, to its peer or to another address.
///
/// # Errors
/// EMSGSIZE, EFAULT, and those of [`Datagrams::send`].
pub fn send(
    socket: &Datagrams,
    buffers: &mut Buffers,
    rights: Option<Rights>,
    to: Option<&To>,
    wait: bool,
) -> Result<usize, Errno> {
    let mut message = gather(socket, buffers)?;
    message.rights = rights;
    let (len, mut message) = (message.len(), Some(message));
    let to = to.map(|(address, name)| (address, name.as_ref()));
    retry(|| socket.send(&mut message, to, wait)).map(|()| len)
}

fn gather(socket: &Datagrams, buffers: &mut Buffers) -> Result<Message, Errno> {
    if buffers.left() > socket.most() {
        return Err(Errno::EMSGSIZE);
    }
    let mut pages = retry(|| fallible::empty(buffers.left().div_ceil(PAGE)))?;
    while buffers.left() > 0 {
        let len = PAGE.min(buffers.left());
        let mut page = retry_on_enomem(buffers.start(), || fallible::zeroes(len))?;
        if buffers.copy_in(&mut page)? < len {
            return Err(Errno::EFAULT);
        }
        pages.push(page);
    }
    Message::new(pages)
}

/// Takes a message, of which only the bytes are of interest, and returns how many were copied.
///
/// # Errors
/// EFAULT, and those of [`Datagrams::receive`].
pub fn read(socket: &Datagrams, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    if buffers.left() == 0 {
        return Ok(0);
    }
    socket.receive(false, wait)?.map_or(Ok(0), |message| message.copy_out(buffers))
}

/// Reads the control messages of a message that is sent by a socket of the Unix domain, and returns the
/// descriptors in them.
///
/// # Errors
/// EINVAL for others and for wrong lengths, EPERM for credentials of another process, EBADF, ETOOMANYREFS,
/// ENOBUFS, EFAULT, ENOMEM.
pub fn rights_to_send(call: &Call<'_>, message: &MsgHdr) -> Result<Option<Rights>, Errno> {
    if message.control_len == 0 {
        return Ok(None);
    }
    if message.control_len > MOST_CONTROL {
        return Err(Errno::ENOBUFS);
    }
    let mut files = Vec::new();
    let (mut at, mut left) = (message.control, message.control_len);
    while left >= HEAD {
        let head: CmsgHdr = user::read(at)?;
        let bytes = head.len.checked_sub(HEAD).filter(|_| head.len <= left).ok_or(Errno::EINVAL)?;
        match (head.level as u32, head.kind as u32) {
            (SOL_SOCKET, SCM_RIGHTS) => add_files(call, &mut files, at + HEAD, bytes / FD)?,
            // Nothing receives them, but a sender may only name itself.
            (SOL_SOCKET, SCM_CREDENTIALS) if bytes != 3 * FD => return Err(Errno::EINVAL),
            (SOL_SOCKET, SCM_CREDENTIALS) => must_be_sender(at + HEAD)?,
            (SOL_SOCKET, _) => return Err(Errno::EINVAL),
            _ => {}
        }
        let step = head.len.next_multiple_of(ALIGNMENT).min(left);
        (at, left) = (at + step, left - step);
    }
    if files.is_empty() { Ok(None) } else { Rights::new(files).map(Some) }
}

fn add_files(call: &Call<'_>, files: &mut Vec<Opened>, at: u64, count: u64) -> Result<(), Errno> {
    if files.len() as u64 + count > MOST_SENT as u64 {
        return Err(Errno::EINVAL);
    }
    for index in 0..count {
        let fd: i32 = user::read(at + index * FD)?;
        fallible::push(files, call.files().opened(fd)?)?;
    }
    Ok(())
}

fn must_be_sender(at: u64) -> Result<(), Errno> {
    let pid: u32 = user::read(at)?;
    if pid == sched::current().process().pid() { Ok(()) } else { Err(Errno::EPERM) }
}

/// Opens descriptors that were received, and describes them in the room for control messages. Returns the
/// bytes of it that were used, and `MSG_*`. Descriptors for which there is no room are closed.
pub fn receive_rights(
    call: &Call<'_>,
    message: &MsgHdr,
    rights: Option<Rights>,
    close_on_exec: bool,
) -> (u64, u32) {
    let Some(rights) = rights else { return (0, 0) };
    let files = rights.into_files();
    let (sent, mut opened) = (files.len() as u64, 0);
    let room = if message.control == 0 { 0 } else { message.control_len };
    let most = room.saturating_sub(HEAD) / FD;
    for file in files.into_iter().take(most as usize) {
        let Ok(number) = call.files().reserve(0) else { break };
        if user::write(message.control + HEAD + opened * FD, &number.number()).is_err() {
            break;
        }
        number.fill(file, close_on_exec);
        opened += 1;
    }
    let flags = if opened < sent { MSG_CTRUNC } else { 0 };
    let len = HEAD + opened * FD;
    let head = CmsgHdr { len, level: SOL_SOCKET as i32, kind: SCM_RIGHTS as i32 };
    if opened == 0 || user::write(message.control, &head).is_err() {
        return (0, flags);
    }
    (len.next_multiple_of(ALIGNMENT).min(room), flags)
}
