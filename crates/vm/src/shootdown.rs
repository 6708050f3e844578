//! No frame is freed, and no right is taken, while a core can still use the old translation.
//!
//! # The states of a page with a frame
//!
//! ```text
//!              fault: fill, then track                 lock; scan
//!   present  ------------------------->  tracked  -------------------->  Removed
//!      ^      (slot locked throughout)      |         (still mapped)        | take_back: clear here,
//!      |                                    |                               v shoot there, wait
//!      +------------------------------------+                             Quiet
//!          protect: take_back, untrack                                      | release: clear slot,
//!                                                                           v free frame; unlock
//!                                                                         (hole)
//! ```
//!
//! # Invariants
//!
//! 1. A core translates a page only if the page's tracker names it. `fault` fills and tracks under the slot's
//!    lock; `take_back` runs before a tracker is emptied. (One table for all: the tracker says whether the
//!    table holds the page, and [`Mmu::users`] who may have it in a TLB. A linked page's translations are its leaf's:
//!    `linkage.rs`.)
//! 2. From the scan to the unlock every slot of the range is locked, so no fault can track another core.
//! 3. A frame leaves its slot only in `release`, which only [`Quiet`] has, which only `take_back` makes.
//!
//! # Orders
//!
//! - *Scan, take back, release* instead of moving the frames to a list first: the locked slots are the list.
//!   No other core can look into them, so clearing them late is not seen, and nothing has to be allocated for
//!   a range of any size: running out of memory cannot lose a frame or skip a shootdown. Dropping a
//!   [`Removed`] undoes nothing because nothing was done. One operation, one shootdown.
//! - *Clear here before shooting there*: with one table for all, a core that flushes before the table is
//!   clear would walk the old entry in again. For the same reason the users are asked after the clear.
//! - *Free before unlock*: else a fault could allocate, run out of memory, and fail for a frame that is on
//!   its way back.

use core::mem;

use percore::{CoreSet, Pinned};
use radixmap::{Entry, Leaf, RangeGuard};

use crate::counters::Tally;
use crate::meta::Page;
use crate::tracker::Grain;
use crate::{Event, Linkage, Memory, Mmu, PageNum, PageRange, Tables};

/// What a design needs to work on locked pages.
pub(crate) struct Rig<M, F> {
    pub(crate) mmu: M,
    pub(crate) memory: F,
    pub(crate) tally: Tally,
    pub(crate) grain: Grain,
}

impl<M: Mmu, F: Memory> Rig<M, F> {
    /// When this returns, no core translates what `reach` covers.
    #[inline]
    pub(crate) fn take_back(&self, pin: &Pinned, reach: Reach) {
        if reach.cores.is_empty() {
            return;
        }
        let mut targets = self.clear_here(pin, &reach);
        targets.remove(pin.core());
        if !targets.is_empty() {
            self.clear_there(pin, &targets, reach.pages);
        }
    }

    /// Clears what this core is responsible for, and says which cores may hold translations.
    #[inline]
    fn clear_here(&self, pin: &Pinned, reach: &Reach) -> CoreSet {
        match self.mmu.tables() {
            Tables::PerCore | Tables::Adaptive => {
                if reach.cores.contains(pin.core()) {
                    self.mmu.clear(pin, reach.pages);
                }
                reach.cores
            }
            Tables::Shared => {
                self.mmu.clear(pin, reach.pages);
                self.mmu.users(pin)
            }
        }
    }

    fn clear_there(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) {
        let shot = self.mmu.shootdown(pin, targets, pages);
        self.tally.add(pin, Event::Shootdown, 1);
        self.tally.add(pin, Event::IpiTarget, shot.ipis.into());
        self.tally.add(pin, Event::AvoidedIpi, shot.avoided.into());
    }
}

/// Translations of locked pages: the cores that may hold some, and the smallest range that covers them.
#[must_use = "translations that nobody takes back outlive the operation"]
pub(crate) struct Reach {
    cores: CoreSet,
    pages: PageRange,
    /// Whether part of the range is not mapped at all.
    pub(crate) holes: bool,
}

impl Reach {
    pub(crate) const NONE: Self = Self { cores: CoreSet::EMPTY, pages: PageRange::EMPTY, holes: false };

    /// The translations of one locked page that `cores` have.
    pub(crate) fn one(at: PageNum, cores: CoreSet) -> Self {
        Self { cores, pages: PageRange::one(at), holes: false }
    }

    /// The translations of those locked pages that `concerns` picks.
    #[inline]
    pub(crate) fn of(
        guard: &mut RangeGuard<'_, Page>,
        grain: Grain,
        concerns: impl Fn(Page) -> bool,
    ) -> Self {
        let mut reach = Self::NONE;
        guard.for_each(|entry| match entry.value() {
            None => reach.holes = true,
            Some(page) if concerns(page) => reach.add(entry, page, grain),
            Some(_) => {}
        });
        reach
    }

    /// The translations of another one, `page`. If they are the leaf's, its word is no entry from now on.
    #[inline]
    pub(crate) fn add(&mut self, entry: &mut Entry<'_, Page>, page: Page, grain: Grain) {
        if page.is_linked() {
            return self.unlink(entry, page);
        }
        if !page.tracker().is_empty() {
            self.pages = self.pages.hull(pages(entry));
            page.tracker().add_to(&mut self.cores, grain);
        }
    }

    fn unlink(&mut self, entry: &mut Entry<'_, Page>, page: Page) {
        entry.set(page.untracked());
        let users = linkage(&entry.leaf()).users(page.guests());
        self.add_cores(&users, pages(entry));
    }

    fn add_cores(&mut self, cores: &CoreSet, pages: PageRange) {
        self.pages = self.pages.hull(pages);
        self.cores.union(cores);
    }
}

