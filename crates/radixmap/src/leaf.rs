//! A leaf as a whole: its frame may serve as a page table, and stays while somebody says so.
//!
//! A leaf's slots fill one frame, and values may be laid out as a machine's page-table entries: so a machine can translate
//! through the frame itself. Who does is the business of the map's user, who keeps it in the leaf's [`Annex`]; the map sees
//! to it that the frame does not go meanwhile.
//!
//! 1. A node's count is its used slots and how often it is [held](Leaf::hold). So a leaf that is held does not collapse,
//!    and nor does what is above it.
//! 2. A hold is given up by whoever finds the leaf, but only if there is one (`holds`). It was counted before it could be found,
//!    so Refcache never hears of an end without its beginning.

use core::fmt;
use core::ops::Range;

use percore::MAX_CORES;
use sync::atomic::AtomicU64;

use crate::lock::Here;
use crate::node::{FANOUT, NodeRef};

/// Words that a leaf keeps for the map's user, 0 at first.
#[derive(Clone, Copy, Debug)]
pub struct Annex<'g> {
    /// On the cache line of the leaf's count.
    pub words: &'g [AtomicU64; 3],
    /// A bit for each core, on the cache line that descents read: to be written seldom.
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
    /// Keys of a leaf.
    pub const KEYS: u64 = FANOUT as u64;

    /// What the map's user keeps.
    #[inline(always)]
    pub fn annex(&self) -> Annex<'a> {
        self.node.annex()
    }

    /// Where the frame of main words is.
    #[inline(always)]
    pub fn address(&self) -> usize {
        self.node.address()
    }

    /// Holds the leaf once more: until it is given up as often the leaf stays, used or not.
    pub fn hold(&self) {
        self.node.hold(self.here);
    }

    /// Gives up so many holds.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn release(&self, holds: usize) {
        self.node.release(self.here, holds);
    }
}

/// Calls `visit` with `node`, if it is a leaf.
pub(crate) fn show<'p>(here: &Here<'p>, node: NodeRef<'p>, visit: &mut impl FnMut(Leaf<'_>)) {
    if node.level() == 0 {
        visit(Leaf { node, here });
    }
}

/// Whether `run`, keys of a leaf, is all of it.
#[inline(always)]
pub(crate) fn is_whole(run: &Range<u64>) -> bool {
    run.end - run.start == FANOUT as u64
}
