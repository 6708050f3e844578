//! Fork: one walk over the parent, left to right. Its mappings are set in the child at the same level, folded
//! or not.
//!
//! | other threads | what is locked | the child has |
//! |---|---|---|
//! | run | all of the parent | what was mapped at one moment |
//! | freeze | a piece of the parent at a time | the same, but for calls that others are in |
//! | there are none | each slot while it is copied | the same |
//!
//! With other threads, the parent's translations that allow too much are taken back once for each piece,
//! before it is unlocked. Without them, slots that are not mapped cost less than a look. In the child, which
//! no other thread can reach, there is nothing to wait for, so two forks cannot wait for each other. If
//! memory runs out, the part that was walked is consistent in both spaces, and the parent's translations of
//! it are invalidated as well.

use percore::Pinned;
use radixmap::{Always, IfDiffering, OutOfMemory, Run};
use refcache::Domain;

use super::huge::split_all;
use super::{Guard, RadixSpace, keys};
use crate::machine::{Call, during, lock_slots};
use crate::page_word::Page;
use crate::protocol::{Backend, References, Scattered, first_piece, lock_all, range};
use crate::space::{ForkBacking, Others, PIECE};
use crate::{BackingNum, Flags, Memory, Mmu, PageNum, PageRange, VmError};

/// Slots of a piece that may have huge pages: each is 512 pages when it is cut.
const HUGE_SLOTS: u64 = PIECE / 64;

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Makes the child a copy of what is mapped at one moment.
    pub(super) fn copy_to(
        &self,
        pin: &Pinned,
        child: &Self,
        ask: &mut ForkBacking<'_>,
    ) -> Result<(), VmError> {
        self.copy_held(pin, &mut lock_all(&self.map, pin), child, ask)
    }

    /// Copies one piece of what is mapped, and returns where the next piece begins.
    pub(super) fn copy_piece_to(
        &self,
        pin: &Pinned,
        child: &Self,
        from: PageNum,
        others: Others,
        ask: &mut ForkBacking<'_>,
    ) -> Result<Option<PageNum>, VmError> {
        let rest = PageRange::between(from.max(self.user.start()), self.user.end());
        match others {
            _ if rest.is_empty() => Ok(None),
            Others::None => self.copy_slots(pin, child, rest, ask),
            Others::Freeze => self.copy_locked_piece(pin, child, rest, ask),
        }
    }

    /// Copies one piece of `rest` as it is at one moment.
    fn copy_locked_piece(
        &self,
        pin: &Pinned,
        child: &Self,
        rest: PageRange,
        ask: &mut ForkBacking<'_>,
    ) -> Result<Option<PageNum>, VmError> {
        let slots = if self.may_have_huge() { HUGE_SLOTS } else { PIECE };
        let piece = first_piece(&self.map, pin, rest, self.user, slots);
        self.copy_held(pin, &mut self.lock(pin, piece, Always)?, child, ask)?;
        Ok((piece.end() < self.user.end()).then_some(piece.end()))
    }

    fn copy_held(
        &self,
        pin: &Pinned,
        mine: &mut Guard<'_>,
        child: &Self,
        ask: &mut ForkBacking<'_>,
    ) -> Result<(), VmError> {
        // A huge page's frames are its own alone: each gets references of its own now.
        if self.may_have_huge() {
            let keys = mine.keys();
            split_all(mine, keys).map_err(|_| VmError::OutOfMemory)?;
        }
        let mut copy = Copying::new(pin, self, child, ask);
        let copied = mine.copy_to(pin, &child.map, |run| copy.run(run));
        copy.lowered.invalidate();
        copied.map_err(|_| VmError::OutOfMemory)
    }

    /// Copies one piece of `rest` slot by slot. The walk counts what it copies, so that a small space costs
    /// no second walk.
    fn copy_slots(
        &self,
        pin: &Pinned,
        child: &Self,
        rest: PageRange,
        ask: &mut ForkBacking<'_>,
    ) -> Result<Option<PageNum>, VmError> {
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

    /// Splits the huge pages of the first piece of `rest`, and returns the piece.
    fn cut_piece(&self, pin: &Pinned, rest: PageRange) -> Result<PageRange, VmError> {
        let end = PageNum::new(self.map.extent(pin, keys(rest), HUGE_SLOTS));
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

    /// Returns the child's page for some pages of the parent.
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
