//! Map and unmap.

use core::iter;
use core::ops::Range;

use percore::Pinned;
use radixmap::Expand;
use rcu::Handle;
use refcache::Domain;
use vm::design::{Change, any_hole};
use vm::{Backings, Event, Mapping, Memory, Mmu, PageNum, PageRange, Placement, VmError};

use super::edit::Edit;
use super::find::{self, is_free};
use super::{Guard, TreeSpace, keys};

/// Where a mapping goes.
pub(super) struct Chosen {
    pub(super) pages: PageRange,
    /// This core unmapped it lately, and is likely to do so again: what is joined there must be split soon.
    again: bool,
}

impl From<PageRange> for Chosen {
    fn from(pages: PageRange) -> Self {
        Self { pages, again: false }
    }
}

impl<R: Domain, D: Handle, M: Mmu, F: Memory> TreeSpace<R, D, M, F> {
    /// Maps `pages` pages, and says where.
    pub(super) fn place(
        &self,
        pin: &Pinned,
        edit: &mut Edit<'_>,
        place: Placement,
        pages: u64,
        mapping: Mapping,
    ) -> Result<PageNum, VmError> {
        let Chosen { pages, again } = self.choose(pin, edit, place, pages)?;
        if let Placement::Fixed(_) = place {
            self.make_way(pin, edit, pages)?;
        }
        edit.reserve(pages.start())?;
        if let Some(backing) = mapping.backing() {
            self.backend.memory.placed(pin, backing, pages.start());
        }
        self.put(pin, edit, pages, mapping);
        if !again {
            edit.join(pages.start());
            edit.join(pages.end());
        }
        Ok(pages.start())
    }

    /// Opens a region at a place that was reserved.
    pub(super) fn put(&self, pin: &Pinned, edit: &mut Edit<'_>, pages: PageRange, mapping: Mapping) {
        self.backend.refer(pin, mapping.backing(), pages.pages() as i64);
        self.backend.counts.change(pin, &Change::map(pages.pages()));
        edit.open(pages, mapping);
    }

    /// Chooses the place of a mapping. The answer holds as long as the operation.
    pub(super) fn choose(
        &self,
        pin: &Pinned,
        edit: &Edit<'_>,
        place: Placement,
        pages: u64,
    ) -> Result<Chosen, VmError> {
        if pages == 0 {
            return Err(VmError::Empty);
        }
        match place {
            Placement::Anywhere { hint } => self.anywhere(pin, edit, hint, pages),
            Placement::Below(limit) => Ok(self.below(pin, edit, limit, pages)?.into()),
            Placement::Fixed(start) => Ok(self.range(start, pages)?.into()),
            Placement::FixedNoReplace(start) => {
                let free = Some(self.range(start, pages)?).filter(|&range| is_free(edit, range));
                Ok(free.ok_or(VmError::Exists)?.into())
            }
        }
    }

    fn anywhere(
        &self,
        pin: &Pinned,
        edit: &Edit<'_>,
        hint: Option<PageNum>,
        pages: u64,
    ) -> Result<Chosen, VmError> {
        let fits = |start| self.range(start, pages).ok().filter(|&range| is_free(edit, range));
        if let Some(pages) = hint.and_then(fits) {
            return Ok(pages.into());
        }
        if let Some(pages) = iter::from_fn(|| self.arenas.recent(pin, pages)).find_map(fits) {
            return Ok(Chosen { pages, again: true });
        }
        let search = || self.arenas.search(pin, pages, |keys| self.first_used(pin, edit, keys));
        if let Some(pages) = iter::from_fn(search).find_map(fits) {
            return Ok(pages.into());
        }
        Ok(self.below(pin, edit, self.user.end(), pages)?.into())
    }

    /// Returns the highest hole below `limit`.
    fn below(&self, pin: &Pinned, edit: &Edit<'_>, limit: PageNum, pages: u64) -> Result<PageRange, VmError> {
        let limit = limit.clamp(self.user.start(), self.user.end());
        let within = keys(PageRange::between(self.user.start(), limit));
        let hole = any_hole(within, pages, &|keys| self.first_used(pin, edit, keys));
        self.range(PageNum::new(hole.ok_or(VmError::NoSpace)?), pages)
    }

    /// Returns where the first region that has some of `keys` starts.
    fn first_used(&self, pin: &Pinned, edit: &Edit<'_>, keys: Range<u64>) -> Option<u64> {
        self.backend.counts.add(pin, Event::Look, 1);
        let used = find::next(edit, PageNum::new(keys.start))?.pages.start().get();
        (used < keys.end).then_some(used)
    }

    /// Takes away what is at `pages`, and leaves a region there that is gone.
    pub(super) fn make_way(
        &self,
        pin: &Pinned,
        edit: &mut Edit<'_>,
        pages: PageRange,
    ) -> Result<(), VmError> {
        if !is_free(edit, pages) {
            edit.split_at_ends(pages)?;
            edit.reserve(pages.start())?;
            self.take_away(pin, edit, pages);
        }
        Ok(())
    }

    /// Unmaps `pages`.
    pub(super) fn remove(&self, pin: &Pinned, edit: &mut Edit<'_>, pages: PageRange) -> Result<(), VmError> {
        edit.split_at_ends(pages)?;
        self.take_away(pin, edit, pages);
        edit.clean(pages);
        Ok(())
    }

    /// Unmaps `pages`, out of which no region sticks. Their regions are gone, and the first may stay in the
    /// tree.
    pub(super) fn take_away(&self, pin: &Pinned, edit: &mut Edit<'_>, pages: PageRange) {
        edit.close(pages);
        self.vacate(pin, edit, pages, &mut self.lock_pages(pin, pages));
        edit.clean(PageRange::between(PageRange::one(pages.start()).end(), pages.end()));
    }

    /// Unmaps `pages`, whose regions are closed, and whose slots are locked: the pages go, and then what the
    /// regions stand for.
    pub(super) fn vacate<E: Expand>(
        &self,
        pin: &Pinned,
        edit: &mut Edit<'_>,
        pages: PageRange,
        guard: &mut Guard<'_, E>,
    ) {
        self.drop_locked(pin, guard, |_| true);
        edit.bury(pages, |region| {
            self.backend.refer(pin, region.mapping.backing(), -(region.pages.pages() as i64));
            self.backend.counts.change(pin, &Change::unmap(region.pages.pages()));
        });
    }
}
