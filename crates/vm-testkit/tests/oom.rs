//! Memory runs out at every point where it can: the operation says so, nothing has changed, nothing is lost,
//! and no shootdown was skipped. Frames and table pages run out by a switch, and nodes by an allocator that
//! refuses.

mod common;

use common::{CORES, setup, step};
use percore::Pinned;
use proptest::prelude::*;
use proptest::sample::select;
use test_memory::{FailingNodes, with_blocks};
use vm::{
    FaultError, HUGE_PAGES, Mapping, PageNum, PageRange, Placement, Progress, Prot, Relocation, Remap,
    Tables, VmError,
};
use vm_testkit::{ALL_TABLES, Design, Setup, Shows, Step, Trial, World};
use vm_trees::Locking;

const RW: Prot = Prot::from_bits(3);

#[global_allocator]
static ALLOCATOR: FailingNodes = FailingNodes;

fn page(number: u64) -> PageNum {
    PageNum::new(number)
}

/// The resource that runs out during a step.
#[derive(Clone, Copy, Debug)]
enum Shortage {
    Nodes(usize),
    Frames,
    TablePages,
}

fn shortage() -> impl Strategy<Value = Shortage> {
    prop_oneof![
        Just(Shortage::Nodes(usize::MAX)),
        (0..10_usize).prop_map(Shortage::Nodes),
        Just(Shortage::Frames),
        Just(Shortage::TablePages)
    ]
}

fn step_short_of(trial: &mut Trial, shortage: Shortage, core: usize, step: &Step) {
    let frames = matches!(shortage, Shortage::Frames);
    let table_pages = matches!(shortage, Shortage::TablePages);
    let blocks = if let Shortage::Nodes(blocks) = shortage { blocks } else { usize::MAX };
    trial.short = true;
    trial.world().frames().set_exhausted(frames);
    trial.world().mmu.set_exhausted(table_pages);
    with_blocks(blocks, || trial.step(core, step));
}

fn run(setup: Setup, design: Design, steps: &[(usize, Shortage, Step)]) {
    let mut trial = Trial::new(setup, design);
    steps.iter().for_each(|(core, shortage, step)| step_short_of(&mut trial, *shortage, *core, step));
    trial.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shortages_change_nothing_with_tables_per_core(
        setup in setup(), steps in prop::collection::vec((0..CORES, shortage(), step()), 1..100),
    ) {
        run(setup, Design::Radix(Tables::PerCore), &steps);
    }

    #[test]
    fn shortages_change_nothing_with_one_table(
        setup in setup(), steps in prop::collection::vec((0..CORES, shortage(), step()), 1..100),
    ) {
        run(setup, Design::Radix(Tables::Shared), &steps);
    }

    #[test]
    fn shortages_change_nothing_with_a_tree(
        setup in setup(), locking in select(&Locking::ALL),
        steps in prop::collection::vec((0..CORES, shortage(), step()), 1..100),
    ) {
        run(setup, Design::Tree(locking), &steps);
    }

    #[test]
    fn shortages_change_nothing_with_adaptive_tables(
        setup in setup(), steps in prop::collection::vec((0..CORES, shortage(), step()), 1..100),
    ) {
        run(setup, Design::Radix(Tables::Adaptive), &steps);
    }
}

/// sv6: out of memory after the invalidation skipped the shootdown.
#[test]
fn replacing_takes_effect_on_every_core_or_on_none() {
    for design in Design::ALL {
        let (mut refused, mut done) = (0, 0);
        for blocks in 0..12 {
            let world = World::new(Setup::new(), design);
            let old = PageRange::new(page(500), 4).unwrap();
            world
                .machine
                .on(0, |pin| {
                    world.space.map(pin, Placement::Fixed(old.start()), old.pages(), Mapping::anonymous(RW))
                })
                .unwrap();
            world.machine.on_each(|pin| world.store(pin, page(501), 0, 9).unwrap());
            let replace = |pin: &_| {
                world.space.map(pin, Placement::Fixed(page(400)), 5000, Mapping::anonymous(Prot::READ))
            };
            let answer = world.machine.on(1, |pin| with_blocks(blocks, || replace(pin)));
            let seen = if answer.is_ok() { 0 } else { 9 };
            world
                .machine
                .on_each(|pin| assert_eq!(world.load(pin, page(501), 0), Ok(seen), "{blocks} blocks"));
            *(if answer.is_ok() { &mut done } else { &mut refused }) += 1;
            assert!(answer.is_ok() || answer == Err(VmError::OutOfMemory));
            world.finish();
        }
        assert!(refused > 0 && done > 0, "{refused} refused, {done} done: the test misses one side");
    }
}

