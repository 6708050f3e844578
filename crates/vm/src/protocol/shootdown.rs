//! No frame is freed, and no right is taken, while a core can still use the old translation.
//!
//! # The states of a page with a frame
//!
//! ```text
//!              fault: fill, then track                 lock; scan
//!   present  ------------------------->  tracked  -------------------->  Removed
//!      ^      (slot locked throughout)      |         (still mapped)        | invalidate: clear here,
//!      |                                    |                               v shoot there, wait
//!      +------------------------------------+                           Invalidated
//!          protect: untrack, invalidate                                     | release: clear slot,
//!                                                                           v free frame; unlock
//!                                                                         (hole)
//! ```
//!
//! # Invariants
//!
//! 1. A core translates a page that is not locked only if the page's tracker names it. `fault` fills and
//!    tracks under the slot's lock; `invalidate` runs before a tracker is emptied, or (`protect`, which keeps
//!    the frame) before the slot is unlocked. (One table for all: the tracker says whether the table holds
//!    the page, and [`Mmu::users`] the cores that may have it in a TLB. A linked page's translations are its
//!    leaf's: `linkage.rs`.)
//! 2. From the scan to the unlock every slot of the range is locked, so no fault can track another core.
//! 3. A frame leaves its slot only in `release`, which only [`Invalidated`] has, which only `invalidate`
//!    makes.
//!
//! # Orders
//!
//! - *Scan, invalidate, release* instead of moving the frames to a list first: the locked slots are the list.
//!   No other core can look into them, so clearing them late is not seen, and nothing has to be allocated for
//!   a range of any size: running out of memory cannot lose a frame or skip a shootdown. Dropping a
//!   [`Removed`] undoes nothing because nothing was done. One lock, one shootdown.
//! - *Clear here before shooting there*: with one table for all, a core that flushes before the table is
//!   clear would walk the old entry in again. For the same reason the users are asked after the clear.
//! - *Free before unlock*: else a fault could allocate, run out of memory, and fail for a frame that is on
//!   its way back.

use core::ops::{ControlFlow, Range};

use percore::{CoreSet, Pinned};
use radixmap::{Expand, ExpandUsed, Leaf, RangeGuard, Run};

use super::sharing::References;
use super::shootdown_set::{Found, Runs, ShootdownSet, abandon};
use crate::machine::Noted;
use crate::page_word::{Grain, Page};
use crate::types::{Change, EventCounts};
use crate::{Event, Memory, Mmu, PageNum, PageRange, Tables};

/// Provides what a design works with on locked pages: the machine, and counters.
pub struct Backend<M, F> {
    pub(crate) mmu: Noted<M>,
    /// The memory of the space.
    pub memory: Noted<F>,
    /// The counters of the space.
    pub counts: EventCounts,
    /// The grain of the pages' trackers.
    pub grain: Grain,
}

impl<M: Mmu, F: Memory> Backend<M, F> {
    /// Returns the backend of a space on a machine of `cores` cores.
    pub fn new(mmu: M, memory: F, counts: EventCounts, cores: usize) -> Self {
        Self { mmu: Noted(mmu), memory: Noted(memory), counts, grain: Grain::new(cores) }
    }

    /// Invalidates the translations in `set`: when this returns, no core has any of them.
    #[inline]
    pub fn invalidate(&self, pin: &Pinned, set: ShootdownSet) {
        self.invalidate_by(pin, &set, || self.mmu.clear(pin, set.pages));
    }

    /// Invalidates only translations of the pages of `runs`. This core skips the pages between them.
    #[inline]
    fn invalidate_runs(&self, pin: &Pinned, set: &ShootdownSet, runs: &[PageRange]) {
        self.invalidate_by(pin, set, || self.mmu.clear_all(pin, runs));
    }

