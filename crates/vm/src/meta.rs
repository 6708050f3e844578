//! What is kept for each page: 16 bytes, the radix map's value.
//!
//! ```text
//! word 0   bit 16 COUNTED   17 SHOWN   the others: the page's mapping (`mapping.rs`)
//! word 1   bit 63 has a frame   bits 62-36 tracker   bits 35-0 frame
//! ```
//!
//! A fresh mapping has neither frame nor tracker, so all its pages are equal and fold into few slots. The states of a
//! page, and who may be in which, are in `sharing.rs`.

use radixmap::Value;

use crate::tracker::Tracker;
use crate::{Access, BackingNum, Flags, FrameNum, Mapping, Prot};

/// The frame has references, of which this page is one.
const COUNTED: u64 = 1 << 16;
/// The frame is the backing's own: its contents are the backing's. Never without COUNTED.
const SHOWN: u64 = 1 << 17;
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << FrameNum::BITS) - 1;
const TRACKER_SHIFT: u32 = FrameNum::BITS;
const _: () = assert!(FrameNum::BITS + Tracker::BITS == 63);
const _: () = assert!(Mapping::BITS & (COUNTED | SHOWN) == 0);

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
        Self { word0: mapping.bits(), word1: 0 }
    }

    /// What it has in common with all pages of its mapping.
    #[inline(always)]
    pub(crate) fn mapping(self) -> Mapping {
        Mapping::from_bits(self.word0)
    }

    /// The page in another mapping.
    #[inline(always)]
    pub(crate) fn with_mapping(self, mapping: Mapping) -> Self {
        Self { word0: self.word0 & !Mapping::BITS | mapping.bits(), ..self }
    }

    #[inline(always)]
    pub(crate) fn prot(self) -> Prot {
        self.mapping().prot()
    }

    #[inline(always)]
    pub(crate) fn with_prot(self, prot: Prot) -> Self {
        self.with_mapping(self.mapping().with_prot(prot))
    }

    #[inline(always)]
    pub(crate) fn flags(self) -> Flags {
        self.mapping().flags()
    }

    pub(crate) fn with_flags(self, flags: Flags) -> Self {
        self.with_mapping(self.mapping().with_flags(flags))
    }

    #[inline(always)]
    pub(crate) fn backing(self) -> Option<BackingNum> {
        self.mapping().backing()
    }

    pub(crate) fn with_backing(self, backing: Option<BackingNum>) -> Self {
        self.with_mapping(self.mapping().with_backing(backing))
    }

    #[inline(always)]
    pub(crate) fn is_shared(self) -> bool {
        self.flags().contains(Flags::SHARED)
    }

    #[inline(always)]
    pub(crate) fn is_counted(self) -> bool {
        self.word0 & COUNTED != 0
    }

    /// Whether it may be given the rights `prot`.
    pub(crate) fn may_be(self, prot: Prot) -> bool {
        !(self.flags().contains(Flags::SEALED) && prot.contains(Prot::WRITE))
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
        Self { word0: self.mapping().bits(), word1: PRESENT | frame.get() }
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
        Self { word0: self.mapping().bits(), ..self }
    }

    /// The page as it was before its first touch.
    #[inline(always)]
    pub(crate) fn without_frame(self) -> Self {
        Self { word0: self.mapping().bits(), word1: 0 }
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
        assert_eq!(page.mapping(), mapping.with_prot(Prot::WRITE));
        let (word0, word1) = page.to_words();
        assert_eq!(word0 >> 60, 0, "the radix map keeps 60 bits of word 0");
        assert_eq!(Page::from_words(word0, word1), page);
        assert_eq!(page.without_frame(), Page::new(mapping.with_prot(Prot::WRITE)));
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
