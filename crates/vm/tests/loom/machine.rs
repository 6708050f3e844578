//! The machine below the space: one page table, a TLB for each core, and frames that are in use once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use percore::{CoreId, CoreSet, Pinned};
use test_memory::Watched;
use vm::{
    Access, BackingError, BackingNum, Backings, CompressedNum, FrameNum, Frames, Mmu, OutOfMemory, PageNum,
    PageRange, Prot, Shot, Tables,
};

pub const CORES: usize = 2;
pub const PAGES: u64 = 8;

type Translation = Option<(FrameNum, Prot)>;

#[derive(Clone, Default)]
pub struct Machine(Arc<Parts>);

#[derive(Default)]
struct Parts {
    /// Loom reports an entry that is written by somebody who does not hold its page.
    table: [Watched<Translation>; PAGES as usize],
    bench: Mutex<Bench>,
}

/// What is measured, and no part of the model: loom runs one thread at a time.
#[derive(Default)]
struct Bench {
    tlbs: [[Translation; PAGES as usize]; CORES],
    in_use: BTreeSet<u64>,
    frames: u64,
}

impl Machine {
    fn bench(&self) -> MutexGuard<'_, Bench> {
        self.0.bench.lock().unwrap()
    }

    /// What the table says, and the TLBs too where they say something.
    pub fn translation(&self, page: PageNum) -> Translation {
        let entry = self.0.table[index(page)].get();
        for cached in self.bench().tlbs.map(|tlb| tlb[index(page)]) {
            assert!(
                cached.is_none() || cached == entry,
                "{page:?}: a TLB has {cached:?}, the table {entry:?}"
            );
        }
        entry
    }

    fn flush(&self, core: CoreId, pages: PageRange) {
        pages.iter().for_each(|page| self.bench().tlbs[core.index()][index(page)] = None);
    }

    /// How many frames somebody has.
    pub fn frames_in_use(&self) -> usize {
        self.bench().in_use.len()
    }
}

fn index(page: PageNum) -> usize {
    page.get() as usize
}

impl Mmu for Machine {
    fn tables(&self) -> Tables {
        Tables::Shared
    }

    /// The core uses the translation at once.
    fn fill(&self, pin: &Pinned, page: PageNum, frame: FrameNum, prot: Prot) -> Result<(), OutOfMemory> {
        self.0.table[index(page)].set(Some((frame, prot)));
        self.bench().tlbs[pin.core().index()][index(page)] = Some((frame, prot));
        Ok(())
    }

    fn fill_huge(&self, _: &Pinned, _: PageNum, _: FrameNum, _: Prot) -> Result<(), OutOfMemory> {
        unreachable!("these designs have no huge pages")
    }

    fn clear(&self, pin: &Pinned, pages: PageRange) {
        pages.iter().for_each(|page| self.0.table[index(page)].set(None));
        self.flush(pin.core(), pages);
    }

    fn shootdown(&self, _: &Pinned, targets: &CoreSet, pages: PageRange) -> Shot {
        targets.iter().for_each(|core| self.flush(core, pages));
        Shot::default()
    }

    fn users(&self, _: &Pinned) -> CoreSet {
        let mut users = CoreSet::EMPTY;
        (0..CORES).for_each(|core| users.insert(CoreId::new(core)));
        users
    }

    fn entry(&self, _: Prot) -> u64 {
        unreachable!("no leaf is linked")
    }

    fn link(&self, _: &Pinned, _: PageNum, _: usize) -> Result<bool, OutOfMemory> {
        unreachable!("no leaf is linked")
    }
}

impl Frames for Machine {
    fn alloc_zeroed(&self, _: &Pinned) -> Option<FrameNum> {
        let mut bench = self.bench();
        bench.frames += 1;
        let frame = bench.frames;
        bench.in_use.insert(frame);
        Some(FrameNum::new(frame))
    }

    fn free(&self, _: &Pinned, frame: FrameNum) {
        assert!(self.bench().in_use.remove(&frame.get()), "a frame was freed twice");
    }

    fn alloc_huge(&self, _: &Pinned, _: bool) -> Option<FrameNum> {
        None
    }

    fn allows_huge(&self, _: bool) -> bool {
        false
    }

    fn alloc_huge_raw(&self, _: &Pinned, _: bool) -> Option<FrameNum> {
        None
    }

    fn fill_frame(&self, _: &Pinned, _: FrameNum, _: Option<FrameNum>) {
        unreachable!("nothing is huge")
    }

    fn alloc_copy(&self, _: &Pinned, _: FrameNum) -> Option<FrameNum> {
        unreachable!("nothing is shared")
    }

    fn free_huge(&self, _: &Pinned, _: FrameNum) {
        unreachable!("nothing is huge")
    }

    fn compress(&self, _: &Pinned, _: FrameNum) -> Option<CompressedNum> {
        None
    }

    fn decompress(&self, _: &Pinned, _: CompressedNum, _: FrameNum) {
        unreachable!("nothing is compressed")
    }

    fn adjust_compressed(&self, _: &Pinned, _: CompressedNum, _: i64) {
        unreachable!("nothing is compressed")
    }

    fn share(&self, _: &Pinned, _: FrameNum) {
        unreachable!("nothing is shared")
    }

    fn adjust(&self, _: &Pinned, _: FrameNum, _: i64) {
        unreachable!("nothing is shared")
    }

    fn unshare(&self, _: &Pinned, _: FrameNum) -> bool {
        unreachable!("nothing is shared")
    }
}

impl Backings for Machine {
    fn placed(&self, _: &Pinned, _: BackingNum, _: PageNum) {
        unreachable!("all mappings are anonymous")
    }

    fn grown(&self, _: &Pinned, _: BackingNum, _: PageNum) {
        unreachable!("all mappings are anonymous")
    }

    fn frame(&self, _: &Pinned, _: BackingNum, _: PageNum, _: Access) -> Result<FrameNum, BackingError> {
        unreachable!("all mappings are anonymous")
    }

    fn adjust(&self, _: &Pinned, _: BackingNum, _: i64) {
        unreachable!("all mappings are anonymous")
    }
}
