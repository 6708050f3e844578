//! A leaf as a whole: its frame may serve as a page table, and stays while it is held.
//!
//! A leaf's slots fill one frame, and values may be laid out as a machine's page-table entries, so a machine
//! can translate through the frame itself. The map's user records which cores do, in the leaf's [`Annex`].
//! The map makes sure that the frame stays meanwhile.
//!
//! 1. A node's count is the number of its used slots and of its [holds](Leaf::hold). So a leaf that is held
//!    does not collapse, and neither do the nodes above it.
//! 2. Any core that finds the leaf may release a hold, but only if there is one (`holds`). The hold was
//!    counted before it could be found, so Refcache never sees a release without its hold.

use core::fmt;
use core::ops::Range;

use percore::MAX_CORES;
use sync::atomic::{AtomicU64, Ordering};

use crate::here::Here;
use crate::levels::FANOUT;
use crate::node::NodeRef;

/// Words that a leaf keeps for the map's user, 0 at first.
#[derive(Clone, Copy, Debug)]
pub struct Annex<'g> {
    /// Words on the cache line of the leaf's count.
    pub words: &'g [AtomicU64; 3],
    /// A bit for each core, on the cache line that descents read, so it should be written seldom.
    pub cores: &'g [AtomicU64; MAX_CORES / 64],
}

/// A leaf, while one of its slots is held, or while it is shown.
pub struct Leaf<'a> {
    pub(crate) node: NodeRef<'a>,
    pub(crate) here: &'a Here<'a>,
}

impl fmt::Debug for Leaf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl<'a> Leaf<'a> {
    /// The number of keys of a leaf.
    pub const KEYS: u64 = FANOUT as u64;

    /// Returns the words of the map's user.
    #[inline(always)]
    pub fn annex(&self) -> Annex<'a> {
        Annex { words: self.node.words(), cores: &self.node.links().bits }
    }

    /// Returns the address of the frame of main words.
    #[inline(always)]
    pub fn address(&self) -> usize {
        self.node.address()
    }

    /// Adds a hold. The leaf stays, used or not, until all holds are released.
    pub fn hold(&self) {
        self.node.count(self.here, 1);
        // Relaxed: an epoch ends on a core after it began on all of them. So a core that releases a hold
        // found here does that in no earlier epoch, and Refcache depends on the order of epochs only.
        self.node.links().holds.fetch_add(1, Ordering::Relaxed);
    }

    /// Releases this many holds.
    ///
    /// # Panics
    /// Panics if there are fewer.
    pub fn release(&self, holds: usize) {
        let less = |held: u64| held.checked_sub(holds as u64);
        // Relaxed: see `hold`.
        let left = self.node.links().holds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        assert!(left.is_ok(), "a leaf was held less often than it was released");
        self.node.count(self.here, -(holds as i64));
    }
}

/// Calls `visit` with `node`, if it is a leaf.
pub(crate) fn show<'p>(here: &Here<'p>, node: NodeRef<'p>, visit: &mut impl FnMut(Leaf<'_>)) {
    if node.level() == 0 {
        visit(Leaf { node, here });
    }
}

/// Returns whether `run`, keys of a leaf, is all of it.
#[inline(always)]
pub(crate) fn is_whole(run: &Range<u64>) -> bool {
    run.end - run.start == FANOUT as u64
}
