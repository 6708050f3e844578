//! The life of nodes, and so the tree's shape: a folded slot expands into a child, a child folds back, an
//! empty one collapses.
//!
//! ```text
//!            expand: the slot is held                       collapse: no slot was used for an epoch
//!   empty or value, LOCK ──────────────▶ child ──────────────▶ child, DYING ──────────────▶ empty
//!                        one store by            Refcache, when       Refcache, by CAS;
//!                        the holder              the count is 0       then `collapse` runs
//! ```
//! A node's count is the number of its used slots (a value or a child, but not a lock) and, for a
//! [leaf](crate::leaf), of its holds. The children hold their parent by the slots that they are in. So nodes
//! are freed from the leaves up, one level every few epochs, and a root, which its map holds, is freed last.
//!
//! ```text
//!            fold: all slots of the child are held
//!   child, DYING or not ──── CAS by the holder ────▶ value, LOCK         and then each slot of the child ────▶ gone
//! ```
//! A core that waits at a slot of the child, or comes to it by an old word of the parent's slot, finds the
//! slot gone and looks at the parent's slot again. The child goes to Refcache like any unused node, but
//! without the parent's slot as its name, because that slot has another word.
//!
//! 1. No core sees a new subtree before it is complete, locked where its maker will hold it, and published by
//!    one store.
//! 2. Each transition of each slot is counted once: by the slot's holder (empty to value, or value to empty),
//!    by the expander (empty to child), or by `collapse` (child to empty).
//! 3. `collapse` has the node to itself. The count was 0 for an epoch, and no core that entered before has
//!    kept its loan through it. A core that came later cleared `DYING`, and then Refcache's CAS failed. Or it
//!    folded the node, and told Refcache to wait (`unname`). A core that came after the fold did not find the
//!    node.
//! 4. A folder counts its value in the parent before `collapse` stops counting the child there. So the parent
//!    stays as long as the child, for which other cores may need it.
//! 5. Nothing is used in a folded node: the folder subtracts its slots when they are gone. It has no holds
//!    either: the folder has made the holders release them.

use alloc::sync::Arc;
use core::mem;
use core::ptr::NonNull;

use percore::Pinned;
use refcache::{Header, Refcache};

use crate::allocate::OutOfMemory;
use crate::here::Here;
use crate::levels::{FANOUT, TOP};
use crate::memory::{Above, Hangs, Memory, Node};
use crate::node::NodeRef;
use crate::parts::Part;
use crate::slot::Word;
use crate::stats::NodeCounters;
use crate::value::{PartOf, are_alike};

/// The count with which every node starts. `settle` subtracts the unused slots, so a node whose slots stay
/// empty falls to zero like any other, and only then does Refcache review it.
pub(crate) const HOLD: i64 = FANOUT as i64;

/// The root of a map. The map holds it with one count, and every core with a reference to the map may read
/// it.
#[derive(Debug)]
pub(crate) struct Root {
    memory: Memory,
    discarded: bool,
}

// SAFETY: nodes consist of atomics, of fields that never change, and of a Refcache header, which is `Send`
// and `Sync`.
unsafe impl Send for Root {}
// SAFETY: as above.
unsafe impl Sync for Root {}

impl Root {
    /// Makes an empty root, which owns a reference of `counters`.
    pub fn new(pin: &Pinned, counters: Arc<NodeCounters>) -> Result<Self, OutOfMemory> {
        let memory = Memory::allocate_empty()?;
        counters.created(pin);
        // SAFETY: an Arc's pointer is never null.
        let counters = unsafe { NonNull::new_unchecked(Arc::into_raw(counters).cast_mut()) };
        // SAFETY: fresh memory, which `collapse` frees after `discard`.
        unsafe { memory.init(Header::new(1, None, collapse), Above::root(counters), TOP) };
        Ok(Self { memory, discarded: false })
    }

    #[inline(always)]
    pub fn node(&self) -> NodeRef<'_> {
        // SAFETY: the map's count keeps the root until `discard`, which needs the root exclusively.
        unsafe { NodeRef::of(self.memory, TOP) }
    }

    pub fn is_discarded(&self) -> bool {
        self.discarded
    }

    /// Drops the map's count. `self` must not be used any more.
    pub fn discard(&mut self, here: &Here<'_>) {
        self.discarded = true;
        self.node().count(here, -1);
    }
}

/// Replaces `part.slot`, which the caller holds and which had `word`, by a child (and, along the ends of
/// `part.keys`, by grandchildren), so that the caller holds exactly `part.keys` and nothing else of the slot.
/// Returns the child.
///
/// The whole subtree is built in private, its slots locked where the caller will hold them, and then
/// published by one store. If memory runs out no other core has seen anything, and the caller holds the slot
/// as it was.
pub(crate) fn expand<'p>(here: &Here<'p>, part: &Part<'p>, word: Word) -> Result<NodeRef<'p>, OutOfMemory> {
    let mut fresh = Fresh::default();
    let seed = Seed { word: word.unlocked(), second: part.second(word), part: here.part };
    let child = fresh.grow(part, &seed)?;
    if !word.is_used() {
        // This comes before any core can see the child, or take it away again.
        part.node.count(here, 1);
        part.node.touch(&part.keys);
    }
    child.publish(part.slot);
    fresh.settle(here);
    Ok(child)
}

