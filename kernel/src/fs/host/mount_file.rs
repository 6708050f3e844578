//! A regular file of a mounted directory. Its changes are in memory until they are written back to the host.
//!
//! | state | its pages | when |
//! |---|---|---|
//! | unchanged | the host's, read when they are used, dropped when memory is short | at first. An open asks the host whether the file has changed there |
//! | changeable | its own, which begin as the host's | from the first open for writing on |
//!
//! | what has changed | noted as | how it is written back |
//! |---|---|---|
//! | bytes | the pages from the first to the last one | those of them that are in memory |
//! | the length, by a truncation | the least length since | the host's file gets it first, then the pages from there on |
//! | pages, by a mapping | that there was one that may write: no call tells more | all pages in memory |
//!
//! Changes are written back when a descriptor that may write is closed, by `fsync` and the like, and when the
//! machine ends. A change is noted after it was made, so one that is made during a write-back is part of it
//! or of the next one.
//!
//! 1. One task at a time writes a file back. Others wait, and let further tasks run.
//! 2. A change that could not be written back stays noted.
//! 3. The host changes lengths by name. A file whose names are gone is not written back: nothing on the host
//!    could see it, and another file may have the name.
//! 4. Pages are given back when the host has them: those of large files after a write-back, and others when
//!    there is no room for more. A change is counted before it is made, and made with the file's lock. Under
//!    that lock pages are given back, and only if nothing was changed, is being changed, or may be by a
//!    mapping. Before that a request to the host lets all reads end that have seen the old length.
//! 5. A mapping from before the file became changeable keeps showing the host's pages.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use abi::Errno;
use sync::{SetOnce, SpinLock};

use super::Place;
use super::client::{Change, WRITE_BYTES};
use crate::fs::clean;
use crate::fs::content::{Content, WriteAt};
use crate::fs::page_cache::{PAGE, PageCache};
use crate::mm::{fallible, page_tree};
use crate::sched;

/// A file of this length gives its pages back after each write-back.
const LARGE: u64 = 64 << 10;
/// The number of a page that is beyond those of any file.
const END: u64 = u64::MAX;

/// The contents of the file.
pub struct MountFile {
    place: Arc<Place>,
    /// The pages that the host has.
    under: Arc<PageCache>,
    /// Those of a changeable file.
    own: SetOnce<Arc<PageCache>>,
    changes: SpinLock<Changes>,
    /// Set while a task writes the file back. Acquire and Release: one after the other.
    is_busy: AtomicBool,
    /// Set if there is a mapping that may write, or was one since the last write-back. SeqCst: the write-back
    /// clears it before it looks for mappings.
    is_mapped: AtomicBool,
    /// The changes that are being made. SeqCst: see invariant 4.
    changing: AtomicUsize,
    /// Set if the host's pages are not among those that are dropped when memory is short: those of a new
    /// file, which has none.
    is_unlisted: AtomicBool,
}

/// A change that is being made.
pub struct Changing<'a>(&'a AtomicUsize);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Changes that were not written back.
#[derive(Clone, Copy)]
struct Changes {
    /// The first page with changed bytes, and the one after the last.
    first: u64,
    end: u64,
    /// The least length of the file, if it was set.
    cut: Option<u64>,
}

impl Changes {
    const NONE: Self = Self { first: END, end: 0, cut: None };

    fn is_some(&self) -> bool {
        self.first < self.end || self.cut.is_some()
    }

    fn add(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.end = self.end.max(other.end);
        self.cut = self.cut.into_iter().chain(other.cut).min();
    }
}

impl MountFile {
    /// Creates the contents of the file at `place`, whose length is not known yet.
    pub fn new(place: &Arc<Place>) -> Result<Self, Errno> {
        Ok(Self {
            place: place.clone(),
            under: fallible::arc(PageCache::of_host(place.clone()))?,
            own: SetOnce::new(),
            changes: SpinLock::new(Changes::NONE),
            is_busy: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
            changing: AtomicUsize::new(0),
            is_unlisted: AtomicBool::new(false),
        })
    }

