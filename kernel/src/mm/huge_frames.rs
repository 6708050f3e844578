//! Memory for huge pages: 512 contiguous frames, zeroed when they are allocated.
//!
//! A block is handed out as 512 single frames, each of which may come back alone, and the pool merges
//! adjacent frames. A core keeps a block or two for itself, so a loop that maps, touches and unmaps a huge
//! page does not access the pool. No block is handed out when memory is no longer plenty, as a single page of
//! it might be all that is ever used.

use abi::config::Huge;
use percore::Pinned;
use vm::{FrameNum, HUGE_PAGES};

use super::FRAME;
use super::fault_injection;
use super::frames;
use crate::arch::{self, phys_to_virt};
use crate::counters::{self, Counter};
use crate::options;

/// log2 of a block's frames.
pub(super) const ORDER: usize = HUGE_PAGES.ilog2() as usize;
/// Part of all memory that must be free in the pool.
const SHARE: u64 = 8;

/// Allocates a block of zeroes, if the kernel's options allow it. `wanted` tells that the program asked for
/// it.
pub fn alloc(pin: &Pinned, wanted: bool) -> Option<FrameNum> {
    let block = alloc_raw(pin, wanted)?;
    // SAFETY: only this caller has the frames.
    unsafe { arch::zero_frames(phys_to_virt(block.get() * FRAME), HUGE_PAGES as usize) };
    counters::add(pin, Counter::FramesZeroed, HUGE_PAGES as i64);
    Some(block)
}

/// Does the same without zeroing the block.
pub fn alloc_raw(pin: &Pinned, wanted: bool) -> Option<FrameNum> {
    if !allowed(wanted) || fault_injection::should_fail() {
        return None;
    }
    let block = frames::mine(pin).huge.pop().or_else(from_pool)?;
    counters::add(pin, Counter::FramesUsed, HUGE_PAGES as i64);
    Some(FrameNum::new(block))
}

/// Returns whether the kernel's options allow huge pages.
pub fn allowed(wanted: bool) -> bool {
    match options::get().huge {
        Huge::Never => false,
        Huge::Madvise => wanted,
        Huge::Always => true,
    }
}

fn from_pool() -> Option<u64> {
    frames::alloc_singles(ORDER, frames::total() / SHARE)
}

/// Takes a block back of which nothing has come back yet.
pub fn free(pin: &Pinned, first: FrameNum) {
    counters::add(pin, Counter::FramesUsed, -(HUGE_PAGES as i64));
    if !frames::mine(pin).huge.push(first.get()) {
        // SAFETY: the block came from the pool, and its owner gives it up.
        unsafe { frames::free_block(first.get(), ORDER) };
    }
}
