//! Simulated memory: frames with contents, which record the translations that reach them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

use percore::{CoreId, PerCore, Pinned};
use vm::{CompressedNum, FrameNum, Frames, HUGE_PAGES};

use crate::compressed::CompressedStore;
use crate::huge_frames::HugeFrames;

/// Words of a simulated page: enough to mix up, few enough to check all of them often.
pub const WORDS: usize = 8;
/// The contents of a frame that has not been filled yet.
const SPOILT: u64 = 0xa5a5_a5a5_a5a5_a5a5;

/// A simulated frame, in lines of its own: cores that use different frames share none.
#[derive(Default)]
#[repr(align(128))]
struct Frame {
    used: AtomicBool,
    /// Zero: its owner has it alone.
    references: AtomicI64,
    /// Tables and TLB entries that translate to this frame.
    translations: AtomicU32,
    words: [AtomicU64; WORDS],
}

/// All memory of a [`Machine`](crate::Machine), free frames in per-core stacks so that a freed frame is the
/// next one used.
pub struct FrameStore {
    frames: Box<[Frame]>,
    free: PerCore<Mutex<Vec<FrameNum>>>,
    huge: HugeFrames,
    compressed: CompressedStore,
    /// If true, huge frames are for programs that ask for them, as with `huge=madvise`.
    only_wanted: AtomicBool,
    /// No frame is given out while this is set.
    exhausted: AtomicBool,
    /// If true, no holder is told that it is the last to hold a frame.
    unsure: AtomicBool,
}

impl FrameStore {
    /// `count` frames, shared out to `cores` cores.
    pub fn new(cores: usize, count: usize) -> Self {
        let share =
            |core: CoreId| (core.index()..count).step_by(cores).map(|at| FrameNum::new(at as u64)).collect();
        let huge = HugeFrames::behind(count);
        Self {
            frames: (0..huge.end()).map(|_| Frame::default()).collect(),
            free: PerCore::new(cores, |core| Mutex::new(share(core))),
            huge,
            compressed: CompressedStore::default(),
            only_wanted: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            unsure: AtomicBool::new(false),
        }
    }

    /// From now on there is no memory, or there is again.
    pub fn set_exhausted(&self, exhausted: bool) {
        self.exhausted.store(exhausted, SeqCst);
    }

    /// From now on there are huge frames, or none.
    pub fn offer_huge(&self, offered: bool) {
        self.huge.offer(offered);
    }

    /// From now on huge frames are for programs that ask for them, or for all.
    pub fn offer_huge_when_wanted(&self, only_wanted: bool) {
        self.only_wanted.store(only_wanted, SeqCst);
    }

    /// From now on `unshare` says no, or what is true.
    pub fn set_unsure(&self, unsure: bool) {
        self.unsure.store(unsure, SeqCst);
    }

    /// Returns whether the frame has references, and no owner.
    pub fn is_counted(&self, frame: FrameNum) -> bool {
        self.in_use(frame).references.load(SeqCst) > 0
    }

    /// Returns the number of frames that have an owner.
    pub fn used(&self) -> usize {
        self.frames.iter().filter(|frame| frame.used.load(SeqCst)).count()
    }

    /// Returns the number of pages whose contents are held in compressed memory.
    pub fn compressed(&self) -> usize {
        self.compressed.len()
    }

    /// Reads a word of a frame.
    pub fn read(&self, frame: FrameNum, word: usize) -> u64 {
        self.in_use(frame).words[word].load(SeqCst)
    }

    /// Writes a word of a frame.
    pub fn write(&self, frame: FrameNum, word: usize, value: u64) {
        self.in_use(frame).words[word].store(value, SeqCst);
    }

    /// Returns the whole contents of a frame.
    pub fn contents(&self, frame: FrameNum) -> [u64; WORDS] {
        std::array::from_fn(|word| self.read(frame, word))
    }

    /// A table or TLB translates to `frame` from now on.
    pub(crate) fn hold(&self, frame: FrameNum) {
        self.in_use(frame).translations.fetch_add(1, SeqCst);
    }

    /// A table or TLB does so no longer.
    pub(crate) fn let_go(&self, frame: FrameNum) {
        self.in_use(frame).translations.fetch_sub(1, SeqCst);
    }

    fn in_use(&self, frame: FrameNum) -> &Frame {
        let it = &self.frames[frame.get() as usize];
        assert!(it.used.load(SeqCst), "{frame:?} is used after it was freed: a translation is stale");
        it
    }

