//! Messages of sockets: copying between them and a program's buffers, and the descriptors in them.

use alloc::vec::Vec;

use abi::Errno;
use abi::socket::{CmsgHdr, MSG_CTRUNC, MsgHdr, SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET, Ucred};
use abi::users::{CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN};
use abi::zerocopy::IntoBytes;

use super::Call;
use crate::bytes::prefix;
use crate::fs::Opened;
use crate::fs::buffers::Buffers;
use crate::fs::node::NodeRef;
use crate::fs::page_cache::PAGE;
use crate::fs::socket::{Address, Carried, MOST_SENT, Message, Messages, Rights};
use crate::mm::{fallible, user};
use crate::process::{pid, retry, retry_on_enomem};

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
/// EMSGSIZE, EFAULT, and those of [`Messages::send`].
pub fn send(
    socket: &dyn Messages,
    buffers: &mut Buffers,
    carried: Carried,
    to: Option<&To>,
    wait: bool,
) -> Result<usize, Errno> {
    let mut message = gather(socket, buffers)?;
    (message.rights, message.sender) = (carried.rights, carried.sender);
    let (len, mut message) = (message.len(), Some(message));
    let to = to.map(|(address, name)| (address, name.as_ref()));
    retry(|| socket.send(&mut message, to, wait)).map(|()| len)
}

/// Makes a message of all that the buffers have.
///
/// # Errors
/// EMSGSIZE, EFAULT, ENOMEM.
pub fn gather(socket: &dyn Messages, buffers: &mut Buffers) -> Result<Message, Errno> {
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
/// EFAULT, and those of [`Messages::receive`].
pub fn read(socket: &dyn Messages, buffers: &mut Buffers, wait: bool) -> Result<usize, Errno> {
    if buffers.left() == 0 {
        return Ok(0);
    }
    socket.receive(false, wait)?.map_or(Ok(0), |message| message.copy_out(buffers))
}

/// Reads the control messages of a message that is sent by a socket of the Unix domain, and returns the
/// descriptors and the name of the sender in them.
///
/// # Errors
/// EINVAL for others and for wrong lengths, ESRCH for a sender that does not exist, EBADF, ETOOMANYREFS,
/// ENOBUFS, EFAULT, ENOMEM.
pub fn carried_to_send(call: &Call<'_>, message: &MsgHdr) -> Result<Carried, Errno> {
    if message.control_len == 0 {
        return Ok(Carried::default());
    }
    if message.control_len > MOST_CONTROL {
        return Err(Errno::ENOBUFS);
    }
    let (mut files, mut sender) = (Vec::new(), None);
    let (mut at, mut left) = (message.control, message.control_len);
    while left >= HEAD {
        let head: CmsgHdr = user::read(at)?;
        let bytes = head.len.checked_sub(HEAD).filter(|_| head.len <= left).ok_or(Errno::EINVAL)?;
        match (head.level as u32, head.kind as u32) {
            (SOL_SOCKET, SCM_RIGHTS) => add_files(call, &mut files, at + HEAD, bytes / FD)?,
            (SOL_SOCKET, SCM_CREDENTIALS) if bytes != size_of::<Ucred>() as u64 => return Err(Errno::EINVAL),
            (SOL_SOCKET, SCM_CREDENTIALS) => sender = Some(named_sender(call, at + HEAD)?),
            (SOL_SOCKET, _) => return Err(Errno::EINVAL),
            _ => {}
        }
        let step = head.len.next_multiple_of(ALIGNMENT).min(left);
        (at, left) = (at + step, left - step);
    }
    let rights = if files.is_empty() { None } else { Some(Rights::new(files)?) };
    Ok(Carried { rights, sender })
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

/// Reads the name that a sender gives.
///
/// # Errors
/// EPERM if it is not its own and it may not give another one. ESRCH.
fn named_sender(call: &Call<'_>, at: u64) -> Result<Ucred, Errno> {
    let sender: Ucred = user::read(at)?;
    let of = call.task.thread.credentials.get();
    let may = (sender.pid == call.task.process().pid() || of.can(CAP_SYS_ADMIN))
        && (of.users.has(sender.uid) || of.can(CAP_SETUID))
        && (of.groups.has(sender.gid) || of.can(CAP_SETGID));
    if !may {
        return Err(Errno::EPERM);
    }
    pid::process(sender.pid).map(|_| sender).ok_or(Errno::ESRCH)
}

/// The room of a receiver for control messages.
struct Control {
    at: u64,
    room: u64,
    used: u64,
    /// `MSG_*`.
    flags: u32,
}

impl Control {
    /// Returns the room beyond the head of a control message.
    fn room_for_contents(&self) -> u64 {
        self.room.saturating_sub(HEAD)
    }

    /// Writes the head of a control message whose contents of `bytes` bytes follow it, and goes on behind it.
    /// A program that has no page there loses it.
    fn end(&mut self, kind: u32, bytes: u64) {
        let len = HEAD + bytes;
        let head = CmsgHdr { len, level: SOL_SOCKET as i32, kind: kind as i32 };
        if user::write(self.at, &head).is_err() {
            return;
        }
        let step = len.next_multiple_of(ALIGNMENT).min(self.room);
        (self.at, self.room, self.used) = (self.at + step, self.room - step, self.used + step);
    }

    /// Writes the name of a sender, as much of it as there is room for.
    fn put_sender(&mut self, sender: &Ucred) {
        let shown = prefix(sender.as_bytes(), self.room_for_contents());
        if shown.len() < size_of::<Ucred>() {
            self.flags |= MSG_CTRUNC;
        }
        if self.room >= HEAD && user::copy_out(self.at + HEAD, shown).is_ok() {
            self.end(SCM_CREDENTIALS, shown.len() as u64);
        }
    }
}

/// Describes what came with a message in the room for control messages. Returns the bytes of it that were
/// used, and `MSG_*`.
pub fn receive_carried(
    call: &Call<'_>,
    message: &MsgHdr,
    carried: Carried,
    close_on_exec: bool,
) -> (u64, u32) {
    let room = if message.control == 0 { 0 } else { message.control_len };
    let mut control = Control { at: message.control, room, used: 0, flags: 0 };
    if let Some(sender) = carried.sender {
        control.put_sender(&sender);
    }
    if let Some(rights) = carried.rights {
        open(call, rights, &mut control, close_on_exec);
    }
    (control.used, control.flags)
}

/// Opens descriptors that were received. Those for which there is no room are closed.
fn open(call: &Call<'_>, rights: Rights, control: &mut Control, close_on_exec: bool) {
    let files = rights.into_files();
    let (sent, mut opened) = (files.len() as u64, 0);
    let most = control.room_for_contents() / FD;
    for file in files.into_iter().take(most as usize) {
        let Ok(number) = call.files().reserve(0) else { break };
        if user::write(control.at + HEAD + opened * FD, &number.number()).is_err() {
            break;
        }
        number.fill(file, close_on_exec);
        opened += 1;
    }
    if opened < sent {
        control.flags |= MSG_CTRUNC;
    }
    if opened > 0 {
        control.end(SCM_RIGHTS, opened * FD);
    }
}
