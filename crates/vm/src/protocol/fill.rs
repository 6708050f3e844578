//! Fills: this core gets a translation of a locked page that has a frame, and is recorded for the core that
//! invalidates it.

use percore::{CoreId, CoreSet, Pinned};
use radixmap::{Entry, Leaf};
use sync::atomic::{Ordering, fence};

use super::shootdown::Backend;
use super::shootdown_set::{ShootdownSet, around, linkage, pages};
use crate::leaf::PrivateSharers;
use crate::page_word::Page;
use crate::{Fault, FaultError, FrameNum, Linkage, Memory, Mmu, PageNum, PageRange, Tables};

impl<M: Mmu, F: Memory> Backend<M, F> {
    /// Fills this core's translation of the locked page `at`. On failure the entry is as it was, or
    /// translated by fewer.
    #[inline(always)]
    pub(crate) fn fill(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        match self.mmu.tables() {
            Tables::Adaptive if is_open(pin, entry, page) => Ok(self.open(entry, page, PrivateSharers::NONE)),
            Tables::Adaptive if !is_apart(pin, entry, page) => self.fill_either(pin, at, entry, page),
            _ => self.fill_own(pin, at, entry, page, self.owner(pin)),
        }
    }

    /// Fills a locked huge page, which has no leaf, as `fill` does a small one.
    pub(crate) fn fill_huge(
        &self,
        pin: &Pinned,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        let first = pages(entry).start();
        self.mmu.fill_huge(pin, first, frame_of(page), page.rights()).map_err(|_| FaultError::OutOfMemory)?;
        Ok(self.track(entry, page, self.owner(pin)))
    }

    /// Returns the owner of this core's table. The one table is tracked as if it were core 0's.
    #[inline(always)]
    fn owner(&self, pin: &Pinned) -> CoreId {
        match self.mmu.tables() {
            Tables::Shared => CoreId::new(0),
            _ => pin.core(),
        }
    }

    /// Fills in a table page of this core's own, or in the one table, and tracks the page as `owner`'s.
    #[inline(always)]
    fn fill_own(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
        owner: CoreId,
    ) -> Result<Fault, FaultError> {
        self.fill_table(pin, at, page)?;
        Ok(self.track(entry, page, owner))
    }

    /// `owner` translates the locked page, by itself, from now on.
    #[inline(always)]
    fn track(&self, entry: &mut Entry<'_, Page>, page: Page, owner: CoreId) -> Fault {
        let tracked = page.with_tracker(page.tracker().with(owner, self.grain));
        entry.set(tracked);
        if tracked == page { Fault::Spurious } else { Fault::Fill }
    }

    #[inline(always)]
    fn fill_table(&self, pin: &Pinned, at: PageNum, page: Page) -> Result<(), FaultError> {
        self.mmu.fill(pin, at, frame_of(page), page.rights()).map_err(|_| FaultError::OutOfMemory)
    }

    /// Makes the page's word an entry, by one store.
    #[inline(always)]
    fn open(&self, entry: &mut Entry<'_, Page>, page: Page, sharers: PrivateSharers) -> Fault {
        let linked = page.linked(self.mmu.entry(page.rights())).with_private_sharers(sharers);
        // Release, partner of the walks of other linked cores: they find what is in the frame.
        fence(Ordering::Release);
        entry.set(linked);
        Fault::Fill
    }

    /// Through the leaf or not, as `linkage.rs` says.
    #[inline]
    fn fill_either(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        let (core, leaf) = (pin.core(), linkage(&entry.leaf()));
        let may_link = leaf.is_linked(core) || leaf.may_link(core) || self.becomes_shared(core, leaf, page);
        if may_link && let Some(fault) = self.link(pin, at, entry, page)? {
            return Ok(fault);
        }
        match page.is_linked() {
            true => self.fill_private(pin, at, entry, page),
            false => self.fill_own(pin, at, entry, page, core),
        }
    }

    /// Returns whether `core`, which is not linked, makes the leaf shared: by its first fill of a page that
    /// two others have in pages of their own, or of a linked one, as one of several private sharers.
    fn becomes_shared(&self, core: CoreId, leaf: Linkage<'_>, page: Page) -> bool {
        let (is_first, others) = match page.is_linked() {
            true => (Some(page.private_sharers()) != leaf.add_sharer(core), leaf.private_sharers()),
            false => (!page.tracker().contains(core, self.grain), page.tracker().cores(self.grain).len()),
        };
        is_first && others >= 2 && leaf.note_shared_fill(fill_weight(page), others)
    }

