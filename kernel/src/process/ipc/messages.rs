//! Queues of messages.
//!
//! A message goes to the oldest receiver that waits for one of its type, or else into the queue. Senders wait
//! until there is room.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use abi::Errno;
use abi::ipc::*;
use abi::users::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use sync::SpinLock;

use super::table::{BLOCK, Table};
use super::{Id, Object, Owner, READ, WRITE, Wanted, caller, now};
use crate::mm::fallible::{self, Text};
use crate::sched::{self, WaitQueue};

static QUEUES: Table<Queue, { MSGMNI as usize / BLOCK }> = Table::new();

/// A message.
pub struct Message {
    /// Its type, above 0.
    pub kind: i64,
    /// Its bytes.
    pub text: Vec<u8>,
}

/// The messages that a receiver takes.
#[derive(Clone, Copy)]
pub enum Choice {
    /// The first.
    Any,
    /// The first of this type.
    Is(i64),
    /// The first of another type.
    IsNot(i64),
    /// The first of the lowest type up to this one.
    UpTo(i64),
}

/// The way in which a receiver takes a message.
#[derive(Clone, Copy)]
pub struct Receipt {
    pub choice: Choice,
    /// The room that it has in bytes.
    pub room: usize,
    /// Set if the rest of a longer message is lost.
    pub cuts: bool,
    /// Set if it waits for a message.
    pub waits: bool,
}

/// A queue.
pub struct Queue {
    id: Id,
    state: SpinLock<State>,
    senders: WaitQueue,
}

struct State {
    owner: Owner,
    /// Set once it is removed. Then there are no messages and no receivers.
    is_gone: bool,
    messages: VecDeque<Message>,
    receivers: VecDeque<Arc<Receiver>>,
    bytes: u64,
    most_bytes: u64,
    last_sender: u32,
    last_receiver: u32,
    send_time: i64,
    receive_time: i64,
    change_time: i64,
}

/// A receiver that waits.
struct Receiver {
    receipt: Receipt,
    process: u32,
    outcome: SpinLock<Option<Result<Message, Errno>>>,
    queue: WaitQueue,
}

impl Object for Queue {
    fn id(&self) -> &Id {
        &self.id
    }
}

impl Choice {
    /// Returns the choice that a program means by a type and its flags.
    pub fn new(kind: i64, flags: u32) -> Self {
        match kind {
            0 => Self::Any,
            ..0 => Self::UpTo(kind.checked_neg().unwrap_or(i64::MAX)),
            _ if flags & MSG_EXCEPT != 0 => Self::IsNot(kind),
            _ => Self::Is(kind),
        }
    }

    fn accepts(self, message: &Message) -> bool {
        match self {
            Self::Any => true,
            Self::Is(kind) => message.kind == kind,
            Self::IsNot(kind) => message.kind != kind,
            Self::UpTo(most) => message.kind <= most,
        }
    }

    /// Returns the index of the message to take.
    fn find(self, messages: &VecDeque<Message>) -> Option<usize> {
        let mut fit = messages.iter().enumerate().filter(|(_, message)| self.accepts(message));
        match self {
            Self::UpTo(_) => fit.min_by_key(|(_, message)| message.kind),
            _ => fit.next(),
        }
        .map(|(index, _)| index)
    }
}

impl Receipt {
    /// Checks that a message fits.
    ///
    /// # Errors
    /// E2BIG otherwise.
    fn check(&self, message: &Message) -> Result<(), Errno> {
        if message.text.len() > self.room && !self.cuts { Err(Errno::E2BIG) } else { Ok(()) }
    }
}

impl Receiver {
    fn finish(&self, outcome: Result<Message, Errno>) {
        *self.outcome.lock() = Some(outcome);
        self.queue.wake_all();
    }
}

impl State {
    fn alive(&self) -> Result<(), Errno> {
        if self.is_gone { Err(Errno::EIDRM) } else { Ok(()) }
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.bytes + bytes <= self.most_bytes && (self.messages.len() as u64) < self.most_bytes
    }

    /// Gives `message` to a receiver that waits for it, or returns it.
    fn hand_over(&mut self, message: Message) -> Option<Message> {
        while let Some(at) = self.receivers.iter().position(|it| it.receipt.choice.accepts(&message)) {
            let Some(receiver) = self.receivers.remove(at) else { break };
            if let Err(error) = receiver.receipt.check(&message) {
                receiver.finish(Err(error));
                continue;
            }
            (self.last_receiver, self.receive_time) = (receiver.process, now());
            receiver.finish(Ok(message));
            return None;
        }
        Some(message)
    }

