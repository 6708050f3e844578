//! Operations that change mapped pages in place: protect, advise, zap. (`discard.rs` has the other one.)

use core::ops::ControlFlow;

use percore::Pinned;
use radixmap::{IfPresent, Run};
use refcache::Domain;

use super::{Guard, RadixSpace, keys};
use crate::page_word::Page;
use crate::protocol::{Removed, ShootdownSet, range};
use crate::types::Unbroken;
use crate::{BackingNum, Copies, Flags, Memory, Mmu, PageRange, Prot, VmError};

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
