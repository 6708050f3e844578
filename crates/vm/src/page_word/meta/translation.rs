//! The cores that translate a page: some in tables of their own, or all that are linked to its leaf.

use super::{
    LINKED, MACHINE, PRIVATE_SHARERS, PRIVATE_SHARERS_SHIFT, Page, REFUSED, TRACKER, TRACKER_HIGH_SHIFT,
    TRACKER_LOW,
};
use crate::leaf::PrivateSharers;
use crate::page_word::Tracker;

impl Page {
    /// Returns the cores that translate the page, which is not linked, in tables of their own.
    #[inline(always)]
    pub(crate) fn tracker(self) -> Tracker {
        debug_assert!(!self.is_linked());
        let high = self.main >> TRACKER_HIGH_SHIFT << TRACKER_LOW;
        Tracker::from_bits(self.main >> 1 & 0xff | high)
    }

    /// Returns the page, which has a frame and is not linked, translated by the cores of `tracker`.
    #[inline(always)]
    pub(crate) fn with_tracker(self, tracker: Tracker) -> Self {
        debug_assert!(self.frame().is_some() && !self.is_linked());
        let bits = (tracker.bits() & 0xff) << 1 | tracker.bits() >> TRACKER_LOW << TRACKER_HIGH_SHIFT;
        Self { main: self.main & !(TRACKER | REFUSED) | bits, ..self }
    }

    /// Returns whether no core translates it.
    #[inline(always)]
    pub(crate) fn is_untracked(self) -> bool {
        self.main & (TRACKER | LINKED) == 0
    }

    /// Returns whether it is translated through its leaf.
    #[inline(always)]
    pub(crate) fn is_linked(self) -> bool {
        self.main & LINKED != 0
    }

    /// Returns the page, which has a frame, translated through its leaf by `entry`, the machine's bits for
    /// its rights.
    #[inline(always)]
    pub(crate) fn linked(self, entry: u64) -> Self {
        debug_assert!(self.frame().is_some() && entry & !MACHINE == 0 && entry & LINKED != 0);
        Self { main: self.untracked().main | entry, ..self }
    }

    /// Returns which private sharers of its leaf have the linked page too.
    #[inline(always)]
    pub(crate) fn private_sharers(self) -> PrivateSharers {
        debug_assert!(self.is_linked());
        PrivateSharers::from_bits(self.main >> PRIVATE_SHARERS_SHIFT)
    }

    /// Returns the linked page, which these private sharers of its leaf have too.
    #[inline(always)]
    pub(crate) fn with_private_sharers(self, sharers: PrivateSharers) -> Self {
        debug_assert!(self.is_linked());
        Self { main: self.main & !PRIVATE_SHARERS | sharers.bits() << PRIVATE_SHARERS_SHIFT, ..self }
    }

    /// Returns the page with no core that translates it.
    #[inline(always)]
    pub fn untracked(self) -> Self {
        Self { main: self.main & !(TRACKER | PRIVATE_SHARERS | MACHINE), ..self }
    }
}