    /// Puts a message into the queue.
    fn put(&mut self, message: Message) -> Result<(), Errno> {
        self.messages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        (self.last_sender, self.send_time) = (caller(), now());
        if let Some(message) = self.hand_over(message) {
            self.bytes += message.text.len() as u64;
            self.messages.push_back(message);
        }
        Ok(())
    }

    /// Takes the message that is wanted, if it is there.
    fn take(&mut self, receipt: &Receipt) -> Option<Result<Message, Errno>> {
        let at = receipt.choice.find(&self.messages)?;
        if let Err(error) = self.messages.get(at).map_or(Ok(()), |message| receipt.check(message)) {
            return Some(Err(error));
        }
        let message = self.messages.remove(at)?;
        self.bytes -= message.text.len() as u64;
        (self.last_receiver, self.receive_time) = (caller(), now());
        Some(Ok(message))
    }
}

impl Queue {
    fn new(wanted: Wanted) -> Self {
        let state = State {
            owner: Owner::new(wanted),
            is_gone: false,
            messages: VecDeque::new(),
            receivers: VecDeque::new(),
            bytes: 0,
            most_bytes: MSGMNB as u64,
            last_sender: 0,
            last_receiver: 0,
            send_time: 0,
            receive_time: 0,
            change_time: now(),
        };
        Self { id: Id::default(), state: SpinLock::new(state), senders: WaitQueue::new() }
    }

    /// Returns its identifier.
    pub fn number(&self) -> u32 {
        self.id.get()
    }

    /// Sends a message. If there is no room, `waits` tells whether to wait for some.
    ///
    /// # Errors
    /// EAGAIN, EINTR, EIDRM as in Linux, ENOMEM.
    pub fn send(&self, message: Message, waits: bool) -> Result<(), Errno> {
        let bytes = message.text.len() as u64;
        let mut message = Some(message);
        let mut attempt = || {
            let mut state = self.state.lock();
            if let Err(error) = state.owner.permit(WRITE).and_then(|()| state.alive()) {
                return Some(Err(error));
            }
            if !state.has_room(bytes) {
                return None;
            }
            message.take().map(|message| state.put(message))
        };
        match attempt() {
            Some(outcome) => outcome,
            None if !waits => Err(Errno::EAGAIN),
            None => self.senders.wait_until_handler(attempt)?.unwrap_or(Err(Errno::EINTR)),
        }
    }

    /// Receives a message.
    ///
    /// # Errors
    /// ENOMSG, E2BIG, EINTR, EIDRM as in Linux, ENOMEM.
    pub fn receive(&self, receipt: Receipt) -> Result<Message, Errno> {
        let receiver = {
            let mut state = self.state.lock();
            state.owner.permit(READ)?;
            state.alive()?;
            if let Some(taken) = state.take(&receipt) {
                drop(state);
                self.senders.wake_all();
                return taken;
            }
            if !receipt.waits {
                return Err(Errno::ENOMSG);
            }
            state.receivers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            let (outcome, queue) = (SpinLock::new(None), WaitQueue::new());
            let receiver = fallible::arc(Receiver { receipt, process: caller(), outcome, queue })?;
            state.receivers.push_back(receiver.clone());
            receiver
        };
        let waited = receiver.queue.wait_until_handler(|| receiver.outcome.lock().take());
        if let Ok(Some(outcome)) = waited {
            return outcome;
        }
        let mut state = self.state.lock();
        // A message may have come meanwhile.
        if let Some(outcome) = receiver.outcome.lock().take() {
            return outcome;
        }
        state.receivers.retain(|other| !Arc::ptr_eq(other, &receiver));
        Err(waited.err().unwrap_or(Errno::EINTR))
    }

    /// Returns a copy of the message at an index, which stays.
    ///
    /// # Errors
    /// ENOMSG if there is none, E2BIG, EINVAL if it has no room, EIDRM, ENOMEM.
    pub fn copy(&self, index: i64, receipt: &Receipt) -> Result<Message, Errno> {
        let state = self.state.lock();
        state.owner.permit(READ)?;
        state.alive()?;
        let message = usize::try_from(index).ok().and_then(|index| state.messages.get(index));
        let message = message.ok_or(Errno::ENOMSG)?;
        receipt.check(message)?;
        if message.text.len() > receipt.room {
            return Err(Errno::EINVAL);
        }
        Ok(Message { kind: message.kind, text: fallible::copied(&message.text)? })
    }

    /// Describes it to a thread with the rights `wanted`.
    ///
    /// # Errors
    /// EACCES, EIDRM if it is removed.
    pub fn describe(&self, wanted: u32) -> Result<MsqidDs, Errno> {
        let state = self.state.lock();
        state.owner.permit(wanted)?;
        state.alive()?;
        Ok(MsqidDs {
            perm: state.owner.describe(&self.id),
            stime: state.send_time,
            rtime: state.receive_time,
            ctime: state.change_time,
            cbytes: state.bytes,
            qnum: state.messages.len() as u64,
            qbytes: state.most_bytes,
            lspid: state.last_sender,
            lrpid: state.last_receiver,
            ..MsqidDs::default()
        })
    }