#[test]
fn unmapping_one_page_of_a_folded_span_needs_nodes_and_says_so() {
    for tables in ALL_TABLES {
        let world = World::radix(Setup::new(), tables);
        let huge = PageRange::new(page(1 << 18), 1 << 18).unwrap();
        let hole = PageRange::one(page((1 << 18) + 777));
        world.machine.on(0, |pin| {
            world
                .space
                .map(pin, Placement::Fixed(huge.start()), huge.pages(), Mapping::anonymous(RW))
                .unwrap();
            for blocks in 0..4 {
                let answer = with_blocks(blocks, || world.space.unmap(pin, hole));
                assert_eq!(answer, Err(VmError::OutOfMemory), "two nodes are two blocks each");
                assert!(world.space.mapped(pin, huge));
            }
            with_blocks(4, || world.space.unmap(pin, hole)).unwrap();
            assert!(!world.space.mapped(pin, hole));
        });
        world.finish();
    }
}

#[test]
fn a_fault_without_memory_changes_nothing_and_can_be_retried() {
    for design in Design::ALL {
        let world = World::new(Setup::new(), design);
        world.machine.on(0, |pin| {
            world.space.map(pin, Placement::Fixed(page(512)), 512, Mapping::anonymous(RW)).unwrap();
            let store = || world.store(pin, page(600), 0, 5);
            assert_eq!(with_blocks(0, store), Err(FaultError::OutOfMemory));
            world.frames().set_exhausted(true);
            assert_eq!(store(), Err(FaultError::OutOfMemory));
            world.frames().set_exhausted(false);
            world.mmu.set_exhausted(true);
            assert_eq!(store(), Err(FaultError::OutOfMemory));
            assert_eq!(world.frames().used(), 0, "the frame went back");
            world.mmu.set_exhausted(false);
            assert_eq!(store(), Ok(()));
            assert_eq!(world.load(pin, page(600), 0), Ok(5));
        });
        world.finish();
    }
}

/// The old place of a move is held, and another thread discards it: its leaf stays, so the pages come back
/// without memory.
#[test]
fn a_discard_of_held_pages_leaves_room_for_the_way_back() {
    const LEAF: u64 = 8 * HUGE_PAGES;
    for tables in ALL_TABLES {
        let world = World::radix(Setup::new(), tables);
        world.machine.on(0, |pin| {
            let old = PageRange::new(page(LEAF), HUGE_PAGES).unwrap();
            world.space.map(pin, Placement::Fixed(old.start()), HUGE_PAGES, Mapping::anonymous(RW)).unwrap();
            old.iter().for_each(|at| world.store(pin, at, 0, at.get()).unwrap());
            let to = Placement::Fixed(page(2 * LEAF));
            let what = Remap { from: old, pages: HUGE_PAGES, to, keep: false };
            let mut relocation = Relocation::begin(&*world.space, what, HUGE_PAGES).unwrap();
            let mut step = || relocation.step(pin, &mut |_, _, _| None).unwrap();
            while world.load(pin, old.start(), 0).is_ok() {
                assert_eq!(step(), Progress::More);
            }
            world.space.discard(pin, old).unwrap();
            relocation.abort(pin);
            let answer = with_blocks(0, || {
                loop {
                    match relocation.step(pin, &mut |_, _, _| None).unwrap() {
                        Progress::More => {}
                        Progress::Over(answer) => break answer,
                    }
                }
            });
            assert_eq!(answer, Err(VmError::OutOfMemory));
            old.iter().for_each(|at| assert_eq!(world.load(pin, at, 0), Ok(at.get())));
        });
        world.finish();
    }
}

/// A huge page leaves memory page by page, for which it is split first.
#[test]
fn a_huge_page_that_cannot_be_split_stays() {
    for tables in ALL_TABLES {
        let world = World::radix(Setup::new(), tables);
        let step = |pin: &Pinned| world.space.page_out(pin, page(HUGE)).map(|(gone, _)| gone);
        world.frames().offer_huge(true);
        world.machine.on(0, |pin| {
            let mapping = Mapping::anonymous(RW);
            world.space.map(pin, Placement::Fixed(page(HUGE)), HUGE_PAGES, mapping).unwrap();
            world.store(pin, page(HUGE + 300), 1, 4).unwrap();
            assert_eq!(step(pin), Some(0), "it is idle now");
            assert_eq!(with_blocks(0, || step(pin)), Some(0));
            assert_eq!(world.frames().compressed(), 0);
            assert_eq!(step(pin), Some(HUGE_PAGES));
            assert_eq!(world.load(pin, page(HUGE + 300), 1), Ok(4));
        });
        world.finish();
    }
}

