//! Counts of the writers' work, kept per core: each core writes its own cache lines only.

use percore::{Counts, Pinned};

/// Numbers of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Nodes that became part of the tree.
    pub made: u64,
    /// Nodes that left it, and were retired.
    pub retired: u64,
    /// Nodes that were updated in place where a functional tree would have made a copy, and retired the node.
    pub avoided: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum Event {
    Made,
    Retired,
    Avoided,
}

/// The cells behind [`Stats`].
#[derive(Debug)]
pub(crate) struct EventCounts(Counts<3>);

impl EventCounts {
    pub fn try_new(cores: usize) -> Option<Self> {
        Counts::try_new(cores).map(Self)
    }

    pub fn add(&self, pin: &Pinned, event: Event, count: u64) {
        self.0.add(pin, event as usize, count);
    }

    pub fn sum(&self) -> Stats {
        let [made, retired, avoided] = self.0.sum();
        Stats { made, retired, avoided }
    }
}
