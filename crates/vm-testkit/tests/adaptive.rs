//! Adaptive tables: which cores link, which are interrupted, and what stays.

use std::sync::Arc;
use std::thread;

use percore::Pinned;
use vm::{Access, Event, Fault, Mapping, PageNum, PageRange, Placement, Prot, Tables};
use vm_testkit::{Call, Setup, Shows, World};

const RW: Prot = Prot::from_bits(3);
const LEAF: u64 = 512;
const LEAF_START: u64 = 8 * LEAF;

fn world(cores: usize) -> World {
    World::radix(Setup { cores, ..Setup::new() }, Tables::Adaptive)
}

fn pages(start: u64, pages: u64) -> PageRange {
    PageRange::new(PageNum::new(start), pages).unwrap()
}

fn map(world: &World, core: usize, range: PageRange) {
    let place = Placement::Fixed(range.start());
    let map = |pin: &Pinned| world.space.map(pin, place, range.pages(), Mapping::anonymous(RW));
    assert_eq!(world.machine.on(core, map), Ok(range.start()));
}

fn touch(world: &World, core: usize, range: PageRange) {
    world
        .machine
        .on(core, |pin| range.iter().for_each(|page| world.store(pin, page, 0, page.get()).unwrap()));
}

fn unmap(world: &World, core: usize, range: PageRange) {
    world.machine.on(core, |pin| world.space.unmap(pin, range).unwrap());
}

/// Returns the number of times that `event` happens during `act`.
fn adds(world: &World, event: Event, act: impl FnOnce()) -> u64 {
    let before = world.count(event);
    act();
    world.count(event) - before
}

/// One leaf, mapped by core 0, of which the cores up to `users` have touched the first `used` pages, in their
/// order.
fn leaf_of(cores: usize, users: usize, used: u64) -> (World, PageRange) {
    let (world, leaf) = (world(cores), pages(LEAF_START, LEAF));
    map(&world, 0, leaf);
    (0..users).for_each(|core| touch(&world, core, pages(LEAF_START, used)));
    (world, leaf)
}

#[test]
fn neighbours_in_a_leaf_never_meet() {
    for cores in [2, 8, 64] {
        let (world, leaf) = leaf_of(cores, 0, 0);
        for round in 0..50 {
            for core in 0..cores {
                let mine = pages(leaf.start().get() + 8 * core as u64, 1 + round % 3);
                map(&world, core, mine);
                touch(&world, core, mine);
                unmap(&world, core, mine);
            }
        }
        assert_eq!(world.count(Event::IpiTarget), 0, "{cores} cores");
        world.finish();
    }
}

#[test]
fn two_sharers_are_known_by_name() {
    let (world, leaf) = leaf_of(8, 2, 100);
    assert_eq!(world.count(Event::FillFault), 100, "the second has a page of its own");
    for page in 0..100 {
        let one = pages(leaf.start().get() + page, 1);
        assert_eq!(adds(&world, Event::IpiTarget, || unmap(&world, (page % 2) as usize, one)), 1);
    }
    world.finish();
}

#[test]
fn the_owner_gets_a_private_sharers_page_without_an_interrupt() {
    let (world, _) = leaf_of(8, 2, 1);
    let more = pages(LEAF_START + 10, 10);
    touch(&world, 1, more);
    assert_eq!(adds(&world, Event::IpiTarget, || touch(&world, 0, more)), 0);
    assert_eq!(adds(&world, Event::IpiTarget, || unmap(&world, 0, more)), 1);
    world.finish();
}

/// Threads that share a page or two with the others, and nothing else.
#[test]
fn a_few_pages_that_few_use_leave_the_others_alone() {
    let (world, leaf) = leaf_of(4, 4, 3);
    for core in 0..4 {
        let mine = pages(leaf.start().get() + 100 + core, 1);
        touch(&world, core as usize, mine);
        assert_eq!(adds(&world, Event::IpiTarget, || unmap(&world, core as usize, mine)), 0, "core {core}");
    }
    assert_eq!(world.mmu.links(), 1);
    world.finish();
}

/// Each private sharer costs a page, so the leaf becomes shared when there are many, however little they have
/// in common.
#[test]
fn a_page_that_many_use_makes_its_leaf_shared() {
    let (world, _) = leaf_of(8, 8, 1);
    assert_eq!((world.mmu.own_pages(), world.mmu.links()), (3, 5));
    world.finish();
}

