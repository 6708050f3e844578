//! The machine's memory, as address spaces see it.

use percore::Pinned;
use vm::{Access, BackingError, BackingNum, Backings, FrameNum, Frames, PageNum};

use super::{descriptors, frames};

/// See the module.
pub struct MachineMemory;

impl Frames for MachineMemory {
    #[inline(always)]
    fn alloc_zeroed(&self, pin: &Pinned) -> Option<FrameNum> {
        frames::alloc_zeroed(pin)
    }
    fn alloc_copy(&self, pin: &Pinned, from: FrameNum) -> Option<FrameNum> {
        frames::alloc_copy(pin, from)
    }
    #[inline(always)]
    fn free(&self, pin: &Pinned, frame: FrameNum) {
        frames::free(pin, frame);
    }
    fn share(&self, pin: &Pinned, frame: FrameNum) {
        descriptors::share(pin, frame);
    }
    fn adjust(&self, pin: &Pinned, frame: FrameNum, by: i64) {
        descriptors::adjust(pin, frame, by);
    }
    fn unshare(&self, pin: &Pinned, frame: FrameNum) -> bool {
        descriptors::unshare(pin, frame)
    }
}

/// Files are read into anonymous memory, so there are no backings, and nobody asks.
impl Backings for MachineMemory {
    fn placed(&self, _: &Pinned, _: BackingNum, _: PageNum) {}
    fn grown(&self, _: &Pinned, _: BackingNum, _: PageNum) {}
    fn frame(&self, _: &Pinned, _: BackingNum, _: PageNum, _: Access) -> Result<FrameNum, BackingError> {
        Err(BackingError::BeyondEnd)
    }
    fn adjust(&self, _: &Pinned, _: BackingNum, _: i64) {}
}
