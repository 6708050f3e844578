//! Fork: one walk over the parent, left to right; what it maps is set in the child at the same level, folded or not.
//!
//! The parent is locked as a whole: the child has what was mapped at one moment. If no other thread runs in the parent, there
//! is only one moment, however long it is: the copy goes in pieces, and each slot is locked as long as it is copied. What is
//! not mapped costs less than a look. In the
//! child, which nobody else knows, nothing is waited for: so two forks cannot wait for each other. If memory runs out, what
//! was walked is in order in both spaces, and the parent's translations of it are taken back all the same.

use percore::Pinned;
use radixmap::{IfDiffering, OutOfMemory, Run};
use refcache::Domain;

use super::huge::split_all;
use super::{RadixSpace, keys};
use crate::contract::{Call, during, lock_slots};
use crate::designs::locked::lock_all;
use crate::meta::Page;
use crate::sharing::References;
use crate::shootdown::{Backend, range};
use crate::shootdown_set::Scattered;
use crate::space::{ForkBacking, PIECE};
use crate::{BackingNum, Flags, Memory, Mmu, PageNum, PageRange, VmError};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// A copy of what is mapped at one moment.
    pub(super) fn copy_to(
        &self,
        pin: &Pinned,
        child: &Self,
        ask: &mut ForkBacking<'_>,
    ) -> Result<(), VmError> {
        let mut mine = lock_all(&self.map, pin);
        // A huge page's frames are its own alone: each gets references of its own now.
        if self.may_have_huge() {
            let keys = mine.keys();
            split_all(&mut mine, keys).map_err(|_| VmError::OutOfMemory)?;
        }
        let mut copy = Copying::new(pin, self, child, ask);
        let copied = mine.copy_to(pin, &child.map, |run| copy.run(run));
        copy.lowered.invalidate();
        copied.map_err(|_| VmError::OutOfMemory)
    }

    /// Copies one piece of what is mapped, slot by slot, and returns where the next piece begins. The walk counts what it
    /// copies, so that a small space costs no second walk.
    pub(super) fn copy_piece_to(
        &self,
        pin: &Pinned,
        child: &Self,
        from: PageNum,
        ask: &mut ForkBacking<'_>,
    ) -> Result<Option<PageNum>, VmError> {
        let rest = PageRange::between(from, self.user.end());
        if rest.is_empty() {
            return Ok(None);
        }
        let piece = if self.may_have_huge() { self.cut_piece(pin, rest)? } else { rest };
        lock_slots(pin);
        let mut copy = Copying::new(pin, self, child, ask);
        let (mut left, mut next) = (PIECE, piece.end());
        let copied = self.map.copy_to(pin, &child.map, keys(piece), |run| {
            if left == 0 {
                next = range(run.keys()).start();
                return Err(OutOfMemory);
            }
            left -= 1;
            let copied = copy.run(run);
            copy.lowered.invalidate();
            copied
        });
        match copied {
            Err(OutOfMemory) if next == piece.end() => Err(VmError::OutOfMemory),
            _ => Ok((next < self.user.end()).then_some(next)),
        }
    }

    /// Splits the huge pages of the first piece of `rest`, and returns the piece. A huge page is 512 pages
    /// when it is split.
    fn cut_piece(&self, pin: &Pinned, rest: PageRange) -> Result<PageRange, VmError> {
        let end = PageNum::new(self.map.extent(pin, keys(rest), PIECE / 64));
        let piece = PageRange::between(rest.start(), end);
        let mut guard = self.lock(pin, piece, IfDiffering)?;
        split_all(&mut guard, keys(piece)).map_err(|_| VmError::OutOfMemory)?;
        Ok(piece)
    }
}

/// A fork on its way.
struct Copying<'a, 'h, M: Mmu, F: Memory> {
    pin: &'a Pinned,
    parent: &'a Backend<M, F>,
    /// Of the child's pages.
    references: References<'a, M, F>,
    /// Translations of the parent that allow too much now.
    lowered: Scattered<'a, M, F>,
    ask: &'a mut ForkBacking<'h>,
    /// The backing that was last asked for, and the answer.
    last: Option<(BackingNum, BackingNum)>,
}

impl<'a, 'h, M: Mmu, F: Memory> Copying<'a, 'h, M, F> {
    fn new<R: Domain>(
        pin: &'a Pinned,
        parent: &'a RadixSpace<R, M, F>,
        child: &'a RadixSpace<R, M, F>,
        ask: &'a mut ForkBacking<'h>,
    ) -> Self {
        let (parent, child) = (&parent.backend, &child.backend);
        let (references, lowered) = (References::new(child, pin), Scattered::new(parent, pin));
        Self { pin, parent, references, lowered, ask, last: None }
    }

    /// What the child has for some pages of the parent.
    fn run(&mut self, run: &mut Run<'_, Page>) -> Result<Option<Page>, OutOfMemory> {
        let (pages, page) = (range(run.keys()).pages(), run.value());
        if page.flags().contains(Flags::DONTFORK) {
            return Ok(None);
        }
        let backing = page.backing().map(|backing| self.child_backing(backing)).transpose()?;
        let forked = self.parent.fork_page(self.pin, page);
        self.lowered.keep(run, forked.kept);
        self.references.add_forked(backing, pages, forked.child);
        Ok(Some(forked.child.with_backing(backing)))
    }

    /// Returns the child's backing, which is asked for once for each run.
    fn child_backing(&mut self, backing: BackingNum) -> Result<BackingNum, OutOfMemory> {
        match self.last {
            Some((parents, childs)) if parents == backing => Ok(childs),
            _ => {
                let childs =
                    during(self.pin, Call::ForkBacking, || (self.ask)(backing)).ok_or(OutOfMemory)?;
                self.last = Some((backing, childs));
                Ok(childs)
            }
        }
    }
}
