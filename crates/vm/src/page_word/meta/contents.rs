//! The contents of a page: whether it has any, where they are, and whose.

use super::{COMPRESSED, COUNTED, FRAME, FRAME_SHIFT, HUGE, LINKED, PRESENT, Page, REFUSED, RIGHTS, SHOWN};
use crate::{BackingNum, CompressedNum, Copies, FrameNum};

impl Page {
    #[inline(always)]
    pub(crate) fn is_counted(self) -> bool {
        self.main & COUNTED != 0
    }

    /// Returns whether its contents are the backing's own, and no private copy.
    #[inline(always)]
    pub(crate) fn is_shown(self) -> bool {
        self.main & (SHOWN | COUNTED) == SHOWN | COUNTED
    }

    /// Returns whether it has contents of `backing`, of the kind that `copies` drops.
    pub fn shows(self, backing: BackingNum, copies: Copies) -> bool {
        self.backing() == Some(backing) && (copies == Copies::Drop || self.is_shown())
    }

    /// Returns whether it holds contents that others may see too, and a write must not reach.
    #[inline(always)]
    pub(crate) fn is_copied_on_write(self) -> bool {
        self.is_counted() && !self.is_shared()
    }

    /// Returns its frame, if it has one.
    #[inline(always)]
    pub fn frame(self) -> Option<FrameNum> {
        (self.main & PRESENT != 0).then(|| FrameNum::new((self.main & FRAME) >> FRAME_SHIFT))
    }

    /// Returns the number of its contents in compressed memory.
    #[inline(always)]
    pub(crate) fn compressed(self) -> Option<CompressedNum> {
        let number = (self.main & FRAME) >> FRAME_SHIFT;
        let is_compressed = self.main & (PRESENT | COMPRESSED) == COMPRESSED;
        is_compressed.then(|| CompressedNum::new(number as u32))
    }

    /// Returns the page with its contents, which no other page has, in compressed memory.
    pub(crate) fn with_compressed(self, number: CompressedNum) -> Self {
        Self { main: self.main & RIGHTS | COMPRESSED | u64::from(number.get()) << FRAME_SHIFT, ..self }
    }

    /// Returns the page, which no core translates, and whose contents compressed memory did not want.
    pub(crate) fn refused(self) -> Self {
        Self { main: self.main | REFUSED, ..self }
    }

    #[inline(always)]
    pub(crate) fn is_refused(self) -> bool {
        self.main & (REFUSED | LINKED) == REFUSED
    }

    /// Returns the page without contents, and not to be accessed: it is on its way elsewhere, or its place is
    /// kept for another one (`relocation.rs`).
    pub(crate) fn held(self) -> Self {
        Self { main: REFUSED, ..self }
    }

    /// Returns whether its place is held so.
    #[inline(always)]
    pub(crate) fn is_held(self) -> bool {
        self.main & (REFUSED | PRESENT | COMPRESSED | LINKED) == REFUSED
    }

    /// Returns whether it has contents of its own, in memory or compressed, or shows its backing's.
    #[inline(always)]
    pub(crate) fn is_touched(self) -> bool {
        self.main & (PRESENT | COMPRESSED) != 0
    }

    /// Returns the page with a `frame` that it owns alone and no core translates yet.
    #[inline(always)]
    pub(crate) fn with_frame(self, frame: FrameNum) -> Self {
        Self { main: self.main & RIGHTS | PRESENT | frame.get() << FRAME_SHIFT, ..self }
    }

    /// Returns the page with a counted `frame` that no core translates yet.
    pub(crate) fn with_counted(self, frame: FrameNum) -> Self {
        self.with_frame(frame).counted()
    }

    /// Returns the page with a `frame` of its backing that no core translates yet.
    pub(crate) fn with_shown(self, frame: FrameNum) -> Self {
        let page = self.with_counted(frame);
        Self { main: page.main | SHOWN, ..page }
    }

    /// Returns the pages of a block with the frames from `first` on, which they own alone and no core
    /// translates yet.
    pub(crate) fn with_huge(self, first: FrameNum) -> Self {
        let page = self.with_frame(first);
        Self { main: page.main | HUGE, ..page }
    }

    /// Returns whether these are the pages of a block with one huge frame.
    #[inline(always)]
    pub(crate) fn is_huge(self) -> bool {
        self.main & (HUGE | COUNTED) == HUGE
    }

    /// Returns the page, whose frame has become counted.
    pub(crate) fn counted(self) -> Self {
        Self { main: self.main | COUNTED, ..self }
    }

    /// Returns the page, whose frame has become its own alone.
    pub(crate) fn owned(self) -> Self {
        Self { main: self.main & !(COUNTED | SHOWN), ..self }
    }

    /// Returns the page as it was before its first touch.
    #[inline(always)]
    pub(crate) fn without_frame(self) -> Self {
        Self { main: self.main & RIGHTS, ..self }
    }
}
