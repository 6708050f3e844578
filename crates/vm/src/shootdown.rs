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
//!    table holds the page, and [`Mmu::users`] who may have it in a TLB.)
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

use core::ops::{ControlFlow, Range};

use percore::{CoreId, CoreSet, Pinned};
use radixmap::{Entry, RangeGuard};

use crate::counters::Tally;
use crate::meta::Page;
use crate::tracker::{Grain, Tracker};
use crate::{Event, Memory, Mmu, PageNum, PageRange, Tables};

/// What a design needs to work on locked pages.
pub(crate) struct Rig<M, F> {
    pub(crate) mmu: M,
    pub(crate) memory: F,
    pub(crate) tally: Tally,
    pub(crate) grain: Grain,
}

impl<M: Mmu, F: Memory> Rig<M, F> {
    /// `page` once this core translates it. One table for all is tracked as if core 0 owned it.
    #[inline]
    pub(crate) fn track(&self, pin: &Pinned, tracker: Tracker) -> Tracker {
        let owner = match self.mmu.tables() {
            Tables::PerCore => pin.core(),
            Tables::Shared => CoreId::new(0),
        };
        tracker.with(owner, self.grain)
    }

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
            Tables::PerCore => {
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
    const NONE: Self = Self { cores: CoreSet::EMPTY, pages: PageRange::EMPTY, holes: false };

    /// The translations of the locked pages.
    #[inline]
    fn of(guard: &mut RangeGuard<'_, Page>, grain: Grain) -> Self {
        let mut reach = Self::NONE;
        guard.for_each(|entry| match entry.value() {
            None => reach.holes = true,
            Some(page) => reach.add(entry.keys(), page.tracker(), grain),
        });
        reach
    }

    /// The translations of those locked pages before the first hole that `concerns` picks.
    #[inline]
    pub(crate) fn before_hole(
        guard: &mut RangeGuard<'_, Page>,
        grain: Grain,
        concerns: impl Fn(Page) -> bool,
    ) -> Self {
        let mut reach = Self::NONE;
        reach.holes = for_each_before_hole(guard, |entry, page| {
            if concerns(page) {
                reach.add(entry.keys(), page.tracker(), grain);
            }
        });
        reach
    }

    #[inline]
    fn add(&mut self, keys: Range<u64>, tracker: Tracker, grain: Grain) {
        if !tracker.is_empty() {
            let pages = PageRange::between(PageNum::new(keys.start), PageNum::new(keys.end));
            self.pages = self.pages.hull(pages);
            tracker.add_to(&mut self.cores, grain);
        }
    }
}

/// Calls `f` with the locked pages from the left, up to the first that is not mapped. Whether there is one.
#[inline]
pub(crate) fn for_each_before_hole(
    guard: &mut RangeGuard<'_, Page>,
    mut f: impl FnMut(&mut Entry<'_, Page>, Page),
) -> bool {
    let walked = guard.try_for_each(|entry| match entry.value() {
        None => ControlFlow::Break(()),
        Some(page) => {
            f(entry, page);
            ControlFlow::Continue(())
        }
    });
    walked.is_break()
}

/// Locked pages that are going away; their slots still own their frames.
#[must_use = "a removed mapping keeps its frames until it is taken back and released"]
pub(crate) struct Removed<'r, 'g> {
    guard: &'r mut RangeGuard<'g, Page>,
    reach: Reach,
}

impl<'r, 'g> Removed<'r, 'g> {
    #[inline]
    pub(crate) fn scan(guard: &'r mut RangeGuard<'g, Page>, grain: Grain) -> Self {
        let reach = Reach::of(guard, grain);
        Self { guard, reach }
    }

    /// Takes the translations back from every core.
    #[inline]
    pub(crate) fn take_back<M: Mmu, F: Memory>(self, pin: &Pinned, rig: &Rig<M, F>) -> Quiet<'r, 'g> {
        let holes = self.reach.holes;
        rig.take_back(pin, self.reach);
        Quiet { guard: self.guard, holes }
    }
}

/// Locked pages that no core translates: their frames may go.
#[must_use = "a removed mapping keeps its frames until it is released"]
pub(crate) struct Quiet<'r, 'g> {
    guard: &'r mut RangeGuard<'g, Page>,
    pub(crate) holes: bool,
}

impl Quiet<'_, '_> {
    /// Frees the frames and empties the slots.
    #[inline]
    pub(crate) fn unmap<F: Memory>(self, pin: &Pinned, memory: &F) {
        self.guard.for_each(|entry| {
            if let Some(page) = entry.value() {
                free(pin, memory, page);
                entry.clear();
            }
        });
    }

    /// Frees the frames; the pages stay mapped.
    pub(crate) fn forget<F: Memory>(self, pin: &Pinned, memory: &F) {
        self.guard.for_each(|entry| {
            if let Some(page) = entry.value() {
                free(pin, memory, page);
                entry.set(page.without_frame());
            }
        });
    }
}

#[inline]
fn free<F: Memory>(pin: &Pinned, memory: &F, page: Page) {
    if let Some(frame) = page.frame() {
        memory.free(pin, frame);
    }
}