/// The same if the owner does not use the page.
#[test]
fn a_page_that_many_private_sharers_use_makes_its_leaf_shared() {
    let (world, leaf) = leaf_of(9, 1, 1);
    let page = pages(leaf.start().get() + 7, 1);
    (1..9).for_each(|core| touch(&world, core, page));
    assert_eq!((world.mmu.own_pages(), world.mmu.links()), (0, 5), "the fifth invalidates it on four");
    world.finish();
}

/// A leaf of which many had the first page, and which core 0 owns again.
fn owned_again(cores: usize) -> (World, PageRange) {
    let (world, leaf) = leaf_of(cores, cores, 1);
    let rounds = (0..).take_while(|_| round(&world, 0, 100) > 0).count() as u64;
    assert_eq!((rounds, world.mmu.links()), (OWN_AFTER, 1));
    (world, leaf)
}

/// From then on a page or two leave that core alone.
#[test]
fn a_page_that_many_use_is_no_reason_twice() {
    let (world, _) = owned_again(8);
    (0..8).for_each(|core| touch(&world, core, pages(LEAF_START, 1)));
    assert_eq!((world.mmu.links(), round(&world, 0, 100)), (1, 0));
    world.finish();
}

/// Does the accesses of `wordindex` to 19 leaves: all cores read 16 that one core has filled, and each needs
/// a page of the other 3. Returns the number of fill faults, and the number of pages of tables of the cores'
/// own that there are then.
fn index(tables: Tables) -> (u64, usize) {
    let cores = 8;
    let world = World::radix(Setup { cores, ..Setup::new() }, tables);
    let part = |at: usize, first: u64, used| pages(LEAF_START + at as u64 * LEAF + first, used);
    for at in 0..19 {
        map(&world, at % cores, part(at, 0, LEAF));
        touch(&world, at % cores, part(at, 0, 100));
    }
    for first in (0..100).step_by(10) {
        for at in 0..16 {
            (0..cores).for_each(|core| touch(&world, core, part(at, first, 10)));
        }
    }
    (0..cores).for_each(|core| (16..19).for_each(|at| touch(&world, core, part(at, 0, 1))));
    let counted = (world.count(Event::FillFault), world.mmu.own_pages());
    world.finish();
    counted
}

/// An eighth of the fills, and half as many pages as there are leaves at most: what one table for all would
/// have.
#[test]
fn an_index_needs_few_fills_and_few_pages_of_tables() {
    let (all_fills, all_pages) = index(Tables::PerCore);
    let (fills, pages) = index(Tables::Adaptive);
    assert!(8 * fills <= all_fills, "{fills} of {all_fills}");
    assert_eq!((all_pages, pages), (8 * 19, 3 * 3));
}

/// A core has left, and what its table leads to is invalidated: the core is not told then. It fills there for
/// another process, and later runs there again.
#[test]
fn a_fill_from_outside_has_seen_missed_notes() {
    let (world, leaf) = leaf_of(2, 2, 3);
    world.machine.on(0, |pin| world.mmu.leave(pin));
    assert_eq!(adds(&world, Event::IpiTarget, || unmap(&world, 1, leaf)), 0);
    world.machine.settle();
    // Another leaf is where that was.
    touch(&world, 1, beside(&world, leaf));
    map(&world, 1, leaf);
    assert_eq!(world.machine.on(0, |pin| world.fault(pin, leaf.start(), Access::Write)), Ok(Fault::Alloc));
    touch(&world, 0, leaf);
    world.finish();
}

/// The leaf beside `leaf`, mapped.
fn beside(world: &World, leaf: PageRange) -> PageRange {
    let beside = pages(leaf.end().get(), LEAF);
    map(world, 1, beside);
    beside
}

/// Threads that run the same text.
#[test]
fn a_few_pages_of_a_file_make_their_leaf_shared() {
    let (world, text) = (world(8), pages(LEAF_START, 4));
    let file = world.machine.files.create(text.pages());
    let place = Placement::Fixed(text.start());
    let map = |pin: &Pinned| world.map(pin, place, text.pages(), Prot::READ, Shows::Private(file, 0));
    world.machine.on(0, map).unwrap();
    let read = |core| {
        world.machine.on(core, |pin| text.iter().for_each(|page| _ = world.load(pin, page, 0).unwrap()));
    };
    (0..3).for_each(read);
    assert_eq!(world.mmu.links(), 2, "the owner, and the third with its last fill");
    for core in 3..8 {
        assert_eq!(adds(&world, Event::FillFault, || read(core)), 1, "core {core} links");
    }
    world.finish();
}