/// Where a huge page is.
const HUGE: u64 = 12 * HUGE_PAGES;

/// Runs `verb` on new worlds with memory for no block, one, two, ... until it succeeds. The contents of the
/// pages are the same each time it fails.
fn sweep(design: Design, verb: impl Fn(&World, &Pinned) -> Result<(), VmError>) {
    let touched = [1000, 1511, 1512, 5000, HUGE, HUGE + 300].map(page);
    for blocks in 0.. {
        let world = World::new(Setup::new(), design);
        let file = world.machine.files.create(4000);
        let done = world.machine.on(0, |pin| {
            let at = |start| Placement::Fixed(page(start));
            world.map(pin, at(1000), 4000, RW, Shows::Private(file, 0)).unwrap();
            world.map(pin, at(5000), 7, RW, Shows::Zeroes).unwrap();
            world.frames().offer_huge(true);
            world.map(pin, at(HUGE), HUGE_PAGES, RW, Shows::Zeroes).unwrap();
            touched.iter().for_each(|&at| world.store(pin, at, 0, at.get()).unwrap());
            let answer = with_blocks(blocks, || verb(&world, pin));
            assert!(matches!(answer, Ok(()) | Err(VmError::OutOfMemory)), "{blocks} blocks: {answer:?}");
            answer.is_ok()
        });
        if !done {
            world
                .machine
                .on_each(|pin| touched.iter().for_each(|&at| assert_eq!(world.glance(pin, at), at.get())));
        }
        world.finish();
        if done {
            return assert!(blocks > 1, "there was never too little");
        }
    }
}

#[test]
fn a_fork_that_fails_leaves_the_parent_as_it_was() {
    for design in Design::ALL {
        sweep(design, |world, pin| world.fork(pin).map(World::end));
    }
}

#[test]
fn a_move_that_fails_has_moved_nothing() {
    for design in Design::ALL {
        for to in [Placement::Fixed(page(70_000)), Placement::Anywhere { hint: None }] {
            let from = PageRange::new(page(1000), 4000).unwrap();
            sweep(design, |world, pin| {
                world.remap(pin, &Remap { from, pages: 4001, to, keep: false }).map(drop)
            });
        }
    }
}

/// A place that was fixed is held by the time that memory runs out: there was nothing.
#[test]
fn a_move_in_pieces_that_fails_has_moved_nothing() {
    for design in ALL_TABLES.map(Design::Radix) {
        for to in [Placement::Fixed(page(70_000)), Placement::Anywhere { hint: None }] {
            let from = PageRange::new(page(1000), 4000).unwrap();
            // The growth, in pages, by which folded slots are split when the mapping grows at the new place.
            let what = Remap { from, pages: 6000, to, keep: false };
            sweep(design, |world, pin| world.remap_in_pieces(pin, &what, 700, || ()).map(drop));
        }
    }
}

#[test]
fn a_huge_page_that_cannot_be_cut_stays_whole() {
    let part = PageRange::new(page(HUGE + 5), 3).unwrap();
    for design in ALL_TABLES.map(Design::Radix) {
        sweep(design, |world, pin| world.space.unmap(pin, part));
        sweep(design, |world, pin| world.space.discard(pin, part));
        sweep(design, |world, pin| world.space.protect(pin, part, Prot::NONE));
    }
}

#[test]
fn destroying_needs_no_memory() {
    for design in Design::ALL {
        let world = World::new(Setup::new(), design);
        world.machine.on(0, |pin| {
            world.space.map(pin, Placement::Fixed(page(1000)), 1 << 20, Mapping::anonymous(RW)).unwrap();
            (0..5).for_each(|at| world.store(pin, page(1000 + at * 999), 0, 1).unwrap());
            with_blocks(0, || world.space.destroy(pin));
            assert!(!world.space.mapped(pin, PageRange::one(page(5000))));
        });
        with_blocks(0, || world.finish());
    }
}
