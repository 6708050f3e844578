//! `inotify`: a file from which events of other files are read.
//!
//! Events are kept as the bytes that a read returns. One that equals the last one is dropped, as on Linux.
//! If there is no room, or no memory, an event that says so takes the place of all that are lost.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use abi::file::{NAME_MAX, O_RDONLY, POLLIN, POLLRDNORM};
use abi::inotify::{IN_IGNORED, IN_Q_OVERFLOW, InotifyEvent};
use abi::zerocopy::IntoBytes;
use sync::SpinLock;

use super::content::{Content, WriteAt};
use super::holders::Holders;
use super::node::{Node, Volume};
use super::open_file::OpenFile;
use super::{readiness, watches};
use crate::mm::fallible;
use crate::mm::static_or_arc::StaticOrArc;
use crate::sched::WaitQueue;

/// The bytes of an event without its name, of which the bytes of a name are a multiple.
const UNIT: usize = size_of::<InotifyEvent>();
/// The bytes of the longest event.
const LONGEST: usize = UNIT + (NAME_MAX + 1).next_multiple_of(UNIT);
/// The most events of one file.
pub const MOST_EVENTS: usize = 16_384;
/// The most files of events, and the bytes of events that all have.
pub const MOST_FILES: usize = 128;
const MOST_BYTES: usize = 4 << 20;

/// The number of files of events, and the bytes of all events. Relaxed: they guard no other memory.
static FILES: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The events that are to be read from one file.
pub struct Queue {
    state: SpinLock<State>,
    readers: WaitQueue,
}

struct State {
    bytes: VecDeque<u8>,
    events: usize,
    /// The bytes of the last event, or 0 if it was read.
    last: usize,
    /// Set if events after the last one were lost, and no event says so yet.
    has_lost: bool,
    /// The number of changes.
    changes: u64,
    /// The number of the last watch.
    number: i32,
}

