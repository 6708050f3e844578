//! POSIX message queues.

use abi::Errno;
use abi::file::{O_NONBLOCK, PATH_MAX};
use abi::ipc::*;
use abi::signal::{NSIG, SIGEV_NONE, SIGEV_SIGNAL, Sigevent};
use abi::time::Timespec;

use super::{Call, Outcome};
use crate::arch;
use crate::fs::InUse;
use crate::mm::{fallible, user};
use crate::process::mqueue::{self, Message, Notice, Opening};
use crate::process::retry;
use crate::sched;

/// Bytes of a message that are copied at a time.
const PIECE: usize = 256 << 10;

/// The attributes of a queue for which a program wants none.
const USUAL: MqAttr = MqAttr {
    flags: 0,
    max_messages: MQ_MSG_MAX,
    message_bytes: MQ_MSGSIZE_MAX,
    messages: 0,
    reserved: [0; 4],
};

/// Opens a queue, which is made if that is wanted. Descriptors of queues always close on exec.
pub fn mq_open(call: &mut Call<'_>) -> Outcome {
    let attributes = match call.arg(3) {
        0 => USUAL,
        at => user::read(at)?,
    };
    let name = user::read_cstr(call.arg(0), PATH_MAX)?;
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    let permissions = call.fs_context().masked(call.arg(2) as u32 & 0o7777);
    let opening = Opening { flags: call.arg(1) as u32, permissions, attributes };
    let descriptor = call.files().reserve(0)?;
    let opened = retry(|| mqueue::open(call.task.process(), &name, &opening))?;
    Ok(descriptor.fill(opened, true) as u64)
}

/// Removes the name of a queue.
pub fn mq_unlink(call: &mut Call<'_>) -> Outcome {
    let name = user::read_cstr(call.arg(0), PATH_MAX)?;
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    mqueue::unlink(&name).map(|()| 0)
}

/// Returns the point in time of argument `index`, in nanoseconds since boot.
fn deadline(call: &Call<'_>, index: usize) -> Result<Option<u64>, Errno> {
    let at: Timespec = match call.arg(index) {
        0 => return Ok(None),
        at => user::read(at)?,
    };
    let left = at.to_ns().ok_or(Errno::EINVAL)?.saturating_sub(arch::wall_ns());
    Ok(Some(arch::now_ns().saturating_add(left)))
}

/// Returns the file of argument 0, if it is a queue.
fn queue_file(call: &Call<'_>) -> Result<InUse, Errno> {
    let file = call.file_in_use(0)?;
    mqueue::of(&file)?;
    Ok(file)
}

pub fn mq_timedsend(call: &mut Call<'_>) -> Outcome {
    let (from, bytes, priority) = (call.arg(1), call.arg(2), call.arg(3) as u32);
    let deadline = deadline(call, 4)?;
    if priority >= MQ_PRIO_MAX {
        return Err(Errno::EINVAL);
    }
    let file = queue_file(call)?;
    let queue = mqueue::of(&file)?;
    if !file.is_writable() {
        return Err(Errno::EBADF);
    }
    if bytes > queue.most_bytes() as u64 {
        return Err(Errno::EMSGSIZE);
    }
    retry(|| {
        let mut text = fallible::zeroes(bytes as usize)?;
        for (piece, at) in text.chunks_mut(PIECE).zip((from..).step_by(PIECE)) {
            user::copy_in(piece, at)?;
            sched::pause();
        }
        queue.send(Message { priority, text }, file.may_wait(), deadline)
    })?;
    Ok(0)
}

pub fn mq_timedreceive(call: &mut Call<'_>) -> Outcome {
    let (to, room, priority_at) = (call.arg(1), call.arg(2), call.arg(3));
    let deadline = deadline(call, 4)?;
    let file = queue_file(call)?;
    let queue = mqueue::of(&file)?;
    if !file.is_readable() {
        return Err(Errno::EBADF);
    }
    if room < queue.most_bytes() as u64 {
        return Err(Errno::EMSGSIZE);
    }
    let message = retry(|| queue.receive(file.may_wait(), deadline))?;
    if priority_at != 0 {
        user::write(priority_at, &message.priority)?;
    }
    for (piece, at) in message.text.chunks(PIECE).zip((to..).step_by(PIECE)) {
        user::copy_out(at, piece)?;
        sched::pause();
    }
    Ok(message.text.len() as u64)
}

/// Asks for a signal, or ends that wish.
pub fn mq_notify(call: &mut Call<'_>) -> Outcome {
    let process = call.task.process();
    let notice = match call.arg(1) {
        0 => None,
        at => {
            let event: Sigevent = user::read(at)?;
            let is_signal = event.notify == SIGEV_SIGNAL;
            if !is_signal && event.notify != SIGEV_NONE || is_signal && event.signo as u32 > NSIG {
                return Err(Errno::EINVAL);
            }
            Some(Notice::new(process, event.notify, event.signo as u32, event.value))
        }
    };
    let file = queue_file(call)?;
    let queue = mqueue::of(&file)?;
    match notice {
        Some(notice) => queue.ask(notice)?,
        None => queue.ask_no_more(process),
    }
    Ok(0)
}

/// Returns the attributes of a queue, and sets O_NONBLOCK of the open file.
pub fn mq_getsetattr(call: &mut Call<'_>) -> Outcome {
    let new: Option<MqAttr> = match call.arg(1) {
        0 => None,
        at => Some(user::read(at)?),
    };
    const SETTABLE: i64 = O_NONBLOCK as i64;
    if new.as_ref().is_some_and(|new| new.flags & !SETTABLE != 0) {
        return Err(Errno::EINVAL);
    }
    let file = queue_file(call)?;
    let flags = file.flags();
    let old = MqAttr { flags: (flags & O_NONBLOCK).into(), ..mqueue::of(&file)?.attributes() };
    if let Some(new) = new {
        file.set_flags(flags & !O_NONBLOCK | new.flags as u32);
    }
    if call.arg(2) != 0 {
        user::write(call.arg(2), &old)?;
    }
    Ok(0)
}
