//! SysV messages.

use abi::Errno;
use abi::ipc::*;

use super::{Call, Outcome};
use crate::bytes::prefix;
use crate::mm::{fallible, user};
use crate::process::ipc::messages::{self, Choice, Message, Receipt};
use crate::process::ipc::{READ, Wanted};
use crate::process::retry;

/// Bytes of the type in front of a message.
const HEAD: u64 = 8;

/// Returns the identifier of a queue, which is made if that is wanted.
pub fn msgget(call: &mut Call<'_>) -> Outcome {
    let wanted = Wanted { key: call.int(0), flags: call.arg(1) as u32 };
    retry(|| messages::get(wanted)).map(u64::from)
}

/// Sends a message.
pub fn msgsnd(call: &mut Call<'_>) -> Outcome {
    let (id, from, bytes, flags) = (call.int(0), call.arg(1), call.arg(2), call.arg(3) as u32);
    let kind: i64 = user::read(from)?;
    if bytes > MSGMAX as u64 || id < 0 || kind < 1 {
        return Err(Errno::EINVAL);
    }
    let read = || {
        let mut text = fallible::zeroes(bytes as usize)?;
        user::copy_in(&mut text, from.wrapping_add(HEAD))?;
        Ok(Message { kind, text })
    };
    let waits = flags & IPC_NOWAIT == 0;
    retry(|| {
        let message = read()?;
        messages::find(id)?.send(message, waits)
    })
    .map(|()| 0)
}

/// Receives a message.
pub fn msgrcv(call: &mut Call<'_>) -> Outcome {
    let (id, to, bytes) = (call.int(0), call.arg(1), call.arg(2));
    let (kind, flags) = (call.arg(3) as i64, call.arg(4) as u32);
    if id < 0 || (bytes as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    let receipt = Receipt {
        choice: Choice::new(kind, flags),
        room: bytes as usize,
        cuts: flags & MSG_NOERROR != 0,
        waits: flags & IPC_NOWAIT == 0,
    };
    let message = match flags & MSG_COPY {
        0 => retry(|| messages::find(id)?.receive(receipt))?,
        _ if flags & MSG_EXCEPT != 0 || receipt.waits => return Err(Errno::EINVAL),
        _ => {
            // As Linux does, whose buffer for the copy begins as the program's.
            user::copy_in(&mut retry(|| fallible::zeroes(bytes.min(MSGMAX as u64) as usize))?, to)?;
            retry(|| messages::find(id)?.copy(kind, &receipt))?
        }
    };
    user::write(to, &message.kind)?;
    let text = prefix(&message.text, bytes);
    user::copy_out(to.wrapping_add(HEAD), text)?;
    Ok(text.len() as u64)
}

/// Describes, changes and removes queues.
pub fn msgctl(call: &mut Call<'_>) -> Outcome {
    let (id, command, at) = (call.int(0), call.arg(1) as u32, call.arg(2));
    if id < 0 || call.int(1) < 0 {
        return Err(Errno::EINVAL);
    }
    match command {
        IPC_INFO | MSG_INFO => {
            user::write(at, &messages::info(command == MSG_INFO))?;
            Ok(messages::highest())
        }
        IPC_STAT => {
            user::write(at, &messages::find(id)?.describe(READ)?)?;
            Ok(0)
        }
        MSG_STAT | MSG_STAT_ANY => {
            let queue = messages::at(id)?;
            user::write(at, &queue.describe(if command == MSG_STAT { READ } else { 0 })?)?;
            Ok(queue.number().into())
        }
        IPC_SET => {
            let new: MsqidDs = user::read(at)?;
            messages::find(id)?.set(&new).map(|()| 0)
        }
        IPC_RMID => messages::find(id)?.remove().map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}
