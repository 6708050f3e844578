//! What a kernel asks of an address space.

use core::any::Any;
use core::ops::ControlFlow;

use percore::{CoreId, Pinned};

use crate::{
    Access, BackingNum, Counters, Detail, Flags, FrameNum, Mapping, MovePieces, PageNum, PageRange, Prot,
    Region, Usage, VirtAddr,
};

/// Where a new mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Anywhere; at `hint` if that is free.
    Anywhere {
        /// A wish. It never costs another mapping.
        hint: Option<PageNum>,
    },
    /// Exactly there; what is mapped there goes, in the same atomic step (MAP_FIXED).
    Fixed(PageNum),
    /// Exactly there, or not at all (MAP_FIXED_NOREPLACE).
    FixedNoReplace(PageNum),
    /// Anywhere that ends at or before this page (MAP_32BIT).
    Below(PageNum),
}

/// Why an operation was refused. Nothing has changed, except where an operation says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmError {
    /// No pages were asked for (EINVAL).
    Empty,
    /// The range is not within user space (mmap, mprotect, madvise: ENOMEM; munmap: EINVAL).
    OutOfRange,
    /// No hole is large enough (ENOMEM).
    NoSpace,
    /// No memory for metadata (ENOMEM).
    OutOfMemory,
    /// Something is there already (EEXIST).
    Exists,
    /// Part of the range is not mapped (ENOMEM).
    NotMapped,
    /// A page may never have the right asked for (EACCES).
    Denied,
    /// The pages are not of one mapping (EFAULT), or a page is not of the kind that the advice is for
    /// (EINVAL).
    Mixed,
}

/// Which contents [`AddressSpace::zap`] drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// The backing's own; what a program wrote to a private mapping stays.
    Keep,
    /// Private copies too.
    Drop,
}

/// What [`AddressSpace::remap`] is to do.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    /// The pages that move, all of one mapping.
    pub from: PageRange,
    /// How many pages there are at the new place: as many or more; those that are more are untouched.
    pub pages: u64,
    /// The new place. What is mapped there goes if it is [`Placement::Fixed`]; it must not meet `from`.
    pub to: Placement,
    /// The old pages stay mapped, untouched (MREMAP_DONTUNMAP).
    pub keep: bool,
}

/// Returns the child's backing for pages of a forked mapping, given the parent's, or `None` if there is no
/// memory.
///
/// Called with slots locked, before any page shows the new backing. It may be the same one. It keeps the
/// contract of [`Memory`](crate::Memory). If it panics, the space is as if it had said that there is no
/// memory.
pub type ForkBacking<'a> = dyn FnMut(BackingNum) -> Option<BackingNum> + 'a;

/// Returns the backing of pages that move, given the old one and the first page's number before and after, or
/// `None` if there is no memory.
///
/// The same rules hold as for [`ForkBacking`].
pub type RemapBacking<'a> = dyn FnMut(BackingNum, PageNum, PageNum) -> Option<BackingNum> + 'a;

/// What other threads of a space do while it is copied piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// There are none, so nobody maps or writes anything.
    None,
    /// They execute no instruction of the program after they have been interrupted for the copy, or have
    /// faulted. Of the calls that they are in the child has the effects on what was not copied yet, and no
    /// others.
    Freeze,
}

/// How a page fault was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A zeroed frame was allocated and filled in.
    Alloc,
    /// The same for a huge page.
    AllocHuge,
    /// There was a frame, the page's or its backing's, and this core had no translation of it: filled in.
    Fill,
    /// The page's contents were, or could be, somebody else's too: copied before the write.
    Copy,
    /// They were nobody else's any more: written in place.
    Reuse,
    /// The page's contents were in compressed memory, and are in a frame again.
    PageIn,
    /// This core had a translation that was out of date (rights were raised since, or two faults raced):
    /// refreshed.
    Spurious,
}

