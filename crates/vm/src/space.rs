//! What a kernel asks of an address space.

use percore::{CoreId, Pinned};

use crate::{Access, Counters, FrameNum, Mapping, PageNum, PageRange, Prot, VirtAddr};

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
}

/// How a page fault was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A zeroed frame was allocated and filled in.
    Alloc,
    /// The page had a frame, and this core had no translation of it: filled in.
    Fill,
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
    /// No memory. Nothing was changed; the caller may find memory and retry.
    OutOfMemory,
}

/// Nodes of the structure that holds a space's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Ever allocated.
    pub created: u64,
    /// Freed since.
    pub collapsed: u64,
}

/// One address space. Every operation is atomic: overlapping ones take effect one after the other.
///
/// The caller stays pinned throughout. After `unmap`, `discard` and lowering `protect` return, no core can
/// use the old translations; after `map` returns, every core can fault the pages in.
pub trait AddressSpace: Send + Sync {
    /// Maps `pages` pages as `mapping` says, and says where.
    fn map(&self, pin: &Pinned, place: Placement, pages: u64, mapping: Mapping) -> Result<PageNum, VmError>;

    /// Removes every mapping in `pages`. Holes are fine.
    fn unmap(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError>;

    /// Gives exactly `pages` the rights `prot`. A hole is [`VmError::NotMapped`]: then the pages before the first one
    /// have the new rights, and the pages after it keep theirs (as on Linux).
    fn protect(&self, pin: &Pinned, pages: PageRange, prot: Prot) -> Result<(), VmError>;

    /// Drops the contents of `pages`: the next touch finds zeroes (MADV_DONTNEED). If part of the range is
    /// not mapped, the rest is discarded all the same, and the answer is [`VmError::NotMapped`].
    fn discard(&self, pin: &Pinned, pages: PageRange) -> Result<(), VmError>;

    /// Resolves a fault of this core at `address`.
    fn fault(&self, pin: &Pinned, address: VirtAddr, access: Access) -> Result<Fault, FaultError>;

    /// Gives the mapped page `page`, which must have no frame yet, the frame `frame` and its contents. On
    /// `Ok` the space owns the frame; on an error (`NotMapped`, `Exists`, `OutOfMemory`) it is still the
    /// caller's.
    fn install(&self, pin: &Pinned, page: PageNum, frame: FrameNum) -> Result<(), VmError>;

    /// Whether all of `pages` is mapped. Takes no locks: true only of the moment each page was looked at.
    fn mapped(&self, pin: &Pinned, pages: PageRange) -> bool;

    /// What happened so far, on all cores. Disturbs no core.
    fn counters(&self) -> Counters;

    /// What happened so far on `core`.
    fn core_counters(&self, core: CoreId) -> Counters;

    /// Metadata nodes allocated and freed so far.
    fn nodes(&self) -> Nodes;

    /// Unmaps everything: all frames are free when it returns. The metadata's nodes follow when the space is
    /// dropped and the epochs move on. Dropping the space does the same.
    fn destroy(&self, pin: &Pinned);
}
