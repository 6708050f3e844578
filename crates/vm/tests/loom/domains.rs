//! The domain of nodes that wait for their last users, and the cores that play it.

use std::ops::Range;
use std::sync::Arc;

use percore::threads;
use percore::{CoreId, Pinned};
use refcache::Refcache;
use vm::{Layout, NodeCounters, PageNum, PageRange};

use crate::machine::{CORES, PAGES};

/// The reference counts of the spaces' nodes.
pub struct Domains {
    pub refcache: Arc<Refcache>,
    pub nodes: Arc<NodeCounters>,
}

pub fn pages(pages: Range<u64>) -> PageRange {
    PageRange::between(PageNum::new(pages.start), PageNum::new(pages.end))
}

pub fn layout() -> Layout {
    Layout { cores: CORES, user: pages(0..PAGES), anywhere: pages(0..PAGES), seed: 0 }
}

pub fn as_core<R>(core: usize, act: impl FnOnce(&Pinned) -> R) -> R {
    let _part = threads::enter(CoreId::new(core));
    act(&percore::pin())
}

impl Domains {
    /// With both cores online.
    pub fn new() -> Self {
        // One cache slot: which objects share a slot must not depend on addresses, or the model cannot be
        // replayed.
        let refcache = refcache::Config { cores: CORES, cache_slots: 1, review_budget: 8 };
        let refcache = Arc::new(Refcache::new(refcache));
        (0..CORES).for_each(|core| as_core(core, |pin| refcache.online(pin)));
        Self { refcache, nodes: Arc::new(NodeCounters::new(CORES)) }
    }

    /// Both cores do what is due every now and then.
    pub fn tick_all(&self) {
        (0..CORES).for_each(|core| as_core(core, |pin| _ = self.refcache.tick(pin)));
    }

    /// Once both have done so for every level of nodes, from the lowest, nothing is left of a space that is
    /// gone.
    pub fn assert_empty(&self) {
        (0..16).for_each(|_| self.tick_all());
        assert_eq!(self.nodes.total().live(), 0, "a node never comes back");
    }
}
