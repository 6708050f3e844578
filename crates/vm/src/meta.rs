//! What is kept for each page: 16 bytes, the radix map's value.
//!
//! ```text
//! word 0   bits 0-2 rights   3-8 flags   9 COUNTED   10 SHOWN   11-17 spare   18-59 backing, or 0
//! word 1   bit 63 has a frame   bits 62-36 tracker   bits 35-0 frame
//! ```
//!
//! A fresh mapping has neither frame nor tracker, so all its pages are equal and fold into few slots. The states of a
//! page, and who may be in which, are in `sharing.rs`.

use radixmap::Value;

use crate::tracker::Tracker;
use crate::{Access, BackingNum, Flags, FrameNum, Mapping, Prot};

const FLAGS_SHIFT: u32 = 3;
/// The frame has references, of which this page is one.
const COUNTED: u64 = 1 << 9;
/// The frame is the backing's own: its contents are the backing's. Never without COUNTED.
const SHOWN: u64 = 1 << 10;
const BACKING_SHIFT: u32 = 18;
/// What all pages of a mapping have in common.
const MAPPING: u64 = !(COUNTED | SHOWN);
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << FrameNum::BITS) - 1;
const TRACKER_SHIFT: u32 = FrameNum::BITS;
const _: () = assert!(FrameNum::BITS + Tracker::BITS == 63);
const _: () = assert!(FLAGS_SHIFT + Flags::BITS <= COUNTED.trailing_zeros());
const _: () = assert!(BACKING_SHIFT + BackingNum::BITS == 60);

/// A mapped page. `word1 == 0` exactly if it has no frame; only a page with a frame is tracked, or counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    word0: u64,
    word1: u64,
}

impl Page {
    /// A page that nobody has touched.
    #[inline(always)]
    pub(crate) fn new(mapping: Mapping) -> Self {
        let backing = mapping.backing.map_or(0, BackingNum::get);
        let word0 = mapping.prot.bits() | mapping.flags.bits() << FLAGS_SHIFT | backing << BACKING_SHIFT;
        Self { word0, word1: 0 }
    }

    /// What it has in common with all pages of its mapping.
    pub(crate) fn mapping(self) -> Mapping {
        Mapping { prot: self.prot(), flags: self.flags(), backing: self.backing() }
    }

    #[inline(always)]
    pub(crate) fn prot(self) -> Prot {
        Prot::from_bits(self.word0)
    }

    #[inline(always)]
    pub(crate) fn with_prot(self, prot: Prot) -> Self {
        Self { word0: self.word0 & !Prot::ALL.bits() | prot.bits(), ..self }
    }

    #[inline(always)]
    pub(crate) fn flags(self) -> Flags {
        Flags::from_bits(self.word0 >> FLAGS_SHIFT)
    }

    pub(crate) fn with_flags(self, flags: Flags) -> Self {
        let others = self.word0 & !(Flags::from_bits(u64::MAX).bits() << FLAGS_SHIFT);
        Self { word0: others | flags.bits() << FLAGS_SHIFT, ..self }
    }

    #[inline(always)]
    pub(crate) fn backing(self) -> Option<BackingNum> {
        BackingNum::from_bits(self.word0 >> BACKING_SHIFT)
    }

    pub(crate) fn with_backing(self, backing: Option<BackingNum>) -> Self {
        Self { word0: Self::new(Mapping { backing, ..self.mapping() }).word0 | self.word0 & !MAPPING, ..self }
    }

    #[inline(always)]
    pub(crate) fn is_shared(self) -> bool {
        self.flags().contains(Flags::SHARED)
    }

    #[inline(always)]
    pub(crate) fn is_counted(self) -> bool {
        self.word0 & COUNTED != 0
    }

    /// Whether its contents are the backing's own, and no private copy.
    pub(crate) fn is_shown(self) -> bool {
        self.word0 & SHOWN != 0
    }

    /// Whether it holds contents that others may see too, and a write must not reach.
    #[inline(always)]
    pub(crate) fn is_copied_on_write(self) -> bool {
        self.is_counted() && !self.is_shared()
    }

    /// What a translation of the page may allow: its rights, but no writing while a write has to copy first. A page that
    /// may be written may be read.
    #[inline(always)]
    pub(crate) fn rights(self) -> Prot {
        match self.is_copied_on_write() && self.prot().allows(Access::Write) {
            true => (self.prot() - Prot::WRITE) | Prot::READ,
            false => self.prot(),
        }
    }

    #[inline(always)]
    pub(crate) fn frame(self) -> Option<FrameNum> {
        (self.word1 != 0).then(|| FrameNum::new(self.word1 & FRAME))
    }

