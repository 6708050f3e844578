//! The machine's memory, as address spaces see it.

use abi::Errno;
use percore::Pinned;
use vm::{Access, BackingError, BackingNum, Backings, CompressedNum, FrameNum, Frames, PageNum};

use super::{Source, compressed, file_mapping, frames, huge_frames, page_refs};

/// The machine's memory: see the module.
pub struct MachineMemory;

impl Frames for MachineMemory {
    #[inline(always)]
    fn alloc_zeroed(&self, pin: &Pinned) -> Option<FrameNum> {
        frames::alloc_page(pin)
    }
    fn alloc_huge(&self, pin: &Pinned, wanted: bool) -> Option<FrameNum> {
        huge_frames::alloc(pin, wanted)
    }
    fn allows_huge(&self, wanted: bool) -> bool {
        huge_frames::allowed(wanted)
    }
    fn alloc_huge_raw(&self, pin: &Pinned, wanted: bool) -> Option<FrameNum> {
        huge_frames::alloc_raw(pin, wanted)
    }
    fn fill_frame(&self, pin: &Pinned, frame: FrameNum, from: Option<FrameNum>) {
        frames::fill(pin, frame, from);
    }
    fn alloc_copy(&self, pin: &Pinned, from: FrameNum) -> Option<FrameNum> {
        frames::alloc_copy(pin, from)
    }
    #[inline(always)]
    fn free(&self, pin: &Pinned, frame: FrameNum) {
        frames::free(pin, frame);
    }
    fn free_huge(&self, pin: &Pinned, first: FrameNum) {
        huge_frames::free(pin, first);
    }
    fn share(&self, pin: &Pinned, frame: FrameNum) {
        page_refs::share(pin, frame);
    }
    fn adjust(&self, pin: &Pinned, frame: FrameNum, by: i64) {
        page_refs::adjust(pin, frame, by);
    }
    fn unshare(&self, pin: &Pinned, frame: FrameNum) -> bool {
        page_refs::unshare(pin, frame)
    }
    fn compress(&self, pin: &Pinned, frame: FrameNum) -> Option<CompressedNum> {
        compressed::compress(pin, frame)
    }
    fn decompress(&self, pin: &Pinned, compressed: CompressedNum, frame: FrameNum) {
        compressed::decompress(pin, compressed, frame);
    }
    fn adjust_compressed(&self, pin: &Pinned, compressed: CompressedNum, by: i64) {
        compressed::adjust(pin, compressed, by);
    }
}

/// A backing is a mapping of a file: see `file_mapping.rs`.
impl Backings for MachineMemory {
    fn placed(&self, _: &Pinned, backing: BackingNum, start: PageNum) {
        file_mapping::placed(backing, start);
    }
    fn grown(&self, _: &Pinned, backing: BackingNum, end: PageNum) {
        file_mapping::grown(backing, end);
    }
    fn frame(
        &self,
        pin: &Pinned,
        backing: BackingNum,
        at: PageNum,
        _: Access,
    ) -> Result<FrameNum, BackingError> {
        let frame = file_mapping::with(backing, |record| record.source().frame(pin, record.file_page(at)));
        frame.map_err(|error| match error {
            Errno::ENOMEM => BackingError::OutOfMemory,
            // As on Linux, a file that may have no more pages is no reason to look for memory.
            _ => BackingError::BeyondEnd,
        })
    }
    fn adjust(&self, pin: &Pinned, backing: BackingNum, pages: i64) {
        file_mapping::adjust(pin, backing, pages);
    }
}
