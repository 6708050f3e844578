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

use core::ops::Range;

use percore::{CoreSet, Pinned};
use radixmap::{Expand, ExpandUsed, Leaf, RangeGuard};

use crate::contract::Noted;
use crate::counters::Tally;
use crate::meta::Page;
use crate::reach::{Reach, abandon};
use crate::sharing::References;
use crate::tracker::Grain;
use crate::usage::Change;
use crate::{Event, Memory, Mmu, PageNum, PageRange, Tables};

/// Provides what a design works with on locked pages: the machine, and counters.
pub struct Backend<M, F> {
    pub(crate) mmu: Noted<M>,
    pub(crate) memory: Noted<F>,
    pub(crate) tally: Tally,
    pub(crate) grain: Grain,
}

impl<M: Mmu, F: Memory> Backend<M, F> {
    /// For a machine of `cores` cores.
    pub(crate) fn new(mmu: M, memory: F, tally: Tally, cores: usize) -> Self {
        Self { mmu: Noted(mmu), memory: Noted(memory), tally, grain: Grain::new(cores) }
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

    /// The same, and leaves of which all is locked are nobody's afterwards: whoever is linked to them unlinks. What else is
    /// locked must be in `reach`, as far as it is to go.
    #[inline]
    pub(crate) fn take_leaves_back<E: Expand>(
        &self,
        pin: &Pinned,
        guard: &mut RangeGuard<'_, Page, E>,
        mut reach: Reach,
    ) {
        let keys = guard.keys();
        if self.mmu.tables() != Tables::Adaptive || keys.end - keys.start < Leaf::KEYS {
            return self.take_back_in(pin, guard, reach);
        }
        reach.add_whole_leaves(guard);
        self.take_back(pin, reach);
        guard.for_each_whole_leaf(|leaf, _| abandon(leaf));
    }

    /// Clears what this core is responsible for, and says which cores may hold translations.
    #[inline]
    pub(crate) fn clear_here(&self, pin: &Pinned, reach: &Reach) -> CoreSet {
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

    pub(crate) fn clear_there(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) {
        let shot = self.mmu.shootdown(pin, targets, pages);
        self.tally.add(pin, Event::Shootdown, 1);
        self.tally.add(pin, Event::IpiTarget, shot.ipis.into());
        self.tally.add(pin, Event::AvoidedIpi, shot.avoided.into());
    }
}

/// Keys as pages.
#[inline]
pub(crate) fn range(keys: Range<u64>) -> PageRange {
    PageRange::between(PageNum::new(keys.start), PageNum::new(keys.end))
}

/// Locked pages of which those that `picked` says are going away; their slots still own their frames.
///
/// Frames are given up by methods of [`Quiet`], which only taking back makes:
///
/// ```
/// use percore::Pinned;
/// use radixmap::Always;
/// use vm::{Memory, Mmu, typestate::{Page, Removed, Backend}};
///
/// type Picked = fn(Page) -> bool;
/// fn unmap<M: Mmu, F: Memory>(removed: Removed<'_, '_, Always, Picked>, pin: &Pinned, backend: &Backend<M, F>) {
///     removed.take_back(pin, backend).unmap(pin, backend, 1);
/// }
/// ```
///
/// The same without that step does not compile:
///
/// ```compile_fail,E0599
/// use percore::Pinned;
/// use radixmap::Always;
/// use vm::{Memory, Mmu, typestate::{Page, Removed, Backend}};
///
/// type Picked = fn(Page) -> bool;
/// fn unmap<M: Mmu, F: Memory>(removed: Removed<'_, '_, Always, Picked>, pin: &Pinned, backend: &Backend<M, F>) {
///     removed.unmap(pin, backend, 1);
/// }
/// ```
#[must_use = "a removed mapping keeps its frames until it is taken back and released"]
pub struct Removed<'r, 'g, E, P> {
    guard: &'r mut RangeGuard<'g, Page, E>,
    reach: Reach,
    picked: P,
}

impl<'r, 'g, E: Expand, P: Fn(Page) -> bool> Removed<'r, 'g, E, P> {
    #[inline]
    pub(crate) fn scan(guard: &'r mut RangeGuard<'g, Page, E>, grain: Grain, picked: P) -> Self {
        let reach = Reach::of(guard, grain, &picked);
        Self { guard, reach, picked }
    }

    /// Takes the translations back from every core.
    #[inline]
    pub fn take_back<M: Mmu, F: Memory>(self, pin: &Pinned, backend: &Backend<M, F>) -> Quiet<'r, 'g, E, P> {
        let holes = self.reach.holes;
        backend.take_back(pin, self.reach);
        Quiet { guard: self.guard, holes, picked: self.picked }
    }

    /// The same for all that is locked, and leaves of which that is all are nobody's afterwards.
    #[inline]
    pub(crate) fn take_leaves_back<M: Mmu, F: Memory>(
        self,
        pin: &Pinned,
        backend: &Backend<M, F>,
    ) -> Quiet<'r, 'g, E, P> {
        let holes = self.reach.holes;
        backend.take_leaves_back(pin, self.guard, self.reach);
        Quiet { guard: self.guard, holes, picked: self.picked }
    }
}

/// Locked pages of which no core translates those picked: their frames may go.
#[must_use = "a removed mapping keeps its frames until it is released"]
pub struct Quiet<'r, 'g, E, P> {
    guard: &'r mut RangeGuard<'g, Page, E>,
    pub(crate) holes: bool,
    picked: P,
}

impl<E: ExpandUsed, P: Fn(Page) -> bool> Quiet<'_, '_, E, P> {
    /// Gives the frames up and empties the slots, for `calls` calls of `unmap`.
    #[inline]
    pub fn unmap<M: Mmu, F: Memory>(self, pin: &Pinned, backend: &Backend<M, F>, calls: u64) {
        let (picked, mut references) = (self.picked, References::new(backend, pin));
        self.guard.for_each_used(|run| {
            if picked(run.value()) {
                references.give_up(range(run.keys()), run.value());
                run.clear();
            }
        });
        references.finish(calls);
    }
}

impl<E: Expand, P: Fn(Page) -> bool> Quiet<'_, '_, E, P> {
    /// Gives the frames up and empties the slots, of a map that has resident pages only.
    pub(crate) fn empty<M: Mmu, F: Memory>(self, pin: &Pinned, backend: &Backend<M, F>) {
        let (picked, mut change) = (self.picked, Change::default());
        self.guard.for_each_used(|run| {
            if let Some(mut run) = run.whole().filter(|run| picked(run.value())) {
                backend.give_up(pin, run.value(), &mut change);
                run.clear();
            }
        });
        backend.tally.change(pin, &change);
    }

    /// Gives the frames up; the pages stay mapped.
    pub(crate) fn forget<M: Mmu, F: Memory>(self, pin: &Pinned, backend: &Backend<M, F>) {
        let (picked, mut change) = (self.picked, Change::default());
        self.guard.for_each_used(|run| {
            let page = run.value();
            if let Some(mut run) = run.whole().filter(|_| page.is_touched() && picked(page)) {
                backend.give_up(pin, page, &mut change);
                run.set(page.without_frame());
            }
        });
        backend.tally.change(pin, &change);
    }
}
