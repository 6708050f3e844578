//! The default methods of a machine's traits: a machine without huge frames, compression and backings has no
//! answer to those calls.

use std::sync::Mutex;

use fuzzing::attempt;
use percore::threads::enter_any;
use percore::{CoreSet, Pinned, pin};
use vm::{
    Access, BackingNum, Backings, CompressedNum, FrameNum, Frames, Mmu, OutOfMemory, PageNum, PageRange,
    Prot, Shot, Tables,
};

/// Test threads of this binary play different ones.
const CORES: usize = 8;

/// A machine with small frames only.
struct Small;

/// The translations of one, which notes the pages that are cleared.
#[derive(Default)]
struct Cleared(Mutex<Vec<PageRange>>);

const FRAME: FrameNum = FrameNum::new(1);

impl Frames for Small {
    fn alloc_zeroed(&self, _: &Pinned) -> Option<FrameNum> {
        None
    }

    fn alloc_copy(&self, _: &Pinned, _: FrameNum) -> Option<FrameNum> {
        None
    }

    fn free(&self, _: &Pinned, _: FrameNum) {}

    fn share(&self, _: &Pinned, _: FrameNum) {}

    fn adjust(&self, _: &Pinned, _: FrameNum, _: i64) {}

    fn unshare(&self, _: &Pinned, _: FrameNum) -> bool {
        false
    }
}

impl Backings for Small {}

impl Mmu for Cleared {
    fn tables(&self) -> Tables {
        Tables::PerCore
    }

    fn fill(&self, _: &Pinned, _: PageNum, _: FrameNum, _: Prot) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn clear(&self, _: &Pinned, pages: PageRange) {
        self.0.lock().unwrap().push(pages);
    }

    fn shootdown(&self, _: &Pinned, _: &CoreSet, _: PageRange) -> Shot {
        Shot::default()
    }
}

#[test]
fn a_machine_of_small_frames_offers_none_that_are_huge_and_compresses_nothing() {
    assert!(!Small.allows_huge(true) && !Small.allows_huge(false));
    let _core = enter_any(CORES);
    assert_eq!([Small.alloc_huge(&pin(), true), Small.alloc_huge_raw(&pin(), true)], [None, None]);
    assert_eq!(Small.compress(&pin(), FRAME), None);
}

#[test]
fn what_a_machine_does_not_have_is_not_asked_for() {
    type Call = fn(&Pinned);
    let calls: [Call; 12] = [
        |pin| _ = Cleared::default().fill_huge(pin, PageNum::new(0), FRAME, Prot::READ),
        |pin| _ = Cleared::default().users(pin),
        |_| _ = Cleared::default().entry(Prot::READ),
        |pin| _ = Cleared::default().link(pin, PageNum::new(0), 0),
        |pin| Small.fill_frame(pin, FRAME, None),
        |pin| Small.free_huge(pin, FRAME),
        |pin| Small.decompress(pin, CompressedNum::new(1), FRAME),
        |pin| Small.adjust_compressed(pin, CompressedNum::new(1), 1),
        |pin| Small.placed(pin, BackingNum::new(1), PageNum::new(1)),
        |pin| Small.grown(pin, BackingNum::new(1), PageNum::new(1)),
        |pin| _ = Small.frame(pin, BackingNum::new(1), PageNum::new(1), Access::Read),
        |pin| Backings::adjust(&Small, pin, BackingNum::new(1), 1),
    ];
    let _core = enter_any(CORES);
    for (at, call) in calls.into_iter().enumerate() {
        let message = attempt(|| call(&pin())).unwrap_err();
        assert!(message.contains("implements this method"), "call {at}: {message}");
    }
}

#[test]
fn runs_are_cleared_one_by_one() {
    let (_core, mmu) = (enter_any(CORES), Cleared::default());
    let runs = [1, 5].map(|start| PageRange::new(PageNum::new(start), 2).unwrap());
    mmu.clear_all(&pin(), &runs);
    assert_eq!(*mmu.0.lock().unwrap(), runs);
}
