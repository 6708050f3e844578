//! Faults, and the races of those that take no lock which keeps mapping operations out (the Bonsai paper,
//! section 5.2).
//!
//! A fault looks its region up, locks the page's slot, and looks at the region again. These races may have
//! happened in between:
//!
//! | race | what the fault finds | what it does |
//! |---|---|---|
//! | *split*: a region is shortened, and its upper part is another one since | the region that it found does not have the page | tries again, with the space's lock |
//! | *fill*: the region was unmapped, and its pages are gone already | the region is closed, or another mapping's | the same: it would fill in a page that no later unmap invalidates |
//! | *deallocation*: nodes of the resident pages go, or the region itself does | they are there as long as it is pinned, or reads | nothing |
//!
//! # Why the second look is enough
//!
//! A mapping operation stores into the region, and then locks the slots of its pages. A fault locks the slot,
//! and then loads from the region.
//!
//! ```text
//!   munmap                                     fault
//!   1  close the region                        1  lock the slot
//!   2  lock the slot; take the page away       2  is the region open, and has it the page?
//!   3  unlock                                  3  fill; unlock
//! ```
//! If the fault's lock came first, the operation finds the page that was filled in, and takes it away. If the
//! operation's came first, what it stored before is seen after: Acquire and Release of the slot's lock.
//! mprotect locks the slots first, and changes the mapping and the pages under their locks.
//!
//! Frees wait for readers: regions and the tree's nodes for RCU (the fault reads until it is done), nodes of
//! the resident pages for Refcache, whose epochs wait for pinned cores in the same way; the hardware's tables
//! stay until the space goes.
//!
//! A lookup that finds no region proves nothing either, unless the space's lock is held: a region that takes
//! the place of others is opened after they were closed.

use percore::Pinned;
use rcu::Handle;
use refcache::Domain;
use vm::design::Page;
use vm::{Access, Fault, FaultError, Memory, Mmu, PageNum};

use super::TreeSpace;
use super::find::{self, Look};
use super::vma::Vma;

/// The region was changing.
struct Changed;

impl<R: Domain, D: Handle, M: Mmu, F: Memory> TreeSpace<R, D, M, F> {
    /// Resolves a fault.
    #[inline]
    pub(super) fn resolve(&self, pin: &Pinned, at: PageNum, access: Access) -> Result<Fault, FaultError> {
        let tree = self.tree.read(pin);
        if self.locks.is_optimistic() {
            if let Ok(outcome) = self.resolve_racing(pin, &tree, at, access) {
                return outcome;
            }
            let _space = self.locks.read();
            return self.resolve_still(pin, &tree, at, access);
        }
        let _still = self.locks.fault();
        self.resolve_still(pin, &tree, at, access)
    }

    /// Regions may change meanwhile.
    fn resolve_racing(
        &self,
        pin: &Pinned,
        tree: &Look<'_>,
        at: PageNum,
        access: Access,
    ) -> Result<Result<Fault, FaultError>, Changed> {
        let (_, vma) = {
            let _tree = self.locks.look_up();
            find::floor(tree, at).ok_or(Changed)?
        };
        let _vma = self.locks.enter(&vma.lock).ok_or(Changed)?;
        self.resolve_in(pin, vma, at, access)
    }

    /// Regions do not change meanwhile.
    fn resolve_still(
        &self,
        pin: &Pinned,
        tree: &Look<'_>,
        at: PageNum,
        access: Access,
    ) -> Result<Fault, FaultError> {
        let (_, vma) = find::floor(tree, at).ok_or(FaultError::NotMapped)?;
        self.resolve_in(pin, vma, at, access).unwrap_or(Err(FaultError::NotMapped))
    }

    /// Resolves a fault on a page that `vma` had a moment ago.
    fn resolve_in(
        &self,
        pin: &Pinned,
        vma: &Vma,
        at: PageNum,
        access: Access,
    ) -> Result<Result<Fault, FaultError>, Changed> {
        let seen = vma.mapping_at(at).ok_or(Changed)?;
        let Ok(mut guard) = self.lock_page(pin, at, seen) else { return Ok(Err(FaultError::OutOfMemory)) };
        // The second look: see above.
        let mapping = vma.mapping_at(at).filter(|&mapping| mapping == seen).ok_or(Changed)?;
        let mut outcome = Err(FaultError::NotMapped);
        guard.for_each(|entry| {
            let page = entry.value().map_or(Page::new(mapping), |page| page.with_mapping(mapping));
            outcome = self.backend.resolve(pin, at, entry, page, access);
        });
        Ok(outcome)
    }
}
