//! One POSIX message queue.
//!
//! A message goes to the receiver that has waited longest, or else into the queue. A receiver takes the
//! oldest message of the highest priority, and then puts in that of the sender that has waited longest. So a
//! task that waits is woken once, when its call is done.
//!
//! A waiter's place is locked after the queue. The place says whether the other side is done with it: the
//! task that gives up its wait looks there under the queue's lock.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::cmp::{Ordering, Reverse};
use core::fmt::Write;
use core::mem;

use abi::Errno;
use abi::file::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};
use abi::ipc::MqAttr;
use abi::signal::{SI_MESGQ, SIGEV_SIGNAL};
use sync::SpinLock;
use sync::atomic::AtomicBool;
use sync::atomic::Ordering::Relaxed;

use super::Charge;
use crate::arch;
use crate::bytes::{copy_prefix, tail};
use crate::fs::content::{Content, WriteAt};
use crate::fs::holders::Holders;
use crate::fs::readiness;
use crate::mm::fallible::{self, Text};
use crate::process::signal::{self, Origin};
use crate::process::{Memory, Process};
use crate::sched::{WaitQueue, with_current};

/// The size that `stat` reports, as on Linux.
const SIZE: u64 = 80;

/// A message.
pub struct Message {
    /// Its priority.
    pub priority: u32,
    /// Its bytes.
    pub text: Vec<u8>,
}

/// A message in the queue, with the number of its arrival.
struct Arrived {
    message: Message,
    number: u64,
}

impl Arrived {
    fn rank(&self) -> (u32, Reverse<u64>) {
        (self.message.priority, Reverse(self.number))
    }
}

impl Ord for Arrived {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Arrived {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Arrived {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Arrived {}

/// A task that waits to send or to receive.
struct Waiter {
    place: SpinLock<Place>,
    queue: WaitQueue,
}

struct Place {
    /// The message that is to be sent, or was received.
    message: Option<Message>,
    /// Set once the other side has done its part.
    is_done: bool,
}

impl Waiter {
    fn new(message: Option<Message>) -> Result<Arc<Self>, Errno> {
        let place = SpinLock::new(Place { message, is_done: false });
        fallible::arc(Self { place, queue: WaitQueue::new() })
    }

    /// Replaces the message, and wakes the task.
    fn finish(&self, message: Option<Message>) -> Option<Message> {
        let before = {
            let mut place = self.place.lock();
            place.is_done = true;
            mem::replace(&mut place.message, message)
        };
        self.queue.wake_all();
        before
    }
}

type Waiters = VecDeque<Arc<Waiter>>;

/// The wish of a process to be told that a message has come into the empty queue.
pub struct Notice {
    process: Weak<Process>,
    /// The program that asked. It is gone after an exec.
    memory: Weak<Memory>,
    /// `SIGEV_SIGNAL` or `SIGEV_NONE`.
    kind: i32,
    signal: u32,
    value: u64,
}

impl Notice {
    /// Creates the notice of `process`. `signal` is 0 for none.
    pub fn new(process: &Arc<Process>, kind: i32, signal: u32, value: u64) -> Self {
        let memory = process.memory().map_or_else(Weak::new, |memory| Arc::downgrade(&memory));
        Self { process: Arc::downgrade(process), memory, kind, signal, value }
    }

    /// Returns the process, if it has neither ended nor begun another program.
    fn owner(&self) -> Option<Arc<Process>> {
        let process = self.process.upgrade()?;
        let memory = process.memory()?;
        (!process.has_ended() && core::ptr::eq(self.memory.as_ptr(), Arc::as_ptr(&memory))).then_some(process)
    }

    fn send(&self) {
        if let Some(process) = self.owner().filter(|_| self.kind == SIGEV_SIGNAL && self.signal != 0) {
            let sender = arch::with_current(|task| task.process().pid()).unwrap_or(0);
            let origin = Origin::of_two(SI_MESGQ, sender.into(), self.value);
            signal::send_to_process(&process, self.signal, origin);
        }
    }
}

/// A queue.
pub struct Queue {
    most_messages: usize,
    most_bytes: usize,
    state: SpinLock<State>,
}

struct State {
    /// The [`Handle`]s that keep it. Without any it has ended.
    handles: usize,
    messages: BinaryHeap<Arrived>,
    bytes: usize,
    senders: Waiters,
    receivers: Waiters,
    notice: Option<Notice>,
    /// The number of messages that came.
    arrivals: u64,
    /// The number of changes that `poll` sees.
    changes: u64,
    /// Gone once the queue has ended.
    charge: Option<Charge>,
}

impl State {
    /// Puts a message into the queue, for which there is memory.
    fn put(&mut self, message: Message) {
        self.bytes += message.text.len();
        self.arrivals += 1;
        self.messages.push(Arrived { message, number: self.arrivals });
    }

