//! Filling: this core gets a translation of a locked page that has a frame, and whoever takes it back will know.

use percore::{CoreId, CoreSet, Pinned};
use radixmap::Entry;
use sync::atomic::{Ordering, fence};

use crate::meta::Page;
use crate::shootdown::{Reach, Rig, linkage};
use crate::{Fault, FaultError, Linkage, Memory, Mmu, PageNum, PageRange, Tables};

impl<M: Mmu, F: Memory> Rig<M, F> {
    /// Fills this core's translation of the locked page `at`. On failure the entry is as it was, or translated by fewer.
    #[inline]
    pub(crate) fn fill(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        match self.mmu.tables() {
            Tables::PerCore => self.fill_own(pin, at, entry, page, pin.core()),
            // Tracked as if core 0 owned the table.
            Tables::Shared => self.fill_own(pin, at, entry, page, CoreId::new(0)),
            Tables::Adaptive => self.fill_either(pin, at, entry, page),
        }
    }

    /// In a table page of its own, or in the one table; tracked as `owner`'s.
    #[inline]
    fn fill_own(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
        owner: CoreId,
    ) -> Result<Fault, FaultError> {
        let Some(frame) = page.frame() else { unreachable!("there is nothing to fill in") };
        self.mmu.fill(pin, at, frame, page.rights()).map_err(|_| FaultError::OutOfMemory)?;
        let tracked = match page.is_linked() {
            true => page.with_guest(),
            false => page.with_tracker(page.tracker().with(owner, self.grain)),
        };
        entry.set(tracked);
        Ok(if tracked == page { Fault::Spurious } else { Fault::Fill })
    }

    #[inline]
    fn fill_either(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        let leaf = linkage(&entry.leaf());
        match leaf.is_linked(pin.core()) || self.may_link(pin.core(), leaf, page) {
            true => self.link(pin, at, entry, page),
            false => self.fill_own(pin, at, entry, page, pin.core()),
        }
    }

    /// Whether `core` links now. It does if it is the third that uses the page: then the leaf is shared from now on.
    fn may_link(&self, core: CoreId, leaf: Linkage<'_>, page: Page) -> bool {
        let third = || match page.is_linked() {
            true => !leaf.admit(core),
            false => page.tracker().is_full() && !page.tracker().contains(core, self.grain),
        };
        leaf.welcomes(core)
            || (third() && {
                leaf.share();
                true
            })
    }

    /// Through the leaf, for all that are linked: one store makes the word an entry.
    #[inline]
    fn link(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        let mut leaf = entry.leaf();
        let linkage = linkage(&leaf);
        if linkage.link(pin.core()) {
            leaf.hold(1);
        }
        let fresh = self.mmu.link(pin, at, leaf.address()).map_err(|_| FaultError::OutOfMemory)?;
        let guest = match page.is_linked() {
            true => page.has_guest(),
            false => self.take_names_back(pin, at, linkage, page),
        };
        let linked = page.linked(self.mmu.entry(page.rights()));
        // Release, partner of the walks of other linked cores: they find what is in the frame.
        fence(Ordering::Release);
        entry.set(if guest { linked.with_guest() } else { linked });
        if page.is_linked() && !fresh {
            // Its rights may have been raised since.
            self.mmu.clear(pin, PageRange::one(at));
            return Ok(Fault::Spurious);
        }
        Ok(Fault::Fill)
    }

    /// The cores that are tracked by name have their translations of the page taken back, but for the leaf's guest, whom the
    /// word can name, and the linked, who are known as such. Whether the guest has one.
    fn take_names_back(&self, pin: &Pinned, at: PageNum, leaf: Linkage<'_>, page: Page) -> bool {
        let linked = leaf.linked();
        let (mut guest, mut lost) = (false, CoreSet::EMPTY);
        for core in page.tracker().cores(self.grain).iter().filter(|&core| !linked.contains(core)) {
            match leaf.admit(core) {
                true => guest = true,
                false => lost.insert(core),
            }
        }
        self.take_back(pin, Reach::one(at, lost));
        guest
    }
}