    /// Gives the frame to an owner, which finds zeroes.
    fn begin(&self, frame: FrameNum) {
        let it = &self.frames[frame.get() as usize];
        it.words.iter().for_each(|word| word.store(0, SeqCst));
        assert!(!it.used.swap(true, SeqCst), "{frame:?} was on two free lists");
    }

    fn take(&self, pin: &Pinned) -> Option<FrameNum> {
        let pop = |stack: &Mutex<Vec<FrameNum>>| stack.lock().unwrap().pop();
        pop(self.free.mine(pin)).or_else(|| self.free.iter().find_map(pop))
    }
}

impl Frames for FrameStore {
    fn alloc_zeroed(&self, pin: &Pinned) -> Option<FrameNum> {
        if self.exhausted.load(SeqCst) {
            return None;
        }
        let frame = self.take(pin)?;
        self.begin(frame);
        Some(frame)
    }

    fn alloc_huge(&self, _: &Pinned, wanted: bool) -> Option<FrameNum> {
        if self.exhausted.load(SeqCst) || !self.allows_huge(wanted) {
            return None;
        }
        let block = self.huge.take()?;
        block.clone().for_each(|frame| self.begin(FrameNum::new(frame as u64)));
        Some(FrameNum::new(block.start as u64))
    }

    fn allows_huge(&self, wanted: bool) -> bool {
        wanted || !self.only_wanted.load(SeqCst)
    }

    fn alloc_huge_raw(&self, pin: &Pinned, wanted: bool) -> Option<FrameNum> {
        let first = self.alloc_huge(pin, wanted)?;
        let spoil = |frame| (0..WORDS).for_each(|word| self.write(FrameNum::new(frame), word, SPOILT));
        (first.get()..first.get() + HUGE_PAGES).for_each(spoil);
        Some(first)
    }

    fn fill_frame(&self, _: &Pinned, frame: FrameNum, from: Option<FrameNum>) {
        (0..WORDS).for_each(|word| self.write(frame, word, from.map_or(0, |from| self.read(from, word))));
    }

    fn free_huge(&self, pin: &Pinned, first: FrameNum) {
        (0..HUGE_PAGES).for_each(|at| self.free(pin, FrameNum::new(first.get() + at)));
    }

    fn alloc_copy(&self, pin: &Pinned, from: FrameNum) -> Option<FrameNum> {
        let copy = self.alloc_zeroed(pin)?;
        (0..WORDS).for_each(|word| self.write(copy, word, self.read(from, word)));
        Some(copy)
    }

    fn free(&self, pin: &Pinned, frame: FrameNum) {
        let it = &self.frames[frame.get() as usize];
        assert_eq!(it.references.load(SeqCst), 0, "{frame:?} is freed though it is counted");
        let reachable = it.translations.load(SeqCst);
        assert!(reachable == 0, "{frame:?} is freed while {reachable} translations lead to it");
        assert!(it.used.swap(false, SeqCst), "{frame:?} is freed twice");
        if !self.huge.put(frame.get() as usize) {
            self.free.mine(pin).lock().unwrap().push(frame);
        }
    }

    fn share(&self, _: &Pinned, frame: FrameNum) {
        let was = self.in_use(frame).references.swap(1, SeqCst);
        assert_eq!(was, 0, "{frame:?} is shared twice");
    }

    /// The last reference frees the frame at once, which is the strictest time to do it.
    fn adjust(&self, pin: &Pinned, frame: FrameNum, by: i64) {
        let was = self.in_use(frame).references.fetch_add(by, SeqCst);
        assert!(was > 0 && was + by >= 0, "{frame:?} has {was} references, and {by} come");
        if was + by == 0 {
            self.free(pin, frame);
        }
    }

    fn unshare(&self, _: &Pinned, frame: FrameNum) -> bool {
        let known = !self.unsure.load(SeqCst);
        known && self.in_use(frame).references.compare_exchange(1, 0, SeqCst, SeqCst).is_ok()
    }

    fn compress(&self, pin: &Pinned, frame: FrameNum) -> Option<CompressedNum> {
        let number = self.compressed.keep(self.contents(frame))?;
        self.free(pin, frame);
        Some(number)
    }

    fn decompress(&self, _: &Pinned, compressed: CompressedNum, frame: FrameNum) {
        let contents = self.compressed.get(compressed);
        (0..WORDS).for_each(|word| self.write(frame, word, contents[word]));
    }

    fn adjust_compressed(&self, _: &Pinned, compressed: CompressedNum, by: i64) {
        self.compressed.adjust(compressed, by);
    }
}
