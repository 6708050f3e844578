//! The traits that a machine implements besides translations: memory, a page at a time, and backings of
//! mappings.
//!
//! All of it is called with slots locked and the caller pinned: [`Memory`] says what follows from that.

use percore::Pinned;

use crate::{Access, BackingNum, CompressedNum, FrameNum, PageNum};

/// Memory, a page at a time, under the contract of [`Memory`]. A frame is owned by one page alone, or it is
/// *counted*: several hold a reference each.
///
/// Huge frames and compression are optional. The defaults say that there are none.
pub trait Frames: Send + Sync {
    /// Returns a frame of zeroes, owned by the caller alone.
    fn alloc_zeroed(&self, pin: &Pinned) -> Option<FrameNum>;

    /// Allocates [`HUGE_PAGES`](crate::HUGE_PAGES) contiguous frames of zeroes, aligned to their number, and
    /// returns the first. The caller owns each of them alone, and gives them back together or one by one.
    /// Returns none if there are none, or they are better kept for others. `wanted` says that the program
    /// asked for them.
    fn alloc_huge(&self, _pin: &Pinned, _wanted: bool) -> Option<FrameNum> {
        None
    }

    /// Returns whether pages may be huge, frames or not, with `wanted` as above.
    fn allows_huge(&self, _wanted: bool) -> bool {
        false
    }

    /// Allocates as `alloc_huge` does, but with any contents, for a caller that fills each frame before
    /// another core sees it.
    fn alloc_huge_raw(&self, _pin: &Pinned, _wanted: bool) -> Option<FrameNum> {
        None
    }

    /// Fills `frame`, which is one of [`alloc_huge_raw`](Frames::alloc_huge_raw), which the caller owns alone
    /// and no core translates, with the bytes of `from`, or with zeroes.
    ///
    /// # Panics
    /// The default panics. So do those of the methods below for huge frames and compressed contents: a
    /// machine that has them implements these methods.
    fn fill_frame(&self, _pin: &Pinned, _frame: FrameNum, _from: Option<FrameNum>) {
        unreachable!("{NO_HUGE}")
    }

    /// Returns a copy of the bytes of `from`, owned by the caller alone.
    fn alloc_copy(&self, pin: &Pinned, from: FrameNum) -> Option<FrameNum>;

    /// Takes back a frame that the caller owns alone. No core can reach it any more.
    fn free(&self, pin: &Pinned, frame: FrameNum);

    /// Takes back all frames of [`alloc_huge`](Frames::alloc_huge), of which `first` is the first, as
    /// [`free`](Frames::free) takes one.
    fn free_huge(&self, _pin: &Pinned, _first: FrameNum) {
        unreachable!("{NO_HUGE}")
    }

    /// A frame that the caller owns alone becomes counted, with one reference: the caller's.
    fn share(&self, pin: &Pinned, frame: FrameNum);

    /// Adds `by` references to a counted frame, or gives some up. The frame is freed some time after the last
    /// one is given up. No core can reach it then through a reference that was given up.
    fn adjust(&self, pin: &Pinned, frame: FrameNum, by: i64);

    /// Tries to take over a counted frame of which the caller holds one reference. If it is known to be the
    /// only one, the frame is the caller's alone again, and counted no more. It may be the only one and not
    /// be known to be.
    fn unshare(&self, pin: &Pinned, frame: FrameNum) -> bool;

    /// Takes `frame`, which the caller owns alone and no core can reach, and keeps its bytes in less memory,
    /// with one holder: the caller. None: that is not worth it, and the frame is the caller's still. Needs no
    /// memory.
    fn compress(&self, _pin: &Pinned, _frame: FrameNum) -> Option<CompressedNum> {
        None
    }

    /// Fills `frame`, which the caller owns alone and no core translates, with the contents `compressed`. The
    /// caller keeps its reference of them.
    fn decompress(&self, _pin: &Pinned, _compressed: CompressedNum, _frame: FrameNum) {
        unreachable!("{NO_COMPRESSED}")
    }

    /// Adds `by` references to `compressed`, of which the caller holds one, and frees it when the count
    /// reaches zero.
    fn adjust_compressed(&self, _pin: &Pinned, _compressed: CompressedNum, _by: i64) {
        unreachable!("{NO_COMPRESSED}")
    }
}

const NO_HUGE: &str = "a machine with huge frames implements this method";
const NO_COMPRESSED: &str = "a machine that compresses implements this method";
const NO_BACKINGS: &str = "a machine with backings implements this method";

/// Why a backing has no frame for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingError {
    /// No memory. The fault may be tried again.
    OutOfMemory,
    /// The page lies beyond the end of what is mapped (SIGBUS).
    BeyondEnd,
}

/// The backings of mappings that are not plain anonymous memory, under the contract of [`Memory`].
///
/// A backing is counted in pages: each mapped page, touched or not, is one reference. So folding and
/// expanding change nothing, and anonymous memory costs nothing.
///
/// # Panics
/// The default methods panic. They are for a machine without backings, whose mappings are all anonymous.
pub trait Backings: Send + Sync {
    /// A mapping of `backing` begins at `start`. Told once, with the range locked, before any page shows it.
    fn placed(&self, _pin: &Pinned, _backing: BackingNum, _start: PageNum) {
        unreachable!("{NO_BACKINGS}")
    }

    /// A mapping of `backing` has grown, and ends before `end`. Told before any of the new pages shows it.
    fn grown(&self, _pin: &Pinned, _backing: BackingNum, _end: PageNum) {
        unreachable!("{NO_BACKINGS}")
    }

    /// Returns the counted frame that holds virtual page `page` of a mapping of `backing`, with one reference
    /// for the caller. The page's slot is locked until the frame is mapped, or given back.
    ///
    /// [`Access::Write`]: the frame will be written through a shared mapping, so a hole must become memory of
    /// the backing's own. Otherwise the frame is mapped for reading (`Read`, `Exec`), or copied.
    ///
    /// A shared mapping that allows writing may be written after a fault that only read: there is no second
    /// fault, and the backing is not told. A backing that wants to know must not outlive its contents in
    /// memory.
    ///
    /// # Errors
    /// See [`BackingError`].
    fn frame(
        &self,
        _pin: &Pinned,
        _backing: BackingNum,
        _page: PageNum,
        _access: Access,
    ) -> Result<FrameNum, BackingError> {
        unreachable!("{NO_BACKINGS}")
    }

    /// The number of pages that refer to `backing` changes by `pages`. The caller of `map` keeps it alive
    /// until then.
    fn adjust(&self, _pin: &Pinned, _backing: BackingNum, _pages: i64) {
        unreachable!("{NO_BACKINGS}")
    }
}

/// Everything that a space needs of a machine's memory.
///
/// # Contract
/// Each call is made with slots locked, by a pinned core. So it does not sleep, uses no space, ends on the
/// core where it began, and runs no epoch work: what [`Mmu`](crate::Mmu) promises, checked in the same way.
pub trait Memory: Frames + Backings {}

impl<T: Frames + Backings> Memory for T {}
