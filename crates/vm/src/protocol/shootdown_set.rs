//! The set of a shootdown: which cores may have translations of which pages.

use core::mem;

use percore::{CoreSet, Pinned};
use radixmap::{Entry, Expand, Leaf, RangeGuard, Run};

use super::shootdown::{Backend, range};
use crate::page_word::{Grain, Page};
use crate::types::Unbroken;
use crate::{Linkage, Memory, Mmu, PageNum, PageRange};

/// Translations of locked pages: the cores that may hold some, and the smallest range that covers them.
#[derive(Debug)]
#[must_use = "translations that are not invalidated outlive the operation"]
pub struct ShootdownSet {
    pub(crate) cores: CoreSet,
    pub(crate) pages: PageRange,
    /// True if part of the range is not mapped at all.
    pub(crate) holes: bool,
}

impl ShootdownSet {
    /// No translations.
    pub const NONE: Self = Self { cores: CoreSet::EMPTY, pages: PageRange::EMPTY, holes: false };

    /// Returns the translations of one locked page that `cores` have.
    pub(crate) fn one(at: PageNum, cores: CoreSet) -> Self {
        Self { cores, pages: PageRange::one(at), holes: false }
    }

    /// Returns the translations of those locked pages that `concerns`, which is asked of all, picks. A slot
    /// that sticks out of the range has none.
    #[inline]
    pub(crate) fn of<E: Expand>(
        guard: &mut RangeGuard<'_, Page, E>,
        grain: Grain,
        concerns: impl Fn(Page) -> bool,
    ) -> Self {
        let (mut set, all) = (Self::NONE, range(guard.keys()));
        let mut mapped = Unbroken::from(all.start());
        guard.for_each_used(|run| set.see(run, &mut mapped, grain, &concerns, |_| ()));
        set.holes = !mapped.reaches(all.end());
        set
    }

    /// Collects the same cores, and those that are linked to leaves locked as a whole. Adds to `found` where
    /// all these translations are, and which of the leaves have a linkage to reset.
    #[inline(never)]
    pub(crate) fn with_leaves<E: Expand>(
        guard: &mut RangeGuard<'_, Page, E>,
        grain: Grain,
        concerns: impl Fn(Page) -> bool,
        mut note: impl FnMut(PageRange),
        found: &mut Found,
    ) -> Self {
        let all = range(guard.keys());
        let mut mapped = Unbroken::from(all.start());
        let mut both = (Self::NONE, found);
        guard.for_each_used_and_whole_leaf(
            &mut both,
            |(set, found), leaf, keys| {
                let (linkage, keys) = (linkage(&leaf), range(keys));
                let linked = linkage.linked();
                if !linked.is_empty() {
                    set.add_cores(&linked, keys);
                    found.pages.add(keys);
                }
                if !linkage.is_reset(&linked) {
                    found.leaves.add(keys);
                }
            },
            |(set, found), run| {
                set.see(run, &mut mapped, grain, &concerns, |pages| {
                    note(pages);
                    found.pages.add(pages);
                });
            },
        );
        let (mut set, _) = both;
        set.holes = !mapped.reaches(all.end());
        set
    }

    /// Notes that a scan, which has `mapped` behind it, comes by a run of pages.
    #[inline(always)]
    fn see<E: Expand>(
        &mut self,
        run: &mut Run<'_, Page, E>,
        mapped: &mut Unbroken,
        grain: Grain,
        concerns: impl Fn(Page) -> bool,
        mut note: impl FnMut(PageRange),
    ) {
        let page = run.value();
        mapped.add(range(run.keys()));
        if concerns(page)
            && page.is_touched()
            && let Some(mut run) = run.whole()
        {
            note(range(run.keys()));
            self.add(&mut run.one(), page, grain);
        }
    }

    /// The translations of another one, `page`. If they are the leaf's, its word is no entry from now on.
    #[inline(always)]
    pub fn add(&mut self, entry: &mut Entry<'_, Page>, page: Page, grain: Grain) {
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
        let users = linkage(&entry.leaf()).users(page.private_sharers());
        self.add_cores(&users, pages(entry));
    }

    /// Adds the cores that are linked to a leaf that is locked as a whole.
    pub(crate) fn add_whole_leaves<E: Expand>(&mut self, guard: &mut RangeGuard<'_, Page, E>) {
        guard.for_each_whole_leaf(|leaf, keys| {
            let linked = linkage(&leaf).linked();
            if !linked.is_empty() {
                self.add_cores(&linked, range(keys));
            }
        });
    }

    fn add_cores(&mut self, cores: &CoreSet, pages: PageRange) {
        self.pages = self.pages.hull(pages);
        self.cores.union(cores);
    }
}

/// The places of translations that a scan has found.
pub(crate) struct Found {
    /// The pages that cores may translate.
    pub(crate) pages: Runs,
    /// The leaves, locked as a whole, that have a linkage to reset.
    pub(crate) leaves: Runs,
}

impl Found {
    pub(crate) const fn none() -> Self {
        Self { pages: Runs::none(), leaves: Runs::none() }
    }
}

