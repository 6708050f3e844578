//! The memory below the spaces: frames of one byte, each in use once, and bytes that were compressed.

use std::collections::BTreeMap;
use std::sync::Arc;

use loom::sync::{Mutex, MutexGuard};
use percore::Pinned;
use vm::{Backings, CompressedNum, FrameNum, Frames};

#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    frames: BTreeMap<u64, Contents>,
    compressed: BTreeMap<u32, Contents>,
    /// The last number. None is used twice, so that a late use is detected.
    last: u32,
}

#[derive(Clone, Copy)]
struct Contents {
    byte: u8,
    /// How many hold them. Zero: a frame that its owner has alone.
    holders: i64,
}

impl Memory {
    /// Loom tries both orders of any two uses.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn frames_in_use(&self) -> usize {
        self.lock().frames.len()
    }

    /// Returns whether all of it is unused.
    pub fn is_unused(&self) -> bool {
        let state = self.lock();
        state.frames.is_empty() && state.compressed.is_empty()
    }

    pub fn read(&self, frame: FrameNum) -> u8 {
        self.lock().frame(frame).byte
    }

    pub fn write(&self, frame: FrameNum, byte: u8) {
        self.lock().frame(frame).byte = byte;
    }
}

impl State {
    fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn begin(&mut self, byte: u8) -> FrameNum {
        let frame = u64::from(self.number());
        self.frames.insert(frame, Contents { byte, holders: 0 });
        FrameNum::new(frame)
    }

    fn frame(&mut self, frame: FrameNum) -> &mut Contents {
        self.frames.get_mut(&frame.get()).expect("a frame was used after it was freed")
    }

    fn kept(&mut self, compressed: CompressedNum) -> &mut Contents {
        self.compressed.get_mut(&compressed.get()).expect("what nobody held was used")
    }

    /// Its owner gives a frame up: what was in it.
    fn end(&mut self, frame: FrameNum) -> u8 {
        let contents = *self.frame(frame);
        assert_eq!(contents.holders, 0, "others have the frame too");
        self.frames.remove(&frame.get());
        contents.byte
    }
}

impl Frames for Memory {
    fn alloc_zeroed(&self, _: &Pinned) -> Option<FrameNum> {
        Some(self.lock().begin(0))
    }

    fn alloc_copy(&self, _: &Pinned, from: FrameNum) -> Option<FrameNum> {
        let mut state = self.lock();
        let byte = state.frame(from).byte;
        Some(state.begin(byte))
    }

    fn free(&self, _: &Pinned, frame: FrameNum) {
        self.lock().end(frame);
    }

    fn share(&self, _: &Pinned, frame: FrameNum) {
        self.lock().frame(frame).holders = 1;
    }

    /// The last reference frees the frame at once, which is the strictest time to do it.
    fn adjust(&self, _: &Pinned, frame: FrameNum, by: i64) {
        let mut state = self.lock();
        let contents = state.frame(frame);
        assert!(contents.holders > 0, "a reference of a frame that is not counted");
        contents.holders += by;
        if contents.holders == 0 {
            state.end(frame);
        }
    }

    /// The last holder is always told that it is, which is the strictest answer.
    fn unshare(&self, _: &Pinned, frame: FrameNum) -> bool {
        let mut state = self.lock();
        let contents = state.frame(frame);
        let is_last = contents.holders == 1;
        contents.holders -= i64::from(is_last);
        is_last
    }

    fn compress(&self, _: &Pinned, frame: FrameNum) -> Option<CompressedNum> {
        let mut state = self.lock();
        let (byte, number) = (state.end(frame), state.number());
        state.compressed.insert(number, Contents { byte, holders: 1 });
        Some(CompressedNum::new(number))
    }

    fn decompress(&self, _: &Pinned, compressed: CompressedNum, frame: FrameNum) {
        let mut state = self.lock();
        state.frame(frame).byte = state.kept(compressed).byte;
    }

    fn adjust_compressed(&self, _: &Pinned, compressed: CompressedNum, by: i64) {
        let mut state = self.lock();
        let kept = state.kept(compressed);
        kept.holders += by;
        if kept.holders == 0 {
            state.compressed.remove(&compressed.get());
        }
    }
}

/// All mappings are anonymous.
impl Backings for Memory {}
