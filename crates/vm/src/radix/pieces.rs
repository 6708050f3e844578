//! A move piece by piece: the steps that `relocation.rs` asks for, each one operation.

use core::ops::ControlFlow;

use percore::Pinned;
use radixmap::{Always, ExpandUsed, IfPresent, Never, Run};
use refcache::Domain;

use super::huge::split_all;
use super::promote::first_untouched_leaf;
use super::remap::uniform;
use super::{Guard, RadixSpace, keys, make_fit};
use crate::page_word::Page;
use crate::protocol::{Move, ShootdownSet, first_piece, range};
use crate::space::{MovePieces, RemapBacking};
use crate::types::{Change, Unbroken};
use crate::{
    Backings, Event, HUGE_PAGES, Mapping, Memory, Mmu, PageNum, PageRange, Placement, Prot, VmError,
};

/// Slots that move in one step. A page that moves costs more than one that is unmapped.
const SLOTS: u64 = 128;
/// Huge pages that move in one step: it is 512 pages when it is split.
const HUGE_SLOTS: u64 = 1;
/// Pages that go back together.
const TAKEN: usize = 64;

impl<R: Domain, M: Mmu, F: Memory> MovePieces for RadixSpace<R, M, F>
where
    Self: crate::AddressSpace,
{
    fn has(&self, pages: PageRange) -> bool {
        self.user.covers(pages)
    }

    fn piece_to_move(&self, pin: &Pinned, pages: PageRange) -> PageRange {
        let slots = if self.may_have_huge() { HUGE_SLOTS } else { SLOTS };
        first_piece(&self.map, pin, pages, self.user, slots)
    }

    fn mapping_of(&self, pin: &Pinned, pages: PageRange) -> Result<Mapping, VmError> {
        let pages = self.check(pages)?;
        uniform(&mut self.lock_leaves(pin, pages), keys(pages))
    }

    fn claim(&self, pin: &Pinned, place: Placement, pages: u64) -> Result<PageNum, VmError> {
        self.map_page(pin, place, pages, held())
    }

    fn carry(
        &self,
        pin: &Pinned,
        mapping: Mapping,
        from: PageRange,
        to: PageNum,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<Mapping, VmError> {
        let to = self.range(to, from.pages())?;
        let mut places = Move::new(self.check(from)?, to)?.lock(&self.map, pin)?;
        all_are(&mut places.old, |page| !page.is_held() && page.mapping() == mapping)?;
        all_are(&mut places.new, Page::is_held)?;
        split_all(&mut places.old, keys(from)).map_err(|_| VmError::OutOfMemory)?;
        places.make_room(mapping)?;
        let backing = places.way.backing(pin, &self.backend, mapping, remap_backing)?;
        self.backend.refer(pin, backing, to.pages() as i64);
        places.new.fill(Page::new(mapping.with_backing(backing)));
        places.carry(pin, &self.backend, backing, |entry, page| entry.set(page.held()));
        places.old.for_each_used(|run| run.set(run.value().held()));
        Ok(mapping.with_backing(backing))
    }

    /// Moves contents back. Only leaves have contents once huge pages are split, and folded slots are left as
    /// they are: nothing expands. A few pages at a time are taken from one place, and then given to the
    /// other. The two places are never both locked: they might be one slot if other threads have unmapped
    /// everything around them. Frames of the backing are shown again at the next touch.
    fn carry_back(
        &self,
        pin: &Pinned,
        mapping: Mapping,
        from: PageRange,
        to: PageNum,
    ) -> Result<(), VmError> {
        let (from, to) = (self.check(from)?, self.range(to, from.pages())?);
        loop {
            let mut taken = [None; TAKEN];
            self.take_contents(pin, mapping, from, &mut taken)?;
            for (key, page) in taken.iter().flatten() {
                let at = PageNum::new(key - from.start().get() + to.start().get());
                if page.is_shown() || !put_back(&mut self.lock_leaves(pin, PageRange::one(at)), at, *page) {
                    let mut change = Change::default();
                    self.backend.release(pin, *page, &mut change);
                    self.backend.counts.change(pin, &change);
                }
            }
            if taken.iter().any(Option::is_none) {
                return Ok(());
            }
        }
    }

    fn settle(&self, pin: &Pinned, pages: PageRange, mapping: Option<Mapping>) -> Result<(), VmError> {
        match mapping {
            Some(mapping) => self.open_held(pin, self.check(pages)?, mapping),
            None => self.drop_held(pin, self.check(pages)?),
        }
    }

    fn count_move(&self, pin: &Pinned) {
        self.backend.counts.add(pin, Event::Mremap, 1);
    }
}

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Makes the first pages of `mapping` in `from` that have contents held pages, and the untouched ones
    /// too. The contents go to `taken`, as far as there is room. No core translates them.
    fn take_contents(
        &self,
        pin: &Pinned,
        mapping: Mapping,
        from: PageRange,
        taken: &mut [Option<(u64, Page)>],
    ) -> Result<(), VmError> {
        let mut guard = self.lock_leaves(pin, from);
        split_all(&mut guard, keys(from)).map_err(|_| VmError::OutOfMemory)?;
        let is_ours = |page: Page| !page.is_held() && page.mapping() == mapping;
        self.backend.invalidate(pin, ShootdownSet::of(&mut guard, self.backend.grain, is_ours));
        let mut room = taken.iter_mut();
        guard.for_each_used(|run| {
            let (keys, page) = (run.keys(), run.value());
            let Some(mut run) = run.whole().filter(|_| is_ours(page)) else { return };
            if page.is_touched() {
                let Some(place) = room.next() else { return };
                *place = Some((keys.start, page.untracked()));
            }
            run.set(page.held());
        });
        Ok(())
    }

    /// Held pages become untouched ones of `mapping`.
    fn open_held(&self, pin: &Pinned, pages: PageRange, mapping: Mapping) -> Result<(), VmError> {
        let mut guard = self.lock(pin, pages, Always)?;
        make_fit(&mut guard, keys(pages), Page::new(mapping))?;
        if let Some(backing) = mapping.backing() {
            self.backend.memory.grown(pin, backing, pages.end());
        }
        for_each_held(&mut guard, |run, pages| {
            let (before, pages) = (run.value().backing(), pages.pages() as i64);
            if before != mapping.backing() {
                self.backend.refer(pin, mapping.backing(), pages);
                self.backend.refer(pin, before, -pages);
            }
            run.set(Page::new(mapping));
        });
        Ok(())
    }

    /// Unmaps held pages. Leaves that have no others go at once: a move may leave many behind, and if they
    /// were empty, the next unmap of the place would go through all of them.
    fn drop_held(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        let mut dropped = 0;
        let mut guard = self.lock(pin, pages, IfPresent)?;
        for_each_held(&mut guard, |run, pages| {
            self.backend.refer(pin, run.value().backing(), -(pages.pages() as i64));
            dropped += pages.pages();
            run.set(held());
        });
        if pages.pages() >= HUGE_PAGES {
            // Others may have mapped pages here, and have them in pages of their own: the leaf forgets who.
            let linked = ShootdownSet::of(&mut guard, self.backend.grain, Page::is_linked);
            self.backend.invalidate_leaves(pin, &mut guard, linked);
            fold_held(&mut guard);
        }
        for_each_held(&mut guard, |run, _| run.clear());
        self.backend.counts.change(pin, &Change::unmap(dropped));
        drop(guard);
        self.arenas.released(pin, pages);
        Ok(())
    }
}

