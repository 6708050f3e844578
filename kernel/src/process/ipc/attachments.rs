//! The segments that a process has attached: parts of its space, as Linux has areas.
//!
//! A part is cut when its pages are unmapped, replaced or moved, before that happens. So a part never names
//! pages that other memory has taken, unless the program unmaps a place that another of its threads attaches
//! a segment to at the same time.

use alloc::sync::Arc;
use alloc::vec::Vec;

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

    /// Returns whether the part belongs to what was attached at `start`.
    fn is_from(&self, start: PageNum) -> bool {
        let end = start.get() + self.segment.pages();
        self.base == start.get() && self.pages.end().get() <= end
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.segment.discount(self.is_shown);
    }
}

/// The parts of a space that show segments. Most spaces have none, and then calls only read a flag.
pub struct Attachments {
    parts: SpinLock<Vec<Attached>>,
    /// Set once there was one. Relaxed: a task that unmaps a part knows that it is there.
    is_used: AtomicBool,
    /// The processes that use the space. Written when one begins or ends to use that of another.
    processes: AtomicUsize,
}

impl Attachments {
    /// Creates the empty list of a space that one process uses.
    pub const fn new() -> Self {
        Self {
            parts: SpinLock::new(Vec::new()),
            is_used: AtomicBool::new(false),
            processes: AtomicUsize::new(1),
        }
    }

    /// Notes that `pages` show the part, from the segment's first page on.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn add(&self, part: Attached, pages: PageRange) -> Result<(), Errno> {
        self.is_used.store(true, Ordering::Relaxed);
        let part = part.shown(pages, pages.start().get());
        let mut parts = self.parts.lock();
        parts.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        parts.push(part);
        Ok(())
    }

    /// Cuts `pages`, which are about to be unmapped or replaced, out of all parts.
    ///
    /// # Errors
    /// ENOMEM: nothing is cut.
    #[inline(always)]
    pub fn cut(&self, pages: PageRange) -> Result<(), Errno> {
        if self.is_used.load(Ordering::Relaxed) { self.remove(pages) } else { Ok(()) }
    }

    #[cold]
    fn remove(&self, pages: PageRange) -> Result<(), Errno> {
        // A range beyond the space is refused, and nothing is unmapped.
        if pages.end() > user_pages().end() {
            return Ok(());
        }
        split(&mut self.parts.lock(), pages)?;
        while let Some(gone) = self.take(|part| lies_in(part, pages)) {
            drop(gone);
        }
        Ok(())
    }

    /// Removes a part, which is dropped without the lock: a segment may end with it.
    fn take(&self, is_meant: impl Fn(&Attached) -> bool) -> Option<Attached> {
        let mut parts = self.parts.lock();
        let at = parts.iter().position(is_meant)?;
        Some(parts.swap_remove(at))
    }

    /// Prepares [`Self::move_parts`].
    ///
    /// # Errors
    /// ENOMEM.
    #[inline(always)]
    pub fn prepare_move(&self, from: PageRange) -> Result<(), Errno> {
        if self.is_used.load(Ordering::Relaxed) { split(&mut self.parts.lock(), from) } else { Ok(()) }
    }

    /// Moves the parts in `from` with its pages, which are at `to` now. `stay` tells whether they are also
    /// where they were.
    ///
    /// # Errors
    /// ENOMEM, if they stay.
    #[inline(always)]
    pub fn move_parts(&self, from: PageRange, to: PageNum, stay: bool) -> Result<(), Errno> {
        if self.is_used.load(Ordering::Relaxed) { self.shift(from, to, stay) } else { Ok(()) }
    }

    #[cold]
    fn shift(&self, from: PageRange, to: PageNum, stay: bool) -> Result<(), Errno> {
        let shift = to.get().wrapping_sub(from.start().get());
        let moved = |part: &Attached| {
            let start = PageNum::new(part.pages.start().get().wrapping_add(shift));
            let pages = PageRange::new(start, part.pages.pages()).unwrap_or(PageRange::EMPTY);
            (pages, part.base.wrapping_add(shift))
        };
        let mut parts = self.parts.lock();
        if !stay {
            let those = parts.iter_mut().filter(|part| lies_in(part, from));
            those.for_each(|part| (part.pages, part.base) = moved(part));
            return Ok(());
        }
        let count = parts.iter().filter(|part| lies_in(part, from)).count();
        let mut copies = fallible::empty(count)?;
        parts.try_reserve(count).map_err(|_| Errno::ENOMEM)?;
        for part in parts.iter().filter(|part| lies_in(part, from)) {
            let (pages, base) = moved(part);
            copies.push(part.copy(pages, base)?);
        }
        parts.extend(copies);
        Ok(())
    }

    /// Removes the parts of the segment that was attached at `start`, and calls `unmap` with the pages of
    /// each.
    ///
    /// # Errors
    /// EINVAL if none was, and those of `unmap`.
    pub fn detach(
        &self,
        start: PageNum,
        mut unmap: impl FnMut(PageRange) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let next = || self.take(|part| part.is_from(start));
        let mut part = next().ok_or(Errno::EINVAL)?;
        loop {
            let unmapped = unmap(part.pages);
            drop(part);
            unmapped?;
            match next() {
                Some(another) => part = another,
                None => return Ok(()),
            }
        }
    }

    /// Returns the list of a child whose space is a copy. `shows` tells whether the copy has a page.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn copy(&self, shows: impl Fn(PageNum) -> bool) -> Result<Self, Errno> {
        let copy = Self::new();
        if self.is_used.load(Ordering::Relaxed) {
            let parts = self.parts.lock();
            let mut copies = fallible::empty(parts.len())?;
            for part in parts.iter().filter(|part| shows(part.pages.start())) {
                copies.push(part.copy(part.pages, part.base)?);
            }
            drop(parts);
            *copy.parts.lock() = copies;
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
        if self.is_used.load(Ordering::Relaxed) || self.processes.load(Ordering::Relaxed) > 1 {
            let is_last = self.processes.fetch_sub(1, Ordering::AcqRel) == 1;
            let parts = if is_last { core::mem::take(&mut *self.parts.lock()) } else { Vec::new() };
            drop(parts);
        }
    }
}

fn lies_in(part: &Attached, pages: PageRange) -> bool {
    !part.pages.is_empty() && part.pages.common(pages) == part.pages
}

/// Divides the parts that lie in `pages` only partly.
fn split(parts: &mut Vec<Attached>, pages: PageRange) -> Result<(), Errno> {
    for border in [pages.start(), pages.end()] {
        let is_cut = |part: &&mut Attached| part.pages.contains(border) && part.pages.start() != border;
        parts.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        if let Some(left) = parts.iter_mut().find(is_cut) {
            let right = left.copy(PageRange::between(border, left.pages.end()), left.base)?;
            left.pages = PageRange::between(left.pages.start(), border);
            parts.push(right);
        }
    }
    Ok(())
}