    #[inline(always)]
    fn invalidate_by(&self, pin: &Pinned, set: &ShootdownSet, clear: impl FnOnce()) {
        if set.cores.is_empty() {
            return;
        }
        let mut targets = self.clear_by(pin, set, clear);
        targets.remove(pin.core());
        if !targets.is_empty() {
            self.clear_there(pin, &targets, set.pages);
        }
    }

    /// Invalidates the translations in `set`, and unlinks every core from each leaf that is locked as a
    /// whole, which has no owner afterwards. Translations of other locked pages must be in `set` if they are
    /// to go.
    #[inline]
    pub(crate) fn invalidate_leaves<E: Expand>(
        &self,
        pin: &Pinned,
        guard: &mut RangeGuard<'_, Page, E>,
        mut set: ShootdownSet,
    ) {
        let keys = guard.keys();
        if self.mmu.tables() != Tables::Adaptive || keys.end - keys.start < Leaf::KEYS {
            return self.invalidate_in(pin, guard, set);
        }
        set.add_whole_leaves(guard);
        self.invalidate(pin, set);
        abandon_leaves(guard);
    }

    /// Clears what this core is responsible for, and returns the cores that may hold translations.
    #[inline]
    pub(crate) fn clear_here(&self, pin: &Pinned, set: &ShootdownSet) -> CoreSet {
        self.clear_by(pin, set, || self.mmu.clear(pin, set.pages))
    }

    #[inline(always)]
    fn clear_by(&self, pin: &Pinned, set: &ShootdownSet, clear: impl FnOnce()) -> CoreSet {
        match self.mmu.tables() {
            Tables::PerCore | Tables::Adaptive => {
                if set.cores.contains(pin.core()) {
                    clear();
                }
                set.cores
            }
            Tables::Shared => {
                clear();
                self.mmu.users(pin)
            }
        }
    }

    pub(crate) fn clear_there(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) {
        let shot = self.mmu.shootdown(pin, targets, pages);
        self.counts.add(pin, Event::Shootdown, 1);
        self.counts.add(pin, Event::IpiTarget, shot.ipis.into());
        self.counts.add(pin, Event::AvoidedIpi, shot.avoided.into());
    }
}

/// Keys as pages.
#[inline]
pub fn range(keys: Range<u64>) -> PageRange {
    PageRange::between(PageNum::new(keys.start), PageNum::new(keys.end))
}

/// Pages as keys.
#[inline]
pub fn keys(pages: PageRange) -> Range<u64> {
    pages.start().get()..pages.end().get()
}

/// Locked pages, of which those that `picked` selects are going away. Their slots still own their frames.
///
/// Frames are released by methods of [`Invalidated`], which only `invalidate` makes:
///
/// ```
/// use percore::Pinned;
/// use radixmap::Always;
/// use vm::design::{Backend, Page, Removed};
/// use vm::{Memory, Mmu};
///
/// type Picked = fn(Page) -> bool;
/// fn unmap<M: Mmu, F: Memory>(removed: Removed<'_, '_, Always, Picked>, pin: &Pinned, backend: &Backend<M, F>) {
///     removed.invalidate(pin, backend).unmap(pin, backend, 1);
/// }
/// ```
///
/// The same without that step does not compile:
///
/// ```compile_fail,E0599
/// use percore::Pinned;
/// use radixmap::Always;
/// use vm::design::{Backend, Page, Removed};
/// use vm::{Memory, Mmu};
///
/// type Picked = fn(Page) -> bool;
/// fn unmap<M: Mmu, F: Memory>(removed: Removed<'_, '_, Always, Picked>, pin: &Pinned, backend: &Backend<M, F>) {
///     removed.unmap(pin, backend, 1);
/// }
/// ```
#[must_use = "a removed mapping keeps its frames until it is invalidated and released"]
pub struct Removed<'r, 'g, E, P, R = ()> {
    guard: &'r mut RangeGuard<'g, Page, E>,
    set: ShootdownSet,
    /// The places of the translations, if they are known.
    found: R,
    picked: P,
}

