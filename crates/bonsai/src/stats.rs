//! What the writers did, counted where they did it: each core writes its own cache lines only.

use percore::{PerCore, Pinned};
use sync::atomic::{AtomicU64, Ordering};

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
pub(crate) struct Tally(PerCore<[AtomicU64; 3]>);

impl Tally {
    pub fn new(cores: usize) -> Self {
        Self(PerCore::new(cores, |_| Default::default()))
    }

    pub fn try_new(cores: usize) -> Option<Self> {
        PerCore::try_new(cores, |_| Default::default()).map(Self)
    }

    /// Only the owner core writes its cells, so no read-modify-write is needed. Relaxed: a number, no message.
    pub fn add(&self, pin: &Pinned, event: Event, count: u64) {
        let cell = &self.0.mine(pin)[event as usize];
        cell.store(cell.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    pub fn sum(&self) -> Stats {
        let of =
            |event: Event| self.0.iter().map(|cells| cells[event as usize].load(Ordering::Relaxed)).sum();
        Stats { made: of(Event::Made), retired: of(Event::Retired), avoided: of(Event::Avoided) }
    }
}
