//! Fork: one walk over the parent, left to right; what it maps is set in the child at the same level, folded or not.
//!
//! The parent is locked as a whole, then the child, which nobody else knows: so two forks cannot wait for each other.
//! The walk skips what is not mapped, a slot at a time. If memory runs out, what was walked is in order in both spaces,
//! and the parent's translations of it are taken back all the same.

use core::ops::ControlFlow;

use percore::Pinned;
use radixmap::Entry;
use refcache::Domain;

use super::{Guard, RadixSpace, lock_all, make_fit, set_all};
use crate::meta::Page;
use crate::reach::{Scattered, pages};
use crate::shootdown::Rig;
use crate::space::Heir;
use crate::{BackingNum, Flags, Memory, Mmu, OutOfMemory, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    pub(super) fn copy_to(&self, pin: &Pinned, child: &Self, ask: &mut Heir<'_>) -> Result<(), VmError> {
        let (mut mine, theirs) = (lock_all(&self.map, pin), lock_all(&child.map, pin));
        let lowered = Scattered::new(&self.rig, pin);
        let mut copy =
            Copying { pin, parent: &self.rig, child: &child.rig, theirs, lowered, ask, last: None };
        let walked = mine.try_for_each(|entry| match copy.slot(entry) {
            Ok(()) => ControlFlow::Continue(()),
            Err(OutOfMemory) => ControlFlow::Break(()),
        });
        copy.lowered.take_back();
        if walked.is_break() { Err(VmError::OutOfMemory) } else { Ok(()) }
    }
}

/// A fork on its way.
struct Copying<'a, 'g, 'h, M: Mmu, F> {
    pin: &'a Pinned,
    parent: &'a Rig<M, F>,
    child: &'a Rig<M, F>,
    /// All of the child.
    theirs: Guard<'g>,
    /// Translations of the parent that allow too much now.
    lowered: Scattered<'a, M, F>,
    ask: &'a mut Heir<'h>,
    /// The backing that was last asked for, and the answer.
    last: Option<(BackingNum, BackingNum)>,
}

impl<M: Mmu, F: Memory> Copying<'_, '_, '_, M, F> {
    /// Copies what is mapped in one slot of the parent.
    fn slot(&mut self, entry: &mut Entry<'_, Page>) -> Result<(), OutOfMemory> {
        let Some(page) = entry.value().filter(|page| !page.flags().contains(Flags::DONTFORK)) else {
            return Ok(());
        };
        let backing = page.backing().map(|backing| self.heir(backing)).transpose()?;
        self.theirs.split(entry.keys()).map_err(|_| OutOfMemory)?;
        make_fit(&mut self.theirs, entry.keys(), page).map_err(|_| OutOfMemory)?;
        let heritage = self.parent.inherit(self.pin, page);
        self.keep(entry, page, heritage.kept);
        self.child.refer(self.pin, backing, pages(entry).pages() as i64);
        set_all(&mut self.theirs, entry.keys(), heritage.child.with_backing(backing));
        Ok(())
    }

    /// The parent's `page` is `kept` from now on.
    fn keep(&mut self, entry: &mut Entry<'_, Page>, page: Page, kept: Page) {
        if !kept.rights().contains(page.rights()) {
            self.lowered.add(entry, page);
            entry.set(kept.untracked());
        } else if kept != page {
            entry.set(kept);
        }
    }

    /// The child's backing, asked for once for each run.
    fn heir(&mut self, backing: BackingNum) -> Result<BackingNum, OutOfMemory> {
        match self.last {
            Some((parents, childs)) if parents == backing => Ok(childs),
            _ => {
                let childs = (self.ask)(backing).ok_or(OutOfMemory)?;
                self.last = Some((backing, childs));
                Ok(childs)
            }
        }
    }
}
