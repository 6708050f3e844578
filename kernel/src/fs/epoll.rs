//! `epoll`: a file that keeps a list of files, and tells which of them are ready.
//!
//! A wait looks at the whole list, and again when [`readiness`] says that something has changed. An entry
//! with EPOLLET is reported when [`Content::changes`] differs from the last report, so an event between two
//! waits is not lost. Files that do not count their changes are reported as long as they are ready.
//!
//! 1. An entry keeps the memory of its file, and does not keep it open. An entry whose file was closed is
//!    dropped at the next look.
//! 2. A list that is in another list holds none, so looks are nested once, and no list is in itself. Locks:
//!    the outer list, the inner list, a file's contents.
//! 3. An entry is dropped without the lock of the list.

use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};

use abi::Errno;
use abi::file::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLONESHOT, EpollEvent, O_RDWR, POLLIN, POLLRDNORM};
use sync::SpinLock;

use super::content::{Content, WriteAt};
use super::holders::Holders;
use super::node::{Node, Volume};
use super::open_file::OpenFile;
use super::readiness;
use crate::mm::static_or_arc::StaticOrArc;

/// The events that are reported, asked for or not.
const ALWAYS: u32 = EPOLLERR | EPOLLHUP;
/// The most files of a list, and lists of a list: a look visits all of them.
const MOST: usize = 2048;
const MOST_LISTS: usize = 8;
/// The bits that are events, as in `poll`.
const EVENTS: u32 = 0xffff;

/// A list of files.
pub struct Epoll {
    list: SpinLock<List>,
    /// The number of lists that it is in. It rises with `list` locked.
    outer: AtomicUsize,
    holders: Holders,
}

struct List {
    entries: Vec<Entry>,
    /// The entry at which the next look begins, so that each gets its turn.
    next: usize,
}

/// A file of a list.
struct Entry {
    fd: i32,
    file: StaticOrArc<OpenFile>,
    /// `EPOLL*`.
    events: u32,
    data: u64,
    /// The file's changes at the last report, if there was one.
    reported: Option<u64>,
    /// Set if the file is a list.
    is_list: bool,
}

/// Opens an empty list.
///
/// # Errors
/// ENOMEM.
pub fn open(flags: u32) -> Result<StaticOrArc<OpenFile>, Errno> {
    let epoll = Epoll {
        list: SpinLock::new(List { entries: Vec::new(), next: 0 }),
        outer: AtomicUsize::new(0),
        holders: Holders::new(),
    };
    OpenFile::new(Node::file(Volume::System, 0o600, epoll)?, O_RDWR | flags)
}

/// Returns the list that `file` is.
///
/// # Errors
/// EINVAL if it is none.
pub fn of(file: &OpenFile) -> Result<&Epoll, Errno> {
    let object = file.node().content().and_then(Content::stands_for);
    object.and_then(<dyn Any>::downcast_ref).ok_or(Errno::EINVAL)
}

impl Entry {
    fn is(&self, fd: i32, file: &StaticOrArc<OpenFile>) -> bool {
        self.fd == fd && self.file.is(file)
    }

    /// Returns the events to report, and notes that they are.
    fn take(&mut self) -> Option<EpollEvent> {
        let content = self.file.node().content()?;
        // Asked first: a change after this is reported again, and none is missed.
        let changes = content.changes();
        let wanted = self.events & EVENTS;
        if wanted == 0 || self.events & EPOLLET != 0 && changes.is_some() && self.reported == changes {
            return None;
        }
        let ready = u32::from(content.ready() as u16) & wanted;
        if ready == 0 {
            return None;
        }
        self.reported = changes;
        if self.events & EPOLLONESHOT != 0 {
            self.events &= !EVENTS;
        }
        Some(EpollEvent::new(ready, self.data))
    }

