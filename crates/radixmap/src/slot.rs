//! A slot, which is one word at every level.
//!
//! ```text
//!          63    62     61                            12 11  10   9   8      1  0
//! empty     0     f      0                              0  00   LOCK 0      1  0    f: FOLDED, its word stands for its section
//! value     v     f      v                              v  01   LOCK v      v  v    v: the value's main word
//! WIDE      v     f      v                              v  11   LOCK v      v  v
//! silent    0     0      0                              0  00    0   0      0  0    its section's first slot has its word
//! child     -   DYING    s       node's address / 128      10    0   0      1  0    s: the address's sign
//! gone      0     0      0                              0  10   LOCK 0      0  0    of a node that was folded
//! ```
//! The tags keep to bits that a machine's page-table entries leave to software (9 to 11 and 52 to 62), so
//! that a value may be laid out as such an entry. An empty slot is an entry that is not present, locked or
//! not. A value whose second word is not 0 is WIDE: the second word is in the node's [`side`](crate::side).
//! [`crate::section`] explains words that stand for a whole section. [`crate::lock`] has the table of states,
//! which says which cores may write each word.

use percore::Pinned;
use refcache::{DYING, KEPT, WeakWord};
use sync::atomic::{AtomicU64, Ordering, fence};

const LOCK: u64 = 1 << 9;
const VALUE: u64 = 1 << 10;
/// With VALUE, says that the value has a second word. Alone, says that the slot has a child.
const MORE: u64 = 1 << 11;
const KIND: u64 = VALUE | MORE;
const CHILD: u64 = MORE;
/// Set in an empty slot that is not silent. A child's word has it too, and Refcache leaves it there when the
/// child is freed.
const OWN: u64 = KEPT;
/// The word stands for its section. In a child's word, this bit is Refcache's mark of a dying child.
const FOLDED: u64 = DYING;
/// A machine that walks the word as a page-table entry takes it for present.
const WALKED: u64 = 1 << 0;

/// The bits of a main word that belong to the map.
pub const TAGS: u64 = LOCK | KIND | DYING;

/// The alignment of nodes.
pub(crate) const NODE_ALIGN: usize = 128;
/// Shifts an address so that its lowest bit that may be set comes to the first bit above the low tags.
const ADDRESS_SHIFT: u32 = (LOCK | KIND).ilog2() + 1 - NODE_ALIGN.ilog2();
/// Number of bits of a word above the sign bit of its address.
const ABOVE_SIGN: u32 = 2;

const _: () = assert!(DYING.leading_zeros() < ABOVE_SIGN, "a dying child's address is untouched");

