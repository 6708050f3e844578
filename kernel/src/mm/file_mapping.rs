//! One mapping of a file in one address space: the record behind a [`BackingNum`].
//!
//! ```text
//!   pages of a space ──count──▶ FileMapping ──▶ PageCache ──▶ frames
//!   (word: BackingNum)            │    ▲           │
//!                                 ▼    └───────────┘ mappings (the reverse map)
//!                            the space (weak)
//! ```
//!
//! | the record is | held by |
//! |---|---|
//! | new | its maker: one reference ([`Held`]) |
//! | in use | each page that shows it, touched or not, and each walk of the file's mappings that visits it |
//! | gone | no one: some epochs later Refcache takes it out of the file's mappings and frees it |
//!
//! 1. A record is in its file's list from before the first page shows it until after the last page that did.
//! 2. A child inherits a copy of a record, and a move makes one too. A walk of the mappings that has not
//!    visited the original yet will visit the copy (see `mappings.rs`). A walk that has visited the original
//!    has left no page to copy.
//! 3. The number is the record's physical address / 64, so no table is needed to find the record.
//! 4. A record of *all* spaces is of none, and stays for ever. A walk of the mappings finds no space by it,
//!    so it is for a file whose pages stay as they are. A child has the same record, because it shows the
//!    file at the same place.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::mem::offset_of;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use percore::{Pinned, pin};
use refcache::{Header, Refcache, WeakWord};
use vm::{BackingNum, PageNum, PageRange};

use super::mappings::{Links, ListIndex};
use super::refcache_arc::RefcacheArc;
use super::space::{Name, SpaceHandle};
use super::user::USER_END;
use super::{FRAME, Files, Source as _, epoch, fallible};
use crate::above::Above;
use crate::arch::{phys_to_virt, virt_to_phys};

type Source = <Above as Files>::Source;

const ALIGN: u64 = 64;
const LAST: u64 = USER_END / FRAME;

/// A record: see the module.
#[repr(C, align(64))]
pub struct FileMapping {
    header: Header,
    /// Names the record in the file's list, without keeping it.
    word: WeakWord,
    pub(super) links: Links,
    pub(super) list: ListIndex,
    source: RefcacheArc<Source>,
    space: Name,
    /// The virtual page where the file's page 0 would be, which may lie below 0. Relaxed, as for `end`: set
    /// before any page shows the record, and published by the locks of their slots.
    base: AtomicU64,
    /// Whether it is of all spaces, or is a moved copy of such a record: its pages are not looked for.
    of_all: bool,
    /// Pages of the file that the record may show: the first, and one past the last.
    first: u64,
    end: AtomicU64,
}

/// A reference to a record.
pub struct Held(NonNull<FileMapping>);

// SAFETY: the record is counted by Refcache, which is shared by all cores.
unsafe impl Send for Held {}
// SAFETY: as for `Send`. Of the record only atomics and the links change, and these under their list's lock.
unsafe impl Sync for Held {}

impl FileMapping {
    /// Returns a copy for `space`, whose pages lie `shift` pages further up.
    fn copied(&self, space: Name, shift: u64) -> Result<Held, Errno> {
        let base = self.base.load(Ordering::Relaxed).wrapping_add(shift);
        let shown = (base, self.first, self.end.load(Ordering::Relaxed));
        let copy = Self::make(self.source.clone(), space, shown, self.of_all)?;
        self.source.mappings().add_copy(self, copy.0);
        Ok(copy)
    }

    fn make(
        source: RefcacheArc<Source>,
        space: Name,
        (base, first, end): (u64, u64, u64),
        of_all: bool,
    ) -> Result<Held, Errno> {
        let block = NonNull::from(fallible::empty::<Self>(1)?.leak()).cast::<Self>();
        // SAFETY: the block has room for one record and lies in the physmap. The word lies in the record, and
        // is not read after the record is released.
        unsafe {
            let word = block.byte_add(offset_of!(Self, word)).cast();
            block.write(Self {
                header: Header::new(1, Some(word), release),
                word: WeakWord(AtomicU64::new(block.addr().get() as u64)),
                links: Links::new(),
                list: ListIndex::here(),
                source,
                space,
                base: AtomicU64::new(base),
                of_all,
                first,
                end: AtomicU64::new(end),
            });
        }
        Ok(Held(block))
    }

