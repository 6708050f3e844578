//! Nodes: how a key finds its slot. Where they live is said in [`crate::memory`].

use alloc::sync::Arc;
use core::iter;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::slice;

use percore::Pinned;

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

/// Slots that are looked at together.
const GROUP: usize = 8;

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
    pub fn discard(&mut self, here: &Here<'_>) {
        self.discarded = true;
        self.node().count(here, -1);
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

    /// Makes sure that `second` can be stored here. One word for all is for leaves: other nodes are few.
    pub fn fit(self, second: u64) -> Result<(), OutOfMemory> {
        match self.level {
            0 => self.links().side.fit(second),
            _ => self.links().side.widen(second),
        }
    }

    /// Makes sure that any second words can be stored here.
    pub fn widen(self) -> Result<(), OutOfMemory> {
        self.links().side.widen(0)
    }

    /// Whether any second words can be stored here.
    pub fn is_wide(self) -> bool {
        self.links().side.is_frame()
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
        self.picked(keys, |slots| Some(one(slots.start)))
    }

    /// The same without those that `passes` says yes to.
    #[inline(always)]
    pub fn parts_without(
        self,
        keys: Range<u64>,
        passes: impl Fn(&Slot) -> bool,
    ) -> impl Iterator<Item = Part<'p>> {
        self.picked(keys, move |slots| {
            let at = self.slots.0[slots.clone()].iter().position(|slot| !passes(slot))?;
            Some(one(slots.start + at))
        })
    }

    /// The used ones, for the holder of all: neighbours in a leaf that say the same come as one part, if it `joins` them.
    #[inline(always)]
    pub fn used_parts(
        self,
        keys: Range<u64>,
        joins: impl Fn(u64, u64) -> bool,
    ) -> impl Iterator<Item = Part<'p>> {
        self.picked(keys, move |slots| {
            let first = slots.start + first_used(&self.slots.0[slots.clone()])?;
            let (word, second) = self.words(first);
            let joins = self.level == 0 && joins(word.main(), second);
            let same = |&index: &usize| joins && self.words(index) == (word, second);
            let more = (first + 1..slots.end).take_while(same).count();
            Some(first..first + 1 + more)
        })
    }

    /// The runs of slots that `pick` picks, each from what is left.
    #[inline(always)]
    fn picked(
        self,
        keys: Range<u64>,
        pick: impl Fn(Range<usize>) -> Option<Range<usize>>,
    ) -> impl Iterator<Item = Part<'p>> {
        let shift = LEVEL_BITS * self.level;
        let mut left = match keys.is_empty() {
            true => 0..0,
            false => slot_index(keys.start, self.level)..slot_index(keys.end - 1, self.level) + 1,
        };
        let base = (keys.start >> shift) - left.start as u64;
        iter::from_fn(move || {
            let run = if left.is_empty() { None } else { pick(left.clone()) }?;
            left.start = run.end;
            let all = (base + run.start as u64) << shift..(base + run.end as u64) << shift;
            let keys = all.start.max(keys.start)..all.end.min(keys.end);
            Some(Part { node: self, slot: &self.slots.0[run.start], whole: keys == all, keys })
        })
    }

    /// What a slot says that the caller holds.
    #[inline(always)]
    fn words(self, index: usize) -> (Word, u64) {
        let word = self.slots.0[index].held();
        (word, if word.is_value() && word.is_wide() { self.links().side.get(index) } else { 0 })
    }

    /// The slot that covers `keys`, which it covers alone.
    pub fn part(self, keys: Range<u64>) -> Part<'p> {
        let whole = keys.end - keys.start == slot_keys(self.level);
        Part { node: self, slot: self.slot(keys.start), keys, whole }
    }

    /// All of the slot that `part` is of.
    pub fn whole(self, part: &Part<'p>) -> Part<'p> {
        let span = slot_keys(self.level);
        let start = part.keys.start & !(span - 1);
        self.part(start..start + span)
    }

    /// Whether `keys`, a range inside this node, touches no slot in part only.
    #[inline(always)]
    pub fn is_aligned(self, keys: &Range<u64>) -> bool {
        (keys.start | keys.end) & (slot_keys(self.level) - 1) == 0
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

fn one(index: usize) -> Range<usize> {
    index..index + 1
}

/// The first used one. Most slots of most nodes are empty, so those are looked at in groups.
#[inline(always)]
fn first_used(slots: &[Slot]) -> Option<usize> {
    if slots[0].held().is_used() {
        return Some(0);
    }
    let all = |group: &[Slot]| group.iter().fold(Word::EMPTY, |all, slot| all.or(slot.held()));
    let groups = slots.chunks_exact(GROUP).take_while(|group| !all(group).is_used()).count();
    let rest = slots[groups * GROUP..].iter().position(|slot| slot.held().is_used());
    rest.map(|at| groups * GROUP + at)
}

/// A slot, and the part of a range that falls on it; or a run of slots of a leaf that say the same.
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

    /// Stores the second word of the slots, which the caller holds, having made sure of the side.
    #[inline(always)]
    pub fn set_second(&self, second: u64) {
        (0..self.slots().len()).for_each(|at| self.node.links().side.set(self.index() + at, second));
    }

    /// The same slots of another node.
    #[inline(always)]
    pub fn twin<'t>(&self, node: NodeRef<'t>) -> Part<'t> {
        Part { node, slot: node.slot(self.keys.start), keys: self.keys.clone(), whole: self.whole }
    }

    /// The slots of a run in a leaf, or the only one.
    #[inline(always)]
    pub fn slots(&self) -> &[Slot] {
        match self.node.level {
            0 => self.node.leaf_slots(self.keys.clone()),
            _ => slice::from_ref(self.slot),
        }
    }

    #[inline(always)]
    fn index(&self) -> usize {
        slot_index(self.keys.start, self.node.level)
    }
}
