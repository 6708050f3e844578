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
//! | write beyond the end, or to what can be sealed; a new length; a hole punched; a [seal](seals) | `changing` |
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

mod holes;
mod seals;

use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::file::F_SEAL_SEAL;
use percore::{Pinned, pin};
use sync::SpinLock;
use vm::{Copies, FrameNum};

use self::seals::Seals;
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
    changing: SpinLock<Seals>,
    /// Whether seals may come.
    is_sealable: bool,
    mappings: Mappings,
    /// 0: nobody has asked for it.
    name: AtomicU64,
    /// The last [`Self::weigh`]ing it was counted in. Relaxed: whoever weighs has it to themselves, or near enough.
    weighed: AtomicU64,
}

/// The next name. Relaxed: only uniqueness matters.
static NEXT_NAME: AtomicU64 = AtomicU64::new(1);

impl PageCache {
    /// An empty file's.
    pub fn of_file() -> Self {
        Self::with(Kind::File, 0, false)
    }

    /// That of a file that never changes.
    pub fn of_image(image: &'static [u8]) -> Self {
        Self::with(Kind::Image(image), image.len() as u64, false)
    }

    /// Memory of `len` bytes that is shared without a file, or by one without a place in the tree; that may get seals.
    pub fn anonymous(len: u64, is_sealable: bool) -> Self {
        Self::with(Kind::Anonymous, len, is_sealable)
    }

    fn with(kind: Kind, len: u64, is_sealable: bool) -> Self {
        Self {
            len: AtomicU64::new(len),
            pages: PageTree::new(),
            kind,
            changing: SpinLock::new(Seals::new(if is_sealable { 0 } else { F_SEAL_SEAL })),
            is_sealable,
            mappings: Mappings::new(),
            name: AtomicU64::new(0),
            weighed: AtomicU64::new(0),
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

    /// Whether `page` is in memory.
    pub fn has(&self, page: u64) -> bool {
        self.pages.get(&pin(), page).is_some()
    }

    /// Pages that go with the programs that hold the file, unless it was counted in this `weighing`.
    pub fn weigh(&self, weighing: u64) -> u64 {
        let is_new = matches!(self.kind, Kind::Anonymous)
            && self.weighed.swap(weighing, Ordering::Relaxed) != weighing;
        if is_new { self.pages.count() } else { 0 }
    }

    /// A number that no other file has or will have. Below any address in the kernel.
    pub fn name(&self) -> u64 {
        match self.name.load(Ordering::Relaxed) {
            0 => self.give_name(),
            name => name,
        }
    }

    #[cold]
    fn give_name(&self) -> u64 {
        let new = NEXT_NAME.fetch_add(1, Ordering::Relaxed);
        self.name
            .compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|name| name, |_| new)
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
            Place::At(at) if !self.is_sealable && at.saturating_add(from.len() as u64) <= end => {
                self.put(at, from)
            }
            _ => self.write_locked(place, from),
        }
    }

    fn write_locked(&self, place: Place, from: &[u8]) -> Result<usize, Errno> {
        let seals = self.changing.lock();
        let len = self.len();
        let at = match place {
            Place::At(at) => at,
            Place::End => len,
        };
        let room = MAX_LEN.saturating_sub(at).min(from.len() as u64);
        if room == 0 && !from.is_empty() {
            return Err(Errno::EFBIG);
        }
        let room = seals.room(len, at, room)? as usize;
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
        let seals = self.changing.lock();
        let len = self.len();
        seals.allow_len(len, new)?;
        if new > len {
            self.clear_rubbish(len, new, new);
        }
        self.len.store(new, Ordering::Release);
        self.drop_pages(pages(new), page_tree::END);
        self.clear(new, pages(new) * PAGE as u64);
        self.take_back(pages(new), page_tree::END, Copies::Drop);
        Ok(())
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
            descriptors::free_of_file(pin, new);
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
        match descriptors::share_of_file(pin, frame) {
            Ok(()) => Ok(frame),
            Err(error) => {
                frames::free(pin, frame);
                self.uncharge(pin);
                Err(error)
            }
        }
    }

    fn drop_pages(&self, first: u64, end: u64) -> u64 {
        let (pin, mut dropped) = (pin(), 0);
        self.pages.take(first..end, |frame| {
            descriptors::leave(&pin, frame);
            self.uncharge(&pin);
            dropped += 1;
        });
        dropped
    }

    fn charge(&self, pin: &Pinned) -> Result<(), Errno> {
        match self.kind {
            Kind::File => budget::take(pin)?,
            Kind::Image(_) => counters::add(pin, Counter::CleanPages, 1),
            Kind::Anonymous => {}
        }
        counters::add(pin, Counter::FilePages, 1);
        Ok(())
    }

    fn uncharge(&self, pin: &Pinned) {
        match self.kind {
            Kind::File => budget::give(pin),
            Kind::Image(_) => counters::add(pin, Counter::CleanPages, -1),
            Kind::Anonymous => {}
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
