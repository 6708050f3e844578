//! Operations that change mapped pages in place: protect, advise, discard, zap.

use core::cell::Cell;
use core::ops::ControlFlow;

use percore::Pinned;
use radixmap::{IfDiffering, IfPresent, Run};
use refcache::Domain;

use super::promote::is_plain;
use super::{Guard, RadixSpace, has_leaves, keys};
use crate::page_word::Page;
use crate::protocol::{Found, Removed, Runs, ShootdownSet, range};
use crate::types::Unbroken;
use crate::{BackingNum, Copies, Flags, HUGE_PAGES, Memory, Mmu, PageRange, Prot, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    pub(super) fn change_rights(&self, pin: &Pinned, range: PageRange, prot: Prot) -> Result<(), VmError> {
        let mut guard = self.lock(pin, range, IfPresent)?;
        let loses = |page: Page| page.is_touched() && !page.with_prot(prot).rights().contains(page.rights());
        let mut set = ShootdownSet::NONE;
        let changed = for_each_up_to_refusal(&mut guard, prot, |run, page| {
            let loses = loses(page);
            if loses {
                set.add(&mut run.one(), page, self.backend.grain);
            }
            run.set(if loses { page.untracked() } else { page }.with_prot(prot));
        });
        // Faults wait for the locked slots. A core that walks the leaf has the new rights at once, but only
        // where none are lost: a page that loses some is no entry of the leaf from `set.add` on.
        self.backend.invalidate_in(pin, &mut guard, set);
        changed
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
        let (mut unfit, mut changes, mut mapped) = (false, false, Unbroken::from(pages.start()));
        guard.for_each_used(|run| {
            let page = run.value();
            unfit |= page.backing().is_some();
            changes |= changed(page) != page.flags();
            mapped.add(range(run.keys()));
        });
        if unfit && set.contains(Flags::WIPEONFORK) {
            return Err(VmError::Mixed);
        }
        if changes {
            guard.widen(keys(pages)).map_err(|_| VmError::OutOfMemory)?;
        }
        if changes {
            guard.for_each_used(|run| run.set(run.value().with_flags(changed(run.value()))));
        }
        if mapped.reaches(pages.end()) { Ok(()) } else { Err(VmError::NotMapped) }
    }

    /// Only leaves and huge pages have frames, so nothing else is expanded.
    pub(super) fn drop_contents(
        &self,
        pin: &Pinned,
        pages: PageRange,
        refused: Flags,
    ) -> Result<(), VmError> {
        let mut guard = self.lock(pin, pages, IfDiffering)?;
        let (flags, some_plain, mut resident) = (Cell::new(Flags::NONE), Cell::new(false), Runs::none());
        let all = |page: Page| {
            flags.set(flags.get() | page.flags());
            some_plain.set(some_plain.get() | is_plain(page.mapping()));
            true
        };
        let (grain, note, mut found) = (self.backend.grain, |run| resident.add(run), Found::none());
        let mut invalidated = match has_leaves(&guard) {
            true => Removed::scan_with_leaves(&mut guard, grain, all, note, &mut found)
                .invalidate_leaves(pin, &self.backend),
            false => Removed::scan_noting(&mut guard, grain, all, note).invalidate_in(pin, &self.backend),
        };
        invalidated.abandon_leaves();
        if flags.get() & refused != Flags::NONE {
            return Err(VmError::Mixed);
        }
        let holes = invalidated.holes;
        invalidated.forget_these(pin, &self.backend, &resident);
        if some_plain.get() && pages.pages() >= HUGE_PAGES {
            self.fold_untouched(&mut guard, keys(pages));
        }
        if holes { Err(VmError::NotMapped) } else { Ok(()) }
    }

    /// Only leaves show a backing, so nothing is expanded.
    pub(super) fn drop_shown(&self, pin: &Pinned, pages: PageRange, backing: BackingNum, copies: Copies) {
        let mut guard = self.lock_leaves(pin, pages);
        let picked = |page: Page| page.shows(backing, copies);
        Removed::scan(&mut guard, self.backend.grain, picked)
            .invalidate(pin, &self.backend)
            .forget(pin, &self.backend);
    }
}

/// Calls `f` with the locked pages from the left, up to the first that cannot be given the rights `prot`, or
/// is not there.
#[inline]
fn for_each_up_to_refusal(
    guard: &mut Guard<'_, IfPresent>,
    prot: Prot,
    mut f: impl FnMut(&mut Run<'_, Page, IfPresent>, Page),
) -> Result<(), VmError> {
    let all = range(guard.keys());
    let mut mapped = Unbroken::from(all.start());
    let walked = guard.try_for_each_used(|run| match run.value() {
        _ if !mapped.add(range(run.keys())) => ControlFlow::Break(VmError::NotMapped),
        // A page that moves: with rights it could be touched here, and would be in two places.
        page if page.is_held() => ControlFlow::Break(VmError::NotMapped),
        page if !page.may_be(prot) => ControlFlow::Break(VmError::Denied),
        page => {
            f(run, page);
            ControlFlow::Continue(())
        }
    });
    match walked {
        ControlFlow::Break(refusal) => Err(refusal),
        ControlFlow::Continue(()) if mapped.reaches(all.end()) => Ok(()),
        ControlFlow::Continue(()) => Err(VmError::NotMapped),
    }
}