#[test]
fn many_fills_by_several_private_sharers_make_their_leaf_shared() {
    let (world, _) = leaf_of(8, 2, 100);
    let all = pages(LEAF_START, 100);
    assert_eq!(adds(&world, Event::FillFault, || touch(&world, 2, all)), 20, "the last one links");
    for core in 3..8 {
        assert_eq!(adds(&world, Event::FillFault, || touch(&world, core, all)), 1, "core {core} links");
    }
    assert_eq!(adds(&world, Event::FillFault, || touch(&world, 1, all)), 0, "its own page will do");
    let one = pages(LEAF_START, 1);
    assert_eq!(adds(&world, Event::IpiTarget, || unmap(&world, 3, one)), 7);
    world.finish();
}

/// Each shares a page with the owner. The ninth and later invalidate it there, as the list of private sharers
/// is full.
#[test]
fn sharers_beyond_the_list_invalidate_the_page() {
    let (world, leaf) = owned_again(12);
    touch(&world, 0, pages(LEAF_START, 12));
    let page = |core: usize| pages(leaf.start().get() + core as u64, 1);
    for core in 1..12 {
        let taken = u64::from(core > 8);
        assert_eq!(adds(&world, Event::IpiTarget, || touch(&world, core, page(core))), taken, "core {core}");
        assert_eq!(
            adds(&world, Event::IpiTarget, || unmap(&world, core, page(core))),
            1 - taken,
            "core {core}"
        );
    }
    world.finish();
}

/// Its own page goes when it faults in the leaf again, and what it had there it has through the leaf.
#[test]
fn a_core_with_a_page_of_its_own_links_as_well() {
    let (world, _) = leaf_of(4, 4, 40);
    let more = pages(LEAF_START + 100, 1);
    touch(&world, 0, more);
    assert_eq!(adds(&world, Event::FillFault, || touch(&world, 1, more)), 1);
    assert_eq!(adds(&world, Event::FillFault, || touch(&world, 1, pages(LEAF_START, 40))), 0);
    assert_eq!(world.mmu.links(), 4);
    world.finish();
}

#[test]
fn a_leaf_that_is_unmapped_as_a_whole_has_no_owner() {
    let (world, leaf) = leaf_of(8, 8, 40);
    assert_eq!(world.mmu.links(), 7, "all but the private sharer");
    unmap(&world, 5, leaf);
    assert_eq!(world.mmu.links(), 0);
    map(&world, 5, leaf);
    touch(&world, 5, leaf);
    assert_eq!(adds(&world, Event::IpiTarget, || unmap(&world, 5, leaf)), 0, "it was core 5's alone");
    world.finish();
}

/// Returns whether it folds, as it does where there are huge pages, or stays.
#[test]
fn a_leaf_that_is_dropped_as_a_whole_has_no_owner() {
    for huge in [false, true] {
        let (world, leaf) = leaf_of(8, 8, 40);
        world.frames().offer_huge(huge);
        world.machine.on(5, |pin| world.space.discard(pin, leaf).unwrap());
        assert_eq!(world.mmu.links(), 0);
        touch(&world, 5, leaf);
        assert_eq!(adds(&world, Event::IpiTarget, || unmap(&world, 5, leaf)), 0, "it was core 5's alone");
        world.finish();
    }
}

/// The leaf folds and is freed, so all unlink. Split again, it is a new one.
#[test]
fn a_leaf_that_becomes_a_huge_page_has_no_owner() {
    let (world, leaf) = leaf_of(8, 8, 40);
    world.frames().offer_huge(true);
    let collapse = |pin: &Pinned| world.space.collapse(pin, leaf.start()).unwrap();
    assert_eq!(adds(&world, Event::IpiTarget, || world.machine.on(5, collapse)), 7);
    assert_eq!((world.count(Event::Promotion), world.mmu.links()), (1, 0));
    (0..8).for_each(|core| touch(&world, core, leaf));
    unmap(&world, 5, pages(LEAF_START + 7, 1));
    touch(&world, 3, pages(LEAF_START, 7));
    assert_eq!(world.mmu.links(), 1, "core 3 is the owner");
    world.finish();
}

