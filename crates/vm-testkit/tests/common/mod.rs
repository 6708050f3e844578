//! Random steps for trials.

use proptest::prelude::*;
use proptest::sample::select;
use vm::{PageNum, PageRange, Prot};
use vm_testkit::{Place, Setup, Step, Target, WORDS};

/// Cores of every trial.
pub const CORES: usize = 5;
const PAGES: u64 = 2100;

/// User space at low addresses, in the middle, and at the very top of what a key can say; all cut nodes in two.
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

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        Just(Place::Anywhere),
        offset().prop_map(Place::Hint),
        offset().prop_map(Place::Fixed),
        offset().prop_map(Place::NoReplace),
        offset().prop_map(Place::Below),
    ]
}

/// Any step.
pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (place(), length(), prot()).prop_map(|(place, pages, prot)| Step::Map(place, pages, prot)),
        3 => target().prop_map(Step::Unmap),
        3 => (target(), prot()).prop_map(|(target, prot)| Step::Protect(target, prot)),
        2 => target().prop_map(Step::Discard),
        6 => (offset(), 0..WORDS).prop_map(|(at, word)| Step::Load(at, word)),
        8 => (offset(), 0..WORDS, 1..u64::MAX).prop_map(|(at, word, value)| Step::Store(at, word, value)),
        2 => Just(Step::Tick),
        1 => any::<bool>().prop_map(Step::Idle),
    ]
}
