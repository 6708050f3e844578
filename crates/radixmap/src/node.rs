//! Nodes: how a key finds its slot. Where they live is said in [`crate::memory`].

use alloc::sync::Arc;
use core::iter;
use core::ops::Range;
use core::ptr::{self, NonNull};

use percore::Pinned;
use refcache::Refcache;

use crate::leaf::Annex;
use crate::lock::Here;
use crate::memory::{Links, Memory, Node, Slots};
use crate::slot::{Slot, Word};
use crate::stats::NodeCounters;
use crate::{KEY_BITS, OutOfMemory};

/// Key bits that one level consumes.
const LEVEL_BITS: u32 = if cfg!(loom) { 1 } else { 9 };
/// Slots in a node.
pub(crate) const FANOUT: usize = 1 << LEVEL_BITS;
/// The root's level; leaves are level 0.
pub(crate) const TOP: u32 = KEY_BITS / LEVEL_BITS - 1;

/// How many keys one slot of a node at `level` covers.
#[inline(always)]
pub(crate) const fn slot_keys(level: u32) -> u64 {
    1 << (LEVEL_BITS * level)
}

/// Which slot of a node at `level` covers `key`.
#[inline(always)]
pub(crate) const fn slot_index(key: u64, level: u32) -> usize {
    (key >> (LEVEL_BITS * level)) as usize & (FANOUT - 1)
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
        let memory = Memory::allocate(|_| Word::EMPTY)?;
        counters.created(pin);
        // SAFETY: an Arc's pointer is never null.
        let counters = unsafe { NonNull::new_unchecked(Arc::into_raw(counters).cast_mut()) };
        // SAFETY: fresh memory, which `collapse` frees after `discard`.
        unsafe { memory.init(1, None, counters, TOP) };
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
    /// # Safety
    /// The node is initialised, has this level, and stays for `'p`.
    #[inline(always)]
    pub unsafe fn new(node: NonNull<Node>, level: u32) -> Self {
        // SAFETY: the caller's promise; the slots stay as long as their node.
        let slots = unsafe { node.as_ref().links.slots.as_ref() };
        Self { slots, node, level }
    }

    /// The root has the highest level, a leaf has 0.
    #[inline(always)]
    pub fn level(self) -> u32 {
        self.level
    }

    pub fn memory(self) -> NonNull<Node> {
        self.node
    }

    #[inline(always)]
    fn links(self) -> &'p Links {
        // SAFETY: the node stays for `'p`.
        unsafe { &self.node.as_ref().links }
    }

    pub fn counters(self) -> &'p NodeCounters {
        // SAFETY: the root, which keeps the counters, stays as long as any node; the field never changes.
        unsafe { self.links().counters.as_ref() }
    }

    #[inline(always)]
    pub fn annex(self) -> Annex<'p> {
        // SAFETY: the node stays for `'p`.
        let node = unsafe { self.node.as_ref() };
        Annex { words: &node.words, cores: &node.links.cores }
    }

    /// Where the slots are.
    #[inline(always)]
    pub fn address(self) -> usize {
        ptr::from_ref(self.slots).expose_provenance()
    }

    /// The slot that covers `key`.
    #[inline(always)]
    pub fn slot(self, key: u64) -> &'p Slot {
        &self.slots.0[slot_index(key, self.level)]
    }

    /// Makes sure that second words can be stored here. A new side says `second` for every slot.
    pub fn widen(self, second: u64) -> Result<(), OutOfMemory> {
        self.links().side.ensure(second)
    }

    /// Reads `slot`, one of ours, and enters the child if there is one.
    #[inline(always)]
    pub fn step(self, here: &Here<'p>, slot: &'p Slot) -> Step<'p> {
        let word = slot.enter(here.pin);
        if !word.is_child() {
            return Step::Slot(word);
        }
        let node = ptr::with_exposed_provenance_mut::<Node>(word.address());
        // SAFETY: `publish` stored the address of an initialised node in the word that we read with Acquire. We have a
        // loan and the child was not dying when we read the word (`enter` revives), so Refcache cannot free it before
        // the loan ends; and only its death lets anybody change the slot. Whoever keeps a `NodeRef` keeps the loan.
        Step::Child(unsafe { Self::new(NonNull::new_unchecked(node), self.level - 1) })
    }

    /// Makes `self`, a node that nobody else can see, the child in `slot`, which the caller holds.
    pub fn publish(self, slot: &Slot) {
        slot.publish(self.node.as_ptr().expose_provenance());
    }

    /// The slots that `keys`, a range inside this node, touches: left to right.
    #[inline(always)]
    pub fn parts(self, keys: Range<u64>) -> impl Iterator<Item = Part<'p>> {
        let mut at = keys.start;
        let span = slot_keys(self.level);
        iter::from_fn(move || {
            let start = at;
            at = ((start | (span - 1)) + 1).min(keys.end);
            let keys = start..at;
            (start < at).then(|| Part { node: self, slot: self.slot(start), whole: at - start == span, keys })
        })
    }

    /// All of the slot that `part` is of.
    pub fn whole(self, part: &Part<'p>) -> Part<'p> {
        let span = slot_keys(self.level);
        let start = part.keys.start & !(span - 1);
        Part { node: self, slot: part.slot, keys: start..start + span, whole: true }
    }

    /// Every slot.
    pub fn slots(self) -> &'p [Slot] {
        &self.slots.0
    }

    /// Where its frames begin: the slots, and the side if there is one.
    pub fn frames(self) -> impl Iterator<Item = usize> {
        iter::once(ptr::from_ref(self.slots).addr()).chain(self.links().side.address())
    }

    /// The slots of `keys`, a range inside this leaf: they are never children.
    #[inline(always)]
    pub fn leaf_slots(self, keys: Range<u64>) -> &'p [Slot] {
        &self.slots.0[slot_index(keys.start, 0)..=slot_index(keys.end - 1, 0)]
    }

    /// `count`, unless there is nothing to tell.
    #[inline(always)]
    pub fn count_if_changed(self, here: &Here<'p>, by: i64) {
        if by != 0 {
            self.count(here, by);
        }
    }

    /// Tells Refcache that `by` more slots are used, or reasons given (see [`crate::leaf`]), than before.
    ///
    /// The caller holds the slots concerned (or is making or discarding the node) and reports every transition
    /// once: the count keeps the memory of our parent chain alive.
    #[inline(always)]
    pub fn count(self, here: &Here<'p>, by: i64) {
        // SAFETY: the node is alive for `'p` and belongs to this domain; the sum of all deltas is the number of
        // used slots and reasons, by the contract above.
        unsafe { here.refcache.adjust(here.pin, self.node.cast(), by) }
    }
}

/// A slot, and the part of a range that falls on it.
pub(crate) struct Part<'p> {
    pub node: NodeRef<'p>,
    pub slot: &'p Slot,
    pub keys: Range<u64>,
    /// The range covers the slot completely.
    pub whole: bool,
}

impl Part<'_> {
    /// The second word of the slot, which the caller holds and which says `word`.
    #[inline(always)]
    pub fn second(&self, word: Word) -> u64 {
        if word.is_wide() { self.node.links().side.get(self.index()) } else { 0 }
    }

    /// Stores the second word of the slot, which the caller holds, having made sure of the side.
    #[inline(always)]
    pub fn set_second(&self, second: u64) {
        self.node.links().side.set(self.index(), second);
    }

    #[inline(always)]
    fn index(&self) -> usize {
        slot_index(self.keys.start, self.node.level)
    }
}
