//! The pages of a file, which reads, writes and mappings of the file share.
//!
//! ```text
//!   read, write ──copy──▶ frame ◀── translations of programs
//!                           ▲
//!   page tree ──reference──┘   no frame: a hole (zeroes), or a page of the boot image not made yet
//! ```
//!
//! | operation | lock |
//! |---|---|
//! | read, write below the end, fault | none: the tree is read, and grows, without a lock. A read [holds](crate::mm::read_refs) its page |
//! | write beyond the end, or to a sealable file or one that begins as another; extension, [seal](seals) | `changing` |
//! | truncation, punching a hole, reserving room | noted under `changing`, done [without it](changing) |
//!
//! 1. Bytes beyond the end are garbage. An operation that raises the end first clears the bytes that it takes
//!    in.
//! 2. A truncation lowers the end first, then removes pages from the tree, then invalidates the translations
//!    everywhere. A fault reads the length with the slot of its page locked and keeps the lock until the page
//!    is mapped. Either the invalidation waits for that lock, or the fault gets it later and sees the new
//!    length. So no program maps a page beyond the end when a truncation returns.
//! 3. A write below the end that runs at the same time as a truncation may lose any part of its bytes, or put
//!    them beyond the end, where they are garbage.
//! 4. `changing` is taken before any slot's lock, and never while one is held.
//! 5. A page that begins as another file's is made with `changing` or the slot of a mapping locked. So it is
//!    in the tree before a truncation removes pages, or it is made after the cover has ended and is zeroes.
//!
//! Pages of files in the tree count against the [budget](super::budget). Pages of the boot
//! image do not, because they can be made again at any time. Pages of shared memory do not, because they go
//! with the programs that share it.

mod changing;
mod frames;
mod given_back;
mod holes;
mod length;
mod seals;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use abi::Errno;
use abi::file::F_SEAL_SEAL;
use percore::{Pinned, pin};
use sync::SpinLock;
use vm::{Copies, FrameNum};

use self::changing::Changing;
use self::seals::Seals;
use super::content::WriteAt;
use super::host::Place;
use crate::bytes::{after, prefix, prefix_mut};
use crate::counters::{self, Counter};
use crate::mm::mappings::Mappings;
use crate::mm::page_tree::{self, PageTree};
use crate::mm::read_refs::HoldPage;
use crate::mm::{epoch, frame_io, page_refs, user};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// The longest file.
pub const MAX_LEN: u64 = page_tree::END * PAGE as u64;

/// The initial contents of pages, and the limit that they count against.
enum Kind {
    /// Zeroes, within the budget of all files.
    File,
    /// Parts of the boot image, limited by memory only.
    Image(&'static [u8]),
    /// Those of a file of the host, limited by memory only.
    Host(Arc<Place>),
    /// Those of another file as long as they have not been changed here, within the budget of all files.
    Over(Over),
    /// Zeroes, limited by memory only: the page belongs to programs.
    Anonymous,
}

/// The pages that a file begins with.
struct Over {
    /// The file that they are from, which never changes.
    under: Arc<PageCache>,
    /// The bytes that are from there: those up to the least length that the file has had. Relaxed: it changes
    /// with `changing` locked, after the page in which it ends was made.
    bytes: AtomicU64,
    /// Whether the file under it may get the same bytes later, and pages be given back.
    gives_back: bool,
}

impl Over {
    /// Returns whether `page` begins as the page of the file under this one.
    fn covers(&self, page: u64) -> bool {
        page < pages(self.bytes.load(Ordering::Relaxed))
    }
}

/// The pages of a file, and its length.
///
/// The first cache line changes with the length, the second with the pages that the file has, and the third
/// when it is mapped. So calls that do one of these share no line with calls that do another.
#[repr(C)]
pub struct PageCache {
    /// Bytes. Release when raised, Acquire when read: a task that sees that a byte is below the end sees the
    /// byte.
    len: AtomicU64,
    changing: SpinLock<Changing>,
    kind: Kind,
    _second: NextLine,
    pages: PageTree,
    /// The last scan in which [`Self::count_once`] counted it. Relaxed: two scans at once may count it twice.
    counted_in: AtomicU64,
    _third: NextLine,
    mappings: Mappings,
    /// The name, or 0 if none has been asked for.
    name: AtomicU64,
    /// Processes that count their reads in their own page tables. Relaxed: it only says whether that is worth
    /// it.
    sharers: AtomicI64,
    /// The events that have happened to the file: [`MAPPED`], [`NAMELESS`], [`LARGE`]. All from the start if
    /// its pages are outside the budget.
    past: AtomicU8,
    /// Set if seals can be added.
    is_sealable: bool,
}

/// The end of a cache line.
#[repr(align(64))]
struct NextLine;

const _: () = assert!(size_of::<PageCache>() == 3 * align_of::<NextLine>());

/// The file was mapped.
const MAPPED: u8 = 1;
/// The file has lost its last name, or never had one.
const NAMELESS: u8 = 2;
/// The file was longer than [`FREED_AT_ONCE`].
const LARGE: u8 = 4;
/// The bytes of a file that are freed with it: a tick may review 128 files. More are freed in pieces.
const FREED_AT_ONCE: u64 = 16 * PAGE as u64;

/// The next name. Relaxed: only uniqueness matters.
static NEXT_NAME: AtomicU64 = AtomicU64::new(1);

impl PageCache {
    /// Creates the pages of an empty file.
    pub fn of_file() -> Self {
        Self::with(Kind::File, 0, false)
    }

