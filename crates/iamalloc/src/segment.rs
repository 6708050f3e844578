//! Segments: aligned pieces of memory, and the runs that they consist of.
//!
//! ```text
//!   segment, 4 MiB, aligned to 4 MiB: found from a block by clearing bits of its address
//!   ┌────────┬───────────────┬───────────────┬─────┬──────────────────────────────┬─────┐
//!   │ header │ run of blocks │ run of blocks │ ... │ one block of several runs    │ ... │
//!   └────────┴───────────────┴───────────────┴─────┴──────────────────────────────┴─────┘
//!     run 0    64 KiB, or a group of 8 for blocks of more than 8 KiB; all blocks of one size
//!
//!   huge: │ head │ one block, from the first multiple of its alignment on, in a mapping of its own │
//! ```

use core::cell::Cell;
use core::ptr::{self, NonNull};

use crate::source::Source;
use crate::stack::Block;

/// The size and alignment of a segment, in bytes.
pub const SEGMENT: usize = 4 << 20;
/// The size of a run, in bytes.
pub const RUN: usize = 64 << 10;
/// The runs of a segment.
pub const RUNS: usize = SEGMENT / RUN;
/// The most runs of one block.
pub const MAX_RUNS: usize = RUNS - 1;
/// All runs but the first, which has the header.
pub const ALL_RUNS: u64 = !1;

const PAGE: usize = 4 << 10;

/// The sub-heap of a segment, which here has an address only.
pub enum Owner {}

/// The first bytes of a segment and of a huge block's mapping. They do not change while it has a block.
#[repr(C)]
pub struct Head {
    /// The sub-heap that the segment belongs to, or null for a huge block.
    pub owner: *const Owner,
    /// The bytes of the mapping of a huge block.
    pub huge: usize,
}

/// The header of a segment. Only the owner's thread writes it. Others read the first part, of runs in which
/// they hold a block.
#[repr(C)]
pub struct Header {
    head: Head,
    /// The parts that change when runs are taken.
    pub runs: Kinds,
    /// The part that only the owner touches.
    pub own: Own,
}

/// The use of each run.
#[repr(C, align(64))]
pub struct Kinds {
    /// Per run, the first one of its group, or 0 if one block begins here that has whole runs.
    pub firsts: [Cell<u8>; RUNS],
    /// Per run, the class of its blocks, or the number of runs of the block that begins here.
    pub kinds: [Cell<u8>; RUNS],
}

/// The part of a header that only the owner touches.
#[repr(C, align(64))]
pub struct Own {
    /// A bit for each run that is free.
    pub free: Cell<u64>,
    /// A bit for each free run whose memory may not be zero.
    pub dirty: Cell<u64>,
    /// The list of segments that it is in, if it has free runs.
    pub list: Cell<usize>,
    /// The neighbours in that list.
    pub next: Cell<Option<Segment>>,
    /// See [`Self::next`].
    pub previous: Cell<Option<Segment>>,
    runs: [Run; RUNS],
}

/// A segment, by its address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Segment(NonNull<u8>);

impl Segment {
    /// Creates a segment of `owner` whose runs are free, in new memory.
    ///
    /// # Safety
    /// `memory` is [`SEGMENT`] bytes, aligned to as many, zeroed, and the caller's.
    pub unsafe fn create(memory: NonNull<u8>, owner: *const Owner) -> Self {
        let header = Header {
            head: Head { owner, huge: 0 },
            runs: Kinds { firsts: [const { Cell::new(0) }; RUNS], kinds: [const { Cell::new(0) }; RUNS] },
            own: Own {
                free: Cell::new(ALL_RUNS),
                dirty: Cell::new(0),
                list: Cell::new(0),
                next: Cell::new(None),
                previous: Cell::new(None),
                runs: [const { Run::new() }; RUNS],
            },
        };
        const { assert!(size_of::<Header>() <= RUN) };
        // SAFETY: by this function's contract, and the header fits into the first run.
        unsafe { memory.cast().write(header) };
        Segment(memory)
    }

