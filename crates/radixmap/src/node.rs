//! Nodes: where they live, and how a key finds its slot.
//!
//! ```text
//! parent's slot: word ──────────────▶ slots: 512 × 16 bytes, aligned to a page (two frames exactly)
//!                data ──▶ node: Refcache header | parent | slots | counters   (its own cache lines)
//! ```
//! A descent reads slots only. The node behind them is touched when the count of used slots changes, and then by
//! Refcache alone, so a count never dirties a line that a descent reads.

use alloc::alloc::{alloc, dealloc};
use alloc::sync::Arc;
use core::alloc::Layout;
use core::iter;
use core::ops::Range;
use core::ptr::{self, NonNull};

use percore::Pinned;
use refcache::{Header, Refcache};

use crate::lock::Here;
use crate::slot::{Slot, Word};
use crate::stats::NodeCounters;
use crate::{KEY_BITS, OutOfMemory};

/// Key bits that one level consumes.
pub(crate) const LEVEL_BITS: u32 = if cfg!(loom) { 1 } else { 9 };
/// Slots in a node.
pub(crate) const FANOUT: usize = 1 << LEVEL_BITS;
/// The root's level; leaves are level 0.
pub(crate) const TOP: u32 = KEY_BITS / LEVEL_BITS - 1;

/// How many keys one slot of a node at `level` covers.
#[inline(always)]
pub(crate) const fn slot_keys(level: u32) -> u64 {
    1 << (LEVEL_BITS * level)
}

type Slots = [Slot; FANOUT];

const SLOTS: Layout = match Layout::new::<Slots>().align_to(if cfg!(loom) { 64 } else { 4096 }) {
    Ok(layout) => layout,
    Err(_) => panic!("no layout for a node's slots"),
};
#[cfg(not(loom))]
const _: () = assert!(SLOTS.size() == 8192, "a node's slots fill two frames exactly");
const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "a slot's word holds a pointer");

/// The counted part of a node.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Node {
    /// Counts used slots. First, so that Refcache's pointer is ours.
    pub header: Header,
    /// The node that holds us in a used slot and so cannot go before us; none for the root.
    pub parent: Option<NonNull<Node>>,
    pub slots: NonNull<Slots>,
    /// Kept alive by the root, which goes last.
    pub counters: NonNull<NodeCounters>,
}

/// The memory of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    node: NonNull<Node>,
    slots: NonNull<Slots>,
}

impl Memory {
    /// Uninitialised memory.
    pub fn allocate() -> Result<Self, OutOfMemory> {
        let node = allocate::<Node>(Layout::new::<Node>())?;
        match allocate::<Slots>(SLOTS) {
            Ok(slots) => Ok(Self { node, slots }),
            Err(out_of_memory) => {
                // SAFETY: allocated above with this layout, and nobody else has the pointer.
                unsafe { dealloc(node.as_ptr().cast(), Layout::new::<Node>()) };
                Err(out_of_memory)
            }
        }
    }

    /// Makes a node of it, whose slots are what `slot` says of their index.
    ///
    /// # Safety
    /// The memory is fresh from `allocate`, and the caller frees it no sooner than the last use of the node.
    pub unsafe fn init<'p>(self, node: Node, level: u32, slot: impl Fn(usize) -> (Word, u64)) -> NodeRef<'p> {
        let slots = self.slots.cast::<Slot>();
        for index in 0..FANOUT {
            let (word, data) = slot(index);
            // SAFETY: inside the allocation, which is ours alone.
            unsafe { slots.add(index).write(Slot::new(word, data)) };
        }
        // SAFETY: the allocation is ours alone; its slots were just initialised.
        unsafe {
            self.node.write(node);
            NodeRef { slots: self.slots.as_ref(), node: self.node, level }
        }
    }

    /// The memory behind `node`.
    ///
    /// # Safety
    /// The node is initialised.
    pub unsafe fn of(node: NonNull<Node>) -> Self {
        // SAFETY: the caller's promise.
        Self { node, slots: unsafe { node.as_ref().slots } }
    }

    /// Gives it back.
    ///
    /// # Safety
    /// It came from `allocate`, and nobody uses it any more.
    pub unsafe fn free(self) {
        // SAFETY: both blocks were allocated with these layouts, and the caller vouches for the rest.
        unsafe {
            dealloc(self.slots.as_ptr().cast(), SLOTS);
            dealloc(self.node.as_ptr().cast(), Layout::new::<Node>());
        }
    }

    /// The counted part of a node in this memory, with `count` used slots.
    pub fn node(
        self,
        count: i64,
        parent: Option<(NodeRef<'_>, &Slot)>,
        counters: NonNull<NodeCounters>,
    ) -> Node {
        let weak = parent.map(|(_, slot)| NonNull::from(slot.weak()));
        Node {
            header: Header::new(count, weak, crate::fold::collapse),
            parent: parent.map(|(node, _)| node.node),
            slots: self.slots,
            counters,
        }
    }
}

fn allocate<T>(layout: Layout) -> Result<NonNull<T>, OutOfMemory> {
    // SAFETY: neither layout is of size zero.
    NonNull::new(unsafe { alloc(layout) }.cast()).ok_or(OutOfMemory)
}

/// The root of a map: held by it with one count, and read by everybody who has a reference to the map.
#[derive(Debug)]
pub(crate) struct Root {
    memory: Memory,
    discarded: bool,
}

// SAFETY: nodes consist of atomics, of fields that never change, and of a Refcache header, which is `Send` and `Sync`.
unsafe impl Send for Root {}
// SAFETY: as above.
unsafe impl Sync for Root {}

impl Root {
    /// An empty root, which owns a reference of `counters`.
    pub fn new(pin: &Pinned, counters: Arc<NodeCounters>) -> Result<Self, OutOfMemory> {
        let memory = Memory::allocate()?;
        counters.created(pin);
        let counters = Arc::into_raw(counters).cast_mut();
        // SAFETY: an Arc's pointer is never null.
        let node = memory.node(1, None, unsafe { NonNull::new_unchecked(counters) });
        // SAFETY: fresh memory, which `collapse` frees after `discard`.
        unsafe { memory.init(node, TOP, |_| (Word::EMPTY, 0)) };
        Ok(Self { memory, discarded: false })
    }