    /// Creates the pages of a file that never changes.
    pub fn of_image(image: &'static [u8]) -> Self {
        Self::with(Kind::Image(image), image.len() as u64, false)
    }

    /// Creates the page of a file of the kernel: `frame`, which is kept for ever and never changes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn of_frame(pin: &Pinned, frame: FrameNum) -> Result<Self, Errno> {
        // Its page is there, so none is made of the bytes.
        let file = Self::with(Kind::Image(&[]), PAGE as u64, false);
        file.pages.put(pin, 0, frame).map_err(|_| Errno::ENOMEM)?;
        Ok(file)
    }

    /// Creates the pages of the file of the host at `place`, whose length is not known yet.
    pub fn of_host(place: Arc<Place>) -> Self {
        Self::with(Kind::Host(place), 0, false)
    }

    /// Sets the length of a file of the host, before anything uses its pages.
    pub fn set_host_len(&self, len: u64) {
        if matches!(self.kind, Kind::Host(_)) {
            self.len.store(len.min(MAX_LEN), Ordering::Release);
        }
    }

    /// Creates the pages of a file that begins as `under`, and may [give them back](Self::give_back).
    pub fn over(under: Arc<Self>, gives_back: bool) -> Self {
        let len = under.len();
        Self::with(Kind::Over(Over { under, bytes: AtomicU64::new(len), gives_back }), len, false)
    }

    /// Creates shared memory of `len` bytes that has no file, or that is a file in no directory. Seals can be
    /// added if it is sealable.
    pub fn anonymous(len: u64, is_sealable: bool) -> Self {
        Self::with(Kind::Anonymous, len, is_sealable)
    }

    fn with(kind: Kind, len: u64, is_sealable: bool) -> Self {
        let past = if kind.is_in_budget() { 0 } else { MAPPED | NAMELESS | LARGE };
        Self {
            len: AtomicU64::new(len),
            changing: SpinLock::new(Changing::new(Seals::new(if is_sealable { 0 } else { F_SEAL_SEAL }))),
            kind,
            _second: NextLine,
            pages: PageTree::new(),
            counted_in: AtomicU64::new(0),
            _third: NextLine,
            mappings: Mappings::new(),
            name: AtomicU64::new(0),
            sharers: AtomicI64::new(0),
            past: AtomicU8::new(past),
            is_sealable,
        }
    }

    /// Returns whether a write below the end takes `changing`: it must look at the seals, or the page that it
    /// makes may begin as another file's, which a truncation ends. Only one to nameless memory reads the
    /// third line.
    fn locks_writes(&self) -> bool {
        match &self.kind {
            Kind::Anonymous => self.is_sealable,
            Kind::Over(over) => over.gives_back || over.covers(0),
            _ => false,
        }
    }

    /// Notes that the file is mapped.
    pub fn note_mapped(&self) {
        self.note(MAPPED);
    }

    /// Returns whether it was mapped at some time.
    pub fn was_mapped(&self) -> bool {
        self.past.load(Ordering::Relaxed) & MAPPED != 0
    }

