//! Remap and extend: a mapping moves, or grows where it is.
//!
//! The pages are carried over with the slots of both places locked, the lower ones first. When they are unlocked, the
//! regions say what is where: so no core finds the contents at both places, or at neither.

use percore::Pinned;
use radixmap::Expand;
use rcu::Handle;
use refcache::Domain;

use super::edit::Edit;
use super::{TreeSpace, find};
use crate::designs::locked::{Guard, for_each_resident, keys, make_fit_moved, make_room, set_all};
use crate::meta::Page;
use crate::reach::Reach;
use crate::space::Mover;
use crate::{BackingNum, Mapping, Memory, Mmu, PageNum, PageRange, Remap, VmError};

impl<R: Domain, D: Handle, M: Mmu, F: Memory> TreeSpace<R, D, M, F> {
    pub(super) fn relocate(
        &self,
        pin: &Pinned,
        what: &Remap,
        mover: &mut Mover<'_>,
    ) -> Result<PageNum, VmError> {
        let from = self.check(what.from)?;
        let mut edit = self.edit(pin);
        let mapping = uniform(&edit, from)?;
        let to = self.choose(pin, &edit, what.to, what.pages)?;
        if from.start() < to.end() && to.start() < from.end() {
            return Err(VmError::Exists);
        }
        assert!(from.pages() <= to.pages(), "there is no room for the pages");
        edit.cut(from)?;
        edit.cut(to)?;
        edit.reserve(to.start())?;
        edit.hold(from);
        edit.hold(to);
        let (mut old, mut new) = self.lock_two(pin, from, to)?;
        let shift = |at: u64| at - from.start().get() + to.start().get();
        make_room(&mut old, &mut new, shift)?;
        make_fit_moved(&mut new, keys(to), Page::new(mapping))?;
        let moved = |backing| mover(backing, from.start(), to.start()).ok_or(VmError::OutOfMemory);
        let backing = mapping.backing().map(moved).transpose()?;
        if let Some(backing) = backing {
            self.rig.memory.grown(pin, backing, to.end());
        }
        edit.close(to);
        self.vacate(pin, &mut edit, to, &mut new);
        self.carry(pin, &mut old, &mut new, shift, backing);
        if !what.keep {
            edit.close(from);
            self.vacate(pin, &mut edit, from, &mut old);
        }
        self.put(pin, &mut edit, to, mapping.with_backing(backing));
        drop((old, new));
        edit.join_all(to);
        if !what.keep {
            edit.clean(from);
            self.arenas.released(pin, from);
        }
        Ok(to.start())
    }

    /// Moves the resident pages.
    fn carry(
        &self,
        pin: &Pinned,
        old: &mut Guard<'_>,
        new: &mut Guard<'_>,
        shift: impl Fn(u64) -> u64,
        backing: Option<BackingNum>,
    ) {
        let reach = Reach::of(old, self.rig.grain, |_| true);
        self.rig.take_back(pin, reach);
        for_each_resident(old, |entry, page| {
            let at = shift(entry.keys().start);
            set_all(new, at..at + 1, page.untracked().with_backing(backing));
            entry.clear();
        });
    }

    /// Locks two ranges that do not meet, the lower one first.
    fn lock_two<'g>(
        &'g self,
        pin: &'g Pinned,
        one: PageRange,
        other: PageRange,
    ) -> Result<(Guard<'g>, Guard<'g>), VmError> {
        let lock =
            |pages| self.pages.lock_range(pin, keys(pages), Expand::Always).map_err(|_| VmError::OutOfMemory);
        if one.start() < other.start() {
            let low = lock(one)?;
            return Ok((low, lock(other)?));
        }
        let low = lock(other)?;
        Ok((lock(one)?, low))
    }

    pub(super) fn grow(&self, pin: &Pinned, pages: PageRange, more: u64) -> Result<(), VmError> {
        let all = self.range(pages.start(), pages.pages().saturating_add(more))?;
        let rest = PageRange::between(pages.end(), all.end());
        if rest.is_empty() {
            return Err(VmError::Empty);
        }
        let mut edit = self.edit(pin);
        let mapping = uniform(&edit, pages)?;
        if !find::is_free(&edit, rest) {
            return Err(VmError::Exists);
        }
        edit.reserve(rest.start())?;
        if let Some(backing) = mapping.backing() {
            self.rig.memory.grown(pin, backing, all.end());
        }
        self.put(pin, &mut edit, rest, mapping);
        edit.join_all(rest);
        Ok(())
    }
}

/// What all of `pages` are a mapping of.
fn uniform(edit: &Edit<'_>, pages: PageRange) -> Result<Mapping, VmError> {
    let (mut end, mut found) = (pages.start(), None);
    for region in find::all(edit, pages) {
        if region.pages.start() > end {
            break;
        }
        if *found.get_or_insert(region.mapping) != region.mapping {
            return Err(VmError::Mixed);
        }
        end = region.pages.end();
    }
    found.filter(|_| end >= pages.end()).ok_or(VmError::NotMapped)
}
