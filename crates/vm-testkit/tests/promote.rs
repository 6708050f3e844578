//! Small pages that become a huge one: nothing is lost on the way, and only the cost shows.

mod blocks;

use blocks::{RW, assert_kept, for_each_world, map, on_one, page, range, stamp};
use vm::{Event, Flags, HUGE_PAGES, PageRange, Placement, Prot, VmError};
use vm_testkit::{Shows, World};

const ALL: usize = HUGE_PAGES as usize;

/// Writes the pages of the first block in order, on core 0: there are huge frames only when page `late`
/// comes.
fn fill(world: &World, late: u64) {
    world.machine.on(0, |pin| {
        for at in 0..HUGE_PAGES {
            world.frames().offer_huge(at >= late);
            world.store(pin, page(at), 1, stamp(at)).unwrap();
        }
    });
}

fn collapse(world: &World) -> Result<(), VmError> {
    on_one(world, |pin| world.space.collapse(pin, page(0)))
}

/// Pages of the first block that are in a huge page.
fn huge(world: &World) -> u64 {
    let regions = on_one(world, |pin| world.regions(pin, range(0, HUGE_PAGES)));
    regions.iter().map(|region| region.resident.huge).sum()
}

/// The first block is one huge page, with what was written, and goes in one step.
fn assert_promoted(world: &World) {
    assert_eq!((huge(world), world.count(Event::Promotion)), (HUGE_PAGES, 1));
    assert_eq!(world.frames().used(), ALL);
    assert_kept(world, PageRange::EMPTY, Ok(0));
    let nodes = world.space.nodes().created;
    on_one(world, |pin| world.space.unmap(pin, range(0, HUGE_PAGES)).unwrap());
    assert_eq!((world.frames().used(), world.space.nodes().created), (0, nodes));
}

#[test]
fn filling_a_block_in_order_ends_with_a_huge_page() {
    for_each_world(|world| {
        fill(world, 1);
        assert_eq!((world.count(Event::AllocFault), world.count(Event::HugeFault)), (HUGE_PAGES, 0));
        assert_promoted(world);
    });
}

#[test]
fn a_huge_page_is_one_fault_for_each_core_after_it_was_promoted() {
    for_each_world(|world| {
        fill(world, 1);
        assert_kept(world, PageRange::EMPTY, Ok(0));
        let fills = if world.is_shared() { 1 } else { world.machine.cores() as u64 };
        assert_eq!(world.count(Event::FillFault), fills);
    });
}

#[test]
fn nothing_happens_before_all_pages_are_there_or_without_huge_frames() {
    for_each_world(|world| {
        fill(world, HUGE_PAGES);
        assert_eq!((huge(world), world.frames().used()), (0, ALL));
        world.machine.on(0, |pin| {
            world.frames().offer_huge(true);
            world.space.discard(pin, range(200, 2)).unwrap();
            world.space.discard(pin, range(511, 1)).unwrap();
            world.store(pin, page(511), 1, stamp(511)).unwrap();
            assert_eq!(world.count(Event::Promotion), 0, "two pages are not there");
            (200..202).for_each(|at| world.store(pin, page(at), 1, stamp(at)).unwrap());
            world.space.discard(pin, range(0, 1)).unwrap();
            world.store(pin, page(0), 1, stamp(0)).unwrap();
        });
        assert_promoted(world);
    });
}

#[test]
fn unwanted_huge_pages_stay_small() {
    for_each_world(|world| {
        on_one(world, |pin| {
            world.space.advise(pin, range(0, HUGE_PAGES), Flags::NOHUGE, Flags::NONE).unwrap();
        });
        fill(world, 0);
        assert_eq!((huge(world), collapse(world)), (0, Err(VmError::Mixed)));
        assert_kept(world, PageRange::EMPTY, Ok(0));
    });
}

#[test]
fn a_program_may_ask_for_a_huge_page() {
    for_each_world(|world| {
        fill(world, HUGE_PAGES);
        assert_kept(world, PageRange::EMPTY, Ok(0));
        world.frames().offer_huge(true);
        assert_eq!((collapse(world), collapse(world)), (Ok(()), Ok(())));
        assert_promoted(world);
    });
}

#[test]
fn advice_survives() {
    for_each_world(|world| {
        let advice = Flags::HUGE | Flags::LOCKED;
        on_one(world, |pin| world.space.advise(pin, range(0, HUGE_PAGES), advice, Flags::NONE).unwrap());
        fill(world, 1);
        on_one(world, |pin| assert_eq!(world.regions(pin, range(0, 512))[0].mapping.flags(), advice));
        assert_promoted(world);
    });
}

#[test]
fn untouched_pages_become_zeroes_of_their_own() {
    for_each_world(|world| {
        fill(world, HUGE_PAGES);
        on_one(world, |pin| world.space.discard(pin, range(3, 100)).unwrap());
        world.frames().offer_huge(true);
        assert_eq!(collapse(world), Ok(()));
        assert_kept(world, range(3, 100), Ok(0));
        assert_eq!(world.frames().used(), ALL);
    });
}

