//! A leaf as a whole: its frame may serve as a page table, and stays while somebody says so.
//!
//! A leaf's slots fill one frame, and values may be laid out as a machine's page-table entries: so a machine can translate
//! through the frame itself. Who does is the business of the map's user, who keeps it in the leaf's [`Annex`]; the map sees
//! to it that the frame does not go meanwhile.
//!
//! 1. A node's count is its used slots and what was [`held`](Leaf::hold) besides. So a leaf that is held does not collapse,
//!    and nor does what is above it.
//! 2. Whoever holds must find a leaf in use (a used slot of it is locked, or it is held already), and gives up as often.

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
    pub(crate) count: &'a mut i64,
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

    /// Adds `by` reasons why the leaf stays; takes them away if it is negative.
    #[inline(always)]
    pub fn hold(&mut self, by: i64) {
        *self.count += by;
    }
}

/// Calls `visit` with `node`, if it is a leaf.
pub(crate) fn show<'p>(here: &Here<'p>, node: NodeRef<'p>, visit: &mut impl FnMut(Leaf<'_>)) {
    if node.level() == 0 {
        let mut count = 0;
        visit(Leaf { node, count: &mut count });
        node.count_if_changed(here, count);
    }
}

/// Whether `run`, keys of a leaf, is all of it.
#[inline(always)]
pub(crate) fn is_whole(run: &Range<u64>) -> bool {
    run.end - run.start == FANOUT as u64
}