#[test]
fn a_core_without_tables_is_not_shot_at_and_comes_back() {
    let (world, _) = leaf_of(4, 4, 40);
    let page = |at| pages(LEAF_START + at, 1);
    world.machine.on(3, |pin| world.drop_tables(pin));
    assert_eq!(adds(&world, Event::IpiTarget, || unmap(&world, 0, page(0))), 2, "cores 1 and 2");
    touch(&world, 3, page(1));
    assert_eq!(adds(&world, Event::IpiTarget, || unmap(&world, 0, page(1))), 3);
    world.finish();
}

/// A linked leaf is a page table: it stays exactly while a core walks it.
#[test]
fn an_empty_leaf_is_freed_when_no_core_is_linked() {
    let (world, leaf) = leaf_of(2, 1, 10);
    let live = || world.space.nodes().created - world.space.nodes().collapsed;
    (0..8).for_each(|part| unmap(&world, 0, pages(leaf.start().get() + 64 * part, 64)));
    world.machine.settle();
    assert_eq!(live(), 4, "the leaf and the way to it");
    world.machine.on(0, |pin| world.drop_tables(pin));
    world.machine.settle();
    assert_eq!(live(), 1, "the root");
    world.finish();
}

#[test]
fn lowered_rights_reach_every_linked_core() {
    let (world, _) = leaf_of(4, 4, 2);
    let page = PageRange::one(PageNum::new(LEAF_START));
    let shot = adds(&world, Event::IpiTarget, || {
        world.machine.on(0, |pin| world.space.protect(pin, page, Prot::READ).unwrap());
    });
    assert_eq!(shot, 3);
    world.machine.on(2, |pin| assert!(world.store(pin, page.start(), 0, 7).is_err()));
    world.machine.on(2, |pin| assert_eq!(world.load(pin, page.start(), 0), Ok(LEAF_START)));
    world.finish();
}

/// The page is there already: nothing is filled but rights, in the one word that all of them walk.
#[test]
fn raised_rights_cost_one_fault_that_fills_nothing() {
    let (world, _) = leaf_of(4, 4, 40);
    let page = PageRange::one(PageNum::new(LEAF_START));
    let protect = |prot| world.machine.on(0, |pin| world.space.protect(pin, page, prot).unwrap());
    protect(Prot::READ);
    (2..4).for_each(|core| world.machine.on(core, |pin| _ = world.load(pin, page.start(), 0).unwrap()));
    protect(RW);
    let fault = world.machine.on(2, |pin| world.fault(pin, page.start(), Access::Write));
    assert_eq!(fault, Ok(Fault::Spurious));
    assert_eq!(adds(&world, Event::FillFault, || touch(&world, 3, page)), 0);
    world.finish();
}

/// Leaves and pages far apart go with one call, few of them or many: no core translates any, and no leaf has
/// an owner.
#[test]
fn leaves_far_apart_are_unlinked_together() {
    for (places, discards) in [(1, false), (3, false), (3, true), (8, false), (9, true), (30, false)] {
        let world = world(3);
        let place = |number: u64| LEAF_START + number * 5 * LEAF;
        let all = pages(place(0), place(places) - place(0));
        for core in 0..2 {
            for number in 0..places {
                // Every other one is no whole leaf.
                let mine = pages(place(number), if number % 2 == 0 { LEAF } else { 3 });
                map(&world, 0, mine);
                (0..3).for_each(|toucher| touch(&world, toucher, pages(mine.start().get() + core as u64, 2)));
            }
            match discards {
                true => {
                    assert!(world.machine.on(core, |pin| world.space.discard(pin, all)).is_err(), "holes")
                }
                false => unmap(&world, core, all),
            }
            assert_eq!(world.mmu.links(), 0, "{places} places");
            assert_eq!(world.frames().used(), 0, "{places} places");
            unmap(&world, 0, all);
        }
        world.finish();
    }
}

/// Invalidations in a row after which a core owns a shared leaf.
const OWN_AFTER: u64 = 4;

/// Core `core` maps, uses and unmaps page `at` of the leaf: how many cores that interrupts.
fn round(world: &World, core: usize, at: u64) -> u64 {
    let page = pages(LEAF_START + at, 1);
    map(world, core, page);
    touch(world, core, page);
    adds(world, Event::IpiTarget, || unmap(world, core, page))
}

