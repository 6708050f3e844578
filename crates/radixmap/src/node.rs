//! Nodes, and the way from a key to its slot. Their memory is described in [`crate::memory`].

use core::iter;
use core::ops::Range;
use core::ptr::{self, NonNull};

use sync::atomic::{AtomicU64, Ordering, fence};

use crate::allocate::OutOfMemory;
use crate::here::Here;
use crate::levels::{FANOUT, GROUP, slot_index, slot_keys};
use crate::memory::{Hangs, Links, Memory, Node};
use crate::section::{Slots, folds_at};
use crate::slot::{Slot, Word};
use crate::stats::NodeCounters;

/// A node that stays in place for `'p`: while its map lives (the root), or while the caller is pinned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRef<'p> {
    slots: &'p Slots,
    node: NonNull<Node>,
    level: u32,
}

/// The target of a slot.
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
        // SAFETY: the caller's promise.
        unsafe { Self::of(Memory::of(node), level) }
    }

    /// Makes the reference without reading the node.
    ///
    /// # Safety
    /// As for `new`.
    #[inline(always)]
    pub unsafe fn of(memory: Memory, level: u32) -> Self {
        // SAFETY: the caller's promise. The slots stay as long as their node.
        let slots = unsafe { memory.slots.as_ref() };
        Self { slots, node: memory.node, level }
    }

    /// Returns the node's level. The root has the highest level, a leaf has 0.
    #[inline(always)]
    pub fn level(self) -> u32 {
        self.level
    }

    /// Returns the node if it is a leaf, in a form that tells the compiler the level.
    #[inline(always)]
    pub fn leaf(self) -> Option<Self> {
        (self.level == 0).then_some(Self { level: 0, ..self })
    }

    pub fn memory(self) -> NonNull<Node> {
        self.node
    }

    #[inline(always)]
    pub fn links(self) -> &'p Links {
        // SAFETY: the node stays for `'p`.
        unsafe { &self.node.as_ref().links }
    }

    /// Returns the annex's first part.
    #[inline(always)]
    pub fn words(self) -> &'p [AtomicU64; 3] {
        // SAFETY: the node stays for `'p`.
        unsafe { &self.node.as_ref().words }
    }

    /// Returns the node whose slot leads to this one, or `None` for the root.
    pub fn parent(self) -> Option<Self> {
        match self.links().above.get() {
            // SAFETY: the parent stays as long as this node, which is one of its used slots.
            Hangs::In(parent) => Some(unsafe { Self::new(parent, self.level + 1) }),
            Hangs::Root(_) => None,
        }
    }

    /// Tells Refcache not to use the parent's slot from now on.
    pub fn unname(self) {
        // SAFETY: the node stays for `'p`.
        unsafe { Memory::unname(self.node) }
    }

    pub fn counters(self) -> &'p NodeCounters {
        // SAFETY: the nodes above stay as long as this one, as in `parent`, and the root keeps the counters.
        unsafe { self.links().above.counters().as_ref() }
    }

    /// Records that the slots of an upper node that `keys`, a range inside it, touches may be used from now
    /// on. Relaxed: a core that must not miss them holds them, or has the map alone, and so comes after the
    /// core that unlocked them.
    #[inline(always)]
    pub fn touch(self, keys: &Range<u64>) {
        if self.level > 0 {
            self.touch_above(keys);
        }
    }

    #[inline(never)]
    fn touch_above(self, keys: &Range<u64>) {
        let Range { start, end } = self.indices(keys);
        let groups = u64::MAX << (start / GROUP) & u64::MAX >> (u64::BITS as usize - 1 - (end - 1) / GROUP);
        let touched = &self.links().bits[0];
        // Bits are only added, and once they are all set the line is only read.
        if touched.load(Ordering::Relaxed) & groups != groups {
            touched.fetch_or(groups, Ordering::Relaxed);
        }
    }

    /// Returns a bit for each group of slots that may ever have been used. For a leaf, which is searched as a
    /// whole, returns all bits.
    #[inline(always)]
    pub fn touched(self) -> u64 {
        match self.level {
            0 => u64::MAX,
            _ => self.links().bits[0].load(Ordering::Relaxed),
        }
    }

    /// Returns the address of the slots.
    #[inline(always)]
    pub fn address(self) -> usize {
        ptr::from_ref(self.slots).expose_provenance()
    }

    /// Returns the slot that covers `key`.
    #[inline(always)]
    pub fn slot(self, key: u64) -> &'p Slot {
        &self.slots.0[slot_index(key, self.level)]
    }

    /// Makes sure that `second` can be stored here. One word for all slots is for leaves only, because other
    /// nodes are few.
    #[inline(always)]
    pub fn fit(self, second: u64) -> Result<(), OutOfMemory> {
        match self.level {
            0 => self.links().side.fit(second),
            _ => self.links().side.widen(second),
        }
    }

    /// Makes sure that any second words can be stored here.
    #[inline(always)]
    pub fn widen(self) -> Result<(), OutOfMemory> {
        self.links().side.widen(0)
    }

    /// Returns the second word of slot `index`, which the caller holds and which has `word` and no child.
    #[inline(always)]
    pub fn second(self, index: usize, word: Word) -> u64 {
        if word.is_wide() { self.links().side.get(index) } else { 0 }
    }

    /// Returns the second words, if each slot has one of its own.
    #[inline(always)]
    pub fn seconds(self) -> &'p [AtomicU64] {
        self.links().side.each()
    }

    /// Stores the second word of the slots of `keys`, which the caller holds. The caller has made sure of the
    /// side.
    #[inline(always)]
    pub fn set_second(self, keys: &Range<u64>, second: u64) {
        self.links().side.set(self.indices(keys), second);
    }

    /// Returns whether `second` is the second word of all WIDE slots that were read before. Acquire: pairs
    /// with the Release of a core that unlocked such a slot with another second word, and made the side a
    /// frame first.
    pub fn still_has_one(self, second: u64) -> bool {
        fence(Ordering::Acquire);
        self.links().side.is_one(second)
    }

    /// Returns whether any second words can be stored here.
    #[inline(always)]
    pub fn is_wide(self) -> bool {
        self.links().side.is_frame()
    }

    /// Reads `slot`, a slot of this node, or its section, and enters the child if there is one.
    #[inline(always)]
    pub fn step(self, here: &Here<'p>, slot: &'p Slot) -> Step<'p> {
        match slot.seen() {
            word if word.is_living_child() => Step::Child(self.child(word)),
            word if word.is_settled() => Step::Slot(word),
            _ => match self.entered(here, slot) {
                word if word.is_living_child() => Step::Child(self.child(word)),
                word => Step::Slot(word),
            },
        }
    }

    /// Returns the child in a slot that has `word`, which was entered.
    #[inline(always)]
    fn child(self, word: Word) -> Self {
        let node = ptr::with_exposed_provenance_mut::<Node>(word.address());
        // SAFETY: `publish` stored the address of an initialised node in the word that we read with Acquire.
        // We have a loan and the child was not dying when we read the word (`enter` revives), so Refcache
        // cannot free it before the loan ends. The slot changes only after the child's death. The owner of a
        // `NodeRef` keeps the loan.
        unsafe { Self::new(NonNull::new_unchecked(node), self.level - 1) }
    }

    /// Returns the word of `slot`, which was silent, or had a child that was dying.
    #[cold]
    #[inline(never)]
    fn entered(self, here: &Here<'p>, slot: &'p Slot) -> Word {
        self.slots.enter(self.index_of(slot), here.pin)
    }

    /// Makes `self`, a node that no other core can see, the child in `slot`, which the caller holds.
    pub fn publish(self, slot: &Slot) {
        slot.publish(self.node.as_ptr().expose_provenance());
    }

    /// Returns the indices of the slots that `keys`, a range inside this node, touches.
    #[inline(always)]
    pub fn indices(self, keys: &Range<u64>) -> Range<usize> {
        match keys.is_empty() {
            true => 0..0,
            false => slot_index(keys.start, self.level)..slot_index(keys.end - 1, self.level) + 1,
        }
    }

    /// Returns the keys of the slot that covers `key`.
    pub fn span(self, key: u64) -> Range<u64> {
        let keys = slot_keys(self.level);
        let start = key & !(keys - 1);
        start..start + keys
    }

    /// Returns the keys of slot `index`, in a node that has `key`.
    #[inline(always)]
    pub fn slot_span(self, index: usize, key: u64) -> Range<u64> {
        let keys = slot_keys(self.level);
        let base = key & !(FANOUT as u64 * keys - 1);
        base + index as u64 * keys..base + (index as u64 + 1) * keys
    }

    /// Returns those of `keys` that are in the slot of the first.
    #[inline(always)]
    pub fn of_slot(self, keys: Range<u64>) -> Range<u64> {
        keys.start..keys.end.min(self.span(keys.start).end)
    }

    /// Returns whether `keys`, a range inside this node, covers every slot that it touches as a whole.
    #[inline(always)]
    pub fn is_aligned(self, keys: &Range<u64>) -> bool {
        (keys.start | keys.end) & (slot_keys(self.level) - 1) == 0
    }

    /// Returns the indices of the slots that `keys`, a range inside this node, covers as a whole.
    #[inline(always)]
    pub fn whole_indices(self, keys: &Range<u64>) -> Range<usize> {
        let (all, within) = (self.indices(keys), slot_keys(self.level) - 1);
        let cut_at_end = usize::from(keys.end & within != 0);
        all.start + usize::from(keys.start & within != 0)..all.end - cut_at_end.min(all.len())
    }

    /// Returns all slots.
    #[inline(always)]
    pub fn slots(self) -> &'p Slots {
        self.slots
    }

    /// Stores `word` in `slots`, which the caller holds or no other core can see: see [`Slots::set`].
    #[inline(always)]
    pub fn set_slots(self, slots: Range<usize>, word: Word, folds: bool) {
        self.slots.set(slots, word, folds && word.can_fold() && folds_at(self.level));
    }

    /// Locks the slots of `keys`, of a node that no other core can see yet. Slots that `keys` covers in part
    /// get words of their own.
    pub fn hold_slots(self, keys: &Range<u64>) {
        let (all, whole) = (self.indices(keys), self.whole_indices(keys));
        let start = whole.start.min(all.end);
        let end = whole.end.max(start);
        for slots in [all.start..start, start..end, end..all.end] {
            self.slots.try_lock_run(slots);
        }
    }

    /// Returns the index of a slot of this node.
    #[inline(always)]
    fn index_of(self, slot: &Slot) -> usize {
        (ptr::from_ref(slot).addr() - ptr::from_ref(self.slots).addr()) / size_of::<Slot>()
    }

    /// Returns the addresses of its frames: the slots, and the side if there is one.
    pub fn frames(self) -> impl Iterator<Item = usize> {
        iter::once(ptr::from_ref(self.slots).addr()).chain(self.links().side.address())
    }

    /// Calls `count`, unless `by` is 0.
    #[inline(always)]
    pub fn count_if_changed(self, here: &Here<'p>, by: i64) {
        if by != 0 {
            self.count(here, by);
        }
    }

    /// Adds `by` to Refcache's count of used slots and holds (see [`crate::leaf`]).
    ///
    /// The caller holds the slots concerned (or is making or discarding the node) and reports every
    /// transition once: the count keeps the memory of all parents alive.
    #[inline(always)]
    pub fn count(self, here: &Here<'p>, by: i64) {
        // SAFETY: the node is alive for `'p` and belongs to this domain. The sum of all deltas is the number
        // of used slots and holds, by the contract above.
        unsafe { here.refcache.adjust(here.pin, self.node.cast(), by) }
    }

    /// Returns the lowest node, this one or below it, that covers all of `keys`.
    #[inline]
    pub fn descend(self, here: &Here<'p>, keys: &Range<u64>) -> Self {
        let differing = keys.start ^ (keys.end - 1);
        let mut node = self;
        while node.level() > 0 && differing < slot_keys(node.level()) {
            match node.step(here, node.slot(keys.start)) {
                Step::Child(child) => node = child,
                Step::Slot(_) => break,
            }
        }
        node
    }

    /// Shows the node and all nodes below it to `visit`, without a lock. A node that comes or goes meanwhile
    /// may be missed.
    pub fn each_below(self, here: &Here<'p>, visit: &mut dyn FnMut(Self)) {
        visit(self);
        if self.level() == 0 {
            return;
        }
        for slot in &self.slots().0 {
            if slot.held().is_child()
                && let Step::Child(child) = self.step(here, slot)
            {
                child.each_below(here, visit);
            }
        }
    }
}
