//! Memory for huge pages: 512 frames side by side, zeroed when they are asked for.
//!
//! A block is handed out as 512 single frames, each of which may come back alone, and the pool merges what lies side by
//! side. A core keeps a block or two for itself: who maps, touches and unmaps a huge page in a loop asks the pool for nothing.
//! Nobody gets one when memory is no longer plenty, as one page of it might be all that is ever used.

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

/// A block of zeroes, if the user of the kernel allows it; `wanted` says that the program asked for it.
pub fn alloc(pin: &Pinned, wanted: bool) -> Option<FrameNum> {
    let block = alloc_raw(pin, wanted)?;
    // SAFETY: nobody else has the frames.
    unsafe { arch::zero_frames(phys_to_virt(block.get() * FRAME), HUGE_PAGES as usize) };
    counters::add(pin, Counter::FramesZeroed, HUGE_PAGES as i64);
    Some(block)
}

/// The same with anything in it.
pub fn alloc_raw(pin: &Pinned, wanted: bool) -> Option<FrameNum> {
    if !allowed(wanted) || fault_injection::should_fail() {
        return None;
    }
    let block = frames::mine(pin).huge.pop().or_else(from_pool)?;
    counters::add(pin, Counter::FramesUsed, HUGE_PAGES as i64);
    Some(FrameNum::new(block))
}

/// Whether the user of the kernel has nothing against huge pages.
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
        // SAFETY: it came from the pool, and its owner gives it up.
        unsafe { frames::free_block(first.get(), ORDER) };
    }
}
