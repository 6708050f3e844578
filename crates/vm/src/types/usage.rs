//! How many pages a space has, told without a walk.
//!
//! Each operation adds what it changed to numbers of its own core
//! ([`EventCounts`](crate::types::EventCounts)). A frame that was filled in by one core and given up by
//! another makes the number of the second negative: only the sum over all cores means something, and the
//! reader adds it up. First touches change none of these numbers, because their faults are counted already.

use crate::{Counters, Event, HUGE_PAGES};

/// Pages of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All that are mapped.
    pub mapped: u64,
    /// Pages with frames of the space's own, alone or since a fork.
    pub own: u64,
    /// Pages with frames of their backing.
    pub shown: u64,
}

impl Usage {
    /// Returns the sum of all cores' numbers: `changes`, and the first touches in `counters`. While
    /// operations run, one may be in it by half.
    pub(crate) fn new(changes: Change, counters: &Counters) -> Self {
        let touched = counters[Event::AllocFault] + HUGE_PAGES * counters[Event::HugeFault];
        let pages = |sum: i64| sum.max(0) as u64;
        Self {
            mapped: pages(changes.mapped),
            own: pages(changes.own.wrapping_add_unsigned(touched)),
            shown: pages(changes.shown),
        }
    }

    /// All that have frames.
    pub fn resident(self) -> u64 {
        self.own + self.shown
    }
}

/// The changes that an operation makes to the usage. First touches are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    pub(crate) mapped: i64,
    /// Pages with frames of the space's own.
    pub own: i64,
    pub(crate) shown: i64,
}

impl Change {
    /// `pages` more pages are mapped.
    #[inline(always)]
    pub fn map(pages: u64) -> Self {
        Self { mapped: pages as i64, ..Self::default() }
    }

    /// `pages` pages are mapped no longer.
    pub fn unmap(pages: u64) -> Self {
        Self { mapped: -(pages as i64), ..Self::default() }
    }

    /// Returns the change when a page gets a frame of its own, and had none.
    pub(crate) fn gain() -> Self {
        Self { own: 1, ..Self::default() }
    }

    /// Returns the change when a page loses its own frame.
    pub(crate) fn lose() -> Self {
        Self { own: -1, ..Self::default() }
    }

    /// Returns the change when a page gets a frame of its backing, and had none.
    pub(crate) fn show() -> Self {
        Self { shown: 1, ..Self::default() }
    }

    /// Returns the change when a page gets a frame of its own instead of the one it had, which was its
    /// backing's if it `was_shown`.
    pub(crate) fn own(was_shown: bool) -> Self {
        let shown = i64::from(was_shown);
        Self { own: shown, shown: -shown, ..Self::default() }
    }
}
