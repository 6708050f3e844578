//! Remap and extend: a mapping moves, or grows where it is.
//!
//! Two ranges are locked, the lower one first: left to right as ever. The pages' translations are taken back before
//! another page shows their frames, under both locks, so no core finds the contents at both places, or at neither.

use core::ops::{ControlFlow, Range};

use percore::Pinned;
use radixmap::{Entry, Expand};
use refcache::Domain;

use super::huge::cut_all;
use super::{Guard, RadixSpace, keys, make_fit, set_all};
use crate::designs::locked::{for_each_resident, make_fit_moved, make_room};
use crate::meta::Page;
use crate::reach::Reach;
use crate::space::Mover;
use crate::{AddressSpace, Mapping, Memory, Mmu, PageNum, PageRange, Placement, Prot, Remap, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F>
where
    Self: AddressSpace,
{
    /// A place of the space's choice is claimed first, as any mapping claims one, and then moved over. The pages are looked
    /// at before: what is not a mapping needs no place.
    pub(super) fn relocate(
        &self,
        pin: &Pinned,
        what: &Remap,
        mover: &mut Mover<'_>,
    ) -> Result<PageNum, VmError> {
        let from = self.check(what.from)?;
        uniform(&mut self.lock_leaves(pin, from), keys(from))?;
        if let Placement::Fixed(start) = what.to {
            return self
                .move_over(pin, from, self.range(start, what.pages)?, what.keep, mover)
                .map(|()| start);
        }
        let start = self.map(pin, what.to, what.pages, Mapping::anonymous(Prot::NONE))?;
        let to = self.range(start, what.pages)?;
        let moved = self.move_over(pin, from, to, what.keep, mover);
        if moved.is_err() {
            self.unmap(pin, to)?;
        }
        moved.map(|()| start)
    }

    /// Moves `from` over whatever is at `to`.
    fn move_over(
        &self,
        pin: &Pinned,
        from: PageRange,
        to: PageRange,
        keep: bool,
        mover: &mut Mover<'_>,
    ) -> Result<(), VmError> {
        assert!(from.pages() <= to.pages(), "there is no room for the pages");
        let (mut old, mut new) = self.lock_two(pin, from, to)?;
        let mapping = uniform(&mut old, keys(from))?;
        cut_all(&mut old, keys(from)).map_err(|_| VmError::OutOfMemory)?;
        let shift = |at: u64| at - from.start().get() + to.start().get();
        make_room(&mut old, &mut new, shift)?;
        make_fit_moved(&mut new, keys(to), Page::new(mapping))?;
        let moved = |backing| mover(backing, from.start(), to.start()).ok_or(VmError::OutOfMemory);
        let backing = mapping.backing().map(moved).transpose()?;
        if let Some(backing) = backing {
            self.rig.memory.grown(pin, backing, to.end());
        }
        self.remove(pin, &mut new);
        self.rig.refer(pin, backing, to.pages() as i64);
        new.fill(Page::new(mapping.with_backing(backing)));
        let reach = Reach::of(&mut old, self.rig.grain, |_| true);
        self.rig.take_back(pin, reach);
        for_each_resident(&mut old, |entry, page| {
            let at = shift(entry.keys().start);
            set_all(&mut new, at..at + 1, page.untracked().with_backing(backing));
            entry.set(page.without_frame());
        });
        drop(new);
        if !keep {
            self.leave(pin, old, mapping);
        }
        Ok(())
    }

    /// Nothing is mapped any more where pages were carried away.
    fn leave(&self, pin: &Pinned, mut old: Guard<'_>, mapping: Mapping) {
        let keys = old.keys();
        let pages = PageRange::between(PageNum::new(keys.start), PageNum::new(keys.end));
        self.rig.refer(pin, mapping.backing(), -(pages.pages() as i64));
        old.for_each(|entry| entry.clear());
        drop(old);
        self.arenas.released(pin, pages);
    }

    /// Locks two ranges, the lower one first.
    fn lock_two<'g>(
        &'g self,
        pin: &'g Pinned,
        one: PageRange,
        other: PageRange,
    ) -> Result<(Guard<'g>, Guard<'g>), VmError> {
        if one.start() < other.end() && other.start() < one.end() {
            return Err(VmError::Exists);
        }
        if one.start() < other.start() {
            let low = self.lock(pin, one, Expand::Always)?;
            return Ok((low, self.lock(pin, other, Expand::Always)?));
        }
        let low = self.lock(pin, other, Expand::Always)?;
        Ok((self.lock(pin, one, Expand::Always)?, low))
    }

    pub(super) fn grow(&self, pin: &Pinned, pages: PageRange, more: u64) -> Result<(), VmError> {
        let all = self.range(self.check(pages)?.start(), pages.pages().saturating_add(more))?;
        let rest = keys(PageRange::between(pages.end(), all.end()));
        if rest.is_empty() {
            return Err(VmError::Empty);
        }
        let mut guard = self.lock(pin, all, Expand::Always)?;
        let mapping = uniform(&mut guard, keys(pages))?;
        let taken = |entry: &mut Entry<'_, Page>| match entry.value() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        };
        if guard.try_for_each_in(rest.clone(), taken).is_break() {
            return Err(VmError::Exists);
        }
        make_fit(&mut guard, rest.clone(), Page::new(mapping))?;
        if let Some(backing) = mapping.backing() {
            self.rig.memory.grown(pin, backing, all.end());
        }
        self.rig.refer(pin, mapping.backing(), more as i64);
        set_all(&mut guard, rest, Page::new(mapping));
        Ok(())
    }
}

/// What all of the locked `keys` are a mapping of.
pub(super) fn uniform(guard: &mut Guard<'_>, keys: Range<u64>) -> Result<Mapping, VmError> {
    let mut found = None;
    let walked = guard.try_for_each_in(keys, |entry| match entry.value().map(Page::mapping) {
        None => ControlFlow::Break(VmError::NotMapped),
        Some(mapping) if *found.get_or_insert(mapping) != mapping => ControlFlow::Break(VmError::Mixed),
        Some(_) => ControlFlow::Continue(()),
    });
    match walked {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => found.ok_or(VmError::Empty),
    }
}
