//! Counts of interrupted cores, which the design aims to keep low.

use std::collections::BTreeSet;

use vm::{Event, Mapping, PageNum, PageRange, Placement, Prot, Tables};
use vm_testkit::{ALL_TABLES, Setup, World, for_each_design};

const RW: Prot = Prot::from_bits(3);
const ROUNDS: u64 = 100;

fn world(cores: usize, tables: Tables) -> World {
    World::radix(Setup { cores, ..Setup::new() }, tables)
}

fn anywhere(world: &World, core: usize, pages: u64) -> PageRange {
    let place = Placement::Anywhere { hint: None };
    let start =
        world.machine.on(core, |pin| world.space.map(pin, place, pages, Mapping::anonymous(RW))).unwrap();
    PageRange::new(start, pages).unwrap()
}

fn touch(world: &World, core: usize, pages: PageRange) {
    world
        .machine
        .on(core, |pin| pages.iter().for_each(|page| world.store(pin, page, 0, page.get()).unwrap()));
}

fn unmap(world: &World, core: usize, pages: PageRange) {
    world.machine.on(core, |pin| world.space.unmap(pin, pages).unwrap());
}

/// Rounds of `local` on every core in turn.
fn local(world: &World) -> u64 {
    for round in 0..ROUNDS {
        for core in 0..world.machine.cores() {
            let pages = anywhere(world, core, 1 + round % 3);
            touch(world, core, pages);
            unmap(world, core, pages);
        }
    }
    ROUNDS * world.machine.cores() as u64
}

#[test]
fn local_shoots_at_no_core() {
    for cores in [1, 2, 8, 64] {
        let world = world(cores, Tables::PerCore);
        let rounds = local(&world);
        assert_eq!(world.count(Event::Munmap), rounds);
        assert_eq!(world.count(Event::Shootdown), 0, "{cores} cores");
        assert_eq!(world.count(Event::IpiTarget), 0, "{cores} cores");
        world.finish();
    }
}

#[test]
fn local_with_a_shared_table_shoots_at_all_others() {
    for cores in [1, 2, 8, 64] {
        let world = world(cores, Tables::Shared);
        let rounds = local(&world);
        assert_eq!(world.count(Event::IpiTarget), rounds * (cores as u64 - 1), "{cores} cores");
        world.finish();
    }
}

#[test]
fn pipeline_shoots_at_exactly_one() {
    for cores in [2, 3, 8, 64] {
        let world = world(cores, Tables::PerCore);
        for round in 0..ROUNDS as usize {
            let (producer, consumer) = (round % cores, (round + 1) % cores);
            let pages = anywhere(&world, producer, 4);
            touch(&world, producer, pages);
            touch(&world, consumer, pages);
            unmap(&world, consumer, pages);
        }
        assert_eq!(world.count(Event::Shootdown), ROUNDS, "{cores} cores");
        assert_eq!(world.count(Event::IpiTarget), ROUNDS, "{cores} cores");
        assert_eq!(world.count(Event::FillFault), 4 * ROUNDS);
        assert_eq!(world.count(Event::AllocFault), 4 * ROUNDS);
        world.finish();
    }
}

#[test]
fn untouched_pages_cost_nothing_to_unmap() {
    for tables in ALL_TABLES {
        let world = world(4, tables);
        let pages = anywhere(&world, 0, 5000);
        unmap(&world, 1, pages);
        assert_eq!(world.count(Event::Shootdown), 0);
        world.finish();
    }
}

#[test]
fn one_operation_is_one_shootdown_at_any_size() {
    for tables in ALL_TABLES {
        let world = world(2, tables);
        let pages = anywhere(&world, 0, 3000);
        touch(&world, 0, pages);
        touch(&world, 1, pages);
        unmap(&world, 0, pages);
        assert_eq!((world.count(Event::Shootdown), world.count(Event::IpiTarget)), (1, 1));
        world.finish();
    }
}

