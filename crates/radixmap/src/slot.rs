//! A slot: one word of state, one word of data; sixteen bytes at every level.
//!
//! ```text
//!            63                              6   4   3      2 1    0
//! word       [ value: 60 bits, or child's slots |-| DYING | kind | LOCK ]
//! data       [ value: 64 bits, or child's node                         ]
//! ```
//! The state table and the rules of who may write what are in [`crate::lock`].

use percore::Pinned;
use refcache::WeakWord;
use sync::atomic::{AtomicU64, Ordering};

const LOCK: u64 = 1;
const KIND: u64 = 0b110;
const VALUE: u64 = 0b010;
const CHILD: u64 = 0b100;
const VALUE_SHIFT: u32 = 4;
/// A child's slots are aligned to 64 bytes at least: the bits below belong to the tags.
const ADDRESS: u64 = !63;

/// What a slot's state word said when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    pub const EMPTY: Self = Self(0);

    fn value(low: u64) -> Self {
        debug_assert!(low >> (64 - VALUE_SHIFT) == 0, "the first word of a value has 60 bits");
        Self(low << VALUE_SHIFT | VALUE)
    }

    fn child(slots: usize) -> Self {
        debug_assert!(slots as u64 & !ADDRESS == 0);
        Self(slots as u64 | CHILD)
    }

    #[inline(always)]
    pub fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    #[inline(always)]
    pub fn is_used(self) -> bool {
        self.0 & KIND != 0
    }

    #[inline(always)]
    pub fn is_value(self) -> bool {
        self.0 & KIND == VALUE
    }

    #[inline(always)]
    pub fn is_child(self) -> bool {
        self.0 & KIND == CHILD
    }

    #[inline(always)]
    pub fn locked(self) -> Self {
        Self(self.0 | LOCK)
    }

    #[inline(always)]
    pub fn unlocked(self) -> Self {
        Self(self.0 & !LOCK)
    }

    /// The first word of the value that this state holds.
    #[inline(always)]
    pub fn low(self) -> u64 {
        self.0 >> VALUE_SHIFT
    }

    /// Where the child's slots are.
    #[inline(always)]
    pub fn address(self) -> usize {
        (self.0 & ADDRESS) as usize
    }
}

/// See the module.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    word: WeakWord,
    data: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 16, "a page's metadata is 16 bytes");

impl Slot {
    /// A slot of a node that nobody else can see yet.
    pub fn new(word: Word, data: u64) -> Self {
        Self { word: WeakWord(AtomicU64::new(word.0)), data: AtomicU64::new(data) }
    }

    /// The word through which Refcache takes the child away.
    pub fn weak(&self) -> &WeakWord {
        &self.word
    }

    /// The state as any traversal must read it: a dying child is revived, so the child may be entered until
    /// the caller unpins. Acquire (in `revive`): pairs with the Release in [`Slot::publish`].
    #[inline(always)]
    pub fn enter(&self, pin: &Pinned) -> Word {
        Word(self.word.revive(pin))
    }

    /// The state, for the holder of the lock, or for a child that the caller entered before. Relaxed: both know
    /// the slot's history already.
    #[inline(always)]
    pub fn held(&self) -> Word {
        Word(self.word.0.load(Ordering::Relaxed))
    }

    /// One try to set the lock bit of `seen`, which is unlocked and no child. Acquire: pairs with the Release in
    /// [`Slot::unlock`] and, for a slot that was emptied by a collapse, with Refcache's death of the child.
    #[inline(always)]
    pub fn try_lock(&self, seen: Word) -> bool {
        let locked = seen.locked().0;
        self.word.0.compare_exchange(seen.0, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Locks a slot of a leaf.
    #[inline(always)]
    pub fn lock(&self) {
        sync::lock_bit(&self.word.0, LOCK, percore::relax);
    }

    /// Clears the lock bit. Only the holder writes a locked word, so a store does. Release: pairs with the
    /// Acquire in [`Slot::try_lock`] and in `lock_bit`.
    #[inline(always)]
    pub fn unlock(&self) {
        self.word.0.store(self.held().unlocked().0, Ordering::Release);
    }

    /// The value's second word, or where the child's node is. Relaxed: ordered by whatever ordered the state word.
    #[inline(always)]
    pub fn data(&self) -> u64 {
        self.data.load(Ordering::Relaxed)
    }

    /// Stores a value into a slot that the caller holds; it stays locked. Relaxed: the unlock publishes.
    #[inline(always)]
    pub fn set(&self, low: u64, high: u64) {
        self.data.store(high, Ordering::Relaxed);
        self.word.0.store(Word::value(low).locked().0, Ordering::Relaxed);
    }

    /// Empties a slot that the caller holds; it stays locked. Relaxed: the unlock publishes.
    #[inline(always)]
    pub fn clear(&self) {
        self.word.0.store(Word::EMPTY.locked().0, Ordering::Relaxed);
    }

    /// Replaces the content of a slot that the caller holds by a child: that also unlocks it. Release: pairs
    /// with the Acquire in [`Slot::enter`], so whoever enters the child sees its slots.
    pub fn publish(&self, slots: usize, node: usize) {
        self.data.store(node as u64, Ordering::Relaxed);
        self.word.0.store(Word::child(slots).0, Ordering::Release);
    }
}
