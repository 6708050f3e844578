//! Where a node lives.
//!
//! ```text
//! parent's slot ──▶ node: Refcache header                      128 bytes, two cache lines
//!                         parent | slots | side | counters
//!                                   │       └────────▶ side:   512 × 8 bytes, one frame, if there is one
//!                                   └────────────────▶ slots:  512 × 8 bytes, one frame
//! ```
//! A descent reads the node's second line and one slot. The count is on the first line, which Refcache alone touches: it
//! never dirties what descents read.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;

use refcache::Header;

use crate::OutOfMemory;
use crate::node::{FANOUT, NodeRef, Part};
use crate::side::Side;
use crate::slot::{NODE_ALIGN, Slot, Word};
use crate::stats::NodeCounters;

pub(crate) type Slots = [Slot; FANOUT];

/// What slots fill, and a side.
const FRAME: Layout = match Layout::new::<Slots>().align_to(if cfg!(loom) { 64 } else { 4096 }) {
    Ok(layout) => layout,
    Err(_) => panic!("no layout for a frame"),
};
#[cfg(not(loom))]
const _: () = assert!(FRAME.size() == 4096, "a node's slots fill one frame exactly");
const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "a slot's word holds a pointer");
const _: () = assert!(align_of::<Node>() == NODE_ALIGN);

/// See the module.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Node {
    /// Counts used slots. First, so that Refcache's pointer is ours.
    header: Header,
    pub links: Links,
}

/// What never changes while others see the node, but for the side, which comes once.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Links {
    /// The node that holds us in a used slot and so cannot go before us; none for the root.
    pub parent: Option<NonNull<Node>>,
    pub slots: NonNull<Slots>,
    pub side: Side,
    /// Kept alive by the root, which goes last.
    pub counters: NonNull<NodeCounters>,
}

/// The memory of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub node: NonNull<Node>,
    pub slots: NonNull<Slots>,
}

impl Memory {
    /// Memory whose slots are what `word` says of their index; the node is not initialised.
    pub fn allocate(word: impl Fn(usize) -> Word) -> Result<Self, OutOfMemory> {
        let slots = allocate_frame(|index| Slot::new(word(index)))?;
        match allocate(Layout::new::<Node>()) {
            Ok(node) => Ok(Self { node, slots }),
            Err(out_of_memory) => {
                // SAFETY: allocated above, and nobody else has the pointer.
                unsafe { free_frame(slots) };
                Err(out_of_memory)
            }
        }
    }

    /// Makes a node of it, without a side, that says `count` slots are used and is in the slot of `parent`.
    ///
    /// # Safety
    /// The memory is fresh from `allocate`, and the caller frees it no sooner than the last use of the node.
    pub unsafe fn init<'p>(
        self,
        count: i64,
        parent: Option<&Part<'_>>,
        counters: NonNull<NodeCounters>,
        level: u32,
    ) -> NodeRef<'p> {
        let weak = parent.map(|part| NonNull::from(part.slot.weak()));
        let header = Header::new(count, weak, crate::fold::collapse);
        let parent = parent.map(|part| part.node.memory());
        let links = Links { parent, slots: self.slots, side: Side::none(), counters };
        // SAFETY: the allocation is ours alone; after the write, all of it is initialised.
        unsafe {
            self.node.write(Node { header, links });
            NodeRef::new(self.node, level)
        }
    }

    /// The memory behind `node`.
    ///
    /// # Safety
    /// The node is initialised.
    pub unsafe fn of(node: NonNull<Node>) -> Self {
        // SAFETY: the caller's promise.
        Self { node, slots: unsafe { node.as_ref().links.slots } }
    }

    /// Gives it back, with the side.
    ///
    /// # Safety
    /// It is a node's, and nobody uses it any more.
    pub unsafe fn free(self) {
        // SAFETY: the blocks were allocated with these layouts, and the caller vouches for the rest.
        unsafe {
            self.node.as_ref().links.side.free();
            free_frame(self.slots);
            dealloc(self.node.as_ptr().cast(), Layout::new::<Node>());
        }
    }
}

/// A frame of words that are what `word` says of their index.
pub(crate) fn allocate_frame<T>(word: impl Fn(usize) -> T) -> Result<NonNull<[T; FANOUT]>, OutOfMemory> {
    const { assert!(size_of::<[T; FANOUT]>() == FRAME.size()) };
    let words = allocate::<T>(FRAME)?;
    for index in 0..FANOUT {
        // SAFETY: inside the allocation, which is ours alone.
        unsafe { words.add(index).write(word(index)) };
    }
    Ok(words.cast())
}

/// Gives a frame back.
///
/// # Safety
/// It came from `allocate_frame`, and nobody uses it any more.
pub(crate) unsafe fn free_frame<T>(words: NonNull<[T; FANOUT]>) {
    // SAFETY: allocated with this layout; the caller vouches for the rest.
    unsafe { dealloc(words.as_ptr().cast(), FRAME) }
}

fn allocate<T>(layout: Layout) -> Result<NonNull<T>, OutOfMemory> {
    // SAFETY: no layout here is of size zero.
    NonNull::new(unsafe { alloc(layout) }.cast()).ok_or(OutOfMemory)
}
