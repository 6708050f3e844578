//! The segments that a process has attached: parts of its space, as Linux has areas.
//!
//! A part is taken when its pages are unmapped, replaced or moved, before that happens, and put back if it
//! does not happen. So a part never names pages that other memory has taken, and parts do not overlap, unless
//! the program unmaps a place that another of its threads attaches a segment to at the same time.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use abi::Errno;
use sync::SpinLock;
use sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vm::{PageNum, PageRange};

use super::segment::Segment;
use crate::mm::fallible;
use crate::mm::space::user_pages;

/// A part of a space that shows a segment, counted by the segment.
pub struct Attached {
    segment: Arc<Segment>,
    pages: PageRange,
    /// The page where the segment's page 0 would be, perhaps below 0.
    base: u64,
    is_shown: bool,
}

impl Attached {
    /// Counts a part that is about to be shown.
    ///
    /// # Errors
    /// EIDRM if the segment is removed.
    pub fn new(segment: Arc<Segment>) -> Result<Self, Errno> {
        segment.count()?;
        Ok(Self { segment, pages: PageRange::EMPTY, base: 0, is_shown: false })
    }

    /// Returns the segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    fn shown(mut self, pages: PageRange, base: u64) -> Self {
        (self.pages, self.base, self.is_shown) = (pages, base, true);
        self.segment.note_shown();
        self
    }

    /// Returns another part, which shows the same at `pages`. A part that is shown keeps its segment.
    fn copy(&self, pages: PageRange, base: u64) -> Result<Self, Errno> {
        Ok(Self::new(self.segment.clone())?.shown(pages, base))
    }

    /// Returns whether the segment's first page would be at `start`.
    fn begins_at(&self, start: PageNum) -> bool {
        self.base == start.get()
    }

    /// Returns whether `next` goes on where the part ends.
    fn goes_on(&self, next: &Self) -> bool {
        let same = Arc::ptr_eq(&self.segment, &next.segment) && self.base == next.base;
        same && self.pages.end() == next.pages.start()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.segment.discount(self.is_shown);
    }
}

/// The parts of a space that show segments. Most spaces have none, and then calls only read a flag.
pub struct Attachments {
    parts: SpinLock<Parts>,
    /// Set once there was one. Relaxed: a task that unmaps a part knows that it is there.
    is_used: AtomicBool,
    /// The processes that use the space. Written when one begins or ends to use that of another.
    processes: AtomicUsize,
}

/// A list of parts by rising pages.
struct Parts {
    list: Vec<Attached>,
    /// The parts that were taken and may come back. The list has room for them.
    promised: usize,
}

impl Parts {
    const EMPTY: Self = Self { list: Vec::new(), promised: 0 };

    fn reserve(&mut self, more: usize) -> Result<(), Errno> {
        self.list.try_reserve(self.promised + more).map_err(|_| Errno::ENOMEM)
    }

    /// Returns the indices of the parts that have pages in `pages`.
    fn touching(&self, pages: PageRange) -> Range<usize> {
        let first = self.list.partition_point(|part| part.pages.end() <= pages.start());
        let end = self.list.partition_point(|part| part.pages.start() < pages.end());
        first..end.max(first)
    }

    /// Divides the part in which `border` lies. There is room for another.
    fn split(&mut self, border: PageNum) -> Result<(), Errno> {
        let at = self.touching(PageRange::one(border)).start;
        if let Some(left) = self.list.get_mut(at)
            && left.pages.start() < border
            && border < left.pages.end()
        {
            let right = left.copy(PageRange::between(border, left.pages.end()), left.base)?;
            left.pages = PageRange::between(left.pages.start(), border);
            self.list.insert(at + 1, right);
        }
        Ok(())
    }

    /// Adds a part, for which there is room.
    fn insert(&mut self, part: Attached) {
        let at = self.list.partition_point(|other| other.pages.start() < part.pages.start());
        self.list.insert(at, part);
    }

    /// Adds a part that was taken, and joins it to those that it was divided from.
    fn put_back(&mut self, part: Attached) {
        let at = self.list.partition_point(|other| other.pages.start() < part.pages.start());
        self.list.insert(at, part);
        self.join(at);
        if at > 0 {
            self.join(at - 1);
        }
    }

