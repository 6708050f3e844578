//! The machine's memory and files, for a space that keeps the machine.

use std::sync::Arc;

use percore::Pinned;
use vm::{Access, BackingError, BackingNum, Backings, CompressedNum, FrameNum, Frames, PageNum};

use crate::{Call, Machine};

pub(crate) struct Memory(pub(crate) Arc<Machine>);

impl Frames for Memory {
    fn alloc_zeroed(&self, pin: &Pinned) -> Option<FrameNum> {
        self.0.interposed.meet(Call::Alloc, pin);
        self.0.frames.alloc_zeroed(pin)
    }
    fn alloc_huge(&self, pin: &Pinned, wanted: bool) -> Option<FrameNum> {
        self.0.frames.alloc_huge(pin, wanted)
    }
    fn allows_huge(&self, wanted: bool) -> bool {
        self.0.frames.allows_huge(wanted)
    }
    fn alloc_huge_raw(&self, pin: &Pinned, wanted: bool) -> Option<FrameNum> {
        self.0.frames.alloc_huge_raw(pin, wanted)
    }
    fn fill_frame(&self, pin: &Pinned, frame: FrameNum, from: Option<FrameNum>) {
        self.0.frames.fill_frame(pin, frame, from);
    }
    fn free_huge(&self, pin: &Pinned, first: FrameNum) {
        self.0.frames.free_huge(pin, first);
    }
    fn alloc_copy(&self, pin: &Pinned, from: FrameNum) -> Option<FrameNum> {
        self.0.frames.alloc_copy(pin, from)
    }
    fn free(&self, pin: &Pinned, frame: FrameNum) {
        self.0.interposed.meet(Call::Free, pin);
        self.0.frames.free(pin, frame);
    }
    fn share(&self, pin: &Pinned, frame: FrameNum) {
        self.0.frames.share(pin, frame);
    }
    fn adjust(&self, pin: &Pinned, frame: FrameNum, by: i64) {
        self.0.frames.adjust(pin, frame, by);
    }
    fn unshare(&self, pin: &Pinned, frame: FrameNum) -> bool {
        self.0.frames.unshare(pin, frame)
    }
    fn compress(&self, pin: &Pinned, frame: FrameNum) -> Option<CompressedNum> {
        self.0.frames.compress(pin, frame)
    }
    fn decompress(&self, pin: &Pinned, compressed: CompressedNum, frame: FrameNum) {
        self.0.frames.decompress(pin, compressed, frame);
    }
    fn adjust_compressed(&self, pin: &Pinned, compressed: CompressedNum, by: i64) {
        self.0.frames.adjust_compressed(pin, compressed, by);
    }
}

impl Backings for Memory {
    fn placed(&self, _: &Pinned, backing: BackingNum, start: PageNum) {
        self.0.files.place(backing, start);
    }
    fn grown(&self, _: &Pinned, backing: BackingNum, end: PageNum) {
        self.0.files.grow(backing, end);
    }
    fn frame(
        &self,
        pin: &Pinned,
        backing: BackingNum,
        page: PageNum,
        access: Access,
    ) -> Result<FrameNum, BackingError> {
        self.0.interposed.meet(Call::BackingFrame, pin);
        self.0.files.frame(pin, &self.0.frames, backing, page, access)
    }
    fn adjust(&self, _: &Pinned, backing: BackingNum, pages: i64) {
        self.0.files.adjust(backing, pages);
    }
}