#[test]
fn a_page_that_changed_hands_is_forgotten_by_its_first_owner_after_discard() {
    let world = world(4, Tables::PerCore);
    let pages = anywhere(&world, 0, 1);
    touch(&world, 0, pages);
    world.machine.on(1, |pin| world.space.discard(pin, pages).unwrap());
    assert_eq!(world.count(Event::IpiTarget), 1);
    touch(&world, 1, pages);
    unmap(&world, 1, pages);
    assert_eq!(world.count(Event::IpiTarget), 1, "core 0 had nothing left to lose");
    world.finish();
}

#[test]
fn only_lowering_rights_shoots() {
    let world = world(4, Tables::PerCore);
    let pages = anywhere(&world, 0, 2);
    touch(&world, 0, pages);
    touch(&world, 1, pages);
    let protect = |prot| world.machine.on(0, |pin| world.space.protect(pin, pages, prot).unwrap());
    protect(Prot::ALL);
    assert_eq!(world.count(Event::IpiTarget), 0);
    protect(Prot::READ);
    assert_eq!(world.count(Event::IpiTarget), 1);
    protect(Prot::NONE);
    assert_eq!(world.count(Event::IpiTarget), 1, "nobody translates the pages any more");
    world.finish();
}

#[test]
fn more_cores_than_a_tracker_can_name_are_all_reached() {
    for cores in [4, 24, 64, 256] {
        let world = world(cores, Tables::PerCore);
        let page = PageNum::new(1000);
        world
            .machine
            .on(0, |pin| world.space.map(pin, Placement::Fixed(page), 1, Mapping::anonymous(RW)).unwrap());
        (0..cores).for_each(|core| touch(&world, core, PageRange::one(page)));
        unmap(&world, 0, PageRange::one(page));
        assert_eq!(world.count(Event::IpiTarget), cores as u64 - 1);
        world.finish();
    }
}

#[test]
fn idle_cores_are_avoided_and_counted() {
    for tables in ALL_TABLES {
        let world = world(4, tables);
        let pages = anywhere(&world, 0, 1);
        (0..4).for_each(|core| touch(&world, core, pages));
        world.machine.set_idle(2, true);
        unmap(&world, 0, pages);
        assert_eq!((world.count(Event::IpiTarget), world.count(Event::AvoidedIpi)), (2, 1));
        world.machine.set_idle(2, false);
        world.machine.on(2, |pin| assert!(world.load(pin, pages.start(), 0).is_err()));
        world.finish();
    }
}

#[test]
fn counters_are_kept_where_things_happen() {
    let world = world(2, Tables::PerCore);
    let pages = anywhere(&world, 0, 3);
    touch(&world, 1, pages);
    unmap(&world, 0, pages);
    let of = |core| world.space.core_counters(percore::CoreId::new(core));
    assert_eq!((of(0)[Event::Mmap], of(0)[Event::Munmap], of(0)[Event::AllocFault]), (1, 1, 0));
    assert_eq!((of(1)[Event::Mmap], of(1)[Event::Munmap], of(1)[Event::AllocFault]), (0, 0, 3));
    assert_eq!(of(0)[Event::IpiTarget], 1);
    let names: Vec<_> = of(0).iter().map(|(name, _)| name).collect();
    assert_eq!(names[0], "mmap");
    world.finish();
}

#[test]
fn the_frames_of_new_nodes_are_shown() {
    for_each_design(Setup::new(), |world| {
        let shown = || {
            let mut frames = BTreeSet::new();
            world.machine.on(0, |pin| {
                world
                    .space
                    .each_node_frame(pin, &mut |at| assert!(frames.insert(at), "a frame is shown twice"));
            });
            frames
        };
        let (before, made) = (shown(), world.space.nodes().created);
        let pages = anywhere(&world, 0, 1);
        touch(&world, 0, pages);
        let (after, made) = (shown(), world.space.nodes().created - made);
        assert!(made > 0 && before.is_subset(&after));
        assert!((after.len() - before.len()) as u64 >= made);
        unmap(&world, 0, pages);
        world.finish();
    });
}
