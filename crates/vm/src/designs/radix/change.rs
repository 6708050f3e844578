//! What changes mapped pages where they are: protect, advise, discard, zap.

use core::ops::ControlFlow;

use percore::Pinned;
use radixmap::{Entry, IfDiffering, IfPresent};
use refcache::Domain;

use super::{Guard, RadixSpace, keys};
use crate::meta::Page;
use crate::reach::Reach;
use crate::shootdown::Removed;
use crate::{BackingNum, Copies, Flags, HUGE_PAGES, Memory, Mmu, PageRange, Prot, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    pub(super) fn change_rights(&self, pin: &Pinned, range: PageRange, prot: Prot) -> Result<(), VmError> {
        let mut guard = self.lock(pin, range, IfPresent)?;
        let loses = |page: Page| !page.with_prot(prot).rights().contains(page.rights());
        let mut reach = Reach::NONE;
        let _ = for_each_up_to_refusal(&mut guard, prot, |entry, page| {
            if loses(page) {
                reach.add(entry, page, self.rig.grain);
            }
        });
        self.rig.take_back_in(pin, &mut guard, reach);
        for_each_up_to_refusal(&mut guard, prot, |entry, page| {
            let kept = if loses(page) { page.untracked() } else { page };
            entry.set(kept.with_prot(prot));
        })
    }

    pub(super) fn change_flags(
        &self,
        pin: &Pinned,
        pages: PageRange,
        set: Flags,
        clear: Flags,
    ) -> Result<(), VmError> {
        assert!(Flags::ADVICE.contains(set | clear), "more than advice");
        let mut guard = self.lock(pin, pages, IfPresent)?;
        let changed = |page: Page| (page.flags() - clear) | set;
        let (mut unfit, mut changes) = (false, false);
        guard.for_each(|entry| {
            unfit |= entry.value().is_some_and(|page| page.backing().is_some());
            changes |= entry.value().is_some_and(|page| changed(page) != page.flags());
        });
        if unfit && set.contains(Flags::WIPEONFORK) {
            return Err(VmError::Mixed);
        }
        if changes {
            guard.widen(keys(pages)).map_err(|_| VmError::OutOfMemory)?;
        }
        let mut holes = false;
        guard.for_each(|entry| match entry.used() {
            Some((mut entry, page)) => entry.set(page.with_flags(changed(page))),
            None => holes = true,
        });
        if holes { Err(VmError::NotMapped) } else { Ok(()) }
    }

    /// Only leaves and huge pages have frames, so nothing else is expanded.
    pub(super) fn drop_contents(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        let mut guard = self.lock(pin, pages, IfDiffering)?;
        let quiet = Removed::scan(&mut guard, self.rig.grain, |_| true).take_leaves_back(pin, &self.rig);
        let holes = quiet.holes;
        quiet.forget(pin, &self.rig);
        if pages.pages() >= HUGE_PAGES {
            self.fold_untouched(&mut guard, keys(pages));
        }
        if holes { Err(VmError::NotMapped) } else { Ok(()) }
    }

    /// Only leaves show a backing, so nothing is expanded.
    pub(super) fn drop_shown(&self, pin: &Pinned, pages: PageRange, backing: BackingNum, copies: Copies) {
        let mut guard = self.lock_leaves(pin, pages);
        let picked = |page: Page| page.shows(backing, copies);
        Removed::scan(&mut guard, self.rig.grain, picked).take_back(pin, &self.rig).forget(pin, &self.rig);
    }
}

/// Calls `f` with the locked pages from the left, up to the first that cannot be given the rights `prot`, or is not there.
#[inline]
fn for_each_up_to_refusal(
    guard: &mut Guard<'_, IfPresent>,
    prot: Prot,
    mut f: impl FnMut(&mut Entry<'_, Page>, Page),
) -> Result<(), VmError> {
    let walked = guard.try_for_each(|entry| match entry.used() {
        None => ControlFlow::Break(VmError::NotMapped),
        Some((_, page)) if !page.may_be(prot) => ControlFlow::Break(VmError::Denied),
        Some((mut entry, page)) => {
            f(&mut entry, page);
            ControlFlow::Continue(())
        }
    });
    walked.break_value().map_or(Ok(()), Err)
}