    /// Returns the source that it shows.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns a reference to the source for another record, which writes no line that other cores count on.
    pub fn share_source(&self) -> RefcacheArc<Source> {
        self.source.clone()
    }

    /// Returns the space, if it still exists.
    pub fn space(&self) -> Option<Arc<SpaceHandle>> {
        self.space.upgrade()
    }

    /// Returns whether this is the space, which exists.
    pub fn is_of(&self, space: &Arc<SpaceHandle>) -> bool {
        self.space.as_ptr() == Arc::as_ptr(space)
    }

    /// Returns the page of the file that shows at `page`.
    pub fn file_page(&self, page: PageNum) -> u64 {
        page.get().wrapping_sub(self.base.load(Ordering::Relaxed))
    }

    /// Returns the virtual pages that show pages `from` to `to` of the file: empty if none do.
    pub fn shown_at(&self, from: u64, to: u64) -> PageRange {
        let base = self.base.load(Ordering::Relaxed);
        let at = |page: u64| (base as i64).wrapping_add(page as i64).clamp(0, LAST as i64) as u64;
        let (from, to) = (from.max(self.first), to.min(self.end.load(Ordering::Relaxed)));
        PageRange::between(PageNum::new(at(from)), PageNum::new(at(to.max(from))))
    }

    /// Returns the virtual pages at which the record is shown, or was.
    pub fn shown(&self) -> PageRange {
        self.shown_at(0, u64::MAX)
    }

    /// Takes a reference, for a caller that found the record in the file's list, under its lock. Returns
    /// `None` if the record is gone.
    pub(super) fn hold(&self, pin: &Pinned) -> Option<Held> {
        let _loan = epoch::domain().loan(pin);
        (self.word.revive(pin) != 0).then(|| {
            adjust(pin, number(self.into()), 1);
            Held(self.into())
        })
    }
}

impl Held {
    /// Creates a record for `pages` pages of `source`, from page `first` on, in `space`. [`placed`] sets its
    /// place there later.
    pub fn new(source: Source, space: &Arc<SpaceHandle>, first: u64, pages: u64) -> Result<Self, Errno> {
        Self::second(RefcacheArc::new(source)?, space, first, pages)
    }

    /// Creates a record of a source that another record shows, as `new` does.
    pub fn second(
        source: RefcacheArc<Source>,
        space: &Arc<SpaceHandle>,
        first: u64,
        pages: u64,
    ) -> Result<Self, Errno> {
        source.mappings().open()?;
        let made = FileMapping::make(source, space.name(), (0, first, first + pages), false)?;
        made.source.mappings().add(made.0);
        Ok(made)
    }

    /// Creates the record of all spaces for one page of `source`, which each of them may show at `at`.
    pub fn of_all(source: Source, at: PageNum) -> Result<Self, Errno> {
        let source = RefcacheArc::new(source)?;
        source.mappings().open()?;
        let made = FileMapping::make(source, Name::new(Weak::new())?, (at.get(), 0, 1), true)?;
        made.source.mappings().add(made.0);
        Ok(made)
    }

    /// Returns the record's number.
    pub fn number(&self) -> BackingNum {
        number(self.0)
    }

    /// Returns the record's address.
    pub(super) fn pointer(&self) -> NonNull<FileMapping> {
        self.0
    }
}

impl Deref for Held {
    type Target = FileMapping;
    fn deref(&self) -> &FileMapping {
        // SAFETY: the reference keeps the record, of which only atomics and the links change.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        adjust(&pin(), self.number(), -1);
    }
}

fn number(record: NonNull<FileMapping>) -> BackingNum {
    BackingNum::new(virt_to_phys(record.as_ptr()) / ALIGN)
}

fn record(backing: BackingNum) -> NonNull<FileMapping> {
    // SAFETY: no address in the physmap is null.
    unsafe { NonNull::new_unchecked(phys_to_virt(backing.get() * ALIGN)) }
}