/// Returns a held page of no mapping.
fn held() -> Page {
    Page::new(Mapping::anonymous(Prot::NONE)).held()
}

/// Gives the locked page `at` the contents of `page`, if it is held. Returns whether it is.
fn put_back(guard: &mut Guard<'_, Never>, at: PageNum, page: Page) -> bool {
    let put = guard.try_for_each_in(keys(PageRange::one(at)), |entry| match entry.used() {
        Some((mut entry, held)) if held.is_held() => {
            entry.set(page.with_mapping(held.with_prot(page.prot()).mapping()));
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    put.is_break()
}

fn for_each_held<E: ExpandUsed>(
    guard: &mut Guard<'_, E>,
    mut f: impl FnMut(&mut Run<'_, Page, E>, PageRange),
) {
    guard.for_each_used(|run| {
        if run.value().is_held() {
            f(run, range(run.keys()));
        }
    });
}

/// Folds leaves whose pages are all locked, and held for no mapping, into a slot. That needs no memory.
fn fold_held(guard: &mut Guard<'_, IfPresent>) {
    let mut keys = guard.keys();
    while let Some((block, page)) = first_untouched_leaf(guard, keys.clone()) {
        keys.start = block.end;
        if page == held() {
            let _has_no_second_word = guard.fold(block, page);
        }
    }
}

/// Returns whether all locked keys are mapped to pages that `is` approves of.
fn all_are(guard: &mut Guard<'_>, is: impl Fn(Page) -> bool) -> Result<(), VmError> {
    let all = range(guard.keys());
    let mut mapped = Unbroken::from(all.start());
    let walked = guard.try_for_each_used(|run| match run.value() {
        _ if !mapped.add(range(run.keys())) => ControlFlow::Break(VmError::NotMapped),
        page if !is(page) => ControlFlow::Break(VmError::Mixed),
        _ => ControlFlow::Continue(()),
    });
    match walked {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) if mapped.reaches(all.end()) => Ok(()),
        ControlFlow::Continue(()) => Err(VmError::NotMapped),
    }
}
