//! SNZI: a tree of counters that keeps most changes away from its root.
//!
//! After Ellen, Lev, Luchangco and Moir (Scalable NonZero Indicators, PODC 2007). Each core has a leaf. A
//! node counts arrivals that have not departed. Its parent counts the children that are not zero, so a change
//! goes up only where a node leaves zero or comes back to it.
//!
//! ```text
//!                 root: 2                    the core that departs last here was the last of all
//!                /       \
//!          node: 1       node: 2             a child that is not zero counts once in its parent
//!          /    \        /     \
//!    core 0: 3   0   core 2: 1  core 3: 7
//! ```
//!
//! # The half step
//!
//! Leaving zero takes two steps, at the node and at its parent, and other cores may come in between. A node
//! at 0 that went to 1 before its parent has counted it would let the next core depart from a tree whose root
//! says zero. So the first step is to *one half*:
//!
//! | the node | an arrival | a departure |
//! |---|---|---|
//! | 0 | makes it ½, and continues as at ½ | cannot happen |
//! | ½ | arrives at the parent, then makes it 1. If another core did that first, the arrival at the parent is taken back | cannot happen |
//! | 1 | makes it 2 | makes it 0, then departs from the parent |
//! | n | makes it n + 1 | makes it n - 1 |
//!
//! 1. A node that is 1 or more is counted in its parent.
//! 2. A core that sees ½ helps: no core waits for the one that stored it.
//! 3. A node's version changes when it leaves zero. A helper that sleeps, and finds ½ again, would count
//!    *another* departure from zero by an arrival that it has not made for it. The version tells them apart.
//! 4. An arrival is taken back only after the same core has arrived: it is never the last departure.
//! 5. Arrivals at the leaves are all alike. A core that does not know where its reference arrived departs
//!    from any leaf that has one ([`Snzi::dec_anywhere`]), so the number of arrivals stays the number of
//!    references.
//!
//! The paper's root also maintains a bit that others may query without reading the root's count. There are no
//! queries here: the core that drops the last reference learns it from its own subtraction, and the count
//! never leaves zero again.
//!
//! Orderings: departures are AcqRel at every node, partners of each other, so that the last core to depart
//! from the root sees all writes of all users. Arrivals are Relaxed upwards, for the arriving core has
//! another reference, which keeps the root from zero. The step from ½ is Release, partner of the Acquire of a
//! departure: the arrival at the parent happens before it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::size_of;

use percore::Pinned;
use sync::CachePadded;
use sync::atomic::{AtomicU64, Ordering};

use crate::{OutOfMemory, Scheme, Zero};

/// Children of a node.
const FAN: usize = 4;

/// Counts in a tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snzi;

/// Nodes in the order of a heap: the root, its children, and so on. The last ones are the cores' leaves.
#[derive(Debug)]
pub struct SnziCount {
    nodes: Box<[CachePadded<AtomicU64>]>,
    first_leaf: usize,
}

/// The node at which a reference arrived, which the reference carries.
#[derive(Clone, Copy, Debug)]
pub struct SnziToken(u16);

const ROOT: usize = 0;

/// A node's word: its version (32 bits), and twice its count (32 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State(u64);

const HALF: u64 = 1;
const ONE: u64 = 2;

impl State {
    fn doubled(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    /// Returns the node after the first step from zero.
    fn left_zero(self) -> Self {
        Self(self.0.wrapping_add(1 << 32) | HALF)
    }

    /// Returns the node after the second step.
    fn completed(self) -> Self {
        Self(self.0 - HALF + ONE)
    }
}

/// Nodes that are not leaves: enough to be the parents of each other and of all leaves, and at least the
/// root.
fn inner_nodes(cores: usize) -> usize {
    (cores - 1).div_ceil(FAN - 1).max(1)
}

impl SnziCount {
    fn arrive(&self, node: usize) {
        if node == ROOT {
            // Relaxed: see the module.
            self.nodes[ROOT].fetch_add(1, Ordering::Relaxed);
            return;
        }
        let parent = (node - 1) / FAN;
        let spare = self.arrive_below(node, parent);
        // None of these departures is the last: this core has arrived.
        (0..spare).for_each(|_| _ = self.depart(parent));
    }

    /// Arrives at a node that has a parent. Returns the number of excess arrivals at the parent.
    fn arrive_below(&self, node: usize, parent: usize) -> usize {
        let (mut arrived, mut spare) = (false, 0);
        while !arrived {
            let mut seen = self.load(node);
            match seen.doubled() {
                0 => {
                    arrived = self.change(node, seen, seen.left_zero());
                    if !arrived {
                        continue;
                    }
                    seen = seen.left_zero();
                }
                HALF => {}
                _ => {
                    arrived = self.change(node, seen, State(seen.0 + ONE));
                    continue;
                }
            }
            self.arrive(parent);
            spare += usize::from(!self.change(node, seen, seen.completed()));
        }
        spare
    }

