//! Random steps for trials.

use proptest::prelude::*;
use proptest::sample::select;
use vm::{Flags, PageNum, PageRange, Prot};
use vm_testkit::{FILES, Forks, Setup, Shows, Step, StepPlacement, Target, WORDS};

/// Cores of every trial.
pub const CORES: usize = 5;
const PAGES: u64 = 2100;

/// User space at low addresses, in the middle, and at the very top of the keys. All divide nodes in two.
pub fn setup() -> impl Strategy<Value = Setup> {
    (select(vec![16, (1 << 18) - 1000, (1 << 36) - PAGES]), any::<u64>()).prop_map(|(start, seed)| {
        let user = PageRange::new(PageNum::new(start), PAGES).unwrap();
        Setup { cores: CORES, frames: 4096, user, seed }
    })
}

/// Offsets into user space: mostly a few pages at the seams of nodes, so that operations meet.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (select(vec![0, 495, 990, 2040, PAGES - 8]), 0..16_u64).prop_map(|(base, near)| base + near),
        1 => 0..PAGES,
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![12 => 1..12_u64, 2 => 1..1500_u64, 1 => select(vec![0, 512, 1024])]
}

fn target() -> impl Strategy<Value = Target> {
    (offset(), length()).prop_map(|(offset, pages)| Target { offset, pages })
}

fn prot() -> impl Strategy<Value = Prot> {
    prop_oneof![3 => Just(Prot::READ | Prot::WRITE), 2 => (0..8_u64).prop_map(Prot::from_bits)]
}

fn place() -> impl Strategy<Value = StepPlacement> {
    prop_oneof![
        Just(StepPlacement::Anywhere),
        offset().prop_map(StepPlacement::Hint),
        offset().prop_map(StepPlacement::Fixed),
        offset().prop_map(StepPlacement::NoReplace),
        offset().prop_map(StepPlacement::Below),
    ]
}

fn piece() -> impl Strategy<Value = Option<u64>> {
    select(vec![None, Some(1), Some(5), Some(300), Some(u64::MAX)])
}

fn shows() -> impl Strategy<Value = Shows> {
    prop_oneof![
        2 => Just(Shows::Zeroes),
        1 => (0..FILES, 0..30_u64).prop_map(|(file, from)| Shows::Private(file, from)),
        1 => (0..FILES, 0..30_u64).prop_map(|(file, from)| Shows::Shared(file, from)),
        1 => (0..FILES, 0..30_u64).prop_map(|(file, from)| Shows::Sealed(file, from)),
    ]
}

fn advice() -> impl Strategy<Value = Flags> {
    let all = [Flags::NONE, Flags::DONTFORK, Flags::WIPEONFORK, Flags::LOCKED, Flags::HUGE | Flags::NOHUGE];
    select(all.to_vec())
}

/// Operations of one space on its mappings, and on their contents.
fn quiet_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (place(), length(), prot(), shows()).prop_map(|(place, pages, prot, shows)| {
            Step::Map(place, pages, prot, shows)
        }),
        3 => target().prop_map(Step::Unmap),
        3 => (target(), prot()).prop_map(|(target, prot)| Step::Protect(target, prot)),
        1 => (target(), advice(), advice()).prop_map(|(target, set, clear)| Step::Advise(target, set, clear)),
        2 => target().prop_map(Step::Discard),
        2 => offset().prop_map(Step::Collapse),
        3 => (target(), 0..3_u64, place(), any::<bool>(), piece()).prop_map(|(target, more, place, keep, most)| {
            Step::Remap(target, more, place, keep, most)
        }),
        2 => (target(), 0..9_u64).prop_map(|(target, more)| Step::Extend(target, more)),
        6 => (offset(), 0..WORDS).prop_map(|(at, word)| Step::Load(at, word)),
        10 => (offset(), 0..WORDS, 1..u64::MAX).prop_map(|(at, word, value)| Step::Store(at, word, value)),
    ]
}

/// Operations on other spaces, files and the machine.
fn common_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => select(&Forks::ALL[..]).prop_map(Step::Fork),
        4 => (0..4_usize).prop_map(Step::Switch),
        2 => Just(Step::End),
        1 => (0..FILES, 0..40_u64).prop_map(|(file, len)| Step::Truncate(file, len)),
        1 => (0..FILES).prop_map(Step::Reclaim),
        6 => offset().prop_map(Step::PageOut),
        1 => any::<bool>().prop_map(Step::Unsure),
        2 => any::<bool>().prop_map(Step::OfferHuge),
        2 => Just(Step::Tick),
        1 => any::<bool>().prop_map(Step::Idle),
        3 => Just(Step::Leave),
        6 => offset().prop_map(Step::Outside),
        1 => Just(Step::DropTables),
    ]
}

/// Any step.
pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => quiet_step(), 1 => common_step()]
}
