//! The global pool: free memory in aligned blocks of 1, 2, 4, … frames, which split and merge.
//!
//! A byte for each frame describes the block that starts there: free, with its size, or handed out, with its
//! purpose ([`Owner`]). Inside a block the bytes mean nothing. The free blocks of one order are a list
//! through their own first bytes. Only batch refills access the pool: see `frames.rs`.

use crate::arch::phys_to_virt;

use super::FRAME;
use super::owner::{Notes, Owner};

/// Blocks have 2^0 to 2^(ORDERS-1) frames: up to 64 MiB.
pub const ORDERS: usize = 15;
const NONE: u64 = u64::MAX;

/// Links of a free block, kept in the block.
#[repr(C)]
struct Links {
    next: u64,
    previous: u64,
}

/// The pool. Frames are plain numbers here.
pub struct Buddy {
    heads: [u64; ORDERS],
    notes: Notes,
    free: u64,
}

impl Buddy {
    /// Creates a pool for the frames that `notes` covers, none of which is free yet.
    pub const fn new(notes: Notes) -> Self {
        Self { heads: [NONE; ORDERS], notes, free: 0 }
    }

    /// Adds the frames from `start` to `end` to the pool.
    ///
    /// # Safety
    /// The physmap shows the frames, and they are not in use.
    pub unsafe fn add(&mut self, mut start: u64, end: u64) {
        while start < end {
            let aligned = start.trailing_zeros().min(ORDERS as u32 - 1);
            let order = aligned.min((end - start).ilog2());
            // SAFETY: the caller's memory, in aligned blocks.
            unsafe { self.free(start, order as usize) };
            start += 1 << order;
        }
    }

    /// Returns the number of free frames.
    pub fn free_frames(&self) -> u64 {
        self.free
    }

    /// Allocates a block of 2^`order` frames.
    pub fn alloc(&mut self, order: usize) -> Option<u64> {
        let found = (order..ORDERS).find(|&larger| self.heads[larger] != NONE)?;
        let block = self.heads[found];
        self.unlink(block, found);
        for half in (order..found).rev() {
            self.link(block + (1 << half), half);
        }
        self.notes.set(block, Owner::held(order));
        self.free -= 1 << order;
        Some(block)
    }

    /// Does the same if `left` frames are left then.
    pub fn alloc_leaving(&mut self, order: usize, left: u64) -> Option<u64> {
        if self.free >= left + (1 << order) { self.alloc(order) } else { None }
    }

    /// Takes a block back, and merges it with its free neighbours.
    ///
    /// # Safety
    /// The block came from [`alloc`](Self::alloc) of the same order, or from [`add`](Self::add), and is not
    /// in use.
    pub unsafe fn free(&mut self, mut block: u64, order: usize) {
        self.free += 1 << order;
        let mut merged = order;
        while merged + 1 < ORDERS && self.is_free(block ^ 1 << merged, merged) {
            self.unlink(block ^ 1 << merged, merged);
            block &= !(1 << merged);
            merged += 1;
        }
        self.link(block, merged);
    }

    fn is_free(&self, block: u64, order: usize) -> bool {
        block < self.notes.end() && self.notes.get(block) == Owner::free(order)
    }

    fn links(&mut self, block: u64) -> &mut Links {
        // SAFETY: only called for free blocks, whose memory is the pool's.
        unsafe { &mut *phys_to_virt(block * FRAME) }
    }

    fn link(&mut self, block: u64, order: usize) {
        let next = core::mem::replace(&mut self.heads[order], block);
        *self.links(block) = Links { next, previous: NONE };
        if next != NONE {
            self.links(next).previous = block;
        }
        self.notes.set(block, Owner::free(order));
    }

    /// Takes a free block out of its list.
    fn unlink(&mut self, block: u64, order: usize) {
        let Links { next, previous } = *self.links(block);
        match previous {
            NONE => self.heads[order] = next,
            _ => self.links(previous).next = next,
        }
        if next != NONE {
            self.links(next).previous = previous;
        }
        self.notes.set(block, Owner::held(order));
    }
}
