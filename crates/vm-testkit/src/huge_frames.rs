//! Simulated memory in blocks of frames side by side, for huge pages. A block is given out again when all of
//! its frames are back, in whatever order.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use vm::HUGE_PAGES;

/// Blocks of a machine.
const BLOCKS: usize = 4;
const FRAMES: usize = HUGE_PAGES as usize;

pub(crate) struct HugeFrames {
    start: usize,
    free: Mutex<Vec<usize>>,
    /// Frames that are out, by block.
    out: [AtomicUsize; BLOCKS],
    /// Blocks are given out.
    offered: AtomicBool,
}

impl HugeFrames {
    /// Returns the blocks behind the first `frames` frames. None is given out until it is offered.
    pub(crate) fn behind(frames: usize) -> Self {
        Self {
            start: frames.next_multiple_of(FRAMES),
            free: Mutex::new((0..BLOCKS).collect()),
            out: Default::default(),
            offered: AtomicBool::new(false),
        }
    }

    /// Returns one past the last frame.
    pub(crate) fn end(&self) -> usize {
        self.start + BLOCKS * FRAMES
    }

    pub(crate) fn offer(&self, offered: bool) {
        self.offered.store(offered, SeqCst);
    }

    /// Returns the frames of a block.
    pub(crate) fn take(&self) -> Option<Range<usize>> {
        if !self.offered.load(SeqCst) {
            return None;
        }
        let block = self.free.lock().unwrap().pop()?;
        self.out[block].store(FRAMES, SeqCst);
        let start = self.start + block * FRAMES;
        Some(start..start + FRAMES)
    }

    /// Takes a frame back, if it is of a block.
    pub(crate) fn put(&self, frame: usize) -> bool {
        let Some(offset) = frame.checked_sub(self.start) else { return false };
        let block = offset / FRAMES;
        if self.out[block].fetch_sub(1, SeqCst) == 1 {
            self.free.lock().unwrap().push(block);
        }
        true
    }
}