    fn now(&self) -> &Arc<PageCache> {
        self.own.get().unwrap_or(&self.under)
    }

    /// Returns whether the guest may have changed it.
    pub fn is_changeable(&self) -> bool {
        self.own.get().is_some()
    }

    /// Makes it changeable.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn make_changeable(&self) -> Result<(), Errno> {
        while !self.is_changeable() {
            let own = fallible::arc(PageCache::over(self.under.clone(), true))?;
            let _one_changes_it = self.changes.lock();
            if !self.is_changeable() && own.len() == self.under.len() {
                self.own.set(own);
            }
        }
        Ok(())
    }

    /// Sets the length that the file has on the host by now, unless it is changeable. Pages that were read
    /// before are dropped.
    pub fn set_host_len(&self, len: u64) {
        let _one_changes_it = self.changes.lock();
        if !self.is_changeable() {
            self.show_host(len);
        }
    }

    /// Drops the pages that were read from the host, which has `len` bytes by now. Returns whether it has.
    /// Reads put their pages into the tree before they release the channel. So after the request there are
    /// none that saw the old length.
    fn show_host(&self, len: u64) -> bool {
        self.under.set_host_len(len);
        let is_right = self.place.host_len() == Ok(len);
        self.under.drop_clean(0..page_tree::END);
        is_right
    }

    fn note(&self, first: u64, end: u64, cut: Option<u64>) {
        self.changes.lock().add(Changes { first, end, cut });
    }

    /// Notes that any page may have changed.
    pub fn note_all(&self) {
        self.note(0, END, None);
    }

    /// Begins a change, which ends when the result is dropped. It is noted before.
    pub fn begin_change(&self) -> Changing<'_> {
        self.changing.fetch_add(1, Ordering::SeqCst);
        Changing(&self.changing)
    }

    /// Notes a mapping that may write.
    pub fn note_mapped(&self) {
        self.now().while_locked(|| self.is_mapped.store(true, Ordering::SeqCst));
    }

    /// Notes that the host's pages are not among those that are dropped when memory is short.
    pub fn note_unlisted(&self) {
        self.is_unlisted.store(true, Ordering::Relaxed);
    }

    /// Returns whether the host has all bytes, as far as changes are counted and noted.
    fn is_written_back(&self) -> bool {
        self.changing.load(Ordering::SeqCst) == 0
            && !self.is_mapped.load(Ordering::SeqCst)
            && !self.changes.lock().is_some()
    }

    /// Gives pages back that the host has by now, if it has all bytes. Returns whether there were any.
    fn give_back(&self, own: &PageCache) -> Result<bool, Errno> {
        if !self.is_written_back() {
            return Ok(false);
        }
        // Descriptors may read by it when all names are gone.
        self.place.open()?;
        if self.is_unlisted.load(Ordering::Relaxed) {
            clean::add(&self.under)?;
            self.is_unlisted.store(false, Ordering::Relaxed);
        }
        Ok(self.show_host(own.len()) && own.give_back(|| self.is_written_back()))
    }

    /// Writes the changes back.
    ///
    /// # Errors
    /// ENOSPC, EIO, and the host's others. ENOMEM. EINTR if the task is killed, unless the machine `ends`.
    pub fn write_back(&self, ends: bool) -> Result<(), Errno> {
        let Some(own) = self.own.get() else { return Ok(()) };
        while self.is_busy.swap(true, Ordering::Acquire) {
            sched::give_way();
        }
        let written = self.write_alone(own, ends);
        if written == Ok(true) && !ends && own.len() >= LARGE {
            // Without success they stay.
            let _stay = self.give_back(own);
        }
        self.is_busy.store(false, Ordering::Release);
        written.map(drop)
    }

    /// Writes the changes back, and gives all pages back. Returns whether there were any.
    pub fn make_room(&self) -> bool {
        let Some(own) = self.own.get() else { return false };
        if self.is_busy.swap(true, Ordering::Acquire) {
            // Another task writes back, and makes room.
            sched::give_way();
            return false;
        }
        let gave = self.write_alone(own, false).and_then(|_| self.give_back(own));
        self.is_busy.store(false, Ordering::Release);
        gave.unwrap_or(false)
    }

    /// Writes the changes back as the one task that does. Returns whether there were any.
    fn write_alone(&self, own: &PageCache, ends: bool) -> Result<bool, Errno> {
        let mut changes = core::mem::replace(&mut *self.changes.lock(), Changes::NONE);
        if self.is_mapped.swap(false, Ordering::SeqCst) {
            (changes.first, changes.end) = (0, END);
            if own.is_mapped_to_write() {
                self.note_mapped();
            }
        }
        if let Some(cut) = changes.cut {
            (changes.first, changes.end) = (changes.first.min(cut / PAGE as u64), END);
        }
        if changes.first >= changes.end {
            return Ok(false);
        }
        let written = self.write_changes(own, &changes, ends);
        match written.inspect_err(|_| self.changes.lock().add(changes)) {
            // Its names are gone, or about to go: if that fails it is written back later.
            Err(Errno::ESTALE) => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Does the same by a fid of its own.
    ///
    /// # Errors
    /// As above, and ESTALE if the file's names are gone.
    fn write_changes(&self, own: &PageCache, changes: &Changes, ends: bool) -> Result<(), Errno> {
        if let Some(cut) = changes.cut {
            self.place.set_if_named(Change::Size(cut))?;
        }
        let fid = self.place.open_to_write()?;
        let written = self.write_pages(fid, own, changes, ends);
        self.place.mount().forget(fid);
        written?;
        match changes.cut {
            Some(_) => self.place.set_if_named(Change::Size(own.len())),
            None => Ok(()),
        }
    }

    fn write_pages(&self, fid: u32, own: &PageCache, changes: &Changes, ends: bool) -> Result<(), Errno> {
        let mut buffer = fallible::zeroes(WRITE_BYTES)?;
        let mut page = changes.first;
        while let Some(next) = own.first_page(page).filter(|&next| next < changes.end) {
            if !ends && sched::current().is_killed() {
                return Err(Errno::EINTR);
            }
            // Pages that are not in memory are the host's own, or zeroes there too.
            let most = (next..changes.end).take(WRITE_BYTES / PAGE).take_while(|&page| own.has(page)).count();
            let most = most.max(1) * PAGE;
            let at = next * PAGE as u64;
            let len = own.read(at, buffer.get_mut(..most).unwrap_or_default())?;
            if len > 0 {
                self.place.mount().write(fid, at, buffer.get(..len).unwrap_or_default())?;
            }
            page = next + (most / PAGE) as u64;
            sched::pause();
        }
        Ok(())
    }

    /// Writes the changes back, and has the host bring them to its disk.
    ///
    /// # Errors
    /// As above.
    pub fn fsync(&self) -> Result<(), Errno> {
        self.write_back(false)?;
        let Ok(fid) = self.place.open_to_write() else { return Ok(()) };
        let synced = self.place.mount().fsync(fid);
        self.place.mount().forget(fid);
        synced
    }
}

impl Drop for MountFile {
    fn drop(&mut self) {
        clean::remove(&self.under);
    }
}

impl Content for MountFile {
    fn len(&self) -> u64 {
        self.now().len()
    }

    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        self.now().read(at, into)
    }

    fn write(&self, at: WriteAt, from: &[u8], _wait: bool) -> Result<usize, Errno> {
        let _change = self.begin_change();
        let (start, done) = self.own.get().ok_or(Errno::EROFS)?.write_there(at, from)?;
        let end = start + done as u64;
        self.note(start / PAGE as u64, end.div_ceil(PAGE as u64), None);
        Ok(done)
    }

    fn pages(&self) -> Option<&Arc<PageCache>> {
        Some(self.now())
    }

    fn set_len(&self, len: u64) -> Result<(), Errno> {
        let _change = self.begin_change();
        let own = self.own.get().ok_or(Errno::EROFS)?;
        let before = own.len();
        own.set_len(len)?;
        self.note(END, 0, Some(len.min(before)));
        Ok(())
    }

    fn mount_file(&self) -> Option<&MountFile> {
        Some(self)
    }
}
