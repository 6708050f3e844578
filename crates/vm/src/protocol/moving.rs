//! The part of moving a mapping that all designs have in common.
//!
//! The slots of both places are locked, the lower ones first: left to right, as everywhere. Steps that need
//! memory come before steps that take effect. The pages' translations are invalidated before another page
//! shows their frames, under both locks. So no core finds the contents at both places, or at neither.

use percore::Pinned;
use radixmap::{Always, Entry, RadixMap};
use refcache::Domain;

use super::locked::{Guard, for_each_touched};
use super::shootdown::{Backend, keys};
use super::shootdown_set::ShootdownSet;
use crate::machine::{Call, during};
use crate::page_word::Page;
use crate::space::RemapBacking;
use crate::{BackingNum, Backings, Mapping, Memory, Mmu, PageRange, VmError};

/// From where to where. The two places do not meet.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The old place.
    pub from: PageRange,
    /// The new place, which may have more pages.
    pub to: PageRange,
}

impl Move {
    /// Returns the move, or `Exists` if the places overlap.
    ///
    /// # Panics
    /// If there is less room than pages.
    pub fn new(from: PageRange, to: PageRange) -> Result<Self, VmError> {
        assert!(from.pages() <= to.pages(), "there is no room for the pages");
        let apart = from.end() <= to.start() || to.end() <= from.start();
        if apart { Ok(Self { from, to }) } else { Err(VmError::Exists) }
    }

    /// Locks both places.
    pub fn lock<'g, R: Domain>(
        self,
        map: &'g RadixMap<Page, R>,
        pin: &'g Pinned,
    ) -> Result<Places<'g>, VmError> {
        let lock = |pages| map.lock_range(pin, keys(pages), Always).map_err(|_| VmError::OutOfMemory);
        if self.from.start() < self.to.start() {
            let old = lock(self.from)?;
            return Ok(Places { old, new: lock(self.to)?, way: self });
        }
        let new = lock(self.to)?;
        Ok(Places { old: lock(self.from)?, new, way: self })
    }

    /// Returns the backing of pages of `mapping` at the new place.
    pub fn backing<M: Mmu, F: Memory>(
        self,
        pin: &Pinned,
        backend: &Backend<M, F>,
        mapping: Mapping,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<Option<BackingNum>, VmError> {
        let Some(backing) = mapping.backing() else { return Ok(None) };
        let moved = || remap_backing(backing, self.from.start(), self.to.start());
        let backing = during(pin, Call::RemapBacking, moved).ok_or(VmError::OutOfMemory)?;
        backend.memory.grown(pin, backing, self.to.end());
        Ok(Some(backing))
    }

    /// Returns where the page at `key` goes.
    fn shift(self, key: u64) -> u64 {
        key - self.from.start().get() + self.to.start().get()
    }
}

/// Both places, locked.
#[derive(Debug)]
pub struct Places<'g> {
    /// The slots of the old place.
    pub old: Guard<'g>,
    /// The slots of the new place.
    pub new: Guard<'g>,
    pub(crate) way: Move,
}

impl Places<'_> {
    /// Sees to it that there is a slot at the new place for each page that has contents, and that all slots
    /// there can be set to pages of `mapping`, with whatever backing.
    pub fn make_room(&mut self, mapping: Mapping) -> Result<(), VmError> {
        let (way, new) = (self.way, &mut self.new);
        let mut room = Ok(());
        for_each_touched(&mut self.old, |entry, _| {
            let at = way.shift(entry.keys().start);
            room = room.and_then(|()| new.split(at..at + 1));
        });
        if Page::new(mapping).is_wide() {
            room = room.and_then(|()| new.widen(keys(way.to)));
        }
        room.map_err(|_| VmError::OutOfMemory)
    }

    /// Moves the pages that have frames, which show `backing` from now on. `leave` says what stays of each.
    pub fn carry<M: Mmu, F: Memory>(
        &mut self,
        pin: &Pinned,
        backend: &Backend<M, F>,
        backing: Option<BackingNum>,
        leave: impl Fn(&mut Entry<'_, Page>, Page),
    ) {
        backend.invalidate(pin, ShootdownSet::of(&mut self.old, backend.grain, |_| true));
        for_each_touched(&mut self.old, |entry, page| {
            let at = self.way.shift(entry.keys().start);
            self.new.fill_in(at..at + 1, page.untracked().with_backing(backing));
            leave(entry, page);
        });
    }
}