    /// Returns the segment, or the mapping, that a block lies in.
    ///
    /// # Safety
    /// `block` was allocated by this crate and not freed.
    #[inline]
    pub unsafe fn of(block: *mut u8) -> Self {
        let start = block.map_addr(|address| address & !(SEGMENT - 1));
        // SAFETY: a block never lies at the start of memory, so this is the address of a mapping.
        Segment(unsafe { NonNull::new_unchecked(start) })
    }

    /// Returns the head. Both kinds of mappings begin with one.
    ///
    /// # Safety
    /// The segment has a block, or is the caller's.
    #[inline]
    pub unsafe fn head<'a>(self) -> &'a Head {
        // SAFETY: by this function's contract the mapping is there, and its head does not change.
        unsafe { self.0.cast().as_ref() }
    }

    /// Returns the header.
    ///
    /// # Safety
    /// It is a segment and no huge block's mapping, and has a block or is the caller's. Of the fields that
    /// change the caller touches only those that [`Header`] allows.
    #[inline]
    pub unsafe fn header<'a>(self) -> &'a Header {
        // SAFETY: by this function's contract.
        unsafe { self.0.cast().as_ref() }
    }

    /// Returns the start of the memory.
    #[inline]
    pub fn start(self) -> NonNull<u8> {
        self.0
    }

    /// Returns the start of a run.
    #[inline]
    pub fn run_start(self, index: usize) -> NonNull<u8> {
        debug_assert!(index < RUNS);
        // SAFETY: the run lies in the segment.
        unsafe { self.0.add(index * RUN) }
    }

    /// Returns the index of the run that a block begins in.
    #[inline]
    pub fn index(self, block: *mut u8) -> usize {
        (block.addr() - self.0.addr().get()) / RUN
    }
}

impl Header {
    /// Returns a run. Only the owner may use it.
    #[inline]
    pub fn run(&self, index: usize) -> &Run {
        &self.own.runs[index]
    }
}

/// Returns the lowest of `count` neighbouring bits that are set in `bits`.
pub fn neighbours(bits: u64, count: usize) -> Option<usize> {
    let starts = (1..count).fold(bits, |starts, distance| starts & bits >> distance);
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}

/// The number of lists of segments, by [`list_of`].
pub const LISTS: usize = 7;

/// Returns the list of a segment with these free runs, of which there is one. The last list has those without
/// a block. The others go by the logarithm, rounded down, of the largest number of neighbouring runs.
pub fn list_of(mut bits: u64) -> usize {
    if bits == ALL_RUNS {
        return LISTS - 1;
    }
    let mut log = 0;
    loop {
        bits &= bits >> (1_u32 << log);
        if bits == 0 {
            return log;
        }
        log += 1;
    }
}

/// Returns the bits of `count` runs from `first` on, at least one and not all.
pub fn mask(first: usize, count: usize) -> u64 {
    u64::MAX >> (RUNS - count) << first
}

/// A run, or a group of runs, of blocks of one size. Only the owner's thread touches it.
///
/// | blocks | where they are |
/// |---|---|
/// | never used | from `fresh` on, `left` of them |
/// | free | in the list `free` |
/// | used, or freed by another thread and not collected | `used` of them |
#[repr(align(64))]
pub struct Run {
    /// The first byte.
    pub start: Cell<*mut u8>,
    free: Cell<*mut Block>,
    fresh: Cell<*mut u8>,
    left: Cell<u32>,
    size: Cell<u32>,
    /// See the table.
    pub used: Cell<u32>,
    /// The bytes from `fresh` on that need no call before they are used. It may be less than the memory that
    /// is there.
    ready: Cell<u32>,
    /// The neighbours in the list of runs of this class with blocks that can be taken.
    pub next: Cell<*const Run>,
    /// See [`Self::next`].
    pub previous: Cell<*const Run>,
    /// Whether the run is in that list.
    pub is_listed: Cell<bool>,
}