    /// Notes that the file has no name.
    pub fn note_nameless(&self) {
        self.note(NAMELESS);
    }

    fn note(&self, event: u8) {
        let is_known = |past: u8| past & event != 0;
        if is_known(self.past.load(Ordering::Relaxed)) {
            return;
        }
        let past = self.past.fetch_or(event, Ordering::Relaxed);
        if is_known(past) {
            return;
        }
        if event == NAMELESS {
            counters::bump(Counter::NamelessFiles);
        }
        if is_large_nameless(past | event) && !is_large_nameless(past) {
            epoch::count_large(1);
        }
    }

    /// Takes back what [`note`](Self::note) has counted.
    fn count_end(&mut self) {
        let past = *self.past.get_mut();
        if past & NAMELESS != 0 {
            counters::add(&pin(), Counter::NamelessFiles, -1);
        }
        if is_large_nameless(past) {
            epoch::count_large(-1);
        }
    }

    /// Returns the file's length in bytes.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns the frame of `page`, made if there is none, with a reference for the caller.
    ///
    /// # Errors
    /// ENXIO beyond the end, ENOMEM, ENOSPC.
    pub fn frame(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        if page >= pages(self.len()) {
            return Err(Errno::ENXIO);
        }
        let frame = self.get_or_make(pin, page)?;
        page_refs::show(pin, frame);
        Ok(frame)
    }

    /// Returns whether `page` is in memory.
    pub fn has(&self, page: u64) -> bool {
        self.pages.get(&pin(), page).is_some()
    }

    /// Returns the number of its pages in memory.
    pub fn resident(&self) -> u64 {
        self.pages.count()
    }

    /// Returns the pages that go with the programs that hold the file, or 0 if this `scan` has counted it
    /// already.
    pub fn count_once(&self, scan: u64) -> u64 {
        let is_new =
            matches!(self.kind, Kind::Anonymous) && self.counted_in.swap(scan, Ordering::Relaxed) != scan;
        if is_new { self.pages.count() } else { 0 }
    }

    /// Returns a number that no other file has or will have. It is below any address in the kernel.
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

    /// Returns the mappings of the file.
    pub fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// Counts a process more, or less, that counts its reads in its own page table.
    pub fn add_sharer(&self, by: i64) {
        self.sharers.fetch_add(by, Ordering::Relaxed);
    }

    /// Returns whether enough processes share the file to count reads in their own page tables: four, as in
    /// the paper.
    pub fn is_shared_by_many(&self) -> bool {
        const MANY: i64 = 4;
        self.sharers.load(Ordering::Relaxed) >= MANY
    }

    /// Copies `len` bytes from `at` on to the program at `to`, up to the end. Returns the number of bytes.
    /// Where there is no page they are zeroes. The caller copies as [`read_refs`](crate::mm::read_refs) says.
    ///
    /// # Errors
    /// EFAULT if a page of the program's is missing, EIO or ENOMEM if a page cannot be made.
    pub fn copy_out(&self, at: u64, to: u64, len: usize, way: &impl HoldPage<Self>) -> Result<usize, Errno> {
        let first = (PAGE - (at % PAGE as u64) as usize).min(len);
        let done = self.copy_one_out(at, to, first, way)?;
        // Most copies are of bytes of one page.
        if done < first || first == len {
            return Ok(done);
        }
        let rest = self.copy_rest_out(at + first as u64, to + first as u64, len - first, way)?;
        Ok(done + rest)
    }

    #[cold]
    fn copy_rest_out(&self, at: u64, to: u64, len: usize, way: &impl HoldPage<Self>) -> Result<usize, Errno> {
        let mut done = 0;
        for (_, _, bytes) in pieces(at, len) {
            // This is one page, so it does not come back here.
            let copied = self.copy_out(at + done as u64, to + done as u64, bytes, way)?;
            done += copied;
            if copied < bytes {
                break;
            }
        }
        Ok(done)
    }

