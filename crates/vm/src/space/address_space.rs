//! The operations of an address space that a kernel calls.

use core::any::Any;
use core::ops::ControlFlow;

use percore::{CoreId, Pinned};

use crate::{
    Access, BackingNum, Counters, Detail, Flags, FrameNum, FrameRun, Mapping, MovePieces, PageNum, PageRange,
    Prot, Region, Usage, VirtAddr,
};

/// The place of a new mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Anywhere, or at `hint` if that is free.
    Anywhere {
        /// A wish. It never costs another mapping.
        hint: Option<PageNum>,
    },
    /// Exactly there. Whatever is mapped there is unmapped in the same atomic step (MAP_FIXED).
    Fixed(PageNum),
    /// Exactly there, or not at all (MAP_FIXED_NOREPLACE).
    FixedNoReplace(PageNum),
    /// Anywhere that ends at or before this page (MAP_32BIT).
    Below(PageNum),
}

/// A frame for a page that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The frame, which the giver owns alone.
    Frame(FrameNum),
    /// A reference of a counted frame, which the page copies before it writes.
    Reference(FrameNum),
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

/// The contents that [`AddressSpace::zap`] drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// The backing's own. Private copies, which a program wrote, stay.
    Keep,
    /// Private copies too.
    Drop,
}

/// The arguments of [`AddressSpace::remap`].
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    /// The pages that move, all of one mapping.
    pub from: PageRange,
    /// Number of pages at the new place: as many as in `from`, or more. The additional pages are untouched.
    pub pages: u64,
    /// The new place. With [`Placement::Fixed`], whatever is mapped there is unmapped. It must not overlap
    /// `from`.
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

/// The behaviour of a space's other threads while it is copied piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// There are none, so nothing is mapped or written.
    None,
    /// They execute no instruction of the program after they have been interrupted for the copy, or have
    /// faulted. Of the calls that they are in, the child has only the effects on parts that were not copied
    /// yet.
    Freeze,
}

/// How a page fault was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A zeroed frame was allocated and filled in.
    Alloc,
    /// A zeroed huge frame was allocated and filled in.
    AllocHuge,
    /// There was a frame, the page's or its backing's, and this core had no translation of it: filled in.
    Fill,
    /// The page's contents were, or could be, another page's too: copied before the write.
    Copy,
    /// They were no other page's any more: written in place.
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
    /// No memory. The program sees no change. The caller may find memory and retry.
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

/// Number of slots that one operation may change at once, so that it takes at most about 10^6 instructions.
pub const PIECE: u64 = 512;

/// One address space. Every operation is atomic: overlapping ones take effect one after the other.
///
/// The caller stays pinned throughout. After `unmap`, `discard`, `zap`, `remap`, `fork` and lowering
/// `protect` return, no core can use the old translations. After `map` returns, every core can fault the
/// pages in.
///
/// Visitors are called with slots locked. They keep the contract of [`Memory`](crate::Memory): above all,
/// they use no space and touch no memory of one. A visitor that panics leaves nothing locked.
pub trait AddressSpace: Any + Send + Sync {
    /// Maps `pages` pages as `mapping` says, and says where.
    fn map(&self, pin: &Pinned, place: Placement, pages: u64, mapping: Mapping) -> Result<PageNum, VmError>;

    /// Returns the first part of `pages` that an operation on a range does in a bounded number of steps: all
    /// of them, or up to a page that is mapped. A caller that does an operation piece by piece can stop
    /// between two pieces, and a mapping made meanwhile lies in one piece as a whole. This is a hint: other
    /// threads may map more before the operation begins.
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
    /// `NotMapped`, `OutOfRange`. `Mixed` if they are of more than one mapping, of one that may not be huge,
    /// or all untouched. `OutOfMemory` if there is no huge frame, or it is better kept for others.
    fn collapse(&self, pin: &Pinned, block: PageNum) -> Result<(), VmError>;