    /// Adds a waiter to those that `list` returns.
    fn wait(
        &mut self,
        list: fn(&mut State) -> &mut Waiters,
        message: Option<Message>,
    ) -> Result<Arc<Waiter>, Errno> {
        list(self).try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let waiter = Waiter::new(message)?;
        list(self).push_back(waiter.clone());
        Ok(waiter)
    }

    /// Returns the notice whose process is still there.
    fn noticed(&mut self) -> Option<(&Notice, Arc<Process>)> {
        let owner = self.notice.as_ref().and_then(Notice::owner);
        if owner.is_none() {
            self.notice = None;
        }
        self.notice.as_ref().zip(owner)
    }
}

fn senders(state: &mut State) -> &mut Waiters {
    &mut state.senders
}

fn receivers(state: &mut State) -> &mut Waiters {
    &mut state.receivers
}

impl Queue {
    /// Creates a queue with checked attributes, for its first [`Handle`].
    pub(super) fn new(attributes: &MqAttr, charge: Charge) -> Self {
        let state = State {
            handles: 1,
            messages: BinaryHeap::new(),
            bytes: 0,
            senders: Waiters::new(),
            receivers: Waiters::new(),
            notice: None,
            arrivals: 0,
            changes: 0,
            charge: Some(charge),
        };
        Self {
            most_messages: attributes.max_messages as usize,
            most_bytes: attributes.message_bytes as usize,
            state: SpinLock::new(state),
        }
    }

    /// Returns the most bytes of a message.
    pub fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Returns its attributes, without flags.
    pub fn attributes(&self) -> MqAttr {
        MqAttr {
            max_messages: self.most_messages as i64,
            message_bytes: self.most_bytes as i64,
            messages: self.state.lock().messages.len() as i64,
            ..MqAttr::default()
        }
    }

    /// Sends a message. If there is no room and `waits`, waits for some until `deadline` (nanoseconds since
    /// boot).
    ///
    /// # Errors
    /// EAGAIN, EINTR, ETIMEDOUT as in Linux, ENOMEM.
    pub fn send(&self, message: Message, waits: bool, deadline: Option<u64>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.messages.len() >= self.most_messages {
            if !waits {
                return Err(Errno::EAGAIN);
            }
            let waiter = state.wait(senders, Some(message))?;
            drop(state);
            return self.sleep(&waiter, deadline, senders);
        }
        if let Some(receiver) = state.receivers.pop_front() {
            receiver.finish(Some(message));
            return Ok(());
        }
        state.messages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        state.put(message);
        state.changes += 1;
        let notice = if state.messages.len() == 1 { state.notice.take() } else { None };
        drop(state);
        notice.iter().for_each(Notice::send);
        readiness::changed();
        Ok(())
    }

    /// Receives a message. If there is none and `waits`, waits for one until `deadline`.
    ///
    /// # Errors
    /// EAGAIN, EINTR, ETIMEDOUT as in Linux, ENOMEM.
    pub fn receive(&self, waits: bool, deadline: Option<u64>) -> Result<Message, Errno> {
        let mut state = self.state.lock();
        let Some(first) = state.messages.pop() else {
            if !waits {
                return Err(Errno::EAGAIN);
            }
            let waiter = state.wait(receivers, None)?;
            drop(state);
            self.sleep(&waiter, deadline, receivers)?;
            let message = waiter.place.lock().message.take();
            return message.ok_or(Errno::EAGAIN);
        };
        state.bytes -= first.message.text.len();
        match state.senders.pop_front() {
            // There is memory for it where the first one was.
            Some(sender) => sender.finish(None).into_iter().for_each(|message| state.put(message)),
            None => state.changes += 1,
        }
        drop(state);
        readiness::changed();
        Ok(first.message)
    }