impl Run {
    const fn new() -> Self {
        Run {
            start: Cell::new(ptr::null_mut()),
            free: Cell::new(ptr::null_mut()),
            fresh: Cell::new(ptr::null_mut()),
            left: Cell::new(0),
            size: Cell::new(0),
            used: Cell::new(0),
            ready: Cell::new(0),
            next: Cell::new(ptr::null()),
            previous: Cell::new(ptr::null()),
            is_listed: Cell::new(false),
        }
    }

    /// Makes it a run of `bytes` with blocks of `size`. Its memory is there already if it `was_used`.
    pub fn begin(&self, start: NonNull<u8>, bytes: usize, size: usize, was_used: bool) {
        self.start.set(start.as_ptr());
        self.free.set(ptr::null_mut());
        self.fresh.set(start.as_ptr());
        self.left.set((bytes / size) as u32);
        self.size.set(size as u32);
        self.used.set(0);
        // The first page comes by a fault: a class of which few blocks are used takes one page. So do those
        // of blocks that have whole pages, which the program may not touch.
        self.ready.set(if was_used || size >= PAGE { bytes } else { PAGE } as u32);
        self.is_listed.set(false);
    }

    /// Takes a block, or returns null if there is none.
    #[inline(always)]
    pub fn take(&self, source: &impl Source) -> *mut u8 {
        let block = self.free.get();
        if block.is_null() {
            return self.take_fresh(source);
        }
        // SAFETY: the block is free, and the owner's.
        self.free.set(unsafe { Block::next(block) });
        self.used.set(self.used.get() + 1);
        block.cast()
    }

    #[inline(never)]
    fn take_fresh(&self, source: &impl Source) -> *mut u8 {
        if self.left.get() == 0 {
            return ptr::null_mut();
        }
        let (block, size) = (self.fresh.get(), self.size.get());
        if size > self.ready.get() {
            self.make_ready(source);
        }
        self.ready.set(self.ready.get() - size);
        self.fresh.set(block.wrapping_add(size as usize));
        self.left.set(self.left.get() - 1);
        self.used.set(self.used.get() + 1);
        block
    }

    /// Populates as much again as the run has, for at least one block.
    #[cold]
    fn make_ready(&self, source: &impl Source) {
        let (fresh, ready) = (self.fresh.get(), self.ready.get() as usize);
        let done = fresh.addr() - self.start.get().addr() + ready;
        let rest = (self.left.get() * self.size.get()) as usize - ready;
        let least = self.size.get() as usize - ready;
        let wanted = done.max(least).min(rest).next_multiple_of(PAGE);
        // SAFETY: the part lies in the run, and begins where the ready part ends.
        unsafe { source.populate(NonNull::new_unchecked(fresh.add(ready)), wanted) };
        self.ready.set((ready + wanted) as u32);
    }

    /// Gives a block back.
    ///
    /// # Safety
    /// It is a used block of this run, and nothing refers to it.
    #[inline]
    pub unsafe fn give(&self, block: *mut u8) {
        // SAFETY: a block has at least 16 bytes, aligned to as many, and is free from now on.
        self.free.set(unsafe { Block::write(block, self.free.get()) });
        self.used.set(self.used.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_runs_are_found() {
        assert_eq!(neighbours(ALL_RUNS, 1), Some(1));
        assert_eq!(neighbours(ALL_RUNS, MAX_RUNS), Some(1));
        assert_eq!(neighbours(0b1011_0110, 2), Some(1));
        assert_eq!(neighbours(0b1011_1010, 3), Some(3));
        assert_eq!((neighbours(0b1010, 2), neighbours(0, 1)), (None, None));
        assert_eq!(neighbours(1 << 63, 2), None);
        assert_eq!((list_of(1), list_of(0b11), list_of(0b1011_1000), list_of(0b1111)), (0, 1, 1, 2));
        assert_eq!((list_of(ALL_RUNS), list_of(ALL_RUNS >> 1)), (LISTS - 1, LISTS - 2));
        assert_eq!((mask(1, 2), mask(1, MAX_RUNS)), (0b110, ALL_RUNS));
    }
}