/// Translations of pages here and there: each run is cleared here by itself, and one shootdown reaches the others.
///
/// The hull of all would do too, but would cost this core the translations between the runs.
#[must_use = "translations that nobody takes back outlive the operation"]
pub(crate) struct Scattered<'a, M: Mmu, F> {
    rig: &'a Rig<M, F>,
    pin: &'a Pinned,
    run: Reach,
    /// What other cores have of the runs before.
    far: Reach,
}

impl<'a, M: Mmu, F: Memory> Scattered<'a, M, F> {
    pub(crate) fn new(rig: &'a Rig<M, F>, pin: &'a Pinned) -> Self {
        Self { rig, pin, run: Reach::NONE, far: Reach::NONE }
    }

    /// The translations of more pages, to the right of all before.
    pub(crate) fn add(&mut self, entry: &mut Entry<'_, Page>, page: Page) {
        if pages(entry).start() != self.run.pages.end() {
            self.end_run();
        }
        self.run.add(entry, page, self.rig.grain);
    }

    fn end_run(&mut self) {
        let run = mem::replace(&mut self.run, Reach::NONE);
        if run.cores.is_empty() {
            return;
        }
        let mut others = self.rig.clear_here(self.pin, &run);
        others.remove(self.pin.core());
        if !others.is_empty() {
            self.far.pages = self.far.pages.hull(run.pages);
            others.iter().for_each(|core| self.far.cores.insert(core));
        }
    }

    /// When this returns, no core has any of them.
    pub(crate) fn take_back(mut self) {
        self.end_run();
        if !self.far.cores.is_empty() {
            self.rig.clear_there(self.pin, &self.far.cores, self.far.pages);
        }
    }
}

/// Who translates through the leaf.
#[inline(always)]
pub(crate) fn linkage<'a>(leaf: &Leaf<'a>) -> Linkage<'a> {
    let annex = leaf.annex();
    Linkage::new(annex.words, annex.cores)
}

/// The pages of a locked slot.
#[inline]
pub(crate) fn pages(entry: &Entry<'_, Page>) -> PageRange {
    PageRange::between(PageNum::new(entry.keys().start), PageNum::new(entry.keys().end))
}

/// Locked pages of which those that `picked` says are going away; their slots still own their frames.
#[must_use = "a removed mapping keeps its frames until it is taken back and released"]
pub(crate) struct Removed<'r, 'g, P> {
    guard: &'r mut RangeGuard<'g, Page>,
    reach: Reach,
    picked: P,
}

impl<'r, 'g, P: Fn(Page) -> bool> Removed<'r, 'g, P> {
    #[inline]
    pub(crate) fn scan(guard: &'r mut RangeGuard<'g, Page>, grain: Grain, picked: P) -> Self {
        let reach = Reach::of(guard, grain, &picked);
        Self { guard, reach, picked }
    }

    /// Whether enough is locked for all of a leaf.
    #[inline]
    pub(crate) fn may_have_whole_leaves(&self) -> bool {
        let keys = self.guard.keys();
        keys.end - keys.start >= Leaf::KEYS
    }

    /// Besides, whoever is linked to a leaf of which all is locked unlinks.
    pub(crate) fn with_whole_leaves(self) -> Self {
        let Self { guard, mut reach, picked } = self;
        guard.for_each_whole_leaf(|leaf, keys| {
            let linked = linkage(&leaf).linked();
            if !linked.is_empty() {
                let (start, end) = (PageNum::new(keys.start), PageNum::new(keys.end));
                reach.add_cores(&linked, PageRange::between(start, end));
            }
        });
        Self { guard, reach, picked }
    }

    /// Takes the translations back from every core.
    #[inline]
    pub(crate) fn take_back<M: Mmu, F: Memory>(self, pin: &Pinned, rig: &Rig<M, F>) -> Quiet<'r, 'g, P> {
        let holes = self.reach.holes;
        rig.take_back(pin, self.reach);
        Quiet { guard: self.guard, holes, picked: self.picked }
    }
}

/// Locked pages of which no core translates those picked: their frames may go.
#[must_use = "a removed mapping keeps its frames until it is released"]
pub(crate) struct Quiet<'r, 'g, P> {
    guard: &'r mut RangeGuard<'g, Page>,
    pub(crate) holes: bool,
    picked: P,
}

impl<P: Fn(Page) -> bool> Quiet<'_, '_, P> {
    /// Gives the frames up and empties the slots.
    #[inline]
    pub(crate) fn unmap<M: Mmu, F: Memory>(self, pin: &Pinned, rig: &Rig<M, F>) {
        let picked = self.picked;
        self.guard.for_each(|entry| {
            if let Some(page) = entry.value().filter(|&page| picked(page)) {
                rig.give_up(pin, page);
                rig.refer(pin, page.backing(), -(pages(entry).pages() as i64));
                entry.clear();
            }
        });
    }

    /// Leaves of which all is locked, and from which everybody has unlinked, are nobody's again.
    pub(crate) fn reset_whole_leaves(&mut self) {
        self.guard.for_each_whole_leaf(|mut leaf, _| {
            let gone = linkage(&leaf).reset();
            leaf.hold(-(gone as i64));
        });
    }

    /// Gives the frames up; the pages stay mapped.
    pub(crate) fn forget<M: Mmu, F: Memory>(self, pin: &Pinned, rig: &Rig<M, F>) {
        let picked = self.picked;
        self.guard.for_each(|entry| {
            if let Some(page) = entry.value().filter(|&page| page.frame().is_some() && picked(page)) {
                rig.give_up(pin, page);
                entry.set(page.without_frame());
            }
        });
    }
}
