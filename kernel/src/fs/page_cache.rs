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
//! | write beyond the end, or to what can be sealed; a longer file; a [seal](seals) | `changing` |
//! | a truncation; a hole punched; room reserved | noted under `changing`, done [without it](changing) |
//!
//! 1. What lies beyond the end is rubbish. Whoever raises the end clears what it takes in, first.
//! 2. The end is lowered first; then pages go out of the tree; then the translations are taken back everywhere. A
//!    fault reads the length with the slot of its page locked, until the page is mapped: either the taking back waits for
//!    it, or it comes after, and the slot's lock shows it the new length. So no program has a page beyond the end when a
//!    truncation returns.
//! 3. A write below the end that meets a truncation may lose any part of what it writes; or put it beyond the
//!    end, where it is rubbish.
//! 4. `changing` is taken before any slot's lock, and never with one held.
//!
//! Pages of files in the tree count against the [budget](super::budget). Those of the boot image do not: they can be made
//! again at any time. Nor does shared memory, which goes with the programs that share it.

mod changing;
mod frames;
mod holes;
mod length;
mod seals;

use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use abi::file::F_SEAL_SEAL;
use percore::{Pinned, pin};
use sync::SpinLock;
use vm::{Copies, FrameNum};

use self::changing::Changing;
use self::seals::Seals;
use super::bytes::{after, prefix, prefix_mut};
use super::content::WriteAt;
use crate::mm::mappings::Mappings;
use crate::mm::page_tree::{self, PageTree};
use crate::mm::{frame_io, page_refs};

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
    changing: SpinLock<Changing>,
    /// Whether seals may come.
    is_sealable: bool,
    mappings: Mappings,
    /// 0: nobody has asked for it.
    name: AtomicU64,
    /// The last scan that [`Self::count_once`] counted it in. Relaxed: two scans at once may count it twice.
    counted_in: AtomicU64,
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
            changing: SpinLock::new(Changing::new(Seals::new(if is_sealable { 0 } else { F_SEAL_SEAL }))),
            is_sealable,
            mappings: Mappings::new(),
            name: AtomicU64::new(0),
            counted_in: AtomicU64::new(0),
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
        page_refs::show(pin, frame);
        Ok(frame)
    }

    /// Whether `page` is in memory.
    pub fn has(&self, page: u64) -> bool {
        self.pages.get(&pin(), page).is_some()
    }

    /// Returns the pages that go with the programs that hold the file, or 0 if this `scan` has counted it
    /// already.
    pub fn count_once(&self, scan: u64) -> u64 {
        let is_new =
            matches!(self.kind, Kind::Anonymous) && self.counted_in.swap(scan, Ordering::Relaxed) != scan;
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
        let mut rest = prefix_mut(into, len as u64);
        for (page, offset, bytes) in pieces(at, len) {
            let (now, later) = rest.split_at_mut(bytes);
            match self.pages.get(&pin, page) {
                Some(frame) => frame_io::read(frame, offset, now),
                None => now.fill(0),
            }
            rest = later;
        }
        len
    }

    /// Writes as much as there is room for; an error if that is nothing.
    pub fn write(&self, at: WriteAt, from: &[u8]) -> Result<usize, Errno> {
        let end = self.len();
        match at {
            WriteAt::Offset(at) if !self.is_sealable && at.saturating_add(from.len() as u64) <= end => {
                self.put(at, from)
            }
            _ => self.write_locked(at, from),
        }
    }

    /// Invalidates the translations of pages `first` to `end` wherever the file is mapped.
    fn invalidate(&self, first: u64, end: u64, copies: Copies) {
        self.mappings.for_each(|mapping| {
            let shown = mapping.shown_at(first, end);
            if let Some(space) = mapping.space().filter(|_| !shown.is_empty()) {
                space.zap(&pin(), shown, mapping.number(), copies);
            }
        });
    }

    /// Puts zeroes from byte `from` up to `to`, both in one page or at its end.
    fn clear(&self, from: u64, to: u64) {
        let page = from / PAGE as u64;
        if from < to
            && let Some(frame) = self.pages.get(&pin(), page)
        {
            let start = page * PAGE as u64;
            frame_io::clear(frame, (from - start) as usize, (to - start) as usize);
        }
    }

    /// Writes page by page, as long as there is room.
    fn put(&self, at: u64, from: &[u8]) -> Result<usize, Errno> {
        let pin = pin();
        let mut done = 0;
        for (page, offset, bytes) in pieces(at, from.len()) {
            match self.get_or_make(&pin, page) {
                Ok(frame) => frame_io::write(frame, offset, prefix(after(from, done), bytes as u64)),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += bytes;
        }
        Ok(done)
    }
}

/// Pages that hold `len` bytes.
fn pages(len: u64) -> u64 {
    len.div_ceil(PAGE as u64)
}

/// A range of bytes split at page ends: page, offset in the page, bytes.
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