    fn is_ready(&self) -> bool {
        let ready = self.file.node().content().map_or(0, Content::ready);
        let wanted = self.events & EVENTS;
        u32::from(ready as u16) & wanted != 0
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(inner) = of(&self.file).ok().filter(|_| self.is_list) {
            inner.outer.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Epoll {
    /// Adds a file.
    ///
    /// # Errors
    /// EEXIST, ELOOP, ENOSPC if there are too many, ENOMEM.
    pub fn add(&self, fd: i32, file: StaticOrArc<OpenFile>, event: EpollEvent) -> Result<(), Errno> {
        let is_list = match of(&file) {
            Ok(inner) => inner.become_inner().map(|()| true)?,
            Err(_) => false,
        };
        let (events, data) = (event.events() | ALWAYS, event.data());
        let entry = Entry { fd, events, data, reported: None, is_list, file };
        self.drop_closed();
        {
            let mut list = self.list.lock();
            // Under the lock, as in `become_inner`: of two lists that are put into each other one is refused.
            if is_list && self.outer.load(Ordering::Relaxed) > 0 {
                return Err(Errno::ELOOP);
            }
            if list.entries.iter().any(|old| old.is(fd, &entry.file)) {
                return Err(Errno::EEXIST);
            }
            let lists = || list.entries.iter().filter(|entry| entry.is_list).count();
            if list.entries.len() >= MOST || is_list && lists() >= MOST_LISTS {
                return Err(Errno::ENOSPC);
            }
            list.entries.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            list.entries.push(entry);
        }
        readiness::changed();
        Ok(())
    }

    /// Counts a list that it is in, until the entry there is dropped.
    ///
    /// # Errors
    /// ELOOP if it has a list itself.
    fn become_inner(&self) -> Result<(), Errno> {
        let list = self.list.lock();
        if list.entries.iter().any(|entry| of(&entry.file).is_ok()) {
            return Err(Errno::ELOOP);
        }
        // Relaxed: the lock of the list orders it.
        self.outer.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Changes the events of a file.
    ///
    /// # Errors
    /// ENOENT.
    pub fn modify(&self, fd: i32, file: &StaticOrArc<OpenFile>, event: EpollEvent) -> Result<(), Errno> {
        {
            let mut list = self.list.lock();
            let entry = list.entries.iter_mut().find(|old| old.is(fd, file)).ok_or(Errno::ENOENT)?;
            (entry.events, entry.data, entry.reported) = (event.events() | ALWAYS, event.data(), None);
        }
        readiness::changed();
        Ok(())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// ENOENT.
    pub fn remove(&self, fd: i32, file: &StaticOrArc<OpenFile>) -> Result<(), Errno> {
        self.take_entry(|entry| entry.is(fd, file)).map(drop).ok_or(Errno::ENOENT)
    }

    /// Takes the first entry for which `is` says so out of the list.
    fn take_entry(&self, is: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let mut list = self.list.lock();
        let at = list.entries.iter().position(is)?;
        Some(list.entries.swap_remove(at))
    }

    /// Drops entries whose files were closed.
    fn drop_closed(&self) {
        while self.take_entry(|entry| entry.file.is_closed()).is_some() {}
    }

    /// Adds at most `most` events to `into`, which has room for them, and returns how many.
    pub fn collect(&self, most: usize, into: &mut Vec<EpollEvent>) -> usize {
        self.drop_closed();
        let mut list = self.list.lock();
        let List { entries, next } = &mut *list;
        let (count, from) = (entries.len(), *next);
        for step in 0..count {
            let at = (from + step) % count;
            if into.len() >= most {
                break;
            }
            if let Some(event) = entries.get_mut(at).and_then(Entry::take) {
                into.push(event);
                *next = at + 1;
            }
        }
        into.len()
    }
}

impl Content for Epoll {
    fn kind(&self) -> u32 {
        0
    }

    fn label(&self) -> Option<&'static str> {
        Some("[eventpoll]")
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn read(&self, _at: u64, _into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    fn write(&self, _at: WriteAt, _from: &[u8], _wait: bool) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    fn ready(&self) -> i16 {
        let is_ready = |entry: &Entry| !entry.file.is_closed() && entry.is_ready();
        if self.list.lock().entries.iter().any(is_ready) { POLLIN | POLLRDNORM } else { 0 }
    }

    fn holders(&self) -> Option<&Holders> {
        Some(&self.holders)
    }

    fn stands_for(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
