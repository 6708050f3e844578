//! A core whose TLB keeps the translations of spaces that the core does not run. The core never uses one that
//! is stale, and those that no core invalidated are still there.

mod core;
mod tlb;

use proptest::prelude::*;

use crate::core::{Core, LEAF};

const SPACES: usize = 4;
/// Two of each of two tables.
const PAGES: [u64; 4] = [0, 1, LEAF + 100, LEAF + 101];

#[derive(Clone, Debug)]
enum Step {
    Run(Option<usize>),
    Touch(u64),
    Invalidate(usize, u64),
    RemoteInvalidate(usize, u64),
    RemoteInvalidateAsItLeaves(usize, u64, Option<usize>),
    Copy(usize, u64),
    FreeLeaf(usize, u64),
    DropTables(usize),
    Replace(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (space, page) = (0..SPACES, prop::sample::select(&PAGES));
    let next = || prop::option::weighted(0.8, 0..SPACES);
    let at = || (space.clone(), page.clone());
    prop_oneof![
        8 => next().prop_map(Step::Run),
        12 => page.clone().prop_map(Step::Touch),
        2 => at().prop_map(|(space, page)| Step::Invalidate(space, page)),
        2 => at().prop_map(|(space, page)| Step::RemoteInvalidate(space, page)),
        2 => (at(), next()).prop_map(|((space, page), next)| Step::RemoteInvalidateAsItLeaves(space, page, next)),
        1 => at().prop_map(|(space, page)| Step::Copy(space, page)),
        1 => at().prop_map(|(space, page)| Step::FreeLeaf(space, page)),
        1 => space.clone().prop_map(Step::DropTables),
        1 => space.prop_map(Step::Replace),
    ]
}

fn take<const NUMBERS: u64>(core: &mut Core<NUMBERS>, step: &Step) {
    match *step {
        Step::Run(next) => core.run(next),
        Step::Touch(page) => core.touch(page),
        Step::Invalidate(space, page) => core.invalidate(space, page),
        Step::RemoteInvalidate(space, page) => core.invalidate_remotely(space, page, core.running()),
        Step::RemoteInvalidateAsItLeaves(space, page, next) => core.invalidate_remotely(space, page, next),
        Step::Copy(space, page) => core.copy(space, page),
        Step::FreeLeaf(space, page) => core.free_leaf(space, page),
        Step::DropTables(space) => core.drop_tables(space),
        Step::Replace(space) => core.replace(space),
    }
}

/// After the steps, every space reads all its pages.
fn nothing_stale<const NUMBERS: u64>(steps: &[Step]) {
    let mut core = Core::<NUMBERS>::new(SPACES);
    steps.iter().for_each(|step| take(&mut core, step));
    for space in 0..SPACES {
        core.run(Some(space));
        PAGES.into_iter().for_each(|page| core.touch(page));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_number_for_each_space(steps in prop::collection::vec(step(), 1..150)) {
        nothing_stale::<16>(&steps);
    }

    #[test]
    fn fewer_numbers_than_spaces(steps in prop::collection::vec(step(), 1..150)) {
        nothing_stale::<3>(&steps);
    }

    #[test]
    fn one_number_for_all(steps in prop::collection::vec(step(), 1..150)) {
        nothing_stale::<1>(&steps);
    }
}

/// Two spaces in turn, with pages that no core invalidates: each finds its translations again, unless there
/// is one number only.
#[test]
fn a_core_that_comes_back_finds_its_translations() {
    fn hits<const NUMBERS: u64>() -> usize {
        let mut core = Core::<NUMBERS>::new(2);
        for space in [0, 1, 0, 1] {
            core.run(Some(space));
            PAGES.into_iter().for_each(|page| core.touch(page));
        }
        core.tlb.hits
    }
    assert_eq!((hits::<1>(), hits::<2>()), (0, 2 * PAGES.len()));
}
