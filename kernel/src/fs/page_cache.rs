//! A file's pages: what reads, writes and mappings of the file all share.
//!
//! ```text
//!   read, write ──copy──▶ frame ◀── translations of programs
//!                           ▲
//!   page tree ──reference──┘   no frame: a hole, which reads as zeroes, or a page of the boot image not made yet
//! ```
//!
//! | step | lock |
//! |---|---|
//! | read; write below the end; a fault | none: the tree is looked at, and grows, without one |
//! | write beyond the end; a new length; a hole punched | `changing` |
//!
//! 1. What lies beyond the end is rubbish. Whoever raises the end clears what it takes in, first.
//! 2. The end is lowered first; then pages go out of the tree; then the translations are taken back everywhere. A
//!    fault reads the length with the slot of its page locked, until the page is mapped: either the taking back waits for
//!    it, or it comes after, and the slot's lock shows it the new length. So no program has a page beyond the end when a
//!    cut returns.
//! 3. A write below the end that meets a cut may lose any part of what it writes; or put it beyond the end, where it is
//!    rubbish.
//! 4. `changing` is taken before any slot's lock, and never with one held.
//!
//! Pages of files in the tree count against the [budget](super::budget). Those of the boot image do not: they can be made
//! again at any time. Nor does shared memory, which goes with the programs that share it.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use percore::{Pinned, pin};
use sync::SpinLock;
use vm::{Copies, FrameNum};

use super::budget;
use super::content::Place;
use super::image::tail;
use crate::counters::{self, Counter};
use crate::mm::mappings::Mappings;
use crate::mm::page_tree::{self, PageTree};
use crate::mm::{contents, descriptors, epoch, frames};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// The longest file.
pub const MAX_LEN: u64 = page_tree::END * PAGE as u64;

/// What pages are at first, and who pays for them.
enum Kind {
    /// Zeroes, within the budget of all files.
    File,
    /// Parts of the boot image, as long as there is memory.
    Image(&'static [u8]),
    /// Zeroes, as long as there is memory: a program's own.
    Anonymous,
}

/// See the module.
pub struct PageCache {
    /// Bytes. Release when raised, Acquire when read: who sees a byte's place sees the byte.
    len: AtomicU64,
    pages: PageTree,
    kind: Kind,
    changing: SpinLock<()>,
    mappings: Mappings,
}

impl PageCache {
    /// An empty file's.
    pub fn of_file() -> Self {
        Self::with(Kind::File, 0)
    }

    /// That of a file that never changes.
    pub fn of_image(image: &'static [u8]) -> Self {
        Self::with(Kind::Image(image), image.len() as u64)
    }

    /// Memory of `len` bytes that is shared without a file, or by one without a place in the tree.
    pub fn anonymous(len: u64) -> Self {
        Self::with(Kind::Anonymous, len)
    }

    fn with(kind: Kind, len: u64) -> Self {
        Self {
            len: AtomicU64::new(len),
            pages: PageTree::new(),
            kind,
            changing: SpinLock::new(()),
            mappings: Mappings::new(),
        }
    }

    /// The file's length in bytes.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// The frame of `page`, made if there is none, with a reference for the caller.
    ///
    /// # Errors
    /// ENXIO beyond the end; ENOMEM; ENOSPC.
    pub fn frame(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        if page >= pages(self.len()) {
            return Err(Errno::ENXIO);
        }
        let frame = self.get_or_make(pin, page)?;
        descriptors::adjust(pin, frame, 1);
        Ok(frame)
    }

    /// Who maps the file.
    pub fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// Reads from `at` on, up to the end; says how much.
    pub fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let pin = pin();
        let len = self.len().saturating_sub(at).min(into.len() as u64) as usize;
        let mut rest = &mut into[..len];
        for (page, offset, bytes) in pieces(at, len) {
            let (now, later) = rest.split_at_mut(bytes);
            match self.pages.get(&pin, page) {
                Some(frame) => contents::read(frame, offset, now),
                None => now.fill(0),
            }
            rest = later;
        }
        len
    }