/// The content of a slot when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// An empty slot with a word of its own.
    pub const EMPTY: Self = Self(OWN);
    /// A slot whose section's first slot has its word.
    pub const SILENT: Self = Self(0);
    /// The final word of each slot of a node that was folded. No core has its lock, and it counts as used, so
    /// that a core that looks without a lock sees a value.
    const GONE: Self = Self(LOCK | CHILD);

    /// Returns whether the slot, which has no child, has a word of its own that stands for no other slot.
    #[inline(always)]
    pub fn is_own(self) -> bool {
        self.above_value() > 0
    }

    /// Returns whether its section's first slot has its word.
    #[inline(always)]
    pub fn is_silent(self) -> bool {
        self == Self::SILENT
    }

    /// Returns whether its word stands for its section.
    #[inline(always)]
    pub fn is_folded(self) -> bool {
        self.above_value() < 0 && self.0 & KIND != CHILD
    }

    /// Returns whether the word, which is no child's, stands for a section.
    #[inline(always)]
    pub fn is_section(self) -> bool {
        self.above_value() < 0
    }

    /// Returns less than 0 if bit 62 is set, 0 if the slot is silent, and more than 0 in all other cases.
    #[inline(always)]
    fn above_value(self) -> i64 {
        const { assert!(FOLDED << 1 == 1 << 63) };
        (self.0 << 1) as i64
    }

    /// Returns whether it is unlocked, has no child, and has a word of its own.
    #[inline(always)]
    pub fn is_free(self) -> bool {
        self == Self::EMPTY || self.0 & (VALUE | LOCK | FOLDED) == VALUE
    }

    /// Returns whether the word may stand for a section. A machine needs an entry for each page that is
    /// present, so such words may not.
    #[inline(always)]
    pub fn can_fold(self) -> bool {
        self.0 & WALKED == 0
    }

    /// Returns the same value, or none, for a section.
    #[inline(always)]
    pub fn folded(self) -> Self {
        Self(self.0 | FOLDED)
    }

    /// Returns the same value, or none, for one slot.
    #[inline(always)]
    pub fn own(self) -> Self {
        Self(self.0 & !FOLDED)
    }

    #[inline(always)]
    pub fn value(main: u64, wide: bool) -> Self {
        Self(main | VALUE | if wide { MORE } else { 0 })
    }

    fn child(node: usize) -> Self {
        let word = Self((node as u64) << ADDRESS_SHIFT & !DYING | CHILD | OWN);
        debug_assert!(word.address() == node);
        word
    }

    #[inline(always)]
    pub fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    #[inline(always)]
    pub fn is_used(self) -> bool {
        self.0 & KIND != 0
    }

    /// Returns the bits that distinguish words: the bits of their kind, those of `mask` in their main words,
    /// and, if this word is wide, the lock bit. Not the bit for a section.
    #[inline(always)]
    pub fn telling(self, mask: u64) -> u64 {
        mask & !TAGS | KIND | if self.is_wide() { LOCK } else { 0 }
    }

    /// Returns those of `bits` in which it differs from `other`.
    #[inline(always)]
    pub fn differing(self, other: Self, bits: u64) -> u64 {
        (self.0 ^ other.0) & bits
    }

    #[inline(always)]
    pub fn is_value(self) -> bool {
        self.0 & VALUE != 0
    }

    /// Returns whether a slot that has no child has a value with a second word.
    #[inline(always)]
    pub fn is_wide(self) -> bool {
        self.0 & MORE != 0
    }

    #[inline(always)]
    pub fn is_child(self) -> bool {
        self.0 & (KIND | LOCK) == CHILD
    }

    /// Returns whether it has a child that is not marked.
    #[inline(always)]
    pub fn is_living_child(self) -> bool {
        self.0 & (KIND | LOCK | DYING) == CHILD
    }

    /// Returns whether a traversal may take it as it is: it is not silent, and has no dying child.
    #[inline(always)]
    pub fn is_settled(self) -> bool {
        !self.is_silent() && !self.is_dying_child()
    }

    /// Returns whether it has a child that is marked.
    #[inline(always)]
    pub fn is_dying_child(self) -> bool {
        self.0 & (KIND | LOCK | DYING) == CHILD | DYING
    }

    #[inline(always)]
    pub fn is_gone(self) -> bool {
        self == Self::GONE
    }

    #[inline(always)]
    pub fn locked(self) -> Self {
        Self(self.0 | LOCK)
    }

    #[inline(always)]
    pub fn locked_if(self, locked: bool) -> Self {
        Self(self.0 | if locked { LOCK } else { 0 })
    }

    #[inline(always)]
    pub fn unlocked(self) -> Self {
        Self(self.0 & !LOCK)
    }

    /// Returns the same kind of value with another main word.
    pub fn with_main(self, main: u64) -> Self {
        Self(self.0 & (TAGS & !FOLDED) | main)
    }

    /// Returns the main word of the value.
    #[inline(always)]
    pub fn main(self) -> u64 {
        self.0 & !TAGS
    }

    /// Returns the child's address.
    #[inline(always)]
    pub fn address(self) -> usize {
        let extended = (self.0 << ABOVE_SIGN) as i64 >> (ABOVE_SIGN + ADDRESS_SHIFT);
        extended as usize - (CHILD >> ADDRESS_SHIFT) as usize
    }
}

/// A slot: see the module.
#[derive(Debug)]
pub(crate) struct Slot(WeakWord);

impl Slot {
    /// Makes a slot of a node that no other core can see yet.
    pub fn new(word: Word) -> Self {
        Self(WeakWord(AtomicU64::new(word.0)))
    }

    /// Returns the word by which Refcache takes the child away.
    pub fn weak(&self) -> &WeakWord {
        &self.0
    }

    /// Reads the word as any traversal must: a dying child is revived, so the child may be entered until the
    /// caller unpins. Acquire, also of the revival: pairs with the Release in [`Slot::publish`].
    #[inline(always)]
    pub fn enter(&self, pin: &Pinned) -> Word {
        let word = self.seen();
        if word.is_dying_child() { self.revive(word, pin) } else { word }
    }

    /// Removes the mark from the child, unless the slot changes, because the bit of a value is not
    /// Refcache's.
    #[cold]
    fn revive(&self, mut word: Word, pin: &Pinned) -> Word {
        while word.is_dying_child() {
            match self.0.try_revive(word.0, pin) {
                Ok(revived) => return Word(revived),
                Err(now) => word = Word(now),
            }
        }
        word
    }