    fn join(&mut self, at: usize) {
        let Some([left, right]) = self.list.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) else {
            return;
        };
        if left.goes_on(right) {
            left.pages = PageRange::between(left.pages.start(), right.pages.end());
            // The segment counts one part less, and is not detached.
            right.is_shown = false;
            self.list.remove(at + 1);
        }
    }

    /// Takes what lies in `pages`.
    fn take(&mut self, pages: PageRange) -> Result<Vec<Attached>, Errno> {
        let most = self.touching(pages).len();
        let mut taken = fallible::empty(most)?;
        self.reserve(most + 2)?;
        self.split(pages.start())?;
        self.split(pages.end())?;
        let inside = self.touching(pages);
        taken.extend(self.list.drain(inside));
        self.promised += taken.len();
        Ok(taken)
    }

    /// Copies what lies in `pages`.
    fn copies(&mut self, pages: PageRange) -> Result<Vec<Attached>, Errno> {
        let there = self.list.get(self.touching(pages)).unwrap_or_default();
        let mut copies = fallible::empty(there.len())?;
        for part in there {
            copies.push(part.copy(part.pages.common(pages), part.base)?);
        }
        self.reserve(copies.len())?;
        self.promised += copies.len();
        Ok(copies)
    }

    /// Takes one part of what was attached at `start`: the first, or, if `segment` is known, another of it.
    fn take_of(&mut self, start: PageNum, segment: Option<&Arc<Segment>>) -> Option<Attached> {
        let first = self.list.partition_point(|part| part.pages.start() < start);
        let is_meant = |part: &Attached| {
            let is_of = |segment: &&Arc<Segment>| {
                Arc::ptr_eq(segment, &part.segment)
                    && part.pages.end().get() - start.get() <= part.segment.pages()
            };
            part.begins_at(start) && segment.as_ref().is_none_or(is_of)
        };
        let at = first + self.list.get(first..)?.iter().position(is_meant)?;
        self.promised += 1;
        Some(self.list.remove(at))
    }
}

/// Parts that are taken out of their list while their pages are unmapped, replaced or moved. Those that are
/// neither put back nor moved are detached.
pub struct Taken<'a> {
    attachments: &'a Attachments,
    parts: Vec<Attached>,
}

impl Taken<'_> {
    /// Puts back those of which `shows` says that their first page is still there.
    #[cold]
    pub fn put_back(mut self, shows: impl Fn(PageNum) -> bool) {
        let parts = core::mem::take(&mut self.parts);
        for part in parts {
            let shown = shows(part.pages.start());
            self.attachments.restore(part, shown);
        }
    }

    /// Adds them where their pages are now: those of `from` are at the start of `to`. The last one has the
    /// rest of `to` too.
    pub fn move_to(mut self, from: PageRange, to: PageRange) {
        let shift = to.start().get().wrapping_sub(from.start().get());
        let parts = core::mem::take(&mut self.parts);
        let mut all = self.attachments.parts.lock();
        all.promised -= parts.len();
        for mut part in parts {
            let moved = |page: PageNum| PageNum::new(page.get().wrapping_add(shift));
            let end = if part.pages.end() == from.end() { to.end() } else { moved(part.pages.end()) };
            part.pages = PageRange::between(moved(part.pages.start()), end);
            part.base = part.base.wrapping_add(shift);
            all.insert(part);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.parts.is_empty() {
            self.attachments.parts.lock().promised -= self.parts.len();
        }
    }
}

impl Attachments {
    /// Creates the empty list of a space that one process uses.
    pub const fn new() -> Self {
        Self {
            parts: SpinLock::new(Parts::EMPTY),
            is_used: AtomicBool::new(false),
            processes: AtomicUsize::new(1),
        }
    }

