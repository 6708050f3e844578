//! `signalfd`: a file whose reads take pending signals: those of the thread that reads, and of its process.

use core::any::Any;

use abi::Errno;
use abi::file::{O_RDWR, POLLIN};
use abi::signal::SignalfdSiginfo;
use abi::zerocopy::IntoBytes;
use sync::atomic::{AtomicU64, Ordering};

use super::{Layout, Origin, ProcessSignals, UNSTOPPABLE};
use crate::fs::OpenFile;
use crate::fs::content::{Content, WriteAt};
use crate::fs::holders::Holders;
use crate::fs::node::{Node, Volume};
use crate::fs::readiness;
use crate::mm::static_or_arc::StaticOrArc;
use crate::sched::{self, Task, WaitQueue};

const BYTES: usize = size_of::<SignalfdSiginfo>();

/// A file of signals.
pub struct SignalFd {
    /// The signals that it takes. Relaxed: readers and pollers are woken after a change, and their queues
    /// publish it.
    wanted: AtomicU64,
    readers: WaitQueue,
    holders: Holders,
}

/// Opens a file of the signals in `wanted`. `flags` are `O_*`.
///
/// # Errors
/// ENOMEM.
pub fn open(wanted: u64, flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    let wanted = AtomicU64::new(wanted & !UNSTOPPABLE);
    let content = SignalFd { wanted, readers: WaitQueue::new(), holders: Holders::new() };
    OpenFile::new(Node::file(Volume::System, 0o600, content)?, O_RDWR | flags)
}

/// Wakes the pollers: a signal has become pending for a process or one of its threads.
pub fn signal_added(signals: &ProcessSignals) {
    // SeqCst: the signal was added before. A poller notes itself, and then looks for signals.
    if signals.are_polled.load(Ordering::SeqCst) {
        signals.added.fetch_add(1, Ordering::Relaxed);
        readiness::changed();
    }
}

/// Returns the file of signals that `file` is.
///
/// # Errors
/// EINVAL if it is none.
pub fn of(file: &OpenFile) -> Result<&SignalFd, Errno> {
    let object = file.node().content().and_then(Content::stands_for);
    object.and_then(<dyn Any>::downcast_ref).ok_or(Errno::EINVAL)
}

impl SignalFd {
    /// Sets the signals that it takes. Calls that wait take those from now on.
    pub fn set(&self, wanted: u64) {
        self.wanted.store(wanted & !UNSTOPPABLE, Ordering::Relaxed);
        self.readers.wake_all();
        sched::with_current(|task| task.process().signals.added.fetch_add(1, Ordering::Relaxed));
        readiness::changed();
    }

    fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    fn take(&self, task: &Task) -> Option<SignalfdSiginfo> {
        let taken = task.thread.signals.take(&task.process().signals, self.wanted());
        taken.map(|(signal, origin)| described(signal, origin))
    }

    /// Takes a signal, and sleeps until there is one.
    fn wait(&self, task: &Task) -> Result<SignalfdSiginfo, Errno> {
        let signals = &task.thread.signals;
        // Asked each time, since `set` wakes readers too.
        let taken = self.readers.wait_until_or(None, || {
            signals.want(task, self.wanted());
            self.take(task)
        });
        signals.want_nothing(task);
        taken?.ok_or(Errno::EINTR)
    }
}

/// Describes a signal.
fn described(signal: u32, origin: Origin) -> SignalfdSiginfo {
    let Origin { code, errno, .. } = origin;
    let mut info = SignalfdSiginfo { signo: signal, errno, code, ..SignalfdSiginfo::default() };
    let [first, second, third, fourth] = origin.fields;
    let (low, high) = (first as u32, (first >> 32) as u32);
    let layout = Layout::of(signal, code);
    match layout {
        Layout::Timer => (info.tid, info.overrun) = (low, high),
        Layout::File => (info.band, info.fd) = (low, second as i32),
        Layout::Fault => info.addr = first,
        Layout::Sender | Layout::Value => (info.pid, info.uid) = (low, high),
        Layout::Child => {
            (info.pid, info.uid, info.status) = (low, high, second as i32);
            (info.utime, info.stime) = (third, fourth);
        }
        // Only a program that filters calls gets one.
        Layout::Call => {}
    }
    if matches!(layout, Layout::Timer | Layout::Value) {
        (info.ptr, info.int) = (second, second as i32);
    }
    info
}

impl Content for SignalFd {
    fn kind(&self) -> u32 {
        0
    }

    fn label(&self) -> Option<&'static str> {
        Some("[signalfd]")
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let mut done = 0;
        for place in into.chunks_exact_mut(BYTES) {
            let taken = sched::with_current(|task| match self.take(task) {
                Some(taken) => Ok(taken),
                None if wait && done == 0 => self.wait(task),
                None => Err(Errno::EAGAIN),
            });
            match taken {
                Ok(info) => place.copy_from_slice(info.as_bytes()),
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            done += BYTES;
        }
        if done == 0 { Err(Errno::EINVAL) } else { Ok(done) }
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    fn ready(&self) -> i16 {
        let pending = sched::with_current(|task| {
            let signals = &task.process().signals;
            if !signals.are_polled.load(Ordering::Relaxed) {
                // SeqCst: see `signal_added`.
                signals.are_polled.store(true, Ordering::SeqCst);
            }
            task.thread.signals.pending(signals)
        });
        if pending & self.wanted() != 0 { POLLIN } else { 0 }
    }

    fn changes(&self) -> Option<u64> {
        Some(sched::with_current(|task| task.process().signals.added.load(Ordering::Relaxed)))
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
