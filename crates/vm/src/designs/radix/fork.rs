//! Fork: one walk over the parent, left to right; what it maps is set in the child at the same level, folded or not.
//!
//! The parent is locked as a whole, then the child, which nobody else knows: so two forks cannot wait for each other.
//! The walk skips what is not mapped, a slot at a time. If memory runs out, what was walked is in order in both spaces,
//! and the parent's translations of it are taken back all the same.

use core::ops::{ControlFlow, Range};

use percore::Pinned;
use radixmap::Entry;
use refcache::Domain;

use super::huge::cut;
use super::{Guard, RadixSpace, lock_all, make_fit, set_all};
use crate::meta::Page;
use crate::shootdown::{Rig, Scattered, pages};
use crate::space::Heir;
use crate::{BackingNum, Flags, Memory, Mmu, OutOfMemory, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    pub(super) fn copy_to(&self, pin: &Pinned, child: &Self, ask: &mut Heir<'_>) -> Result<(), VmError> {
        let (mut mine, theirs) = (lock_all(&self.map, pin), lock_all(&child.map, pin));
        let lowered = Scattered::new(&self.rig, pin);
        let mut copy =
            Copying { pin, parent: &self.rig, child: &child.rig, theirs, lowered, ask, last: None };
        let walked = copy.all(&mut mine);
        copy.lowered.take_back();
        walked.map_err(|OutOfMemory| VmError::OutOfMemory)
    }
}

/// Why the walk stops at a slot.
enum Stop {
    OutOfMemory,
    /// A huge page, to be cut first.
    Huge(Range<u64>),
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
    /// Copies what is mapped in `mine`, all of the parent.
    fn all(&mut self, mine: &mut Guard<'_>) -> Result<(), OutOfMemory> {
        let mut rest = mine.keys();
        loop {
            match mine.try_for_each_in(rest.clone(), |entry| self.slot(entry)) {
                ControlFlow::Continue(()) => return Ok(()),
                ControlFlow::Break(Stop::OutOfMemory) => return Err(OutOfMemory),
                ControlFlow::Break(Stop::Huge(block)) => {
                    cut(mine, &block)?;
                    rest.start = block.start;
                }
            }
        }
    }

    /// Copies what is mapped in one slot of the parent.
    fn slot(&mut self, entry: &mut Entry<'_, Page>) -> ControlFlow<Stop> {
        match entry.value().filter(|page| !page.flags().contains(Flags::DONTFORK)) {
            None => ControlFlow::Continue(()),
            Some(page) if page.is_huge() && !page.flags().contains(Flags::WIPEONFORK) => {
                ControlFlow::Break(Stop::Huge(entry.keys()))
            }
            Some(page) => match self.page(entry, page) {
                Ok(()) => ControlFlow::Continue(()),
                Err(OutOfMemory) => ControlFlow::Break(Stop::OutOfMemory),
            },
        }
    }

    fn page(&mut self, entry: &mut Entry<'_, Page>, page: Page) -> Result<(), OutOfMemory> {
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
            self.lowered.add(pages(entry), page.tracker());
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