/// Replaces `node`, all slots of which the caller holds, by a value in `part.slot`, its parent's slot, which
/// the caller holds from now on. If there is no memory for the second word, nothing has changed.
pub(crate) fn fold<'p>(
    here: &Here<'p>,
    node: NodeRef<'p>,
    part: &Part<'p>,
    main: u64,
    second: u64,
) -> Result<(), OutOfMemory> {
    if second != 0 {
        part.node.fit(second)?;
        part.set_second(second);
    }
    let used = FANOUT - node.slots().count_unused(0..FANOUT);
    part.node.count(here, 1);
    node.unname();
    part.slot.adopt(main, second != 0);
    node.slots().bury();
    node.count(here, -(used as i64));
    Ok(())
}

/// Makes an empty child in the slot of `part`, which is empty and which the caller holds. That unlocks the
/// slot. The caller counts the child in the parent, and subtracts the child's `HOLD` when it has told of the
/// slots that it used there.
pub(crate) fn plant_empty<'p>(here: &Here<'p>, part: &Part<'p>) -> Result<NodeRef<'p>, OutOfMemory> {
    let memory = Memory::allocate_empty()?;
    // SAFETY: fresh memory, which is freed by `collapse`.
    let node = unsafe { init(memory, part) };
    node.counters().created(here.pin);
    node.publish(part.slot);
    Ok(node)
}

/// The word for the slots of new nodes: that of the expanded slot, or in a leaf the keys' parts of it.
struct Seed {
    word: Word,
    second: u64,
    part: PartOf,
}

impl Seed {
    /// Allocates memory for a node of this level.
    fn allocate(&self, level: u32) -> Result<Memory, OutOfMemory> {
        let main = self.word.main();
        match self.word.is_used() {
            false => Memory::allocate_empty(),
            true if level > 0 || are_alike(self.part, main, self.second) => Memory::allocate_alike(self.word),
            true => {
                Memory::allocate(|index| self.word.with_main((self.part)(main, self.second, index as u64)))
            }
        }
    }
}

/// Initialises a node for the slot of `part`, which counts `HOLD` used slots.
///
/// # Safety
/// The memory is fresh, and the caller frees it after the last use of the node.
unsafe fn init<'p>(memory: Memory, part: &Part<'_>) -> NodeRef<'p> {
    let (parent, level) = (part.node, part.node.level() - 1);
    let header = Header::new(HOLD, Some(NonNull::from(part.slot.weak())), collapse);
    // SAFETY: the caller's promise.
    unsafe {
        memory.init(header, Above::node(parent.memory()), level);
        NodeRef::of(memory, level)
    }
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
    /// Makes a child for the slot of `part`. Every slot has its part of `seed`, those in `part.keys` are
    /// locked, and those that they cover in part have children in turn.
    fn grow(&mut self, part: &Part<'p>, seed: &Seed) -> Result<NodeRef<'p>, OutOfMemory> {
        let at = self.len;
        let node = self.plant(part, seed)?;
        for end in node.ends(&part.keys) {
            self.grow(&end, seed)?.publish(end.slot);
            node.touch(&end.keys);
            if let (false, Some(sapling)) = (seed.word.is_used(), &mut self.nodes[at]) {
                sapling.used += 1;
            }
        }
        Ok(node)
    }

    /// Makes one node for `grow`.
    fn plant(&mut self, part: &Part<'p>, seed: &Seed) -> Result<NodeRef<'p>, OutOfMemory> {
        let memory = seed.allocate(part.node.level() - 1)?;
        // SAFETY: fresh memory. It is freed by `Drop` before publication or by `collapse` long after.
        let node = unsafe { init(memory, part) };
        node.hold_slots(&part.keys);
        let used = if seed.word.is_used() { HOLD } else { 0 };
        if seed.word.is_used() {
            node.touch(&part.node.span(part.keys.start));
        }
        self.nodes[self.len] = Some(Sapling { memory, node, used });
        self.len += 1;
        if seed.word.is_wide() {
            node.fit(seed.second)?;
        }
        Ok(node)
    }

    /// Releases the nodes of a subtree that is published.
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
            // SAFETY: never published (`settle` takes published ones out), so no other core has a pointer to
            // the memory.
            unsafe { sapling.memory.free() };
        }
    }
}

/// Frees a node, as its last reviewer in Refcache. No slot was used for a whole epoch, and the parent's slot
/// has just become empty, by the same compare-and-swap that made sure that no core had entered meanwhile.
///
/// # Safety
/// Called by Refcache only, once, for a node that has this function in its header.
unsafe fn collapse(refcache: &Refcache, pin: &Pinned, header: NonNull<Header>) {
    let node = header.cast::<Node>();
    // SAFETY: the header is the node's first field, and the node is initialised and ours alone now. Its
    // parent, one of whose used slots it was until just now, waits for this decrement, and so does everything
    // above. The root owns the counters.
    unsafe {
        let above = node.as_ref().links.above;
        above.counters().as_ref().collapsed(pin);
        Memory::of(node).free();
        match above.get() {
            Hangs::In(parent) => refcache.adjust(pin, parent.cast(), -1),
            Hangs::Root(counters) => drop(Arc::<NodeCounters>::from_raw(counters.as_ptr())),
        }
    }
}
