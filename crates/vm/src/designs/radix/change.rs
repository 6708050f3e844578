//! What changes mapped pages where they are: protect, advise, discard, zap.

use percore::Pinned;
use radixmap::Expand;
use refcache::Domain;

use super::RadixSpace;
use crate::meta::Page;
use crate::shootdown::{Reach, Removed, for_each_before_hole};
use crate::{BackingNum, Copies, Flags, Memory, Mmu, PageRange, Prot, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    pub(super) fn change_rights(&self, pin: &Pinned, pages: PageRange, prot: Prot) -> Result<(), VmError> {
        let mut guard = self.lock(pin, pages, Expand::IfPresent)?;
        let loses = |page: Page| !page.with_prot(prot).rights().contains(page.rights());
        let reach = Reach::before_hole(&mut guard, self.rig.grain, loses);
        self.rig.take_back(pin, reach);
        let hole = for_each_before_hole(&mut guard, |entry, page| {
            let kept = if loses(page) { page.untracked() } else { page };
            entry.set(kept.with_prot(prot));
        });
        if hole { Err(VmError::NotMapped) } else { Ok(()) }
    }

    pub(super) fn change_flags(
        &self,
        pin: &Pinned,
        pages: PageRange,
        set: Flags,
        clear: Flags,
    ) -> Result<(), VmError> {
        assert!(Flags::ADVICE.contains(set | clear), "more than advice");
        let mut guard = self.lock(pin, pages, Expand::IfPresent)?;
        let mut unfit = false;
        guard.for_each(|entry| unfit |= entry.value().is_some_and(|page| page.backing().is_some()));
        if unfit && set.contains(Flags::WIPEONFORK) {
            return Err(VmError::Mixed);
        }
        let mut holes = false;
        guard.for_each(|entry| match entry.value() {
            Some(page) => entry.set(page.with_flags((page.flags() - clear) | set)),
            None => holes = true,
        });
        if holes { Err(VmError::NotMapped) } else { Ok(()) }
    }

    /// Only leaves have frames, so nothing is expanded.
    pub(super) fn drop_contents(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        let mut guard = self.lock(pin, pages, Expand::Never)?;
        let quiet = Removed::scan(&mut guard, self.rig.grain, |_| true).take_back(pin, &self.rig);
        let holes = quiet.holes;
        quiet.forget(pin, &self.rig);
        if holes { Err(VmError::NotMapped) } else { Ok(()) }
    }

    pub(super) fn drop_shown(&self, pin: &Pinned, pages: PageRange, backing: BackingNum, copies: Copies) {
        let mut guard = self.lock_leaves(pin, pages);
        let picked =
            |page: Page| page.backing() == Some(backing) && (copies == Copies::Drop || page.is_shown());
        Removed::scan(&mut guard, self.rig.grain, picked).take_back(pin, &self.rig).forget(pin, &self.rig);
    }
}