#[test]
fn pages_that_lie_side_by_side_stay_where_they_are() {
    for_each_world(|world| {
        fill(world, 0);
        assert_eq!(world.count(Event::HugeFault), 1);
        world.frames().offer_huge(false);
        on_one(world, |pin| {
            world.space.protect(pin, range(7, 1), Prot::READ).unwrap();
            assert_eq!(world.space.collapse(pin, page(0)), Err(VmError::Mixed));
            world.space.protect(pin, range(7, 1), RW).unwrap();
        });
        assert_eq!((huge(world), collapse(world)), (0, Ok(())));
        assert_promoted(world);
    });
}

#[test]
fn a_block_of_which_all_was_dropped_is_as_it_was_at_first() {
    for_each_world(|world| {
        fill(world, HUGE_PAGES);
        assert_kept(world, PageRange::EMPTY, Ok(0));
        let nodes = world.space.nodes();
        on_one(world, |pin| world.space.discard(pin, range(0, HUGE_PAGES)).unwrap());
        for _ in 0..8 {
            world.machine.on_each(|pin| _ = world.machine.refcache.tick(pin));
        }
        assert_eq!(world.space.nodes().collapsed, nodes.collapsed + 1, "the leaf stays");
        world.frames().offer_huge(true);
        assert_kept(world, range(0, HUGE_PAGES), Ok(0));
        assert_eq!((world.count(Event::HugeFault), huge(world)), (1, HUGE_PAGES));
    });
}

#[test]
fn pages_of_several_spaces_are_copied() {
    for_each_world(|world| {
        fill(world, HUGE_PAGES);
        let child = on_one(world, |pin| world.fork(pin).unwrap());
        world.frames().offer_huge(true);
        assert_eq!(collapse(world), Ok(()));
        assert_eq!(world.frames().used(), 2 * ALL);
        on_one(world, |pin| world.store(pin, page(40), 1, 1).unwrap());
        assert_kept(&child, PageRange::EMPTY, Ok(0));
        assert_kept(world, range(40, 1), Ok(1));
        on_one(world, |_| child.end());
        assert_eq!(world.frames().used(), ALL);
    });
}

#[test]
fn a_promoted_page_is_shared_with_a_child_page_by_page() {
    for_each_world(|world| {
        fill(world, 1);
        let child = on_one(world, |pin| world.fork(pin).unwrap());
        assert_eq!(world.frames().used(), ALL);
        world.machine.on_each(|pin| world.store(pin, page(40), 1, 1).unwrap());
        assert_kept(world, range(40, 1), Ok(1));
        assert_kept(&child, PageRange::EMPTY, Ok(0));
        on_one(world, |_| child.end());
    });
}

#[test]
fn without_a_huge_frame_nothing_changes() {
    for_each_world(|world| {
        fill(world, HUGE_PAGES);
        assert_kept(world, PageRange::EMPTY, Ok(0));
        let fills = world.count(Event::FillFault);
        assert_eq!(collapse(world), Err(VmError::OutOfMemory));
        assert_kept(world, PageRange::EMPTY, Ok(0));
        assert_eq!(world.count(Event::FillFault), fills, "translations were lost");
    });
}

#[test]
fn blocks_that_are_not_one_anonymous_mapping_are_refused() {
    for_each_world(|world| {
        assert_eq!(collapse(world), Err(VmError::Mixed), "untouched");
        on_one(world, |pin| {
            world.store(pin, page(9), 1, 1).unwrap();
            let file = world.machine.files.create(2 * HUGE_PAGES);
            for shows in [Shows::Private(file, 0), Shows::Shared(file, 0)] {
                world.map(pin, Placement::Fixed(page(0)), HUGE_PAGES, RW, shows).unwrap();
                world.store(pin, page(9), 1, 1).unwrap();
                assert_eq!(world.space.collapse(pin, page(0)), Err(VmError::Mixed));
            }
            map(world, pin, HUGE_PAGES);
            world.space.unmap(pin, range(500, 1)).unwrap();
            world.store(pin, page(9), 1, 1).unwrap();
            assert_eq!(world.space.collapse(pin, page(0)), Err(VmError::NotMapped));
        });
        assert_eq!(world.count(Event::Promotion), 0);
    });
}

#[test]
fn a_machine_with_huge_pages_for_those_who_ask_promotes_no_others() {
    for_each_world(|world| {
        world.frames().offer_huge_when_wanted(true);
        fill(world, 0);
        assert_eq!((huge(world), world.count(Event::HugeFault) + world.count(Event::Promotion)), (0, 0));
        collapse(world).unwrap();
        assert_promoted(world);
    });
}

#[test]
fn advice_asks_for_huge_pages() {
    for_each_world(|world| {
        world.frames().offer_huge_when_wanted(true);
        let advise =
            |set| on_one(world, |pin| world.space.advise(pin, range(0, HUGE_PAGES), set, Flags::NONE));
        advise(Flags::HUGE).unwrap();
        fill(world, 1);
        assert_promoted(world);
    });
}