/// Calls `f` with the record of a backing that a locked page shows, or to which the caller has a reference,
/// or that a page has shown since the caller was pinned.
pub fn with<R>(backing: BackingNum, f: impl FnOnce(&FileMapping) -> R) -> R {
    // SAFETY: backings are records' numbers, and the page or the caller keeps the record, or it is not
    // released before the caller's core takes part in another epoch.
    f(unsafe { record(backing).as_ref() })
}

/// Adds `pages` to the record's count. The caller has a reference.
pub fn adjust(pin: &Pinned, backing: BackingNum, pages: i64) {
    // SAFETY: the caller's reference, and the header begins the record.
    unsafe { epoch::domain().adjust(pin, record(backing).cast(), pages) };
}

/// Sets the start of the mapping to `start`. A record of all spaces is there already, and is not written.
pub fn placed(backing: BackingNum, start: PageNum) {
    with(backing, |record| {
        if !record.of_all {
            record.base.store(start.get().wrapping_sub(record.first), Ordering::Relaxed);
        }
    });
}

/// Extends the mapping to end before `end`.
pub fn grown(backing: BackingNum, end: PageNum) {
    with(backing, |record| record.end.fetch_max(record.file_page(end), Ordering::Relaxed));
}

/// Returns a copy of `backing` for the child `space`, which shows the same at each page. The copy lives as
/// long as the caller stays pinned, or pages refer to it. Returns `None` without memory.
pub fn inherited(_pin: &Pinned, backing: BackingNum, space: &Arc<SpaceHandle>) -> Option<BackingNum> {
    if is_of_all(backing) {
        return Some(backing);
    }
    let copy = with(backing, |record| record.copied(space.name(), 0));
    copy.ok().map(|copy| copy.number())
}

/// Returns whether children have the same record.
fn is_of_all(backing: BackingNum) -> bool {
    with(backing, |record| record.of_all)
}

/// Does the same for a walk in pieces. `last` is the backing asked for last with its copy, which is kept for
/// the next piece.
pub fn inherited_again(
    last: &mut Option<(BackingNum, Held)>,
    backing: BackingNum,
    space: &Arc<SpaceHandle>,
) -> Option<BackingNum> {
    if is_of_all(backing) {
        return Some(backing);
    }
    if let Some((_, copy)) = last.as_ref().filter(|(asked, _)| *asked == backing) {
        return Some(copy.number());
    }
    let copy = with(backing, |record| record.copied(space.name(), 0)).ok()?;
    Some(last.insert((backing, copy)).1.number())
}

/// Returns a record that shows at `to` what `backing` shows at `from`. See [`inherited`].
pub fn moved(_pin: &Pinned, backing: BackingNum, from: PageNum, to: PageNum) -> Option<BackingNum> {
    let shift = to.get().wrapping_sub(from.get());
    let copy = with(backing, |record| record.copied(record.space.clone(), shift));
    copy.ok().map(|copy| copy.number())
}

/// Does the same for a move in pieces, which all move equally far. `last` keeps the record that was made for
/// the first piece.
pub fn moved_again(
    last: &mut Option<(BackingNum, Held)>,
    backing: BackingNum,
    from: PageNum,
    to: PageNum,
) -> Option<BackingNum> {
    if let Some((_, copy)) = last.as_ref().filter(|(asked, _)| *asked == backing) {
        return Some(copy.number());
    }
    let shift = to.get().wrapping_sub(from.get());
    let copy = with(backing, |record| record.copied(record.space.clone(), shift)).ok()?;
    Some(last.insert((backing, copy)).1.number())
}

/// Frees a record to which no page and no other holder refers.
///
/// # Safety
/// Called once, by the domain, with the header of a record made by [`FileMapping::make`].
unsafe fn release(_: &Refcache, _: &Pinned, header: NonNull<Header>) {
    let record = header.cast::<FileMapping>();
    // SAFETY: the record lives until the end of this function, and then no walk finds it any more.
    unsafe {
        record.as_ref().source.mappings().remove(record);
        drop(Box::from_raw(record.as_ptr()));
    }
}
