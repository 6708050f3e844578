//! Fork: the child gets the regions, and then the resident pages, node by node.
//!
//! The parent's lock keeps mapping operations out, and its slots, all of them, faults. If memory runs out,
//! the child has some of the regions, and all is in order in both spaces: the parent's translations of what
//! was copied are taken back all the same.

use alloc::vec::Vec;

use percore::Pinned;
use radixmap::{OutOfMemory, Run};
use rcu::Handle;
use refcache::Domain;
use vm::design::{Backend, Call, Change, Page, Scattered, during, lock_all, range};
use vm::{BackingNum, Flags, ForkBacking, Mapping, Memory, Mmu, PageNum, Region, VmError};

use super::edit::Edit;
use super::{TreeSpace, find};

impl<R: Domain, D: Handle, M: Mmu, F: Memory> TreeSpace<R, D, M, F> {
    pub(super) fn copy_to(
        &self,
        pin: &Pinned,
        child: &Self,
        ask: &mut ForkBacking<'_>,
    ) -> Result<(), VmError> {
        let (mine, mut theirs) = (self.edit(pin), child.edit(pin));
        let regions = self.copy_regions(pin, &mine, child, &mut theirs, ask);
        let mut guard = lock_all(&self.pages, pin);
        let lowered = Scattered::new(&self.backend, pin);
        let mut copy = Copying {
            pin,
            parent: &self.backend,
            change: Change::default(),
            lowered,
            child: &theirs,
            last: None,
        };
        let copied = guard.copy_to(pin, &child.pages, |run| Ok(copy.run(run)));
        child.backend.counts.change(pin, &copy.change);
        copy.lowered.invalidate();
        regions.and(copied.map_err(|_: OutOfMemory| VmError::OutOfMemory))
    }

    fn copy_regions(
        &self,
        pin: &Pinned,
        mine: &Edit<'_>,
        child: &Self,
        theirs: &mut Edit<'_>,
        ask: &mut ForkBacking<'_>,
    ) -> Result<(), VmError> {
        let mut child_backings = ChildBackings { pin, ask, known: Vec::new() };
        for Region { pages, mapping, .. } in find::all(mine, self.user) {
            if !mapping.flags().contains(Flags::DONTFORK) {
                let backing = mapping.backing().map(|backing| child_backings.of(backing)).transpose()?;
                theirs.reserve(pages.start())?;
                child.put(pin, theirs, pages, inherited(mapping, backing));
            }
        }
        Ok(())
    }
}

fn inherited(mapping: Mapping, backing: Option<BackingNum>) -> Mapping {
    mapping.with_flags(mapping.flags() - Flags::LOCKED).with_backing(backing)
}

/// The child's backings. Each is asked for once: pages of a leaf that say the same must have copies that do
/// (`copy_to`).
struct ChildBackings<'a, 'h> {
    pin: &'a Pinned,
    ask: &'a mut ForkBacking<'h>,
    /// The parent's and the child's, ordered.
    known: Vec<(BackingNum, BackingNum)>,
}

impl ChildBackings<'_, '_> {
    fn of(&mut self, backing: BackingNum) -> Result<BackingNum, VmError> {
        match self.known.binary_search_by_key(&backing.get(), |(parents, _)| parents.get()) {
            Ok(at) => Ok(self.known[at].1),
            Err(at) => {
                self.known.try_reserve(1).map_err(|_| VmError::OutOfMemory)?;
                let childs = during(self.pin, Call::ForkBacking, || (self.ask)(backing))
                    .ok_or(VmError::OutOfMemory)?;
                self.known.insert(at, (backing, childs));
                Ok(childs)
            }
        }
    }
}

/// The copy of the resident pages, on its way.
struct Copying<'a, M: Mmu, F: Memory> {
    pin: &'a Pinned,
    parent: &'a Backend<M, F>,
    /// Of the child's pages.
    change: Change,
    /// Translations of the parent that allow too much now.
    lowered: Scattered<'a, M, F>,
    child: &'a Edit<'a>,
    /// The region of the child that was last looked up.
    last: Option<Region>,
}

impl<M: Mmu, F: Memory> Copying<'_, M, F> {
    /// Returns the child's page for a page of the parent: none if the child looks it up itself.
    fn run(&mut self, run: &mut Run<'_, Page>) -> Option<Page> {
        let mapping = self.mapping_at(range(run.keys()).start())?;
        if mapping.flags().contains(Flags::WIPEONFORK) {
            return None;
        }
        let forked = self.parent.fork_page(self.pin, run.value());
        self.lowered.keep(run, forked.kept);
        let child = forked.child.frame().map(|_| forked.child.with_mapping(mapping));
        self.change.own += i64::from(child.is_some());
        child
    }

    /// Returns the mapping of the page in the child.
    fn mapping_at(&mut self, at: PageNum) -> Option<Mapping> {
        if !self.last.is_some_and(|region| region.pages.contains(at)) {
            self.last = find::at(self.child, at);
        }
        self.last.map(|region| region.mapping)
    }
}