    /// Sets its owner, its rights and the most bytes of its messages.
    ///
    /// # Errors
    /// EIDRM if it is removed.
    pub fn set(&self, new: &MsqidDs) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.alive()?;
        if new.qbytes > MSGMNB as u64 {
            sched::with_credentials(|of| of.must(CAP_SYS_RESOURCE))?;
        }
        state.owner.set(&new.perm)?;
        state.most_bytes = new.qbytes;
        state.change_time = now();
        drop(state);
        self.senders.wake_all();
        Ok(())
    }

    /// Removes it with its messages. Senders and receivers that wait fail.
    ///
    /// # Errors
    /// EPERM, EIDRM if it is removed already.
    pub fn remove(&self) -> Result<(), Errno> {
        self.end(|owner| owner.must_be_mine(CAP_SYS_ADMIN))
    }

    fn end(&self, permit: impl FnOnce(&Owner) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        permit(&state.owner)?;
        state.alive()?;
        state.is_gone = true;
        let receivers = core::mem::take(&mut state.receivers);
        let messages = core::mem::take(&mut state.messages);
        let key = state.owner.key;
        receivers.iter().for_each(|receiver| receiver.finish(Err(Errno::EIDRM)));
        drop(state);
        drop(messages);
        self.senders.wake_all();
        QUEUES.forget_key(self, key);
        QUEUES.remove(self);
        Ok(())
    }
}

/// Returns the identifier of the queue that is wanted.
///
/// # Errors
/// Those of `Table::get_or_make`.
pub fn get(wanted: Wanted) -> Result<u32, Errno> {
    let permit = |found: &Queue| found.state.lock().owner.permit(wanted.flags);
    QUEUES.get_or_make(wanted, permit, || Ok(Queue::new(wanted)))
}

/// Returns the queue with an identifier.
///
/// # Errors
/// EINVAL if there is none.
pub fn find(id: i32) -> Result<Arc<Queue>, Errno> {
    QUEUES.get(id)
}

/// Returns the queue at an index.
///
/// # Errors
/// EINVAL if there is none.
pub fn at(index: i32) -> Result<Arc<Queue>, Errno> {
    QUEUES.at_index_of(index)
}

/// Returns the highest index of a queue.
pub fn highest() -> u64 {
    QUEUES.highest()
}

/// Returns the limits, or what is used if `used` says so.
pub fn info(used: bool) -> MsgInfo {
    let mut info = MsgInfo {
        msgpool: MSGMNI * MSGMNB / 1024,
        msgmap: MSGMNB,
        msgmax: MSGMAX,
        msgmnb: MSGMNB,
        msgmni: MSGMNI,
        msgssz: MSGSSZ,
        msgtql: MSGMNB,
        msgseg: MSGSEG,
        ..MsgInfo::default()
    };
    if used {
        (info.msgpool, info.msgmap, info.msgtql) = (QUEUES.count() as i32, 0, 0);
        QUEUES.for_each(|queue| {
            let state = queue.state.lock();
            info.msgmap = info.msgmap.saturating_add(state.messages.len() as i32);
            info.msgtql = info.msgtql.saturating_add(state.bytes as i32);
        });
    }
    info
}

/// Writes a line for each queue.
pub fn list(text: &mut Text) -> fmt::Result {
    let heads = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid";
    writeln!(text, "{heads}      stime      rtime      ctime")?;
    let mut outcome = Ok(());
    QUEUES.for_each(|queue| {
        outcome = outcome.and_then(|()| queue.describe(0).map_or(Ok(()), |found| line(queue, &found, text)));
    });
    outcome
}

fn line(queue: &Queue, found: &MsqidDs, text: &mut Text) -> fmt::Result {
    let (perm, id) = (&found.perm, queue.number());
    write!(text, "{:10} {id:10}  {:4o}  {:10} {:10} ", perm.key, perm.mode, found.cbytes, found.qnum)?;
    write!(text, "{:5} {:5} ", found.lspid, found.lrpid)?;
    write!(text, "{:5} {:5} {:5} {:5} ", perm.uid, perm.gid, perm.cuid, perm.cgid)?;
    writeln!(text, "{:10} {:10} {:10}", found.stime, found.rtime, found.ctime)
}

/// Removes all queues.
pub(super) fn remove_all() {
    QUEUES.for_each(|queue| {
        let _removed_before = queue.end(|_| Ok(()));
    });
}