    /// Drops the contents of `pages`: the next touch finds zeroes, or what the backing shows then
    /// (MADV_DONTNEED). If part of the range is not mapped, the rest is discarded all the same, and the
    /// answer is [`VmError::NotMapped`]. Needs memory only to split a huge page.
    fn discard(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError> {
        self.discard_without(pin, pages, Flags::NONE)
    }

    /// Discards as `discard` does, but if a page has one of the flags `refused`, nothing is discarded, and
    /// the result is [`VmError::Mixed`].
    fn discard_without(&self, pin: &Pinned, pages: PageRange, refused: Flags) -> Result<(), VmError>;

    /// Pages of `pages` that show `backing` are untouched again: it was truncated, or wants its frames back.
    /// Others are left alone. Needs no memory.
    fn zap(&self, pin: &Pinned, pages: PageRange, backing: BackingNum, copies: Copies);

    /// Grows the mapping of `pages` by `more` pages behind them, if nothing is there.
    ///
    /// # Errors
    /// `NotMapped`, `Mixed`, `Exists`, `OutOfRange`, `OutOfMemory`.
    fn extend(&self, pin: &Pinned, pages: PageRange, more: u64) -> Result<(), VmError>;

    /// Moves pages with their contents, and returns where they are. `remap_backing` returns their new
    /// backing.
    ///
    /// # Errors
    /// `NotMapped`, `Mixed`. `Exists` if the two places overlap. The errors of `map`.
    fn remap(
        &self,
        pin: &Pinned,
        what: &Remap,
        remap_backing: &mut RemapBacking<'_>,
    ) -> Result<PageNum, VmError>;

    /// Returns the steps by which a [`Relocation`](crate::Relocation) moves pages piece by piece, or none if
    /// the design cannot.
    fn moves_in_pieces(&self) -> Option<&dyn MovePieces> {
        None
    }

    /// Makes `child`, a new space of the same design that no core runs, a copy of this one. Later writes of
    /// either to private pages are not seen by the other. `fork_backing` returns the child's backings, and is
    /// called once or more for each run of pages.
    ///
    /// # Errors
    /// `OutOfMemory`: `child` is a copy of part of the space, to be destroyed.
    fn fork(
        &self,
        pin: &Pinned,
        child: &dyn AddressSpace,
        fork_backing: &mut ForkBacking<'_>,
    ) -> Result<(), VmError>;

    /// Forks one piece, from page `from` on, for a caller that knows what `others` do until the last piece is
    /// done. So the child need not be a copy of one moment. Returns where the next piece begins, or none if
    /// that was the last. Designs that copy all at once have one piece.
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

    /// Does one step of a clock that takes pages out of memory, on the first 512 pages from `from` on that
    /// may have some to give. Pages that no core has touched since the step before are compressed, and the
    /// translations of the others are invalidated. Returns the number of pages that have gone and where the
    /// next step begins, or none if there is nothing from `from` on. Needs memory only to split huge pages,
    /// which stay if there is none. Designs that cannot do this return none.
    fn page_out(&self, _pin: &Pinned, _from: PageNum) -> Option<(u64, PageNum)> {
        None
    }

    /// Gives the mapped page `page`, which must have no frame yet, a frame and its contents. On `Ok` the
    /// space owns what was given. On an error (`NotMapped`, `Exists`, `OutOfMemory`) it is still the
    /// caller's.
    fn install(&self, pin: &Pinned, page: PageNum, given: Installed) -> Result<(), VmError>;

    /// Returns whether all of `pages` is mapped. Takes no locks: true only of the moment each page was looked
    /// at.
    fn mapped(&self, pin: &Pinned, pages: PageRange) -> bool;

    /// Shows the mapping of `page`, if it has one, to `visit`, with the page's slot locked.
    fn look(&self, pin: &Pinned, page: PageNum, visit: &mut dyn FnMut(Mapping));

    /// Shows the frame that `access` to `page` reaches to `visit`, with the page's slot locked, and returns
    /// true. Returns false if there is none yet, or the access is not allowed: `fault` says why.
    fn frame(&self, pin: &Pinned, page: PageNum, access: Access, visit: &mut dyn FnMut(FrameNum)) -> bool;

    /// Shows the frame of `page` to `visit` for a debugger, with the page's slot locked, whatever the page's
    /// rights. A private page that is to be written gets a frame of its own first, so no backing and no other
    /// space sees the write. Its rights stay.
    ///
    /// # Errors
    /// `Denied` to write a shared page that may not be written, and for a page without any rights: it is not
    /// written, and read only if it has a frame. Those of `fault`. Designs that cannot do this allow what
    /// `fault` allows.
    fn debug_frame(
        &self,
        pin: &Pinned,
        page: PageNum,
        access: Access,
        visit: &mut dyn FnMut(FrameNum),
    ) -> Result<(), FaultError> {
        while !self.frame(pin, page, access, visit) {
            self.fault(pin, page.address().ok_or(FaultError::NotMapped)?, access)?;
        }
        Ok(())
    }

    /// Shows what is mapped in `pages`, from the left, to `visit`: each region as it was at one moment, or,
    /// where it is large, at several.
    fn regions(&self, pin: &Pinned, pages: PageRange, visit: &mut dyn FnMut(&Region) -> ControlFlow<()>);

    /// Shows the regions of `pages` to `visit`, from the left, as [`regions`](Self::regions) does, but for
    /// lists and sums only. Concurrent changes show or do not, page by page, and a page whose mapping is
    /// replaced twice while it is read may be shown with the mapping in between. No thread waits for it, if
    /// the design can do that. It ends after `most` regions, or after a bounded number of steps inside one,
    /// and returns where to go on.
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

    /// Returns the counts of all cores so far. Disturbs no core.
    fn counters(&self) -> Counters;

    /// Returns how many pages are mapped, and how many have frames. Walks over nothing, and stops and
    /// disturbs no core. Concurrent changes show or do not.
    fn usage(&self) -> Usage;

    /// Returns the counts of `core` so far.
    fn core_counters(&self, core: CoreId) -> Counters;

    /// Metadata nodes allocated and freed so far.
    fn nodes(&self) -> Nodes;

    /// This core has freed its own tables of the space, and its TLB holds nothing of it: no leaf stays for
    /// its sake. With [`Tables::Adaptive`](crate::Tables).
    fn tables_dropped(&self, pin: &Pinned);

    /// Returns the address of the leaf that this core's hardware would link for `page`, and the word that it
    /// would read there, for simulated hardware. None if there is no leaf.
    fn walk(&self, pin: &Pinned, page: PageNum) -> Option<(usize, u64)>;

    /// Shows where each frame of the metadata's nodes begins, as an address of the machine, to `visit`. An
    /// estimate while others work.
    fn each_node_frame(&self, pin: &Pinned, visit: &mut dyn FnMut(usize));

    /// Shows the frames of `pages` to `visit`, from the left: those that follow one another, as a huge page's
    /// do, together. Concurrent changes show or do not, page by page. It ends after a bounded number of steps
    /// and returns where to go on.
    fn frames(&self, pin: &Pinned, pages: PageRange, visit: &mut dyn FnMut(FrameRun)) -> PageNum;

    /// Unmaps the first part of `rest`, which is what the last call returned, or at first all that may be
    /// mapped. Takes a bounded number of steps, and returns the rest. For a caller that is about to drop the
    /// space, so that the drop is bounded too. No core runs the space any more, or ever will.
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
