//! The shape of the tree: the levels, and the bits of a key that select a slot at each of them.

use core::ops::Range;

/// The number of bits of a key.
pub const KEY_BITS: u32 = if cfg!(loom_wide) {
    4
} else if cfg!(loom) {
    3
} else {
    36
};

/// The smallest number that is too large for a key.
pub const KEY_END: u64 = 1 << KEY_BITS;

/// Number of keys of a leaf. This many aligned keys are a *block*, which may be folded into one slot.
pub const BLOCK: u64 = slot_keys(1);

/// Key bits that one level consumes. Models of `loom_wide` have groups within a node.
pub(crate) const LEVEL_BITS: u32 = if cfg!(loom_wide) {
    2
} else if cfg!(loom) {
    1
} else {
    9
};
/// Slots in a node.
pub(crate) const FANOUT: usize = 1 << LEVEL_BITS;
/// The root's level; leaves are level 0.
pub(crate) const TOP: u32 = KEY_BITS / LEVEL_BITS - 1;

/// Slots that a search reads together. A word has a bit for each group of a node.
pub(crate) const GROUP: usize = if FANOUT < 8 { 2 } else { 8 };
const _: () = assert!(FANOUT <= GROUP * u64::BITS as usize);

/// Returns the number of keys that one slot of a node at `level` covers.
#[inline(always)]
pub(crate) const fn slot_keys(level: u32) -> u64 {
    1 << (LEVEL_BITS * level)
}

/// Returns the index of the slot of a node at `level` that covers `key`.
#[inline(always)]
pub(crate) const fn slot_index(key: u64, level: u32) -> usize {
    (key >> (LEVEL_BITS * level)) as usize & (FANOUT - 1)
}

/// Returns the indices of a leaf's slots for `keys`, some keys of the leaf.
#[inline(always)]
pub(crate) const fn leaf_indices(keys: &Range<u64>) -> Range<usize> {
    slot_index(keys.start, 0)..slot_index(keys.end - 1, 0) + 1
}