#[test]
fn the_only_user_of_a_shared_leaf_owns_it_again() {
    let (world, _) = leaf_of(8, 8, 40);
    assert_eq!(world.mmu.links(), 7, "all but the private sharer");
    let shot: Vec<_> = (0..2 * OWN_AFTER).map(|_| round(&world, 5, 100)).collect();
    assert_eq!(shot, [[6; OWN_AFTER as usize], [0; OWN_AFTER as usize]].concat());
    assert_eq!(world.mmu.links(), 1);
    assert_eq!(
        adds(&world, Event::FillFault, || touch(&world, 5, pages(LEAF_START, 40))),
        0,
        "it is the owner"
    );
    touch(&world, 0, pages(LEAF_START, 10));
    assert_eq!(world.mmu.links(), 1, "the old owner is a private sharer");
    world.finish();
}

/// No core is unlinked while two invalidate.
#[test]
fn two_cores_that_invalidate_by_turns_stay_linked() {
    let (world, _) = leaf_of(4, 4, 40);
    (0..4 * OWN_AFTER)
        .for_each(|turn| assert_eq!(round(&world, 2 + (turn / (OWN_AFTER - 1) % 2) as usize, 100), 2));
    assert_eq!(world.mmu.links(), 3);
    world.finish();
}

/// The cores that were unlinked come back as private sharers, share the leaf again, and stay for twice as
/// long.
#[test]
fn a_core_that_still_uses_the_leaf_shares_it_again_and_for_longer() {
    let (world, _) = leaf_of(8, 8, 40);
    for time in 0..4 {
        let rounds = (0..).take_while(|_| round(&world, 5, 100) > 0).count() as u64;
        assert_eq!(rounds, OWN_AFTER << time);
        (0..8).for_each(|core| touch(&world, core, pages(LEAF_START, 40)));
        assert!(world.mmu.links() > 2, "shared by several again");
    }
    world.finish();
}

/// Core 0 becomes the owner of the leaf between the moment when core 4 is in its set and the one when core
/// 4's table leads there: core 4 was unlinked before it had linked, and finds that out by itself.
#[test]
fn a_core_that_is_unlinked_while_it_links_unlinks() {
    let (world, leaf) = leaf_of(5, 4, 40);
    let world = Arc::new(world);
    (1..OWN_AFTER).for_each(|_| assert!(round(&world, 0, 100) > 0));
    let owner = world.clone();
    world.machine.interpose(Call::Link, move |_| {
        thread::scope(|scope| scope.spawn(|| assert!(round(&owner, 0, 100) > 0)).join()).unwrap();
    });
    world.machine.on(4, |pin| assert_eq!(world.load(pin, leaf.start(), 0), Ok(LEAF_START)));
    assert_eq!(world.mmu.links(), 1, "core 0 is the owner, and core 4 a private sharer");
    unmap(&world, 0, pages(LEAF_START, 1));
    world.machine.on(4, |pin| assert!(world.load(pin, leaf.start(), 0).is_err(), "the page has gone"));
    Arc::into_inner(world).expect("nobody else has the world").finish();
}

/// One core becomes the owner time and again, with and without others that fault there, link, invalidate and
/// drop their tables at the same time: no core reads what is gone.
#[test]
fn unlinking_against_all_other_cores() {
    let (world, leaf) = leaf_of(4, 4, 40);
    let (own, theirs) = (pages(leaf.start().get() + 100, 1), pages(leaf.start().get() + 200, 4));
    world.machine.on_threads(4, |core| {
        let pin = core.pin();
        let me = pin.core().index();
        let mine = if me == 0 { own } else { pages(theirs.start().get() + me as u64, 1) };
        for turn in 0..1500 {
            core.serve();
            let remaps = me == 0 || turn % 512 == 500;
            if remaps {
                let place = Placement::Fixed(mine.start());
                world.space.map(pin, place, 1, Mapping::anonymous(RW)).unwrap();
                assert_eq!(world.load(pin, mine.start(), 0), Ok(0));
                world.store(pin, mine.start(), 0, turn).unwrap();
            }
            let at = PageNum::new(LEAF_START + turn % 40);
            assert_eq!(world.load(pin, at, 0), Ok(at.get()));
            if me == 3 && turn % 300 == 299 {
                world.drop_tables(pin);
            }
            world.machine.tick(pin);
        }
    });
    world.finish();
}
