//! Map: what is at the place goes or is in the way, or the place is ours to choose.

use percore::Pinned;
use radixmap::{Always, IfPresent};
use refcache::Domain;

use super::{Guard, RadixSpace, keys, make_fit};
use crate::page_word::Page;
use crate::placement::any_hole;
use crate::{Backings, Memory, Mmu, PageNum, PageRange, Placement, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Maps `pages` pages that are like `page`.
    #[inline]
    pub(super) fn map_page(
        &self,
        pin: &Pinned,
        place: Placement,
        pages: u64,
        page: Page,
    ) -> Result<PageNum, VmError> {
        if pages == 0 {
            return Err(VmError::Empty);
        }
        let start = match place {
            Placement::Anywhere { hint } => self.anywhere(pin, hint, pages, page)?,
            Placement::Below(limit) => self.below(pin, limit, pages, page)?,
            Placement::Fixed(start) => self.replace(pin, self.range(start, pages)?, page).map(|()| start)?,
            Placement::FixedNoReplace(start) => {
                self.try_claim(pin, self.range(start, pages)?, page).map(|()| start)?
            }
        };
        self.backend.counts.map(pin, pages);
        Ok(start)
    }

    /// Maps over whatever is there.
    pub(super) fn replace(&self, pin: &Pinned, pages: PageRange, page: Page) -> Result<(), VmError> {
        let mut guard = self.lock(pin, pages, Always)?;
        make_fit(&mut guard, keys(pages), page)?;
        self.remove(pin, &mut guard);
        self.put(pin, &mut guard, pages, page);
        Ok(())
    }

    /// Maps if nothing is there.
    #[inline]
    fn try_claim(&self, pin: &Pinned, pages: PageRange, page: Page) -> Result<(), VmError> {
        let mut guard = self.lock(pin, pages, Always)?;
        if !guard.is_empty() {
            return Err(VmError::Exists);
        }
        make_fit(&mut guard, keys(pages), page)?;
        self.put(pin, &mut guard, pages, page);
        Ok(())
    }

    /// Fills the locked and empty `pages`, which were made fit.
    #[inline]
    fn put(&self, pin: &Pinned, guard: &mut Guard<'_>, pages: PageRange, page: Page) {
        if let Some(backing) = page.backing() {
            self.backend.memory.placed(pin, backing, pages.start());
            self.backend.refer(pin, page.backing(), pages.pages() as i64);
        }
        guard.fill(page);
    }

    /// Claims `pages` pages at `start`. Returns `Ok(None)` if this place is not free or out of range, but
    /// another may do.
    #[inline]
    fn try_at(
        &self,
        pin: &Pinned,
        start: PageNum,
        pages: u64,
        page: Page,
    ) -> Result<Option<PageNum>, VmError> {
        match self.range(start, pages).and_then(|range| self.try_claim(pin, range, page)) {
            Ok(()) => Ok(Some(start)),
            Err(VmError::Exists | VmError::OutOfRange) => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[inline]
    pub(super) fn anywhere(
        &self,
        pin: &Pinned,
        hint: Option<PageNum>,
        pages: u64,
        page: Page,
    ) -> Result<PageNum, VmError> {
        let recent = || self.arenas.recent(pin, pages);
        let search = || self.arenas.search(pin, pages, |pages| self.look(pin, pages));
        let mut wish = hint;
        while let Some(start) = wish.take().or_else(recent).or_else(search) {
            if let Some(start) = self.try_at(pin, start, pages, page)? {
                return Ok(start);
            }
        }
        self.below(pin, self.user.end(), pages, page)
    }

    /// Maps at the highest hole below `limit`. Reports that there is none only with all of it locked.
    pub(super) fn below(
        &self,
        pin: &Pinned,
        limit: PageNum,
        pages: u64,
        page: Page,
    ) -> Result<PageNum, VmError> {
        let limit = limit.clamp(self.user.start(), self.user.end());
        loop {
            let start = self.highest_hole(pin, PageRange::between(self.user.start(), limit), pages)?;
            if let Some(start) = self.try_at(pin, start, pages, page)? {
                return Ok(start);
            }
        }
    }

    fn highest_hole(&self, pin: &Pinned, within: PageRange, pages: u64) -> Result<PageNum, VmError> {
        if within.is_empty() {
            return Err(VmError::NoSpace);
        }
        let _still = self.lock(pin, within, IfPresent)?;
        let hole = any_hole(keys(within), pages, &|pages| self.look(pin, pages));
        hole.map(PageNum::new).ok_or(VmError::NoSpace)
    }
}
