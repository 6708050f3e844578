//! Fork: one walk over the parent, left to right; what it maps is set in the child at the same level, folded or not.
//!
//! The parent is locked as a whole, and the child, which nobody else knows, a slot at a time: so two forks cannot wait for
//! each other. What is not mapped costs a look. If memory runs out, what was walked is in order in both spaces,
//! and the parent's translations of it are taken back all the same.

use percore::Pinned;
use radixmap::{OutOfMemory, Run};
use refcache::Domain;

use super::huge::cut_all;
use super::{RadixSpace, lock_all};
use crate::meta::Page;
use crate::reach::Scattered;
use crate::sharing::References;
use crate::shootdown::{Rig, range};
use crate::space::Heir;
use crate::{BackingNum, Event, Flags, Memory, Mmu, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    pub(super) fn copy_to(&self, pin: &Pinned, child: &Self, ask: &mut Heir<'_>) -> Result<(), VmError> {
        let mut mine = lock_all(&self.map, pin);
        // A huge page's frames are its own alone: each gets references of its own now.
        if self.rig.tally.sum()[Event::HugeFault] > 0 {
            let keys = mine.keys();
            cut_all(&mut mine, keys).map_err(|_| VmError::OutOfMemory)?;
        }
        let lowered = Scattered::new(&self.rig, pin);
        let references = References::new(&child.rig, pin);
        let mut copy = Copying { pin, parent: &self.rig, references, lowered, ask, last: None };
        let copied = mine.copy_to(pin, &child.map, |run| copy.run(run));
        copy.lowered.take_back();
        copied.map_err(|_| VmError::OutOfMemory)
    }
}

/// A fork on its way.
struct Copying<'a, 'h, M: Mmu, F: Memory> {
    pin: &'a Pinned,
    parent: &'a Rig<M, F>,
    /// Of the child's backings.
    references: References<'a, M, F>,
    /// Translations of the parent that allow too much now.
    lowered: Scattered<'a, M, F>,
    ask: &'a mut Heir<'h>,
    /// The backing that was last asked for, and the answer.
    last: Option<(BackingNum, BackingNum)>,
}

impl<M: Mmu, F: Memory> Copying<'_, '_, M, F> {
    /// What the child has for some pages of the parent.
    fn run(&mut self, run: &mut Run<'_, Page>) -> Result<Option<Page>, OutOfMemory> {
        let (pages, page) = (range(run.keys()).pages(), run.value());
        if page.flags().contains(Flags::DONTFORK) {
            return Ok(None);
        }
        let backing = page.backing().map(|backing| self.heir(backing)).transpose()?;
        let heritage = self.parent.inherit(self.pin, page);
        self.keep(run, heritage.kept);
        self.references.add(backing, pages as i64);
        Ok(Some(heritage.child.with_backing(backing)))
    }

    /// The parent's pages are `kept` from now on.
    fn keep(&mut self, run: &mut Run<'_, Page>, kept: Page) {
        let page = run.value();
        if !kept.rights().contains(page.rights()) {
            self.lowered.add(&mut run.one(), page);
            run.set(kept.untracked());
        } else if kept != page {
            run.set(kept);
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
