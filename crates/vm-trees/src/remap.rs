//! Remap and extend: a mapping moves, or grows where it is.
//!
//! When the slots of both places are unlocked, the regions say what is where (see `moving.rs`).

use percore::Pinned;
use rcu::Handle;
use refcache::Domain;
use vm::design::Move;
use vm::{Backings, Mapping, Memory, Mmu, PageNum, PageRange, Remap, RemapBacking, VmError};

use super::edit::Edit;
use super::{TreeSpace, find};

impl<R: Domain, D: Handle, M: Mmu, F: Memory> TreeSpace<R, D, M, F> {
    pub(super) fn relocate(
        &self,
        pin: &Pinned,
        what: &Remap,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<PageNum, VmError> {
        let from = self.check(what.from)?;
        let mut edit = self.edit(pin);
        let mapping = uniform(&edit, from)?;
        let way = Move::new(from, self.choose(pin, &edit, what.to, what.pages)?.pages)?;
        prepare(&mut edit, way)?;
        self.move_over(pin, &mut edit, way, what.keep, mapping, remap_backing)?;
        edit.join_all(way.to);
        if !what.keep {
            edit.clean(from);
            self.arenas.released(pin, from);
        }
        Ok(way.to.start())
    }

    /// Moves pages of `mapping` over whatever is at the new place. On failure nothing has changed.
    fn move_over(
        &self,
        pin: &Pinned,
        edit: &mut Edit<'_>,
        way: Move,
        keep: bool,
        mapping: Mapping,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<(), VmError> {
        let mut places = way.lock(&self.pages, pin)?;
        places.make_room(mapping)?;
        let backing = way.backing(pin, &self.backend, mapping, remap_backing)?;
        edit.close(way.to);
        self.vacate(pin, edit, way.to, &mut places.new);
        places.carry(pin, &self.backend, backing, |entry, _| entry.clear());
        if !keep {
            edit.close(way.from);
            self.vacate(pin, edit, way.from, &mut places.old);
        }
        self.put(pin, edit, way.to, mapping.with_backing(backing));
        Ok(())
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
            self.backend.memory.grown(pin, backing, all.end());
        }
        self.put(pin, &mut edit, rest, mapping);
        edit.join_all(rest);
        Ok(())
    }
}

/// Makes regions end where the two places do, locks them, and puts one where the new place begins.
fn prepare(edit: &mut Edit<'_>, way: Move) -> Result<(), VmError> {
    edit.split_at_ends(way.from)?;
    edit.split_at_ends(way.to)?;
    edit.reserve(way.to.start())?;
    edit.hold(way.from);
    edit.hold(way.to);
    Ok(())
}

/// Returns the mapping of all of `pages`.
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