    /// Writes as much as there is room for; an error if that is nothing.
    pub fn write(&self, place: Place, from: &[u8]) -> Result<usize, Errno> {
        let end = self.len();
        match place {
            Place::At(at) if at.saturating_add(from.len() as u64) <= end => self.put(at, from),
            _ => self.write_beyond(place, from),
        }
    }

    fn write_beyond(&self, place: Place, from: &[u8]) -> Result<usize, Errno> {
        let _alone = self.changing.lock();
        let len = self.len();
        let at = match place {
            Place::At(at) => at,
            Place::End => len,
        };
        let room = MAX_LEN.saturating_sub(at).min(from.len() as u64) as usize;
        if room == 0 && !from.is_empty() {
            return Err(Errno::EFBIG);
        }
        self.clear_rubbish(len, at, at + room as u64);
        let done = self.put(at, &from[..room])?;
        if done > 0 {
            self.len.store(len.max(at + done as u64), Ordering::Release);
        }
        Ok(done)
    }

    /// Cuts the file, or extends it with zeroes.
    pub fn set_len(&self, new: u64) -> Result<(), Errno> {
        if new > MAX_LEN {
            return Err(Errno::EFBIG);
        }
        let _alone = self.changing.lock();
        let len = self.len();
        if new > len {
            self.clear_rubbish(len, new, new);
        }
        self.len.store(new, Ordering::Release);
        self.drop_pages(pages(new), page_tree::END);
        self.clear(new, pages(new) * PAGE as u64);
        self.take_back(pages(new), page_tree::END, Copies::Drop);
        Ok(())
    }

    /// Makes a hole of `len` bytes from `at` on. The length stays.
    pub fn punch(&self, at: u64, len: u64) {
        let _alone = self.changing.lock();
        let end = at.saturating_add(len).min(MAX_LEN);
        let (first, last) = (pages(at), end / PAGE as u64);
        if first > last {
            return self.clear(at, end);
        }
        self.clear(at, first * PAGE as u64);
        self.clear(last * PAGE as u64, end);
        self.drop_pages(first, last);
        self.take_back(first, last, Copies::Keep);
    }

    /// Gives every page of `len` bytes from `at` on a frame, and lets the file reach there.
    pub fn reserve(&self, at: u64, len: u64) -> Result<(), Errno> {
        let _alone = self.changing.lock();
        let (old, end) = (self.len(), at.checked_add(len).filter(|&end| end <= MAX_LEN).ok_or(Errno::EFBIG)?);
        if end > old {
            self.clear_rubbish(old, end, end);
        }
        let pin = pin();
        (at / PAGE as u64..pages(end)).try_for_each(|page| self.get_or_make(&pin, page).map(drop))?;
        self.len.store(end.max(old), Ordering::Release);
        Ok(())
    }

    /// Where data, or a hole, is next, from byte `at` on: ENXIO if there is no data up to the end.
    pub fn seek(&self, at: u64, data: bool) -> Result<u64, Errno> {
        let (len, page) = (self.len(), at / PAGE as u64);
        let found = match (&self.kind, data) {
            (Kind::Image(_), true) => at,
            (Kind::Image(_), false) => len,
            (_, true) => self.pages.first(page..pages(len)).ok_or(Errno::ENXIO)? * PAGE as u64,
            (_, false) => self.hole(page, pages(len)) * PAGE as u64,
        };
        Ok(found.max(at).min(len))
    }

    /// The first page from `page` on that has a frame.
    pub fn first_page(&self, page: u64) -> Option<u64> {
        self.pages.first(page..page_tree::END)
    }

    /// Drops the frames of `range`, which can be made again, and says how many. A fault in between makes a page anew, which
    /// is as good, and loses its translation for nothing.
    pub fn drop_clean(&self, range: Range<u64>) -> u64 {
        let dropped = self.drop_pages(range.start, range.end);
        self.take_back(range.start, range.end, Copies::Keep);
        dropped
    }

    fn hole(&self, mut page: u64, end: u64) -> u64 {
        while page < end && self.pages.get(&pin(), page).is_some() {
            page += 1;
        }
        page
    }

