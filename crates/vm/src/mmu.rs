//! What a machine brings to an address space: translations.
//!
//! All of it is called with the slots of the pages in question locked and the caller pinned, so none of it
//! may run epoch work (a pinned core must not flush its reference counts) and none of it may block. What
//! waits for another core (`shootdown`) must serve the shootdowns that other cores send here meanwhile, or
//! two cores that shoot at each other wait for ever.

use alloc::sync::Arc;

use percore::{CoreSet, Pinned};

use crate::{FrameNum, PageNum, PageRange, Prot};

/// No memory for metadata, a table page or a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// How the cores of one space share translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Each core has its own table: the space tracks which cores hold a page, and shoots at exactly those.
    PerCore,
    /// One table for all: any core in [`Mmu::users`] may hold any page, and all of them are shot at.
    Shared,
}

/// What a shootdown took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Shot {
    /// Cores that were interrupted.
    pub ipis: u32,
    /// Cores that were not, because they were not running the space: they flush before they do.
    pub avoided: u32,
}

/// The translations of one address space: hardware tables and TLBs, or a simulation of them.
pub trait Mmu: Send + Sync {
    /// How the cores share translations; never changes.
    fn tables(&self) -> Tables;

    /// Lets `page` be translated to `frame` with rights `prot`: in this core's table ([`Tables::PerCore`]) or
    /// in the one table. Replaces an older entry for the page, also in this core's TLB. `prot` has at least
    /// one right.
    ///
    /// # Errors
    /// No memory for a table page. Then no translation was added; an older one of this page may remain.
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory>;

    /// The same for the [`HUGE_PAGES`](crate::HUGE_PAGES) pages from `first`, to as many frames from `frame`, both aligned to
    /// as many: best as one translation. No core translates any of these pages elsewhere.
    ///
    /// # Errors
    /// As `fill`.
    fn fill_huge(&self, pin: &Pinned, first: PageNum, frame: FrameNum, prot: Prot)
    -> Result<(), OutOfMemory>;

    /// Removes every translation of `pages` from this core's table ([`Tables::PerCore`]) or from the one
    /// table, and from this core's TLB; a huge one that reaches beyond `pages` goes as a whole. Cannot fail; pages without
    /// a translation are fine.
    fn clear(&self, pin: &Pinned, pages: PageRange);

    /// On every core of `targets` but this one: [`clear`](Mmu::clear) there ([`Tables::PerCore`]) or flush
    /// `pages` from the TLB there ([`Tables::Shared`]; the table is already clear). Returns when no target
    /// can use, or will ever again use, a translation of `pages` that existed at the call. Serves incoming
    /// shootdowns while it waits.
    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot;

    /// Cores that may hold translations of this space in their TLBs. Asked only of [`Tables::Shared`], after
    /// `clear`: a core that joins later must not see what `clear` removed before.
    fn users(&self, pin: &Pinned) -> CoreSet;
}

impl<M: Mmu + ?Sized> Mmu for Arc<M> {
    fn tables(&self) -> Tables {
        (**self).tables()
    }
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        (**self).fill(pin, page, frame, prot)
    }
    fn fill_huge(
        &self,
        pin: &Pinned,
        first: PageNum,
        frame: FrameNum,
        prot: Prot,
    ) -> Result<(), OutOfMemory> {
        (**self).fill_huge(pin, first, frame, prot)
    }
    fn clear(&self, pin: &Pinned, pages: PageRange) {
        (**self).clear(pin, pages);
    }
    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        (**self).shootdown(pin, targets, pages)
    }
    fn users(&self, pin: &Pinned) -> CoreSet {
        (**self).users(pin)
    }
}
