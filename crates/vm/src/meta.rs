//! What is kept for each page: 16 bytes, the radix map's value.
//!
//! ```text
//! word 0   bits 0-2 rights            bits 3-59 spare, for what backs the page
//! word 1   bit 63 has a frame   bits 62-36 tracker   bits 35-0 frame
//! ```
//!
//! A fresh mapping has neither frame nor tracker, so all its pages are equal and fold into few slots.

use radixmap::Value;

use crate::tracker::Tracker;
use crate::{FrameNum, Prot};

const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << FrameNum::BITS) - 1;
const TRACKER_SHIFT: u32 = FrameNum::BITS;
const _: () = assert!(FrameNum::BITS + Tracker::BITS == 63);

/// A mapped page. `word1 == 0` exactly if it has no frame; only a page with a frame is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    word0: u64,
    word1: u64,
}

impl Page {
    /// A page that nobody has touched.
    pub(crate) fn new(prot: Prot) -> Self {
        Self { word0: prot.bits(), word1: 0 }
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
    pub(crate) fn frame(self) -> Option<FrameNum> {
        (self.word1 != 0).then(|| FrameNum::new(self.word1 & FRAME))
    }

    /// The page backed by `frame`, which no core translates yet.
    #[inline(always)]
    pub(crate) fn with_frame(self, frame: FrameNum) -> Self {
        Self { word1: PRESENT | frame.get(), ..self }
    }

    /// The page as it was before its first touch.
    #[inline(always)]
    pub(crate) fn without_frame(self) -> Self {
        Self { word1: 0, ..self }
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

    #[test]
    fn fields_do_not_touch_each_other() {
        let grain = Grain::new(256);
        let frame = FrameNum::new(FRAME);
        let tracker =
            [255, 254, 253].map(CoreId::new).into_iter().fold(Tracker::NOBODY, |t, c| t.with(c, grain));
        let page = Page::new(Prot::ALL).with_frame(frame).with_tracker(tracker).with_prot(Prot::WRITE);
        assert_eq!((page.prot(), page.frame(), page.tracker()), (Prot::WRITE, Some(frame), tracker));
        let (word0, word1) = page.to_words();
        assert_eq!(word0 >> 60, 0, "the radix map keeps 60 bits of word 0");
        assert_eq!(Page::from_words(word0, word1), page);
        assert_eq!(page.without_frame(), Page::new(Prot::WRITE));
    }

    #[test]
    fn frame_zero_is_a_frame() {
        let page = Page::new(Prot::READ).with_frame(FrameNum::new(0));
        assert_eq!(page.frame(), Some(FrameNum::new(0)));
        assert!(page.tracker().is_empty());
    }
}