    /// Takes back the translations of pages `first` to `end` wherever the file is mapped.
    fn take_back(&self, first: u64, end: u64, copies: Copies) {
        self.mappings.for_each(|mapping| {
            let shown = mapping.shown_at(first, end);
            if let Some(space) = mapping.space().filter(|_| !shown.is_empty()) {
                space.zap(&pin(), shown, mapping.number(), copies);
            }
        });
    }

    /// The file is to reach from `len` up to `end`, which is written from `at` on.
    fn clear_rubbish(&self, len: u64, at: u64, end: u64) {
        let tail_end = pages(len) * PAGE as u64;
        self.clear(len, at.clamp(len, tail_end));
        self.drop_pages(pages(len), pages(end).max(pages(len)));
    }

    /// Puts zeroes from byte `from` up to `to`, both in one page or at its end.
    fn clear(&self, from: u64, to: u64) {
        let page = from / PAGE as u64;
        if from < to
            && let Some(frame) = self.pages.get(&pin(), page)
        {
            let start = page * PAGE as u64;
            contents::clear(frame, (from - start) as usize, (to - start) as usize);
        }
    }

    /// Writes page by page, as long as there is room.
    fn put(&self, at: u64, from: &[u8]) -> Result<usize, Errno> {
        let pin = pin();
        let mut done = 0;
        for (page, offset, bytes) in pieces(at, from.len()) {
            match self.get_or_make(&pin, page) {
                Ok(frame) => contents::write(frame, offset, &from[done..done + bytes]),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += bytes;
        }
        Ok(done)
    }

    #[inline]
    fn get_or_make(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        match self.pages.get(pin, page) {
            Some(frame) => Ok(frame),
            None => self.make(pin, page),
        }
    }

    /// Gives `page` a frame; another core may be faster.
    #[cold]
    fn make(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        let new = self.new_frame(pin, page)?;
        let put = self.pages.put(pin, page, new).map_err(|_| Errno::ENOMEM);
        if put != Ok(new) {
            // Nobody has seen it: it needs no epochs.
            frames::free(pin, new);
            self.uncharge(pin);
        }
        put
    }

    fn new_frame(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        if matches!(self.kind, Kind::Image(_)) && frames::is_low() {
            // The fault will look for memory; others, who would not, find the reserve.
            return Err(Errno::ENOMEM);
        }
        self.charge(pin)?;
        let Some(frame) = frames::alloc_zeroed(pin) else {
            self.uncharge(pin);
            return Err(Errno::ENOMEM);
        };
        if let Kind::Image(image) = self.kind {
            let bytes = tail(image, page * PAGE as u64);
            contents::write(frame, 0, &bytes[..bytes.len().min(PAGE)]);
        }
        descriptors::share_of_file(pin, frame);
        Ok(frame)
    }

    fn drop_pages(&self, first: u64, end: u64) -> u64 {
        let (pin, mut dropped) = (pin(), 0);
        self.pages.take(first..end, |frame| {
            descriptors::adjust(&pin, frame, -1);
            self.uncharge(&pin);
            dropped += 1;
        });
        dropped
    }

    fn charge(&self, pin: &Pinned) -> Result<(), Errno> {
        if matches!(self.kind, Kind::File) {
            budget::take(pin)?;
        }
        counters::add(pin, Counter::FilePages, 1);
        Ok(())
    }

    fn uncharge(&self, pin: &Pinned) {
        if matches!(self.kind, Kind::File) {
            budget::give(pin);
        }
        counters::add(pin, Counter::FilePages, -1);
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        // The last one to close a file may be a core that leaves the epochs.
        epoch::domain().while_online(&pin(), || self.drop_pages(0, page_tree::END));
    }
}

/// Pages that hold `len` bytes.
fn pages(len: u64) -> u64 {
    len.div_ceil(PAGE as u64)
}

/// A range of bytes cut at page ends: page, offset in the page, bytes.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let here = at + done as u64;
        let offset = (here % PAGE as u64) as usize;
        let bytes = (PAGE - offset).min(len - done);
        done += bytes;
        (bytes > 0).then_some((here / PAGE as u64, offset, bytes))
    })
}