    #[inline(always)]
    pub fn node(&self) -> NodeRef<'_> {
        // SAFETY: the map's count keeps the root until `discard`, which needs the root exclusively.
        let slots = unsafe { self.memory.slots.as_ref() };
        NodeRef { slots, node: self.memory.node, level: TOP }
    }

    pub fn is_discarded(&self) -> bool {
        self.discarded
    }

    /// Gives up the map's count; `self` is not to be used any more.
    pub fn discard(&mut self, refcache: &Refcache, pin: &Pinned) {
        self.discarded = true;
        self.node().count(&Here::new(refcache, pin), -1);
    }
}

/// A node that stays where it is for `'p`: while its map lives (the root), or while the caller is pinned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRef<'p> {
    slots: &'p Slots,
    node: NonNull<Node>,
    level: u32,
}

/// What a slot leads to.
pub(crate) enum Step<'p> {
    Child(NodeRef<'p>),
    /// The slot itself: empty or a value, locked or not.
    Slot(Word),
}

impl<'p> NodeRef<'p> {
    /// The root has the highest level, a leaf has 0.
    #[inline(always)]
    pub fn level(self) -> u32 {
        self.level
    }

    pub fn counters(self) -> &'p NodeCounters {
        // SAFETY: the node stays for `'p`, and so does the root, which keeps the counters; the field never changes.
        unsafe { self.node.as_ref().counters.as_ref() }
    }

    /// The slot that covers `key`.
    #[inline(always)]
    pub fn slot(self, key: u64) -> &'p Slot {
        &self.slots[(key >> (LEVEL_BITS * self.level)) as usize & (FANOUT - 1)]
    }

    /// Reads `slot`, one of ours, and enters the child if there is one.
    #[inline(always)]
    pub fn step(self, here: &Here<'p>, slot: &'p Slot) -> Step<'p> {
        let word = slot.enter(here.pin);
        if !word.is_child() {
            return Step::Slot(word);
        }
        let slots = ptr::with_exposed_provenance::<Slots>(word.address());
        let node = ptr::with_exposed_provenance_mut::<Node>(slot.data() as usize);
        // SAFETY: `publish` stored both addresses of one initialised node before the word that we read with
        // Acquire. We have a loan and the child was not dying when we read the word (`enter` revives), so Refcache
        // cannot free it before the loan ends; and only its death lets anybody change the slot. Whoever keeps a
        // `NodeRef` keeps the loan.
        Step::Child(unsafe {
            Self { slots: &*slots, node: NonNull::new_unchecked(node), level: self.level - 1 }
        })
    }

    /// Makes `self`, a node that nobody else can see, the child in `slot`, which the caller holds.
    pub fn publish(self, slot: &Slot) {
        slot.publish(ptr::from_ref(self.slots).expose_provenance(), self.node.as_ptr().expose_provenance());
    }

    /// The slots that `keys`, a range inside this node, touches: left to right.
    #[inline(always)]
    pub fn parts(self, keys: Range<u64>) -> impl Iterator<Item = Part<'p>> {
        let mut at = keys.start;
        let span = slot_keys(self.level);
        iter::from_fn(move || {
            let start = at;
            at = ((start | (span - 1)) + 1).min(keys.end);
            (start < at).then(|| Part { slot: self.slot(start), keys: start..at, whole: at - start == span })
        })
    }

    /// All of the slot that `part` is of.
    pub fn whole(self, part: &Part<'p>) -> Part<'p> {
        let span = slot_keys(self.level);
        let start = part.keys.start & !(span - 1);
        Part { slot: part.slot, keys: start..start + span, whole: true }
    }

    /// The slots of `keys`, a range inside this leaf: they are never children.
    #[inline(always)]
    pub fn leaf_slots(self, keys: Range<u64>) -> &'p [Slot] {
        let index = |key: u64| key as usize & (FANOUT - 1);
        &self.slots[index(keys.start)..=index(keys.end - 1)]
    }

    /// Tells Refcache that `by` more slots are used than before.
    ///
    /// The caller holds the slots concerned (or is making or discarding the node) and reports every transition
    /// once: the count keeps the memory of our parent chain alive.
    #[inline(always)]
    pub fn count(self, here: &Here<'p>, by: i64) {
        // SAFETY: the node is alive for `'p` and belongs to this domain; the sum of all deltas is the number of
        // used slots, by the contract above.
        unsafe { here.refcache.adjust(here.pin, self.node.cast(), by) }
    }
}

/// A slot, and the part of a range that falls on it.
pub(crate) struct Part<'p> {
    pub slot: &'p Slot,
    pub keys: Range<u64>,
    /// The range covers the slot completely.
    pub whole: bool,
}