impl<'r, 'g, E: Expand, P: Fn(Page) -> bool> Removed<'r, 'g, E, P> {
    /// Scans the locked pages for those that `picked` selects, which are asked of all, and collects their
    /// translations.
    #[inline]
    pub fn scan(guard: &'r mut RangeGuard<'g, Page, E>, grain: Grain, picked: P) -> Self {
        let set = ShootdownSet::of(guard, grain, &picked);
        Self { guard, set, found: (), picked }
    }

    /// Invalidates the translations on every core.
    #[inline]
    pub fn invalidate<M: Mmu, F: Memory>(
        self,
        pin: &Pinned,
        backend: &Backend<M, F>,
    ) -> Invalidated<'r, 'g, E, P> {
        let Self { guard, set, picked, .. } = self;
        let holes = set.holes;
        backend.invalidate(pin, set);
        Invalidated { guard, holes, leaves: None, picked }
    }

    /// Invalidates pages of one leaf, which may have another owner afterwards.
    #[inline]
    pub(crate) fn invalidate_in<M: Mmu, F: Memory>(
        self,
        pin: &Pinned,
        backend: &Backend<M, F>,
    ) -> Invalidated<'r, 'g, E, P> {
        let Self { guard, set, picked, .. } = self;
        let holes = set.holes;
        backend.invalidate_in(pin, guard, set);
        Invalidated { guard, holes, leaves: None, picked }
    }
}

impl<'r, 'g, E: Expand, P: Fn(Page) -> bool> Removed<'r, 'g, E, P, &'r mut Found> {
    /// Scans as [`Removed::scan`] does, with what cores have of leaves that are locked as a whole. Adds to
    /// `found`, which are none, where the translations are. Calls `note` with the pages that have frames.
    #[inline]
    pub(crate) fn scan_with_leaves(
        guard: &'r mut RangeGuard<'g, Page, E>,
        grain: Grain,
        picked: P,
        note: impl FnMut(PageRange),
        found: &'r mut Found,
    ) -> Self {
        let set = ShootdownSet::with_leaves(guard, grain, &picked, note, found);
        Self { guard, set, found, picked }
    }

    /// Invalidates the translations on every core, and unlinks every core from each leaf that is locked as a
    /// whole.
    #[inline]
    pub(crate) fn invalidate_leaves<M: Mmu, F: Memory>(
        self,
        pin: &Pinned,
        backend: &Backend<M, F>,
    ) -> Invalidated<'r, 'g, E, P> {
        let Self { guard, set, found, picked } = self;
        let holes = set.holes;
        backend.invalidate_runs(pin, &set, found.pages.get().unwrap_or(&[set.pages]));
        let leaves = (backend.mmu.tables() == Tables::Adaptive).then_some(&found.leaves);
        Invalidated { guard, holes, leaves, picked }
    }
}

/// Locked pages of which no core translates those picked: their frames may go.
#[must_use = "a removed mapping keeps its frames until it is released"]
pub struct Invalidated<'r, 'g, E, P> {
    guard: &'r mut RangeGuard<'g, Page, E>,
    pub(crate) holes: bool,
    /// The leaves that are locked as a whole and have a linkage to reset. No core is linked to them any more.
    leaves: Option<&'r Runs>,
    picked: P,
}

/// Makes the leaves that are locked as a whole forget their cores and private sharers.
///
/// # Panics
/// Panics in debug builds, if a page of such a leaf is still linked, because no later unmap would find its
/// sharers.
fn abandon_leaves<E: Expand>(guard: &mut RangeGuard<'_, Page, E>) {
    check_unlinked(guard);
    guard.for_each_whole_leaf(|leaf, _| abandon(leaf));
}

/// Makes the leaves of `leaves` forget what `abandon_leaves` says. The others have nothing to forget.
fn abandon_these<E: Expand>(guard: &mut RangeGuard<'_, Page, E>, leaves: &[PageRange]) {
    check_unlinked(guard);
    for start in leaves.iter().flat_map(|run| keys(*run).step_by(Leaf::KEYS as usize)) {
        guard.with_leaf_of(start..start + Leaf::KEYS, abandon);
    }
}

