//! Operations that change mapped pages in place: protect, advise.

use percore::Pinned;
use radixmap::{Never, RangeGuard};
use rcu::Handle;
use refcache::Domain;
use vm::design::{Page, ShootdownSet};
use vm::{Flags, Memory, Mmu, PageNum, PageRange, Prot, VmError};

use super::{TreeSpace, find, keys};

impl<R: Domain, D: Handle, M: Mmu, F: Memory> TreeSpace<R, D, M, F> {
    pub(super) fn change_rights(&self, pin: &Pinned, pages: PageRange, prot: Prot) -> Result<(), VmError> {
        let mut edit = self.edit(pin);
        let (end, outcome) = up_to_refusal(&edit, pages, prot);
        let pages = PageRange::between(pages.start(), end);
        if !pages.is_empty() {
            edit.split_at_ends(pages)?;
            edit.hold(pages);
            let mut guard = self.lock_pages(pin, pages);
            edit.set_mappings(pages, |mapping| mapping.with_prot(prot));
            self.lower(pin, &mut guard, prot);
            drop(guard);
            edit.join_all(pages);
        }
        outcome
    }

    /// The resident pages that are held get the rights `prot`, which all mappings there have. They were
    /// locked before the mappings changed: or a fault in between would give a page its new rights, and the
    /// old translations would stay.
    fn lower(&self, pin: &Pinned, guard: &mut RangeGuard<'_, Page, Never>, prot: Prot) {
        let loses = |page: Page| !page.with_prot(prot).rights().contains(page.rights());
        let mut set = ShootdownSet::NONE;
        guard.for_each_used(|run| {
            let page = run.value();
            if let Some(mut run) = run.whole().filter(|_| loses(page)) {
                set.add(&mut run.one(), page, self.backend.grain);
            }
        });
        self.backend.invalidate(pin, set);
        guard.for_each_used(|run| {
            let page = run.value();
            let kept = if loses(page) { page.untracked() } else { page };
            run.whole().into_iter().for_each(|mut run| run.set(kept.with_prot(prot)));
        });
    }

    /// Changes flags. The slots are locked first: they may need room for what their pages' mappings say from
    /// then on.
    pub(super) fn change_flags(
        &self,
        pin: &Pinned,
        pages: PageRange,
        set: Flags,
        clear: Flags,
    ) -> Result<(), VmError> {
        assert!(Flags::ADVICE.contains(set | clear), "more than advice");
        let mut edit = self.edit(pin);
        let unfit = find::all(&edit, pages).any(|region| region.mapping.backing().is_some());
        if unfit && set.contains(Flags::WIPEONFORK) {
            return Err(VmError::Mixed);
        }
        edit.split_at_ends(pages)?;
        edit.hold(pages);
        let mut guard = self.lock_pages(pin, pages);
        let flags = |before: Flags| (before - clear) | set;
        let mut changes = false;
        guard.for_each_used(|run| changes |= flags(run.value().flags()) != run.value().flags());
        if changes {
            guard.widen(keys(pages)).map_err(|_| VmError::OutOfMemory)?;
        }
        edit.set_mappings(pages, |mapping| mapping.with_flags(flags(mapping.flags())));
        guard.for_each_used(|run| {
            let page = run.value().with_flags(flags(run.value().flags()));
            run.whole().into_iter().for_each(|mut run| run.set(page));
        });
        drop(guard);
        edit.join_all(pages);
        if self.all_mapped(pin, pages) { Ok(()) } else { Err(VmError::NotMapped) }
    }
}

/// Returns the first page of `pages` that cannot be given the rights `prot`, or is not there, and which of
/// the two it is.
fn up_to_refusal(tree: &find::Look<'_>, pages: PageRange, prot: Prot) -> (PageNum, Result<(), VmError>) {
    let mut end = pages.start();
    for region in find::all(tree, pages) {
        if region.pages.start() > end {
            break;
        }
        if !Page::new(region.mapping).may_be(prot) {
            return (end, Err(VmError::Denied));
        }
        end = region.pages.end().min(pages.end());
    }
    (end, if end == pages.end() { Ok(()) } else { Err(VmError::NotMapped) })
}