/// Why a page fault cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// Nothing is mapped there (SIGSEGV, SEGV_MAPERR).
    NotMapped,
    /// The page does not allow it (SIGSEGV, SEGV_ACCERR).
    Denied,
    /// No memory. The program sees no change; the caller may find memory and retry.
    OutOfMemory,
    /// The page lies beyond the end of what it shows (SIGBUS).
    BeyondEnd,
}

/// Nodes of the structure that holds a space's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Ever allocated.
    pub created: u64,
    /// Freed since.
    pub collapsed: u64,
}

/// What one operation may change at once, in slots, so that it takes no more than about 10^6 instructions.
pub(crate) const PIECE: u64 = 512;

/// One address space. Every operation is atomic: overlapping ones take effect one after the other.
///
/// The caller stays pinned throughout. After `unmap`, `discard`, `zap`, `remap`, `fork` and lowering
/// `protect` return, no core can use the old translations; after `map` returns, every core can fault the
/// pages in.
///
/// Visitors are called with slots locked. They keep the contract of [`Memory`](crate::Memory): above all,
/// they use no space and touch no memory of one. A visitor that panics leaves nothing locked.
pub trait AddressSpace: Any + Send + Sync {
    /// Maps `pages` pages as `mapping` says, and says where.
    fn map(&self, pin: &Pinned, place: Placement, pages: u64, mapping: Mapping) -> Result<PageNum, VmError>;

    /// Returns the first part of `pages` that an operation on a range does in a bounded number of steps: all
    /// of them, or up to a page that is mapped. A caller that does an operation piece by piece can stop
    /// between two pieces, and what is mapped anywhere meanwhile lies in one piece as a whole. A hint: others
    /// may map more before the operation begins.
    fn piece(&self, pin: &Pinned, pages: PageRange) -> PageRange;

