//! Remap and extend: a mapping moves, or grows where it is.
//!
//! How pages move is said in `moving.rs`.

use core::mem;
use core::ops::{ControlFlow, Range};

use percore::Pinned;
use radixmap::{Always, Entry, Expand};
use refcache::Domain;

use super::huge::split_all;
use super::{Guard, RadixSpace, keys, make_fit};
use crate::page_word::Page;
use crate::protocol::{Move, Places};
use crate::space::RemapBacking;
use crate::types::Change;
use crate::{
    AddressSpace, Backings, Mapping, Memory, Mmu, PageNum, PageRange, Placement, Prot, Remap, VmError,
};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F>
where
    Self: AddressSpace,
{
    /// A place of the space's choice is claimed first, as any mapping claims one, and then moved over. The
    /// pages are looked at before: what is not a mapping needs no place.
    pub(super) fn relocate(
        &self,
        pin: &Pinned,
        what: &Remap,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<PageNum, VmError> {
        let from = self.check(what.from)?;
        uniform(&mut self.lock_leaves(pin, from), keys(from))?;
        if let Placement::Fixed(start) = what.to {
            return self
                .move_over(pin, from, self.range(start, what.pages)?, what.keep, remap_backing)
                .map(|()| start);
        }
        let start = self.map(pin, what.to, what.pages, Mapping::anonymous(Prot::NONE))?;
        let claimed = Claimed { space: self, pin, pages: self.range(start, what.pages)? };
        self.move_over(pin, from, claimed.pages, what.keep, remap_backing)?;
        mem::forget(claimed);
        Ok(start)
    }

    /// Moves `from` over whatever is at `to`.
    fn move_over(
        &self,
        pin: &Pinned,
        from: PageRange,
        to: PageRange,
        keep: bool,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<(), VmError> {
        let mut places = Move::new(from, to)?.lock(&self.map, pin)?;
        let mapping = uniform(&mut places.old, keys(from))?;
        split_all(&mut places.old, keys(from)).map_err(|_| VmError::OutOfMemory)?;
        places.make_room(mapping)?;
        let backing = places.way.backing(pin, &self.backend, mapping, remap_backing)?;
        self.remove(pin, &mut places.new);
        self.backend.counts.change(pin, &Change::map(to.pages()));
        self.backend.refer(pin, backing, to.pages() as i64);
        places.new.fill(Page::new(mapping.with_backing(backing)));
        places.carry(pin, &self.backend, backing, |entry, page| entry.set(page.without_frame()));
        let Places { old, new, .. } = places;
        drop(new);
        if !keep {
            self.leave(pin, old, mapping);
        }
        Ok(())
    }

    /// Unmaps the place from which pages were carried away.
    fn leave(&self, pin: &Pinned, mut old: Guard<'_>, mapping: Mapping) {
        let keys = old.keys();
        let pages = PageRange::between(PageNum::new(keys.start), PageNum::new(keys.end));
        self.backend.refer(pin, mapping.backing(), -(pages.pages() as i64));
        self.backend.counts.change(pin, &Change::unmap(pages.pages()));
        old.for_each(|entry| entry.clear());
        drop(old);
        self.arenas.released(pin, pages);
    }

    pub(super) fn grow(&self, pin: &Pinned, pages: PageRange, more: u64) -> Result<(), VmError> {
        let all = self.range(self.check(pages)?.start(), pages.pages().saturating_add(more))?;
        let rest = keys(PageRange::between(pages.end(), all.end()));
        if rest.is_empty() {
            return Err(VmError::Empty);
        }
        let mut guard = self.lock(pin, all, Always)?;
        let mapping = uniform(&mut guard, keys(pages))?;
        let taken = |entry: &mut Entry<'_, Page, _>| match entry.value() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        };
        if guard.try_for_each_in(rest.clone(), taken).is_break() {
            return Err(VmError::Exists);
        }
        make_fit(&mut guard, rest.clone(), Page::new(mapping))?;
        if let Some(backing) = mapping.backing() {
            self.backend.memory.grown(pin, backing, all.end());
        }
        self.backend.refer(pin, mapping.backing(), more as i64);
        self.backend.counts.change(pin, &Change::map(more));
        guard.fill_in(rest, Page::new(mapping));
        Ok(())
    }
}

/// A place that was claimed for pages that are to move there: if they do not, by an error or a panic of the
/// caller's, it is given up.
struct Claimed<'a, S: AddressSpace> {
    space: &'a S,
    pin: &'a Pinned,
    pages: PageRange,
}

impl<S: AddressSpace> Drop for Claimed<'_, S> {
    fn drop(&mut self) {
        // It is mapped as a whole, so nothing expands that could lack memory.
        let _ = self.space.unmap(self.pin, self.pages);
    }
}

/// Returns the mapping of all of the locked `keys`.
pub(super) fn uniform<E: Expand>(guard: &mut Guard<'_, E>, keys: Range<u64>) -> Result<Mapping, VmError> {
    let mut found = None;
    let walked = guard.try_for_each_in(keys, |entry| match entry.value() {
        None => ControlFlow::Break(VmError::NotMapped),
        Some(page) if page.is_held() => ControlFlow::Break(VmError::Mixed),
        Some(page) if *found.get_or_insert(page.mapping()) != page.mapping() => {
            ControlFlow::Break(VmError::Mixed)
        }
        Some(_) => ControlFlow::Continue(()),
    });
    match walked {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => found.ok_or(VmError::Empty),
    }
}