/// Runs of locked pages, from the left, as long as they are few: so they are found again without a walk over
/// all that is locked.
pub(crate) struct Runs {
    runs: [PageRange; Self::MOST],
    len: usize,
}

impl Runs {
    const MOST: usize = 8;

    pub(crate) const fn none() -> Self {
        Self { runs: [PageRange::EMPTY; Self::MOST], len: 0 }
    }

    /// Adds a run, which begins in or behind the last one.
    #[inline(always)]
    pub(crate) fn add(&mut self, run: PageRange) {
        if let Some(last) = self.runs[..self.len.min(Self::MOST)].last_mut()
            && run.start() <= last.end()
        {
            *last = last.hull(run);
            return;
        }
        if let Some(place) = self.runs.get_mut(self.len) {
            *place = run;
        }
        self.len += 1;
    }

    /// All that were added, unless they were too many.
    pub(crate) fn get(&self) -> Option<&[PageRange]> {
        self.runs.get(..self.len)
    }
}

/// Translations of scattered pages. Each run is cleared on this core by itself, and one shootdown clears all
/// on the others.
///
/// Clearing the hull of all would be correct too, but would cost this core the translations between the runs.
/// Added runs are invalidated at the latest when this is dropped, before the slots are unlocked, also if the
/// caller's code panics.
pub struct Scattered<'a, M: Mmu, F: Memory> {
    backend: &'a Backend<M, F>,
    pin: &'a Pinned,
    run: ShootdownSet,
    /// The translations of the earlier runs on other cores.
    far: ShootdownSet,
}

impl<'a, M: Mmu, F: Memory> Scattered<'a, M, F> {
    /// Returns no translations.
    pub fn new(backend: &'a Backend<M, F>, pin: &'a Pinned) -> Self {
        Self { backend, pin, run: ShootdownSet::NONE, far: ShootdownSet::NONE }
    }

    /// The translations of more pages, to the right of all before.
    pub(crate) fn add(&mut self, entry: &mut Entry<'_, Page>, page: Page) {
        if pages(entry).start() != self.run.pages.end() {
            self.end_run();
        }
        self.run.add(entry, page, self.backend.grain);
    }

    fn end_run(&mut self) {
        let run = mem::replace(&mut self.run, ShootdownSet::NONE);
        if run.cores.is_empty() {
            return;
        }
        let mut others = self.backend.clear_here(self.pin, &run);
        others.remove(self.pin.core());
        if !others.is_empty() {
            self.far.pages = self.far.pages.hull(run.pages);
            others.iter().for_each(|core| self.far.cores.insert(core));
        }
    }

    /// Invalidates all that were added: when this returns, no core has any of them.
    #[inline]
    pub fn invalidate(&mut self) {
        if !self.run.cores.is_empty() || !self.far.cores.is_empty() {
            self.invalidate_all();
        }
    }

    fn invalidate_all(&mut self) {
        self.end_run();
        let far = mem::replace(&mut self.far, ShootdownSet::NONE);
        if !far.cores.is_empty() {
            self.backend.clear_there(self.pin, &far.cores, far.pages);
        }
    }
}

impl<M: Mmu, F: Memory> Drop for Scattered<'_, M, F> {
    fn drop(&mut self) {
        self.invalidate();
    }
}

/// Returns the cores that translate through the leaf.
#[inline(always)]
pub(crate) fn linkage<'a>(leaf: &Leaf<'a>) -> Linkage<'a> {
    let annex = leaf.annex();
    Linkage::new(annex.words, annex.cores)
}

/// Resets the linkage of the leaf, which no core is linked to any more.
pub(crate) fn abandon(leaf: Leaf<'_>) {
    leaf.release(linkage(&leaf).reset());
}

/// Returns the pages of the leaf of `page`.
pub(crate) fn around(page: PageNum) -> PageRange {
    let start = page.get() & !(Leaf::KEYS - 1);
    range(start..start + Leaf::KEYS)
}

/// Returns the pages of a locked slot.
#[inline]
pub(crate) fn pages<E: Expand>(entry: &Entry<'_, Page, E>) -> PageRange {
    range(entry.keys())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn runs_that_meet_are_one_and_too_many_are_none() {
        let mut runs = Runs::none();
        let add = |runs: &mut Runs, keys: core::ops::Range<u64>| runs.add(range(keys));
        for keys in [0..512, 0..1, 511..512, 512..513, 514..520, 519..520] {
            add(&mut runs, keys);
        }
        assert_eq!(runs.get(), Some(&[range(0..513), range(514..520)][..]));
        (2..Runs::MOST as u64).for_each(|run| add(&mut runs, 1000 * run..1000 * run + 1));
        let all = runs.get().map(Vec::from);
        assert_eq!(all.map(|all| (all.len(), all[7])), Some((8, range(7000..7001))));
        add(&mut runs, 7001..7002);
        assert_eq!(runs.get().map(|all| all[7]), Some(range(7000..7002)));
        add(&mut runs, 8000..8001);
        assert_eq!(runs.get(), None);
        add(&mut runs, 8001..8002);
        assert_eq!(runs.get(), None);
    }
}