/// Checks that no page of a leaf that is locked as a whole is linked.
fn check_unlinked<E: Expand>(guard: &mut RangeGuard<'_, Page, E>) {
    if cfg!(debug_assertions) {
        guard.for_each_used_and_whole_leaf(
            &mut (0..0),
            |whole, _, keys| *whole = keys,
            |whole, run| {
                let forgotten = whole.contains(&run.keys().start) && run.value().is_linked();
                assert!(!forgotten, "a leaf forgets who has its page {:#x}", run.keys().start);
            },
        );
    }
}

impl<E: ExpandUsed, P: Fn(Page) -> bool> Invalidated<'_, '_, E, P> {
    /// Releases the frames and empties the slots, for `calls` calls of `unmap`.
    #[inline]
    pub fn unmap<M: Mmu, F: Memory>(self, pin: &Pinned, backend: &Backend<M, F>, calls: u64) {
        let (picked, mut references) = (self.picked, References::new(backend, pin));
        let release = |references: &mut References<'_, M, F>, run: &mut Run<'_, Page, E>| {
            if picked(run.value()) {
                references.release(range(run.keys()), run.value());
                run.clear();
            }
        };
        match self.leaves {
            None => self.guard.for_each_used(|run| release(&mut references, run)),
            Some(_) => {
                let leaf = |_: &mut _, leaf: Leaf<'_>, _| abandon(leaf);
                self.guard.for_each_used_and_whole_leaf(&mut references, leaf, release);
            }
        }
        references.finish(calls);
    }
}

impl<E: Expand, P> Invalidated<'_, '_, E, P> {
    /// The leaves that are locked as a whole have no owner from now on.
    pub(crate) fn abandon_leaves(&mut self) {
        let Some(leaves) = self.leaves.take() else { return };
        match leaves.get() {
            Some(few) => abandon_these(self.guard, few),
            None => abandon_leaves(self.guard),
        }
    }
}

impl<E: Expand, P: Fn(Page) -> bool> Invalidated<'_, '_, E, P> {
    /// Releases the frames and empties the slots, of a map that has resident pages only.
    pub fn empty<M: Mmu, F: Memory>(self, pin: &Pinned, backend: &Backend<M, F>) {
        let (picked, mut change) = (self.picked, Change::default());
        self.guard.for_each_used(|run| {
            if let Some(mut run) = run.whole().filter(|run| picked(run.value())) {
                backend.release(pin, run.value(), &mut change);
                run.clear();
            }
        });
        backend.counts.change(pin, &change);
    }

    /// Releases the frames. The pages stay mapped.
    pub(crate) fn forget<M: Mmu, F: Memory>(self, pin: &Pinned, backend: &Backend<M, F>) {
        let all = range(self.guard.keys());
        self.forget_in(pin, backend, &[all]);
    }

    /// Forgets only the `resident` pages, if the scan found few of them.
    pub(crate) fn forget_these<M: Mmu, F: Memory>(
        self,
        pin: &Pinned,
        backend: &Backend<M, F>,
        resident: &Runs,
    ) {
        match resident.get() {
            Some(runs) => self.forget_in(pin, backend, runs),
            None => self.forget(pin, backend),
        }
    }

    fn forget_in<M: Mmu, F: Memory>(self, pin: &Pinned, backend: &Backend<M, F>, parts: &[PageRange]) {
        let (picked, mut change) = (self.picked, Change::default());
        for part in parts {
            let _ = self.guard.try_for_each_used_in(keys(*part), |run| {
                let page = run.value();
                if let Some(mut run) = run.whole().filter(|_| page.is_touched() && picked(page)) {
                    backend.release(pin, page, &mut change);
                    run.set(page.without_frame());
                }
                ControlFlow::<()>::Continue(())
            });
        }
        backend.counts.change(pin, &change);
    }
}