    /// Reads the whole word, as a machine does that walks the slots as a page table. Acquire, as hardware's
    /// walks are.
    pub fn walk(&self) -> u64 {
        self.word().load(Ordering::Acquire)
    }

    /// Reads the word, for the holder of the lock, or for a child that the caller entered before. Relaxed:
    /// both have synchronised with the last writer of the slot already.
    #[inline(always)]
    pub fn held(&self) -> Word {
        Word(self.word().load(Ordering::Relaxed))
    }

    /// Reads the word of a slot that the caller does not hold, and whose child it does not enter. Acquire: as
    /// in [`Slot::enter`].
    #[inline(always)]
    pub fn seen(&self) -> Word {
        Word(self.word().load(Ordering::Acquire))
    }

    /// Returns whether a slot that the caller does not hold still has the word that it had before the caller
    /// read its second word. Acquire: pairs with the Release in `Side::set`, so that a reader that finds a
    /// second word finds its slot locked, or changed.
    #[inline(always)]
    pub fn still_says(&self, word: Word) -> bool {
        self.changed_since(word) == 0
    }

    /// Returns the bits that have changed since the slot had `word`. The ordering is as in `still_says`.
    #[inline(always)]
    pub fn changed_since(&self, word: Word) -> u64 {
        fence(Ordering::Acquire);
        self.held().0 ^ word.0
    }

    /// Tries once to set the lock bit of `seen`, which is unlocked and no child. Acquire: pairs with the
    /// Release in [`Slot::unlock`] and, for a slot that was emptied by a collapse, with Refcache's death of
    /// the child.
    #[inline(always)]
    pub fn try_lock(&self, seen: Word) -> bool {
        let locked = seen.locked().0;
        self.word().compare_exchange(seen.0, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Clears the lock bit. Only the holder writes a locked word, so a store is enough. Release: pairs with
    /// the Acquire in [`Slot::try_lock`].
    #[inline(always)]
    pub fn unlock(&self) {
        self.word().store(self.held().unlocked().0, Ordering::Release);
    }

    /// Stores `word` into a slot that the caller holds, or that is silent and whose section the caller holds,
    /// or that no other core can see yet. Release: as in [`Slot::unlock`], if the word is not locked. A core
    /// that finds a slot that was silent sees everything that the section's holder saw.
    #[inline(always)]
    pub fn put(&self, word: Word) {
        self.word().store(word.0, Ordering::Release);
    }

    /// Replaces the content of a slot that the caller holds by a child, which also unlocks it. Release: pairs
    /// with the Acquire in [`Slot::enter`], so a core that enters the child sees its slots.
    pub fn publish(&self, node: usize) {
        self.word().store(Word::child(node).0, Ordering::Release);
    }

    /// Replaces the child, all slots of which the caller holds, by a value: the slot is the caller's, locked.
    /// Refcache does not use the slot any more, but may have marked the child, and traversals revive it
    /// meanwhile. Release, as Refcache asks of an owner that takes a word away from an object.
    pub fn adopt(&self, main: u64, wide: bool) {
        let mut seen = self.held();
        let value = Word::value(main, wide).locked();
        while let Err(now) =
            self.word().compare_exchange(seen.0, value.0, Ordering::Release, Ordering::Relaxed)
        {
            seen = Word(now);
        }
    }

    /// Marks a slot of a node that was folded: a core that waits here looks at the parent's slot again.
    /// Release: pairs with the Acquire by which a core finds it so ([`Slot::enter`], [`Slot::seen`]), and
    /// then sees the new word of the parent's slot.
    pub fn bury(&self) {
        self.word().store(Word::GONE.0, Ordering::Release);
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU64 {
        &self.0.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_from_both_halves_of_an_address_space() {
        for node in [128, 0x7fff_ffff_ff80, usize::MAX << 47, usize::MAX << 56, usize::MAX & !127] {
            let word = Word::child(node);
            assert!(word.is_child() && !word.is_value() && !word.is_locked());
            assert_eq!(word.0 & DYING, 0);
            assert_eq!((word.address(), Word(word.0 | DYING).address()), (node, node));
        }
    }

    #[test]
    fn a_value_has_all_bits_but_the_tags() {
        for wide in [false, true] {
            let word = Word::value(!TAGS, wide);
            assert!(word.is_value() && word.is_used() && !word.is_child());
            assert_eq!((word.is_wide(), word.locked().main()), (wide, !TAGS));
        }
    }

    #[test]
    fn the_tags_are_software_s_own_bits() {
        let software = 0b111 << 9 | 0x7ff << 52;
        assert_eq!(TAGS & !software, 0);
    }
}
