//! The memory of a node.
//!
//! ```text
//! parent's slot ──▶ node: Refcache header | words                        128 bytes, two cache lines
//!                         above | slots | side | holds | bits
//!                                   │       └────────▶ side:   512 × 8 bytes, one frame, if there is one
//!                                   └────────────────▶ slots:  512 × 8 bytes, one frame
//! ```
//! A descent reads the node's second line and one slot. The count is on the first line, which only Refcache
//! accesses, so it never dirties the line that descents read.

use core::array;
use core::num::NonZero;
use core::ptr::NonNull;

use percore::MAX_CORES;
use refcache::Header;
use sync::atomic::AtomicU64;

#[cfg(not(loom))]
use crate::allocate::allocate_zeroes;
use crate::allocate::{OutOfMemory, allocate, allocate_words, free};
use crate::levels::FANOUT;
use crate::section::{SECTION, Slots, folds_at};
use crate::side::Side;
use crate::slot::{NODE_ALIGN, Slot, Word};
use crate::stats::NodeCounters;

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "a slot's word holds a pointer");
const _: () = assert!(align_of::<Node>() == NODE_ALIGN);
#[cfg(not(loom))]
const _: () = assert!(size_of::<Node>() == NODE_ALIGN, "a node's annex fits in its two lines");

/// A node: see the module.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Node {
    /// Counts used slots. It is the first field, so that Refcache's pointer is the node's.
    header: Header,
    /// The annex's first part.
    pub words: [AtomicU64; 3],
    pub links: Links,
}

/// The fields that other cores read beside the slots, and that rarely change.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Links {
    pub above: Above,
    pub slots: NonNull<Slots>,
    pub side: Side,
    /// The number of holds of a leaf, which keep it like used slots: see [`crate::leaf`].
    pub holds: AtomicU64,
    /// In a leaf, the annex's second part. In an upper node, the first word has a bit for each group of slots
    /// that may ever have been used, and changes 64 times in the node's life at most.
    pub bits: [AtomicU64; MAX_CORES / 64],
}

/// The link to a node's parent, or to the root's counters, in one word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Above(NonNull<u8>);

/// The decoded form of an [`Above`].
pub(crate) enum Hangs {
    /// In a used slot of this node, which therefore cannot be freed first.
    In(NonNull<Node>),
    /// The node is the root, and owns a reference of its map's counters.
    Root(NonNull<NodeCounters>),
}

/// The mark of a root. Neither nodes nor counters have odd addresses.
const ROOT: usize = 1;
const _: () = assert!(align_of::<NodeCounters>() > ROOT && align_of::<Node>() > ROOT);

impl Above {
    pub fn node(node: NonNull<Node>) -> Self {
        Self(node.cast())
    }

    pub fn root(counters: NonNull<NodeCounters>) -> Self {
        Self(counters.cast().map_addr(|address| address | ROOT))
    }

    /// Returns the root's counters.
    ///
    /// # Safety
    /// The nodes above are initialised and stay during the call.
    pub unsafe fn counters(self) -> NonNull<NodeCounters> {
        let mut above = self;
        loop {
            match above.get() {
                // SAFETY: the caller's promise.
                Hangs::In(node) => above = unsafe { node.as_ref().links.above },
                Hangs::Root(counters) => return counters,
            }
        }
    }

    pub fn get(self) -> Hangs {
        let address = self.0.addr().get();
        match NonZero::new(address & !ROOT).filter(|_| address & ROOT != 0) {
            Some(counters) => Hangs::Root(self.0.with_addr(counters).cast()),
            None => Hangs::In(self.0.cast()),
        }
    }
}

/// The memory of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub node: NonNull<Node>,
    pub slots: NonNull<Slots>,
}

impl Memory {
    /// Allocates slots with the words that `word` returns for their indices. The node is not initialised.
    pub fn allocate(word: impl Fn(usize) -> Word) -> Result<Self, OutOfMemory> {
        Self::around(allocate_words(|index| Slot::new(word(index)))?)
    }

    /// Allocates slots that are empty. The node is not initialised.
    pub fn allocate_empty() -> Result<Self, OutOfMemory> {
        Self::allocate_alike(Word::EMPTY)
    }

    /// Allocates slots that all have `word`, that of one slot. The node is not initialised.
    #[inline(always)]
    pub fn allocate_alike(word: Word) -> Result<Self, OutOfMemory> {
        let slots = allocate_silent()?;
        // SAFETY: fresh, initialised, and ours alone.
        unsafe { slots.as_ref() }.init(word);
        Self::around(slots)
    }

    /// Allocates a node for these slots, which are freed if there is no memory for it.
    fn around(slots: NonNull<Slots>) -> Result<Self, OutOfMemory> {
        match allocate() {
            Ok(node) => Ok(Self { node, slots }),
            Err(out_of_memory) => {
                // SAFETY: the caller has just allocated them, and no other core has the pointer.
                unsafe { free(slots) };
                Err(out_of_memory)
            }
        }
    }

    /// Initialises a node without a side, which hangs `above`.
    ///
    /// # Safety
    /// The memory is fresh from `allocate`, and the caller frees it after the last use of the node.
    pub unsafe fn init(self, header: Header, above: Above, level: u32) {
        let holds = AtomicU64::new(0);
        let links = Links { above, slots: self.slots, side: Side::none(), holds, bits: zeroes() };
        // SAFETY: the allocation is ours alone, and after the write all of it is initialised.
        unsafe {
            self.node.write(Node { header, words: zeroes(), links });
            if !folds_at(level) {
                (0..FANOUT).step_by(SECTION).for_each(|first| self.slots.as_ref().open(first..first));
            }
        }
    }

    /// Tells Refcache that the parent's slot is about to name something else.
    ///
    /// # Safety
    /// The node is initialised and stays during the call.
    pub unsafe fn unname(node: NonNull<Node>) {
        // SAFETY: the caller's promise.
        unsafe { node.as_ref().header.unname() }
    }

    /// Returns the memory of `node`.
    ///
    /// # Safety
    /// The node is initialised.
    #[inline(always)]
    pub unsafe fn of(node: NonNull<Node>) -> Self {
        // SAFETY: the caller's promise.
        Self { node, slots: unsafe { node.as_ref().links.slots } }
    }

    /// Frees it, with the side.
    ///
    /// # Safety
    /// It is a node's, and no core uses it any more.
    pub unsafe fn free(self) {
        // SAFETY: the node is initialised, and both blocks came from `allocate`. The caller promises that
        // they are unused.
        unsafe {
            self.node.as_ref().links.side.discard();
            free(self.slots);
            free(self.node);
        }
    }
}

fn zeroes<const N: usize>() -> [AtomicU64; N] {
    array::from_fn(|_| AtomicU64::new(0))
}

/// Allocates slots that are silent, which are zeroes.
#[cfg(not(loom))]
fn allocate_silent() -> Result<NonNull<Slots>, OutOfMemory> {
    // SAFETY: a slot is a word, and all words are allowed.
    unsafe { allocate_zeroes() }
}

/// Allocates slots that are silent. Loom's atomics have more state than their bits.
#[cfg(loom)]
fn allocate_silent() -> Result<NonNull<Slots>, OutOfMemory> {
    allocate_words(|_| Slot::new(Word::SILENT))
}