    /// Fills a page that others have through the leaf in a table page of this core's own. If the list of
    /// private sharers is full, it is invalidated on the others.
    fn fill_private(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        let Some(sharer) = linkage(&entry.leaf()).add_sharer(pin.core()) else {
            let mut set = ShootdownSet::NONE;
            set.add(entry, page, self.grain);
            self.invalidate(pin, set);
            return self.fill_own(pin, at, entry, page.untracked(), pin.core());
        };
        let before = page.private_sharers();
        let sharers = before.and(sharer);
        self.fill_table(pin, at, page)?;
        entry.set(page.with_private_sharers(sharers));
        Ok(if sharers == before { Fault::Spurious } else { Fault::Fill })
    }

    /// Through the leaf, for all that are linked: one store makes the word an entry. None: another core owns
    /// the leaf by now.
    #[inline]
    fn link(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Option<Fault>, FaultError> {
        let leaf = entry.leaf();
        let linkage = linkage(&leaf);
        if !linkage.is_linked(pin.core()) {
            // First: the leaf's owner may find this core in the set at once, and release it.
            leaf.hold();
            linkage.link(pin.core());
        }
        let fresh = self.mmu.link(pin, at, leaf.address()).map_err(|_| FaultError::OutOfMemory)?;
        if !linkage.stays(pin.core()) {
            self.unlink(pin, at, leaf);
            return Ok(None);
        }
        let sharers = match page.is_linked() {
            true => page.private_sharers(),
            false if page.tracker().is_empty() => PrivateSharers::NONE,
            false => self.add_sharers(pin, at, linkage, page),
        };
        let fault = self.open(entry, page, sharers);
        if page.is_linked() && !fresh {
            // Its rights may have been raised since.
            self.mmu.clear(pin, PageRange::one(at));
            return Ok(Some(Fault::Spurious));
        }
        Ok(Some(fault))
    }

    /// This core linked the leaf of `at` too late.
    #[cold]
    fn unlink(&self, pin: &Pinned, at: PageNum, leaf: Leaf<'_>) {
        self.mmu.clear(pin, around(at));
        if linkage(&leaf).leave(pin.core()) {
            leaf.release(1);
        }
    }

    /// Records the cores of a tracked page that is about to be linked. Those that are not linked become
    /// private sharers. If the list is full, or the tracker does not name cores, their translations are
    /// invalidated.
    fn add_sharers(&self, pin: &Pinned, at: PageNum, leaf: Linkage<'_>, page: Page) -> PrivateSharers {
        let (tracker, linked) = (page.tracker(), leaf.linked());
        let (mut sharers, mut lost) = (PrivateSharers::NONE, CoreSet::EMPTY);
        for core in tracker.cores(self.grain).iter().filter(|&core| !linked.contains(core)) {
            match leaf.add_sharer(core).filter(|_| !tracker.is_coarse()) {
                Some(sharer) => sharers = sharers.and(sharer),
                None => lost.insert(core),
            }
        }
        self.invalidate(pin, ShootdownSet::one(at, lost));
        sharers
    }
}

/// Returns whether this core is linked, and no core translates the page. Its upper entry leads to the leaf,
/// or to nothing: if a note of what it missed took more than was meant (`presence.rs`), the program faults
/// once more.
#[inline(always)]
fn is_open(pin: &Pinned, entry: &mut Entry<'_, Page>, page: Page) -> bool {
    page.is_untracked() && linkage(&entry.leaf()).is_linked(pin.core())
}

/// Returns whether another core owns the leaf, and no core translates the page. This core then translates it
/// in a page of its own.
#[inline(always)]
fn is_apart(pin: &Pinned, entry: &mut Entry<'_, Page>, page: Page) -> bool {
    page.is_untracked() && linkage(&entry.leaf()).is_owned_by_other(pin.core())
}

/// Returns how many fills a fill of `page` counts as for sharing its leaf. Pages shown from a file, like a
/// program's text, are seldom invalidated.
fn fill_weight(page: Page) -> u64 {
    if page.is_shown() { 5 } else { 1 }
}

#[inline(always)]
fn frame_of(page: Page) -> FrameNum {
    let Some(frame) = page.frame() else { unreachable!("there is nothing to fill in") };
    frame
}