    fn are_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Notes that `pages` show the part, from the segment's first page on.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn add(&self, part: Attached, pages: PageRange) -> Result<(), Errno> {
        self.is_used.store(true, Ordering::Relaxed);
        let part = part.shown(pages, pages.start().get());
        let mut parts = self.parts.lock();
        parts.reserve(1)?;
        parts.insert(part);
        Ok(())
    }

    /// Takes the parts in `pages`, which are about to be unmapped, replaced or moved.
    ///
    /// # Errors
    /// ENOMEM: nothing is taken.
    #[inline(always)]
    pub fn take(&self, pages: PageRange) -> Result<Option<Taken<'_>>, Errno> {
        if self.are_used() { self.take_used(pages) } else { Ok(None) }
    }

    #[cold]
    fn take_used(&self, pages: PageRange) -> Result<Option<Taken<'_>>, Errno> {
        // A range beyond the space is refused, and nothing is unmapped.
        if pages.end() > user_pages().end() {
            return Ok(None);
        }
        let parts = self.parts.lock().take(pages)?;
        Ok(Some(Taken { attachments: self, parts }))
    }

    /// Prepares a move of `pages`. If they also `stay`, the parts are copied.
    ///
    /// # Errors
    /// ENOMEM.
    #[inline(always)]
    pub fn take_to_move(&self, pages: PageRange, stay: bool) -> Result<Option<Taken<'_>>, Errno> {
        match self.are_used() {
            true if stay => self.copy_used(pages).map(Some),
            true => self.take_used(pages),
            false => Ok(None),
        }
    }

    fn copy_used(&self, pages: PageRange) -> Result<Taken<'_>, Errno> {
        let parts = self.parts.lock().copies(pages)?;
        Ok(Taken { attachments: self, parts })
    }

    /// Notes that a mapping that ended at `end` has grown by `more` pages.
    #[inline(always)]
    pub fn lengthen(&self, end: PageNum, more: u64) {
        if self.are_used() {
            self.lengthen_used(end, more);
        }
    }

    #[cold]
    fn lengthen_used(&self, end: PageNum, more: u64) {
        let mut parts = self.parts.lock();
        let at = parts.list.partition_point(|part| part.pages.end() < end);
        if let Some(part) = parts.list.get_mut(at)
            && part.pages.end() == end
        {
            part.pages = PageRange::between(part.pages.start(), PageNum::new(end.get() + more));
        }
    }

    fn restore(&self, part: Attached, is_shown: bool) {
        let mut parts = self.parts.lock();
        parts.promised -= 1;
        if is_shown {
            parts.put_back(part);
        } else {
            drop(parts);
            drop(part);
        }
    }

    /// Removes the parts of the segment that was attached at `start`, and calls `unmap` with the pages of
    /// each. If that fails, `shows` tells whether a page is still there.
    ///
    /// # Errors
    /// EINVAL if none was, and those of `unmap`.
    pub fn detach(
        &self,
        start: PageNum,
        mut unmap: impl FnMut(PageRange) -> Result<(), Errno>,
        shows: impl Fn(PageNum) -> bool,
    ) -> Result<(), Errno> {
        let mut segment = None;
        loop {
            let taken = self.parts.lock().take_of(start, segment.as_ref());
            let Some(part) = taken else { return segment.map(drop).ok_or(Errno::EINVAL) };
            let unmapped = unmap(part.pages);
            segment = Some(part.segment.clone());
            let is_shown = unmapped.is_err() && shows(part.pages.start());
            self.restore(part, is_shown);
            unmapped?;
        }
    }

    /// Returns the list of a child whose space is a copy. `shows` tells whether the copy has a page.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn copy(&self, shows: impl Fn(PageNum) -> bool) -> Result<Self, Errno> {
        let copy = Self::new();
        if self.are_used() {
            let parts = self.parts.lock();
            let mut copies = fallible::empty(parts.list.len())?;
            for part in parts.list.iter().filter(|part| shows(part.pages.start())) {
                copies.push(part.copy(part.pages, part.base)?);
            }
            drop(parts);
            copy.parts.lock().list = copies;
            copy.is_used.store(true, Ordering::Relaxed);
        }
        Ok(copy)
    }

    /// Notes that another process uses the space.
    pub fn join(&self) {
        self.processes.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a process uses the space no more. With the last one all segments are detached.
    pub fn leave(&self) {
        // AcqRel: the last one sees what the others attached.
        if self.are_used() || self.processes.load(Ordering::Relaxed) > 1 {
            let is_last = self.processes.fetch_sub(1, Ordering::AcqRel) == 1;
            let parts = if is_last { core::mem::take(&mut self.parts.lock().list) } else { Vec::new() };
            drop(parts);
        }
    }
}