    /// Sleeps until the other side is done with `waiter`, or removes that from the list where it waits.
    fn sleep(
        &self,
        waiter: &Arc<Waiter>,
        deadline: Option<u64>,
        list: fn(&mut State) -> &mut Waiters,
    ) -> Result<(), Errno> {
        let done = || waiter.place.lock().is_done.then_some(());
        let waited = waiter.queue.wait_once(deadline, done);
        if let Ok(Some(())) = waited {
            return Ok(());
        }
        let mut state = self.state.lock();
        // The other side may have come meanwhile.
        if done().is_some() {
            return Ok(());
        }
        list(&mut state).retain(|other| !Arc::ptr_eq(other, waiter));
        drop(state);
        if waited == Err(Errno::EINTR) {
            // The deadline is a point in time, so the same call can be made again.
            with_current(|task| task.thread.signals.allow_restart());
        }
        Err(waited.err().unwrap_or(Errno::ETIMEDOUT))
    }

    /// Asks for a notice of the next message that comes into the empty queue.
    ///
    /// # Errors
    /// EBUSY if a process has asked for one.
    pub fn ask(&self, notice: Notice) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.noticed().is_some() {
            return Err(Errno::EBUSY);
        }
        state.notice = Some(notice);
        Ok(())
    }

    /// Ends the wish of `process` for a notice.
    pub fn ask_no_more(&self, process: &Arc<Process>) {
        let mut state = self.state.lock();
        if state.noticed().is_some_and(|(_, owner)| Arc::ptr_eq(&owner, process)) {
            state.notice = None;
        }
    }

    /// Counts a handle less, and ends the queue with the last one.
    fn leave(&self) {
        let (messages, charge) = {
            let mut state = self.state.lock();
            state.handles -= 1;
            if state.handles > 0 {
                return;
            }
            (mem::take(&mut state.messages), state.charge.take())
        };
        drop(messages);
        drop(charge);
    }

    /// Returns the text that `read` returns.
    fn text(&self) -> Result<Vec<u8>, Errno> {
        let (bytes, (kind, signal, pid)) = {
            let mut state = self.state.lock();
            let noticed =
                state.noticed().map(|(notice, process)| (notice.kind, notice.signal, process.pid()));
            (state.bytes, noticed.unwrap_or_default())
        };
        let signal = if kind == SIGEV_SIGNAL { signal } else { 0 };
        let mut text = Text::default();
        let written =
            writeln!(text, "QSIZE:{bytes:<10} NOTIFY:{kind:<5} SIGNO:{signal:<5} NOTIFY_PID:{pid:<6}");
        written.map(|()| text.0).map_err(|_| Errno::ENOMEM)
    }
}

/// A count of a queue: that of its name, or of an open file.
pub(super) struct Handle {
    queue: Arc<Queue>,
    holders: Holders,
    /// Set once it does not keep the queue any more. Relaxed: one task closes it, and the last one drops it.
    has_left: AtomicBool,
}

impl Handle {
    /// Creates one, which the queue has counted.
    fn new(queue: Arc<Queue>) -> Self {
        Self { queue, holders: Holders::new(), has_left: AtomicBool::new(false) }
    }

    /// Returns the queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Creates the first one of a new queue.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn first(queue: Queue) -> Result<Self, Errno> {
        fallible::arc(queue).map(Self::new)
    }

    /// Creates another one. The queue is kept meanwhile.
    pub fn another(&self) -> Self {
        self.queue.state.lock().handles += 1;
        Self::new(self.queue.clone())
    }

    fn leave(&self) {
        if !self.has_left.swap(true, Relaxed) {
            self.queue.leave();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Content for Handle {
    fn len(&self) -> u64 {
        SIZE
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Ok(copy_prefix(into, tail(&self.queue.text()?, at)))
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    fn ready(&self) -> i16 {
        let messages = self.queue.state.lock().messages.len();
        let readable = if messages > 0 { POLLIN | POLLRDNORM } else { 0 };
        readable | if messages < self.queue.most_messages { POLLOUT | POLLWRNORM } else { 0 }
    }

    fn changes(&self) -> Option<u64> {
        Some(self.queue.state.lock().changes)
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn descriptor_closed(&self) {
        // Without a task, the machine ends.
        let _no_task = arch::with_current(|task| self.queue.ask_no_more(task.process()));
    }

    fn closed(&self) {
        self.leave();
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
