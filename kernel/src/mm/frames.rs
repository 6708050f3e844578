//! Physical memory, 4 KiB at a time.

use percore::Pinned;
use vm::FrameNum;

/// A frame of zeroes.
pub fn alloc_zeroed(_pin: &Pinned) -> Option<FrameNum> {
    None
}

/// Takes a frame back.
pub fn free(_pin: &Pinned, _frame: FrameNum) {}

/// How much memory there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Frames of usable memory at boot.
    pub total: u64,
    /// Frames that nobody owns.
    pub free: u64,
}

/// Memory now. Approximate while other cores run.
pub fn stats() -> Stats {
    Stats::default()
}

/// A frame's bytes, for its owner.
///
/// # Panics
/// If the frame is not memory.
pub fn with_bytes<R>(_frame: FrameNum, f: impl FnOnce(&mut [u8; 4096]) -> R) -> R {
    f(&mut [0; 4096])
}
