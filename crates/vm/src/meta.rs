//! What is kept for each page: one word, the radix map's value.
//!
//! ```text
//!  63-62   61-44    43-12   11-9    8-4       3       2-0
//!    -    tracker   frame     -    spare  has a frame rights      -: the map's tags, and bit 63: spare
//! ```
//!
//! A fresh mapping has neither frame nor tracker, so all its pages are equal and fold into few slots.

use radixmap::{TAGS, Value};

use crate::tracker::Tracker;
use crate::{FrameNum, Prot};

const PRESENT: u64 = 1 << 3;
const FRAME_SHIFT: u32 = 12;
const FRAME: u64 = ((1 << FrameNum::BITS) - 1) << FRAME_SHIFT;
const TRACKER_SHIFT: u32 = FRAME_SHIFT + FrameNum::BITS;
const TRACKER: u64 = ((1 << Tracker::BITS) - 1) << TRACKER_SHIFT;
const _: () = assert!((Prot::ALL.bits() | PRESENT | FRAME | TRACKER) & TAGS == 0);

/// A mapped page. Frame and tracker are 0 if it has no frame; only a page with a frame is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page(u64);

impl Page {
    /// A page that nobody has touched.
    pub(crate) fn new(prot: Prot) -> Self {
        Self(prot.bits())
    }

    #[inline(always)]
    pub(crate) fn prot(self) -> Prot {
        Prot::from_bits(self.0)
    }

    #[inline(always)]
    pub(crate) fn with_prot(self, prot: Prot) -> Self {
        Self(self.0 & !Prot::ALL.bits() | prot.bits())
    }

    #[inline(always)]
    pub(crate) fn frame(self) -> Option<FrameNum> {
        (self.0 & PRESENT != 0).then(|| FrameNum::new((self.0 & FRAME) >> FRAME_SHIFT))
    }

    /// The page backed by `frame`, which no core translates yet.
    #[inline(always)]
    pub(crate) fn with_frame(self, frame: FrameNum) -> Self {
        Self(self.without_frame().0 | PRESENT | frame.get() << FRAME_SHIFT)
    }

    /// The page as it was before its first touch.
    #[inline(always)]
    pub(crate) fn without_frame(self) -> Self {
        Self(self.0 & !(PRESENT | FRAME | TRACKER))
    }

    #[inline(always)]
    pub(crate) fn tracker(self) -> Tracker {
        Tracker::from_bits(self.0 >> TRACKER_SHIFT)
    }

    /// The page, which has a frame, translated by the cores of `tracker`.
    #[inline(always)]
    pub(crate) fn with_tracker(self, tracker: Tracker) -> Self {
        debug_assert!(self.frame().is_some());
        Self(self.untracked().0 | tracker.bits() << TRACKER_SHIFT)
    }

    /// The page, translated by nobody.
    #[inline(always)]
    pub(crate) fn untracked(self) -> Self {
        Self(self.0 & !TRACKER)
    }
}

impl Value for Page {
    #[inline(always)]
    fn to_words(self) -> (u64, u64) {
        (self.0, 0)
    }

    #[inline(always)]
    fn from_words(main: u64, _: u64) -> Self {
        Self(main)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker::Grain;
    use percore::CoreId;

    #[test]
    fn fields_do_not_touch_each_other() {
        let grain = Grain::new(256);
        let frame = FrameNum::new(FRAME >> FRAME_SHIFT);
        let tracker = [255, 254].map(CoreId::new).into_iter().fold(Tracker::NOBODY, |t, c| t.with(c, grain));
        let page = Page::new(Prot::ALL).with_frame(frame).with_tracker(tracker).with_prot(Prot::WRITE);
        assert_eq!((page.prot(), page.frame(), page.tracker()), (Prot::WRITE, Some(frame), tracker));
        let (main, second) = page.to_words();
        assert_eq!((main & TAGS, second), (0, 0));
        assert_eq!(Page::from_words(main, second), page);
        assert_eq!(page.without_frame(), Page::new(Prot::WRITE));
    }

    #[test]
    fn frame_zero_is_a_frame() {
        let page = Page::new(Prot::READ).with_frame(FrameNum::new(0));
        assert_eq!(page.frame(), Some(FrameNum::new(0)));
        assert!(page.tracker().is_empty());
    }
}