    /// Copies bytes of one page.
    #[inline(always)]
    fn copy_one_out(
        &self,
        at: u64,
        to: u64,
        bytes: usize,
        way: &impl HoldPage<Self>,
    ) -> Result<usize, Errno> {
        let held = self.hold(at / PAGE as u64, way)?;
        // The end is read after the page is looked for: a truncation lowers it before it removes pages.
        let valid = self.len().saturating_sub(at).min(bytes as u64) as usize;
        match held {
            Some((frame, _hold)) => frame_io::copy_out(frame, (at % PAGE as u64) as usize, to, valid)?,
            None => user::clear(to, valid)?,
        }
        Ok(valid)
    }

    /// Returns the frame of `page`, if it has one, and what keeps it.
    #[inline(always)]
    fn hold<W: HoldPage<Self>>(&self, page: u64, way: &W) -> Result<Option<(FrameNum, W::Hold)>, Errno> {
        let pin = pin();
        let frame = match self.pages.get(&pin, page) {
            Some(frame) => frame,
            None => match self.shown(&pin, page)? {
                Some(frame) => frame,
                None => return Ok(None),
            },
        };
        Ok(Some((frame, way.hold(pin, self, page, frame))))
    }

    /// Returns the frame that holds what a read finds in a page that is not in memory: none if that is
    /// zeroes.
    fn shown(&self, pin: &Pinned, page: u64) -> Result<Option<FrameNum>, Errno> {
        match &self.kind {
            Kind::Host(_) if page < pages(self.len()) => self.get_or_make(pin, page).map(Some),
            Kind::Over(over) if over.covers(page) => over.under.get_or_make(pin, page).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads from `at` on into memory of the kernel, up to the end, and returns the number of bytes. That
    /// copy cannot sleep, so the pin keeps the pages.
    ///
    /// # Errors
    /// EIO or ENOMEM if a page cannot be made.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let pin = pin();
        let len = self.len().saturating_sub(at).min(into.len() as u64) as usize;
        let mut rest = prefix_mut(into, len as u64);
        for (page, offset, bytes) in pieces(at, len) {
            let (now, later) = rest.split_at_mut(bytes);
            let frame = match self.pages.get(&pin, page) {
                Some(frame) => Some(frame),
                None => self.shown(&pin, page)?,
            };
            match frame {
                Some(frame) => frame_io::read(frame, offset, now),
                None => now.fill(0),
            }
            rest = later;
        }
        // A truncation lowers the end before it removes pages, whose bytes are zeroes then.
        Ok(len.min(self.len().saturating_sub(at) as usize))
    }

    /// Writes as many bytes as there is room for, and returns their number.
    ///
    /// # Errors
    /// If there is room for none: ENOMEM, ENOSPC, EFBIG, EPERM by a seal, EBUSY as for
    /// [`Self::write_locked`].
    pub fn write(&self, at: WriteAt, from: &[u8]) -> Result<usize, Errno> {
        self.write_there(at, from).map(|(_, done)| done)
    }

    /// Does the same, and returns also where the first byte was written.
    ///
    /// # Errors
    /// As above.
    pub fn write_there(&self, at: WriteAt, from: &[u8]) -> Result<(u64, usize), Errno> {
        let end = self.len();
        match at {
            WriteAt::Offset(at) if !self.locks_writes() && at.saturating_add(from.len() as u64) <= end => {
                self.put(at, from).map(|done| (at, done))
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

    /// Clears the bytes from `from` up to `to`, both in one page or at its end.
    fn clear(&self, from: u64, to: u64) {
        let page = from / PAGE as u64;
        if from < to
            && let Some(frame) = self.pages.get(&pin(), page)
        {
            let start = page * PAGE as u64;
            frame_io::clear(frame, (from - start) as usize, (to - start) as usize);
        }
    }

    /// Writes page by page, as long as there is room, and returns the number of bytes.
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

fn is_large_nameless(past: u8) -> bool {
    past & (NAMELESS | LARGE) == NAMELESS | LARGE
}

/// Frees removed files whose last user is gone, and returns whether there may be any. The caller holds no
/// lock.
pub(super) fn free_nameless() -> bool {
    epoch::may_reclaim() && epoch::free_nameless()
}

/// Returns the number of pages that hold `len` bytes.
fn pages(len: u64) -> u64 {
    len.div_ceil(PAGE as u64)
}

/// Splits a range of bytes at page ends, and yields for each piece the page, the offset in the page, and the
/// bytes.
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