    /// Departs from a node. Returns whether that was the last departure of all.
    fn depart(&self, mut node: usize) -> bool {
        while node != ROOT {
            if self.subtract_one(node) > ONE {
                return false;
            }
            node = (node - 1) / FAN;
        }
        // AcqRel: see the module.
        self.nodes[ROOT].fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Departs from a leaf that counts an arrival. Returns whether that was the last departure of all, or
    /// `None` if the leaf counts none.
    fn depart_if_arrived(&self, leaf: usize) -> Option<bool> {
        let mut seen = self.load(leaf);
        while seen.doubled() >= ONE {
            // AcqRel: see the module.
            match self.nodes[leaf].compare_exchange(seen.0, seen.0 - ONE, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Some(seen.doubled() == ONE && self.depart((leaf - 1) / FAN)),
                Err(now) => seen = State(now),
            }
        }
        None
    }

    /// Returns the doubled count from before. The caller arrived there, so it is one or more, and a plain
    /// subtraction is enough.
    fn subtract_one(&self, node: usize) -> u64 {
        // AcqRel: see the module.
        State(self.nodes[node].fetch_sub(ONE, Ordering::AcqRel)).doubled()
    }

    fn load(&self, node: usize) -> State {
        // Relaxed: the exchange that follows decides.
        State(self.nodes[node].load(Ordering::Relaxed))
    }

    fn change(&self, node: usize, from: State, to: State) -> bool {
        // Release: see the module.
        self.nodes[node].compare_exchange(from.0, to.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

impl Snzi {
    /// Drops a reference that was taken by [`inc`](Scheme::inc) at an unknown leaf. Departs from this core's
    /// leaf if it counts an arrival. Returns whether it was the last.
    pub fn dec_anywhere(&self, pin: &Pinned, count: &SnziCount) -> bool {
        let (own, leaves) = (pin.core().index(), count.nodes.len() - count.first_leaf);
        loop {
            let mut leaf = (own..own + leaves).map(|leaf| count.first_leaf + leaf % leaves);
            if let Some(last) = leaf.find_map(|leaf| count.depart_if_arrived(leaf)) {
                return last;
            }
            // Other cores have moved theirs behind this search. The caller's is still to be found.
            percore::relax();
        }
    }
}

impl Scheme<'_> for Snzi {
    type Count = SnziCount;
    type Token = SnziToken;

    const NAME: &'static str = "snzi";
    const ZERO: Zero = Zero::AtOnce;
    const FIRST: SnziToken = SnziToken(ROOT as u16);

    fn count(cores: usize) -> Result<SnziCount, OutOfMemory> {
        let (first_leaf, mut nodes) = (inner_nodes(cores), Vec::new());
        nodes.try_reserve_exact(first_leaf + cores).map_err(|_| OutOfMemory)?;
        nodes.extend((0..first_leaf + cores).map(|_| CachePadded::new(AtomicU64::new(0))));
        nodes[ROOT] = CachePadded::new(AtomicU64::new(1));
        Ok(SnziCount { nodes: nodes.into_boxed_slice(), first_leaf })
    }

    fn object_bytes(cores: usize) -> usize {
        size_of::<SnziCount>() + (inner_nodes(cores) + cores) * size_of::<CachePadded<AtomicU64>>()
    }

    #[inline]
    fn inc(&self, pin: &Pinned, count: &SnziCount) -> SnziToken {
        let leaf = count.first_leaf + pin.core().index();
        count.arrive(leaf);
        SnziToken(leaf as u16)
    }

    #[inline]
    fn dec(&self, _pin: &Pinned, count: &SnziCount, SnziToken(node): SnziToken) -> bool {
        count.depart(node.into())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_has_a_parent_that_is_no_leaf() {
        for cores in 1..=percore::MAX_CORES {
            let first_leaf = inner_nodes(cores);
            assert!((first_leaf..first_leaf + cores).all(|leaf| (leaf - 1) / FAN < first_leaf));
        }
    }

    #[test]
    fn only_the_first_arrival_goes_up() {
        let count = Snzi::count(5).unwrap();
        let root = || count.load(ROOT).0;
        let leaf = count.first_leaf + 3;
        count.arrive(leaf);
        count.arrive(leaf);
        assert_eq!(root(), 2);
        assert!(!count.depart(leaf));
        assert_eq!(root(), 2);
        assert!(!count.depart(leaf));
        assert_eq!(root(), 1);
        assert!(count.depart(ROOT));
    }
}
