//! The translations that a machine provides to an address space.
//!
//! All of it is called with the slots of the pages in question locked and the caller pinned. [`Mmu`] says
//! what follows from that.

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
    /// Each core has its own upper tables, which lead to the space's own leaves or to pages of the core's
    /// own: see [`Linkage`](crate::Linkage).
    Adaptive,
}

/// The number of cores that a shootdown interrupted, and of those that it avoided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Shot {
    /// Cores that were interrupted.
    pub ipis: u32,
    /// Cores that were not, because they were not running the space: they flush before they do.
    pub avoided: u32,
}

/// The translations of one address space: hardware tables and TLBs, or a simulation of them.
///
/// # Contract
/// Each call is made with the slots of its pages locked, by a pinned core. So it
/// - uses no space, this one or another: it would wait for slots that its own core has locked, or lock them
///   in the wrong order;
/// - does not sleep and does not unpin: another task of the core would use a space meanwhile, or the call
///   would go on elsewhere;
/// - ends on the core where it began: the space notes that core's translation;
/// - runs no epoch work: a core that uses nodes without counting them must not flush its counts;
/// - serves incoming shootdowns while it waits for another core, or two cores that shoot at each other wait
///   for ever.
///
/// The first three are checked at each call where debug assertions are on, and break with a panic
/// (`contract.rs`). Refcache and RCU refuse epoch work always. Only the machine sees what it serves: the
/// simulated one checks that at each turn of a wait.
///
/// # Panics
/// The defaults of the methods that are called only with huge frames, or only with one kind of [`Tables`],
/// panic. A machine that has them implements these methods.
pub trait Mmu: Send + Sync {
    /// Returns how the cores share translations. The answer never changes.
    fn tables(&self) -> Tables;

    /// Lets `page` be translated to `frame` with rights `prot`: in this core's table (in a page of its own)
    /// or in the one table. Replaces an older entry for the page, in this core's TLB too. `prot` has at least
    /// one right.
    ///
    /// # Errors
    /// No memory for a table page. Then no translation was added, but an older one of this page may remain.
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory>;

    /// Fills the [`HUGE_PAGES`](crate::HUGE_PAGES) pages from `first` with as many frames from `frame`, both
    /// aligned to this number, preferably as one translation. No core translates any of these pages
    /// elsewhere.
    ///
    /// # Errors
    /// As `fill`.
    fn fill_huge(
        &self,
        _pin: &Pinned,
        _first: PageNum,
        _frame: FrameNum,
        _prot: Prot,
    ) -> Result<(), OutOfMemory> {
        unreachable!("a machine with huge frames implements this method")
    }

    /// Removes every translation of `pages` from this core's table or from the one table, and from this
    /// core's TLB. A huge one that reaches beyond `pages` goes as a whole. Cannot fail, and pages without a
    /// translation are fine. The words of a linked leaf are left alone: they say already what is to be
    /// translated. A leaf all of whose pages are in `pages` is unlinked.
    fn clear(&self, pin: &Pinned, pages: PageRange);

    /// Does the same for each of `runs`, which lie apart. A machine that flushes its TLB once for all of them
    /// does that here.
    fn clear_all(&self, pin: &Pinned, runs: &[PageRange]) {
        runs.iter().for_each(|run| self.clear(pin, *run));
    }

    /// Invalidates `pages` on every core of `targets` but this one: [`clear`](Mmu::clear) there, or flush
    /// them from the TLB there ([`Tables::Shared`]; the table is already clear). Returns when no target can
    /// use, or will ever again use, a translation of `pages` that existed at the call. Serves incoming
    /// shootdowns while it waits.
    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot;

    /// Cores that may hold translations of this space in their TLBs. Asked only of [`Tables::Shared`], after
    /// `clear`: a core that joins later must not see what `clear` removed before.
    fn users(&self, _pin: &Pinned) -> CoreSet {
        unreachable!("a machine with one table for all implements this method")
    }

    /// Returns a table entry for a page with the rights `prot`, which are not none, without the frame in bits
    /// 12 to 51: bit 0, which makes it an entry, and bits 1 to 8 and 63. It is marked accessed and dirty.
    /// Called only with [`Tables::Adaptive`].
    fn entry(&self, _prot: Prot) -> u64 {
        unreachable!("{NO_LEAVES}")
    }

    /// Lets this core translate the 512 pages around `page` through `leaf`, the address of the frame that has
    /// their entries. The core's own table page for them goes, with what came from it in the TLB. Returns
    /// whether the link is new. Called only with [`Tables::Adaptive`].
    ///
    /// # Errors
    /// No memory for an upper table. Then nothing has changed.
    fn link(&self, _pin: &Pinned, _page: PageNum, _leaf: usize) -> Result<bool, OutOfMemory> {
        unreachable!("{NO_LEAVES}")
    }
}

const NO_LEAVES: &str = "a machine with adaptive tables implements this method";

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
    fn clear_all(&self, pin: &Pinned, runs: &[PageRange]) {
        (**self).clear_all(pin, runs);
    }
    fn shootdown(&self, pin: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        (**self).shootdown(pin, targets, pages)
    }
    fn users(&self, pin: &Pinned) -> CoreSet {
        (**self).users(pin)
    }
    fn entry(&self, prot: Prot) -> u64 {
        (**self).entry(prot)
    }
    fn link(&self, pin: &Pinned, page: PageNum, leaf: usize) -> Result<bool, OutOfMemory> {
        (**self).link(pin, page, leaf)
    }
}