/// One event as it is read: the first bytes of `bytes`.
struct Record {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Record {
    fn new(watch: i32, mask: u32, cookie: u32, name: &[u8]) -> Self {
        let padded = if name.is_empty() { 0 } else { (name.len() + 1).next_multiple_of(UNIT) };
        let event = InotifyEvent { watch, mask, cookie, len: padded as u32 };
        let mut record = Self { bytes: [0; LONGEST], len: (UNIT + padded).min(LONGEST) };
        let parts = event.as_bytes().iter().chain(name);
        record.bytes.iter_mut().zip(parts).for_each(|(place, &byte)| *place = byte);
        record
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The bytes of the cookie, which may differ in equal events.
const COOKIE: core::ops::Range<usize> = 8..12;

impl State {
    /// Returns whether the last event equals `record`.
    fn ends_with(&self, record: &Record) -> bool {
        let start = self.bytes.len() - self.last;
        let same = |(at, (old, new)): (usize, (&u8, &u8))| old == new || COOKIE.contains(&at);
        self.last == record.len && self.bytes.range(start..).zip(record.bytes()).enumerate().all(same)
    }

    /// Adds an event, if there is room and memory.
    fn add(&mut self, record: &Record) -> bool {
        let fits = BYTES.fetch_add(record.len, Ordering::Relaxed) + record.len <= MOST_BYTES;
        if !fits || self.bytes.try_reserve(record.len).is_err() {
            BYTES.fetch_sub(record.len, Ordering::Relaxed);
            return false;
        }
        self.bytes.extend(record.bytes());
        (self.last, self.events) = (record.len, self.events + 1);
        true
    }

    /// Adds an event, or notes that it is lost. Returns whether there is something new to read.
    fn push(&mut self, record: &Record, is_end: bool) -> bool {
        if self.has_lost && self.events < MOST_EVENTS && self.add(&lost()) {
            self.has_lost = false;
        }
        if !self.has_lost && self.events < MOST_EVENTS {
            if !is_end && self.ends_with(record) {
                return false;
            }
            if self.add(record) {
                return true;
            }
        }
        !core::mem::replace(&mut self.has_lost, true)
    }

    /// Returns the bytes of the first event, if there is one.
    fn first(&self) -> Option<usize> {
        let byte = |at| self.bytes.get(at).copied().map(u32::from);
        let len = Some(byte(12)? | byte(13)? << 8 | byte(14)? << 16 | byte(15)? << 24)?;
        Some(UNIT + len as usize)
    }

    /// Moves as many events as fit to `into`, and returns their bytes. Returns `None` if there is none.
    fn take(&mut self, into: &mut [u8]) -> Option<Result<usize, Errno>> {
        if self.bytes.is_empty() && self.has_lost {
            self.has_lost = !self.add(&lost());
        }
        let mut done = 0;
        while let Some(len) = self.first().filter(|len| done + len <= into.len()) {
            for (place, byte) in into.iter_mut().skip(done).zip(self.bytes.drain(..len)) {
                *place = byte;
            }
            (done, self.events) = (done + len, self.events - 1);
        }
        if self.bytes.is_empty() {
            (self.bytes, self.last) = (VecDeque::new(), 0);
        }
        BYTES.fetch_sub(done, Ordering::Relaxed);
        match done {
            0 if self.bytes.is_empty() => None,
            0 => Some(Err(Errno::EINVAL)),
            _ => Some(Ok(done)),
        }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.has_lost
    }
}

fn lost() -> Record {
    Record::new(-1, IN_Q_OVERFLOW, 0, b"")
}

impl Queue {
    /// Returns the number of a new watch.
    ///
    /// # Errors
    /// ENOSPC if there are no more.
    pub fn number(&self) -> Result<i32, Errno> {
        let mut state = self.state.lock();
        state.number = state.number.checked_add(1).ok_or(Errno::ENOSPC)?;
        Ok(state.number)
    }

    /// Adds an event of watch `watch`. The caller may hold spin locks.
    pub fn push(&self, watch: i32, mask: u32, cookie: u32, name: &[u8]) {
        let record = Record::new(watch, mask, cookie, name);
        let is_new = {
            let mut state = self.state.lock();
            let is_new = state.push(&record, mask & IN_IGNORED != 0);
            state.changes += u64::from(is_new);
            is_new
        };
        if is_new {
            self.readers.wake_all();
            readiness::changed();
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.state.lock().bytes.len(), Ordering::Relaxed);
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The contents of a file of events.
pub struct Inotify {
    queue: Arc<Queue>,
    holders: Holders,
}

/// Opens a file without watches.
///
/// # Errors
/// EMFILE if there are too many, ENOMEM.
pub fn open(flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    let more = |files| (files < MOST_FILES).then_some(files + 1);
    FILES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Errno::EMFILE)?;
    let state = State { bytes: VecDeque::new(), events: 0, last: 0, has_lost: false, changes: 0, number: 0 };
    // If there is no memory, it is dropped, and not counted any more.
    let queue = fallible::arc(Queue { state: SpinLock::new(state), readers: WaitQueue::new() })?;
    let content = Inotify { queue, holders: Holders::new() };
    OpenFile::new(Node::file(Volume::System, 0o600, content)?, O_RDONLY | flags)
}

/// Returns the events that are read from `file`.
///
/// # Errors
/// EINVAL if it is no file of events.
pub fn queue(file: &OpenFile) -> Result<&Arc<Queue>, Errno> {
    let object = file.node().content().and_then(Content::stands_for);
    let inotify: &Inotify = object.and_then(<dyn Any>::downcast_ref).ok_or(Errno::EINVAL)?;
    Ok(&inotify.queue)
}

impl Content for Inotify {
    fn kind(&self) -> u32 {
        0
    }

    fn label(&self) -> Option<&'static str> {
        Some("inotify")
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, into: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let taken = self.queue.readers.attempt(wait, || self.queue.state.lock().take(into))??;
        readiness::changed();
        Ok(taken)
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EBADF)
    }

    fn ready(&self) -> i16 {
        if self.queue.state.lock().is_empty() { 0 } else { POLLIN | POLLRDNORM }
    }

    fn changes(&self) -> Option<u64> {
        Some(self.queue.state.lock().changes)
    }

    fn waiting(&self, _at: u64) -> u64 {
        let state = self.queue.state.lock();
        (state.bytes.len() + if state.has_lost { UNIT } else { 0 }) as u64
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn closed(&self) {
        watches::remove_all(&self.queue);
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
