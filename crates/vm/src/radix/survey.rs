//! Looking at what is mapped, a piece at a time, each piece locked while it is looked at. Needs no memory.

use core::ops::ControlFlow;

use percore::Pinned;
use radixmap::Never;
use refcache::Domain;

use super::{Guard, RadixSpace, keys};
use crate::page_word::Page;
use crate::protocol::{lock_leaves, range};
use crate::types::{Joining, Runs, Unbroken};
use crate::{Detail, FrameRun, HUGE_PAGES, Memory, Mmu, PageNum, PageRange, Region, VmError};

/// Pages of a piece, unless the slot that comes next has more: 1 GiB.
const PIECE: u64 = 1 << 18;
/// Runs of pages that an overview looks at together: some ten thousand instructions.
const STEPS: u64 = 512;
/// Pages of a run that are as much work as a run.
const RUN: u64 = 16;

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Locks `pages`, and more where they lie in folded slots.
    pub(super) fn lock_leaves<'g>(&'g self, pin: &'g Pinned, pages: PageRange) -> Guard<'g, Never> {
        lock_leaves(&self.map, pin, keys(pages))
    }

    /// Shows what is mapped of `within` to `visit`, from the left: pages, and what these are.
    pub(super) fn survey<B>(
        &self,
        pin: &Pinned,
        within: PageRange,
        mut visit: impl FnMut(PageRange, Page) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut rest = within;
        while !rest.is_empty() {
            let piece = PageRange::between(rest.start(), self.piece_end(pin, rest.start()).min(rest.end()));
            let mut guard = self.lock_leaves(pin, piece);
            guard.try_for_each_used(|run| visit(range(run.keys()), run.value()))?;
            rest = PageRange::between(piece.end(), rest.end());
        }
        ControlFlow::Continue(())
    }

    /// Returns how far to look at once. The peek at the map only decides that.
    fn piece_end(&self, pin: &Pinned, start: PageNum) -> PageNum {
        let slot = self.map.peek(pin, start.get()).span;
        PageNum::new(slot.end.max((start.get() | (PIECE - 1)) + 1))
    }

    /// Shows `page` to `visit`, if it is mapped.
    pub(super) fn look_at(&self, pin: &Pinned, page: PageNum, mut visit: impl FnMut(Page)) {
        if self.user.contains(page) {
            let mut guard = self.lock_leaves(pin, PageRange::one(page));
            guard.for_each(|entry| entry.value().into_iter().for_each(&mut visit));
        }
    }

    pub(super) fn each_region(
        &self,
        pin: &Pinned,
        within: PageRange,
        visit: &mut dyn FnMut(&Region) -> ControlFlow<()>,
    ) {
        let mut joining = Joining::new(visit);
        let walked = self.survey(pin, within, |pages, page| joining.add(Region::new(pages, page)));
        if walked.is_continue() {
            joining.end();
        }
    }

    /// See [`AddressSpace::overview`](crate::AddressSpace::overview).
    pub(super) fn show_regions(
        &self,
        pin: &Pinned,
        within: PageRange,
        detail: Detail,
        most: usize,
        visit: &mut dyn FnMut(&Region),
    ) -> PageNum {
        let (mut open, mut shown, mut steps): (Option<Region>, _, _) = (None, 0, 0);
        let walked = self.map.look(pin, keys(within), Page::mask(detail), |keys, page| {
            let (next, page) = (range(keys), page.told(detail));
            if !open.as_mut().is_some_and(|region| region.goes_on(next, page))
                && let Some(done) = open.replace(Region::new(next, page))
            {
                visit(&done);
                shown += 1;
                if shown == most {
                    open = None;
                    return ControlFlow::Break(done.pages.end());
                }
            }
            steps += steps_for(next);
            if steps < STEPS { ControlFlow::Continue(()) } else { ControlFlow::Break(next.end()) }
        });
        open.iter().for_each(visit);
        walked.break_value().unwrap_or(within.end())
    }

    /// See [`AddressSpace::frames`](crate::AddressSpace::frames).
    pub(super) fn show_frames(
        &self,
        pin: &Pinned,
        within: PageRange,
        visit: &mut dyn FnMut(FrameRun),
    ) -> PageNum {
        let mut steps = 0;
        let walked = self.map.look(pin, keys(within), u64::MAX, |keys, page| {
            let pages = range(keys);
            FrameRun::of(pages, page).into_iter().for_each(&mut *visit);
            steps += steps_for(pages);
            if steps < STEPS { ControlFlow::Continue(()) } else { ControlFlow::Break(pages.end()) }
        });
        walked.break_value().unwrap_or(within.end())
    }

    /// Visits each resident page. An apparent hole may be a mapping that is being replaced, so it is looked
    /// at again.
    pub(super) fn each_resident(
        &self,
        pin: &Pinned,
        within: PageRange,
        visit: &mut dyn FnMut(PageRange),
    ) -> Result<bool, VmError> {
        let (mut runs, mut mapped) = (Runs::new(visit), Unbroken::from(within.start()));
        let mut has_backing = false;
        let _ = self.map.look(pin, keys(within), u64::MAX, |keys, page| {
            let pages = range(keys);
            mapped.add(pages);
            has_backing |= page.backing().is_some();
            if page.frame().is_some() {
                runs.add(pages);
            }
            ControlFlow::<()>::Continue(())
        });
        runs.end();
        if mapped.reaches(within.end()) || self.is_surely_mapped(pin, within) {
            return Ok(has_backing);
        }
        Err(VmError::NotMapped)
    }

    /// Returns whether all of `pages` is mapped at one moment, or each piece of it is.
    fn is_surely_mapped(&self, pin: &Pinned, pages: PageRange) -> bool {
        let mut mapped = Unbroken::from(pages.start());
        let walked = self.survey(pin, pages, |pages, _| unbroken(&mut mapped, pages));
        walked.is_continue() && mapped.reaches(pages.end())
    }

    pub(super) fn all_mapped(&self, pin: &Pinned, pages: PageRange) -> bool {
        if pages.is_empty() {
            return true;
        }
        let mut mapped = Unbroken::from(pages.start());
        let walked = self.map.look(pin, keys(pages), 0, |keys, _| unbroken(&mut mapped, range(keys)));
        walked.is_continue() && mapped.reaches(pages.end())
    }
}

/// Returns how many steps a run of `pages` counts for: its pages may be looked at one by one.
fn steps_for(pages: PageRange) -> u64 {
    1 + pages.pages().min(HUGE_PAGES) / RUN
}

/// Adds the next run, as long as none is left out.
fn unbroken(mapped: &mut Unbroken, pages: PageRange) -> ControlFlow<()> {
    if mapped.add(pages) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}