    /// Removes every mapping in `pages`. Holes are fine.
    fn unmap(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError>;

    /// Gives exactly `pages` the rights `prot`. A hole is [`VmError::NotMapped`], a page that is sealed
    /// against writing [`VmError::Denied`]: then the pages before the first of them have the new rights, and
    /// the others keep theirs (as on Linux).
    fn protect(&self, pin: &Pinned, pages: PageRange, prot: Prot) -> Result<(), VmError>;

    /// Sets and clears flags of `pages`, all of [`Flags::ADVICE`]. If part of the range is not mapped, the
    /// rest is advised all the same, and the answer is [`VmError::NotMapped`]. [`Flags::WIPEONFORK`] is for
    /// anonymous memory: before anything else is changed it is [`VmError::Mixed`].
    fn advise(&self, pin: &Pinned, pages: PageRange, set: Flags, clear: Flags) -> Result<(), VmError>;

    /// Makes the [`HUGE_PAGES`](crate::HUGE_PAGES) pages from `block`, which is the first of a block, a huge
    /// page, with the contents they have (MADV_COLLAPSE).
    ///
    /// # Errors
    /// `NotMapped`, `OutOfRange`; `Mixed` if they are of more than one mapping, of none that may be huge, or
    /// all of them untouched; `OutOfMemory` if there is no huge frame, or it is better kept for others.
    fn collapse(&self, pin: &Pinned, block: PageNum) -> Result<(), VmError>;

    /// Drops the contents of `pages`: the next touch finds zeroes, or what the backing shows then
    /// (MADV_DONTNEED). If part of the range is not mapped, the rest is discarded all the same, and the
    /// answer is [`VmError::NotMapped`]. Needs memory only to split a huge page.
    fn discard(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        self.discard_without(pin, pages, Flags::NONE)
    }

    /// The same; but if a page has one of the flags `refused`, nothing is discarded, and the answer is
    /// [`VmError::Mixed`].
    fn discard_without(&self, pin: &Pinned, pages: PageRange, refused: Flags) -> Result<(), VmError>;

    /// Pages of `pages` that show `backing` are untouched again: it was truncated, or wants its frames back.
    /// Others are left alone. Needs no memory.
    fn zap(&self, pin: &Pinned, pages: PageRange, backing: BackingNum, copies: Copies);

    /// The mapping that `pages` are of grows by `more` pages behind them, if nothing is there.
    ///
    /// # Errors
    /// `NotMapped`, `Mixed`, `Exists`, `OutOfRange`, `OutOfMemory`.
    fn extend(&self, pin: &Pinned, pages: PageRange, more: u64) -> Result<(), VmError>;

    /// Moves pages with their contents, and returns where they are. `remap_backing` returns their new
    /// backing.
    ///
    /// # Errors
    /// `NotMapped`, `Mixed`; `Exists` if the two places meet; what `map` says.
    fn remap(
        &self,
        pin: &Pinned,
        what: &Remap,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<PageNum, VmError>;

    /// The same piece by piece, which a [`Relocation`](crate::Relocation) does; none if the design cannot.
    fn moves_in_pieces(&self) -> Option<&dyn MovePieces> {
        None
    }

    /// Makes `child`, a new space of the same design that nobody runs, a copy of this one: what either writes
    /// to private pages from now on, the other does not see. `fork_backing` returns the child's backings, and
    /// is called once or more for each run of pages.
    ///
    /// # Errors
    /// `OutOfMemory`: `child` is a copy of part of the space, to be destroyed.
    fn fork(
        &self,
        pin: &Pinned,
        child: &dyn AddressSpace,
        fork_backing: &mut ForkBacking<'_>,
    ) -> Result<(), VmError>;

    /// Copies one piece of the same, from page `from` on, for a caller who knows what `others` do until the
    /// last piece is done: so the child need not be a copy of one moment. Returns where the next piece
    /// begins, or none if that was the last. Designs that copy all at once have one piece.
    ///
    /// # Errors
    /// As [`fork`](Self::fork).
    fn fork_piece(
        &self,
        pin: &Pinned,
        child: &dyn AddressSpace,
        _from: PageNum,
        _others: Others,
        fork_backing: &mut ForkBacking<'_>,
    ) -> Result<Option<PageNum>, VmError> {
        self.fork(pin, child, fork_backing).map(|()| None)
    }

    /// Resolves a fault of this core at `address`.
    fn fault(&self, pin: &Pinned, address: VirtAddr, access: Access) -> Result<Fault, FaultError>;

    /// One step of a clock that takes pages out of memory: the first 512 pages from `from` on that may have
    /// some to give. Those that nobody has touched since the step before are compressed, the others'
    /// translations are taken back. How many pages have gone, and where the next step begins; none: there is
    /// nothing from `from` on. Needs memory only to split huge pages, which stay without. Designs that cannot
    /// have none.
    fn page_out(&self, _pin: &Pinned, _from: PageNum) -> Option<(u64, PageNum)> {
        None
    }

    /// Gives the mapped page `page`, which must have no frame yet, the frame `frame` and its contents. On
    /// `Ok` the space owns the frame; on an error (`NotMapped`, `Exists`, `OutOfMemory`) it is still the
    /// caller's.
    fn install(&self, pin: &Pinned, page: PageNum, frame: FrameNum) -> Result<(), VmError>;

    /// Returns whether all of `pages` is mapped. Takes no locks: true only of the moment each page was looked
    /// at.
    fn mapped(&self, pin: &Pinned, pages: PageRange) -> bool;

    /// Shows the mapping of `page`, if it has one, to `visit`, with the page's slot locked.
    fn look(&self, pin: &Pinned, page: PageNum, visit: &mut dyn FnMut(Mapping));

    /// Shows the frame that `access` to `page` reaches to `visit`, with the page's slot locked, and says
    /// true; or false if there is none yet, or it may not be accessed so: `fault` says why.
    fn frame(&self, pin: &Pinned, page: PageNum, access: Access, visit: &mut dyn FnMut(FrameNum)) -> bool;

    /// Shows what is mapped in `pages`, from the left, to `visit`: each region as it was at one moment, or,
    /// where it is large, at several.
    fn regions(&self, pin: &Pinned, pages: PageRange, visit: &mut dyn FnMut(&Region) -> ControlFlow<()>);

    /// Shows the regions of `pages` to `visit`, from the left, as [`regions`](Self::regions) does, but for
    /// lists and sums only: what others change meanwhile shows or does not, page by page, and a page whose
    /// mapping is replaced twice while it is read may be shown with what it was in between. Nobody waits for
    /// it, if the design can do that. It ends after `most` regions, or after a bounded number of steps in the
    /// midst of one: where to go on.
    fn overview(
        &self,
        pin: &Pinned,
        pages: PageRange,
        detail: Detail,
        most: usize,
        visit: &mut dyn FnMut(&Region),
    ) -> PageNum {
        let (mut shown, mut end) = (0, pages.end());
        self.regions(pin, pages, &mut |region| {
            visit(&region.told(detail));
            shown += 1;
            if shown < most {
                return ControlFlow::Continue(());
            }
            end = region.pages.end();
            ControlFlow::Break(())
        });
        end
    }

    /// Shows the runs of `pages` that have frames, from the left, to `visit`. Returns whether any page of the
    /// range is of a mapping with a backing.
    ///
    /// # Errors
    /// `NotMapped` if part of the range is not mapped, after all was shown.
    fn resident(
        &self,
        pin: &Pinned,
        pages: PageRange,
        visit: &mut dyn FnMut(PageRange),
    ) -> Result<bool, VmError>;

    /// What happened so far, on all cores. Disturbs no core.
    fn counters(&self) -> Counters;

    /// How many pages there are, and have frames. Walks over nothing, and stops and disturbs nobody: what
    /// others do meanwhile shows or does not.
    fn usage(&self) -> Usage;

    /// What happened so far on `core`.
    fn core_counters(&self, core: CoreId) -> Counters;

    /// Metadata nodes allocated and freed so far.
    fn nodes(&self) -> Nodes;

    /// This core has freed its own tables of the space, and its TLB holds nothing of it: no leaf stays for
    /// its sake. With [`Tables::Adaptive`](crate::Tables).
    fn tables_dropped(&self, pin: &Pinned);

    /// Where the leaf is that this core's hardware would link for `page`, and what it would read there: for
    /// simulated hardware. None: there is no leaf.
    fn walk(&self, pin: &Pinned, page: PageNum) -> Option<(usize, u64)>;

    /// Shows where each frame of the metadata's nodes begins, as an address of the machine, to `visit`. An
    /// estimate while others work.
    fn each_node_frame(&self, pin: &Pinned, visit: &mut dyn FnMut(usize));

    /// Shows the frame of each page that has one to `visit`.
    fn each_page_frame(&self, pin: &Pinned, visit: &mut dyn FnMut(FrameNum));

    /// Takes away what is mapped in the first part of `rest`, which begins where the last call said, or with
    /// all that may be mapped. A bounded number of steps; returns what it leaves. For who is about to drop
    /// the space: then that takes no longer either. None runs the space any more, or ever will.
    fn dismantle(&mut self, pin: &Pinned, rest: PageRange) -> PageRange {
        let piece = self.piece(pin, rest);
        match self.unmap(pin, piece) {
            Ok(()) => PageRange::between(piece.end(), rest.end()),
            // The drop needs no memory.
            Err(_) => PageRange::between(rest.end(), rest.end()),
        }
    }

    /// Unmaps everything: all frames are free when it returns. The metadata's nodes follow when the space is
    /// dropped and the epochs move on. Dropping the space does the same but asks no core for translations:
    /// none runs the space by then, or ever will.
    fn destroy(&self, pin: &Pinned);
}
