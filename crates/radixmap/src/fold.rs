//! How the tree changes shape: a folded slot expands into a child, an empty child collapses into its slot.
//!
//! ```text
//!            expand: the slot is held                       collapse: nobody used a slot for an epoch
//!   empty or value, LOCK ──────────────▶ child ──────────────▶ child, DYING ──────────────▶ empty
//!                        one store by            Refcache, when       Refcache, by CAS;
//!                        the holder              the count is 0       then `collapse` runs
//! ```
//! A node's count is the number of its used slots (a value or a child; a lock is no use). The children hold their
//! parent by the slots that they are in, so nodes go from the leaves up, one level every few epochs, and a root,
//! which its map holds, goes last. There is no third direction: a node that is full of equal values stays.
//!
//! 1. Nobody sees a new subtree before it is complete, locked where its maker will hold it, and published by one store.
//! 2. A count is told of each transition of each slot once, by the slot's holder (who makes or clears it), by the
//!    expander (empty to child), or by `collapse` (child to empty).
//! 3. `collapse` has the node to itself: the count was 0 for an epoch and no core that entered before has kept its loan
//!    through it; who came later took `DYING` off, and then Refcache's CAS failed.

use alloc::sync::Arc;
use core::mem;
use core::ops::Range;
use core::ptr::NonNull;

use percore::Pinned;
use refcache::{Header, Refcache};

use crate::OutOfMemory;
use crate::lock::Here;
use crate::node::{FANOUT, Memory, Node, NodeRef, Part, TOP, slot_keys};
use crate::slot::{Slot, Word};
use crate::stats::NodeCounters;

/// Every node starts with this count, and `settle` takes off what is not used: so a node whose slots stay empty falls to
/// zero like any other, which is what brings it to Refcache's notice.
const HOLD: i64 = FANOUT as i64;

/// Replaces `part.slot`, which the caller holds and which said `word`, by a child (and, along the ends of
/// `part.keys`, by grandchildren), so that the caller holds exactly `part.keys` and nothing else of the slot. The child.
///
/// The whole subtree is built in private, its slots locked where the caller will hold them, and then published by
/// one store. If memory runs out nobody has seen anything: the caller holds the slot as it was.
pub(crate) fn expand<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    part: &Part<'p>,
    word: Word,
) -> Result<NodeRef<'p>, OutOfMemory> {
    let mut fresh = Fresh::default();
    let seed = (word.unlocked(), part.slot.data());
    let child = fresh.grow(node, part.slot, seed, &part.keys)?;
    if !word.is_used() {
        // Before anybody can see the child, let alone take it away again.
        node.count(here, 1);
    }
    child.publish(part.slot);
    fresh.settle(here);
    Ok(child)
}

/// The nodes of one expansion, until it is published: at most two for each level below the root.
#[derive(Default)]
struct Fresh<'p> {
    nodes: [Option<Sapling<'p>>; 2 * TOP as usize],
    len: usize,
}

struct Sapling<'p> {
    memory: Memory,
    node: NodeRef<'p>,
    used: i64,
}

impl<'p> Fresh<'p> {
    /// A child for `slot` of `parent`: every slot is a copy of `seed`, those in `keys` are locked, and those that
    /// `keys` covers in part have grown children in turn.
    fn grow(
        &mut self,
        parent: NodeRef<'p>,
        slot: &Slot,
        seed: (Word, u64),
        keys: &Range<u64>,
    ) -> Result<NodeRef<'p>, OutOfMemory> {
        let at = self.len;
        let node = self.plant(parent, slot, seed, keys)?;
        for part in node.parts(keys.clone()).filter(|part| !part.whole) {
            self.grow(node, part.slot, seed, &part.keys)?.publish(part.slot);
            if let (false, Some(sapling)) = (seed.0.is_used(), &mut self.nodes[at]) {
                sapling.used += 1;
            }
        }
        Ok(node)
    }

    /// One node for `grow`.
    fn plant(
        &mut self,
        parent: NodeRef<'p>,
        slot: &Slot,
        (word, data): (Word, u64),
        keys: &Range<u64>,
    ) -> Result<NodeRef<'p>, OutOfMemory> {
        let memory = Memory::allocate()?;
        let level = parent.level() - 1;
        let index = |key: u64| (key / slot_keys(level)) as usize % FANOUT;
        let held = index(keys.start)..=index(keys.end - 1);
        let counted = memory.node(HOLD, Some((parent, slot)), NonNull::from(parent.counters()));
        let copy = |index| (if held.contains(&index) { word.locked() } else { word }, data);
        // SAFETY: fresh memory; it is freed by `Drop` before publication or by `collapse` long after.
        let node = unsafe { memory.init(counted, level, copy) };
        let used = if word.is_used() { FANOUT as i64 } else { 0 };
        self.nodes[self.len] = Some(Sapling { memory, node, used });
        self.len += 1;
        Ok(node)
    }

    /// The subtree is published: lets go of its nodes.
    fn settle(mut self, here: &Here<'p>) {
        for sapling in mem::take(&mut self.nodes).into_iter().flatten() {
            sapling.node.counters().created(here.pin);
            if sapling.used != HOLD {
                sapling.node.count(here, sapling.used - HOLD);
            }
        }
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        for sapling in mem::take(&mut self.nodes).into_iter().flatten() {
            // SAFETY: never published (`settle` takes published ones out), so nobody else knows the memory.
            unsafe { sapling.memory.free() };
        }
    }
}

/// Refcache's last word on a node: no slot was used for a whole epoch, and the parent's slot has just become
/// empty, by the same compare-and-swap that made sure of nobody having entered meanwhile.
///
/// # Safety
/// Called by Refcache only, once, for a node made by `Memory::init`.
pub(crate) unsafe fn collapse(refcache: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    let node = header.cast::<Node>();
    // SAFETY: the header is the node's first field, the node is initialised and now ours alone; its parent, whose
    // used slot we were until just now, waits for this decrement; the counters live as long as the root.
    unsafe {
        let Node { parent, counters, .. } = *node.as_ref();
        counters.as_ref().collapsed(pin);
        Memory::of(node).free();
        match parent {
            Some(parent) => refcache.adjust(pin, parent.cast(), -1),
            None => drop(Arc::<NodeCounters>::from_raw(counters.as_ptr())),
        }
    }
}