    /// The page with a `frame` that it owns alone and no core translates yet.
    #[inline(always)]
    pub(crate) fn with_frame(self, frame: FrameNum) -> Self {
        Self { word0: self.word0 & MAPPING, word1: PRESENT | frame.get() }
    }

    /// The page with a counted `frame` that no core translates yet.
    pub(crate) fn with_counted(self, frame: FrameNum) -> Self {
        let page = self.with_frame(frame);
        Self { word0: page.word0 | COUNTED, ..page }
    }

    /// The page with a `frame` of its backing that no core translates yet.
    pub(crate) fn with_shown(self, frame: FrameNum) -> Self {
        let page = self.with_counted(frame);
        Self { word0: page.word0 | SHOWN, ..page }
    }

    /// The page, whose frame has become counted.
    pub(crate) fn counted(self) -> Self {
        Self { word0: self.word0 | COUNTED, ..self }
    }

    /// The page, whose frame has become its own alone.
    pub(crate) fn owned(self) -> Self {
        Self { word0: self.word0 & MAPPING, ..self }
    }

    /// The page as it was before its first touch.
    #[inline(always)]
    pub(crate) fn without_frame(self) -> Self {
        Self { word0: self.word0 & MAPPING, word1: 0 }
    }

    #[inline(always)]
    pub(crate) fn tracker(self) -> Tracker {
        Tracker::from_bits(self.word1 >> TRACKER_SHIFT)
    }

    /// The page, which has a frame, translated by the cores of `tracker`.
    #[inline(always)]
    pub(crate) fn with_tracker(self, tracker: Tracker) -> Self {
        debug_assert!(self.frame().is_some());
        Self { word1: self.untracked().word1 | tracker.bits() << TRACKER_SHIFT, ..self }
    }

    /// The page, translated by nobody.
    #[inline(always)]
    pub(crate) fn untracked(self) -> Self {
        Self { word1: self.word1 & (PRESENT | FRAME), ..self }
    }
}

impl Value for Page {
    #[inline(always)]
    fn to_words(self) -> (u64, u64) {
        (self.word0, self.word1)
    }

    #[inline(always)]
    fn from_words(word0: u64, word1: u64) -> Self {
        Self { word0, word1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker::Grain;
    use percore::CoreId;

    const LAST: BackingNum = BackingNum::new((1 << BackingNum::BITS) - 1);

    #[test]
    fn fields_do_not_touch_each_other() {
        let grain = Grain::new(256);
        let frame = FrameNum::new(FRAME);
        let tracker =
            [255, 254, 253].map(CoreId::new).into_iter().fold(Tracker::NOBODY, |t, c| t.with(c, grain));
        let mapping = Mapping::shared(Prot::ALL, LAST).with(Flags::ADVICE);
        let page = Page::new(mapping).with_shown(frame).with_tracker(tracker).with_prot(Prot::WRITE);
        assert_eq!((page.prot(), page.frame(), page.tracker()), (Prot::WRITE, Some(frame), tracker));
        assert_eq!(page.mapping(), Mapping { prot: Prot::WRITE, ..mapping });
        let (word0, word1) = page.to_words();
        assert_eq!(word0 >> 60, 0, "the radix map keeps 60 bits of word 0");
        assert_eq!(Page::from_words(word0, word1), page);
        assert_eq!(page.without_frame(), Page::new(Mapping { prot: Prot::WRITE, ..mapping }));
        let moved = page.with_backing(Some(BackingNum::new(5))).with_flags(Flags::SHARED);
        assert_eq!(moved.mapping(), Mapping::shared(Prot::WRITE, BackingNum::new(5)));
        assert!(moved.is_shown() && moved.tracker() == tracker);
    }

    #[test]
    fn frame_zero_is_a_frame() {
        let page = Page::new(Mapping::anonymous(Prot::READ)).with_frame(FrameNum::new(0));
        assert_eq!(page.frame(), Some(FrameNum::new(0)));
        assert!(page.tracker().is_empty());
    }

    #[test]
    fn only_what_others_cannot_see_is_written_in_place() {
        let frame = FrameNum::new(7);
        let rw = Prot::READ | Prot::WRITE;
        let private = Page::new(Mapping::private(rw, LAST));
        assert_eq!(private.with_frame(frame).rights(), rw);
        assert_eq!(private.with_shown(frame).rights(), Prot::READ);
        assert_eq!(private.with_counted(frame).owned().rights(), rw);
        assert_eq!(private.with_counted(frame).with_prot(Prot::WRITE).rights(), Prot::READ);
        assert_eq!(private.with_counted(frame).with_prot(Prot::NONE).rights(), Prot::NONE);
        assert_eq!(private.with_counted(frame).with_prot(Prot::EXEC).rights(), Prot::EXEC);
        assert_eq!(Page::new(Mapping::shared(rw, LAST)).with_shown(frame).rights(), rw);
    }
}
