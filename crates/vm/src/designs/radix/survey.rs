//! Looking at what is mapped, a piece at a time, each piece locked while it is looked at. Needs no memory.

use core::ops::ControlFlow;

use percore::Pinned;
use radixmap::{Expand, Value};
use refcache::Domain;

use super::{Guard, RadixSpace, keys};
use crate::meta::Page;
use crate::reach::pages;
use crate::{Access, FrameNum, HUGE_PAGES, Memory, Mmu, PageNum, PageRange, Region, VmError};

/// Pages of a piece, unless the slot that comes next has more: 1 GiB.
const PIECE: u64 = 1 << 18;

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Locks `pages`, and more where they lie in folded slots.
    pub(super) fn lock_leaves<'g>(&'g self, pin: &'g Pinned, pages: PageRange) -> Guard<'g> {
        let Ok(guard) = self.map.lock_range(pin, keys(pages), Expand::Never) else {
            unreachable!("nothing is expanded")
        };
        guard
    }

    /// Shows the slots of `within` to `visit`, from the left: their pages, and what these are, if mapped.
    pub(super) fn survey<B>(
        &self,
        pin: &Pinned,
        within: PageRange,
        mut visit: impl FnMut(PageRange, Option<Page>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut rest = within;
        while !rest.is_empty() {
            let piece = PageRange::between(rest.start(), self.piece_end(pin, rest.start()).min(rest.end()));
            let mut guard = self.lock_leaves(pin, piece);
            guard.try_for_each(|entry| visit(pages(entry), entry.value()))?;
            rest = PageRange::between(piece.end(), rest.end());
        }
        ControlFlow::Continue(())
    }

    /// How far to look at once. What is peeked at only decides that.
    fn piece_end(&self, pin: &Pinned, start: PageNum) -> PageNum {
        let slot = self.map.peek(pin, start.get()).span;
        PageNum::new(slot.end.max((start.get() | (PIECE - 1)) + 1))
    }

    pub(super) fn show_frame(
        &self,
        pin: &Pinned,
        page: PageNum,
        access: Access,
        visit: &mut dyn FnMut(FrameNum),
    ) -> bool {
        let mut shown = false;
        self.lock_leaves(pin, PageRange::one(page)).for_each(|entry| {
            let reached = entry.value().filter(|found| found.rights().allows(access));
            let frame = reached.and_then(|found| found.part(page.get() % HUGE_PAGES).frame());
            shown |= frame.map(&mut *visit).is_some();
        });
        shown
    }

    pub(super) fn each_region(
        &self,
        pin: &Pinned,
        within: PageRange,
        visit: &mut dyn FnMut(&Region) -> ControlFlow<()>,
    ) {
        let mut open: Option<Region> = None;
        let walked = self.survey(pin, within, |pages, page| {
            let joined = open.zip(page).and_then(|(region, page)| region.joined(pages, page));
            let done = if joined.is_some() { None } else { open };
            open = joined.or_else(|| page.map(|page| Region::new(pages, page)));
            done.as_ref().map_or(ControlFlow::Continue(()), &mut *visit)
        });
        if let (true, Some(last)) = (walked.is_continue(), open) {
            let _ = visit(&last);
        }
    }

    pub(super) fn each_resident(
        &self,
        pin: &Pinned,
        within: PageRange,
        visit: &mut dyn FnMut(PageRange),
    ) -> Result<(), VmError> {
        let (mut run, mut holes) = (PageRange::EMPTY, false);
        let _ = self.survey(pin, within, |pages, page| {
            holes |= page.is_none();
            if page.is_some_and(|page| page.frame().is_some()) {
                if run.end() != pages.start() && !run.is_empty() {
                    visit(run);
                    run = PageRange::EMPTY;
                }
                run = run.hull(pages);
            }
            ControlFlow::<()>::Continue(())
        });
        if !run.is_empty() {
            visit(run);
        }
        if holes { Err(VmError::NotMapped) } else { Ok(()) }
    }

    pub(super) fn all_mapped(&self, pin: &Pinned, pages: PageRange) -> bool {
        let mut at = pages.start().get();
        while at < pages.end().get() {
            let peek = self.map.peek(pin, at);
            if !peek.used {
                return false;
            }
            at = peek.span.end;
        }
        true
    }
}
