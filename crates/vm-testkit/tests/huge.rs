//! Huge pages, verb by verb: one fault, one translation, and no page that loses its contents when another one
//! goes.

mod blocks;

use blocks::{RW, assert_kept, for_each_world, map, on_one, page, range, stamp};
use vm::{
    Access, Event, FaultError, Flags, FrameNum, FrameRun, HUGE_PAGES, Mapping, PageNum, PageRange, Placement,
    Prot, Remap,
};
use vm_testkit::{Shows, World};

/// A world in which each core has written pages of its own in the first block, which all of them translate.
fn for_each_written(test: impl Fn(&World)) {
    for_each_world(|world| {
        let cores = world.machine.cores() as u64;
        world.machine.on_each(|pin| {
            let mine = (pin.core().index() as u64..HUGE_PAGES).step_by(cores as usize);
            mine.for_each(|at| world.store(pin, page(at), 1, stamp(at)).unwrap());
        });
        assert_eq!((world.count(Event::HugeFault), world.count(Event::AllocFault)), (1, 0));
        test(world);
    });
}

fn unmap(world: &World, pages: PageRange) {
    on_one(world, |pin| world.space.unmap(pin, pages).unwrap());
}

fn discard(world: &World, pages: PageRange) {
    on_one(world, |pin| world.space.discard(pin, pages).unwrap());
}

fn protect(world: &World, pages: PageRange, prot: Prot) {
    on_one(world, |pin| world.space.protect(pin, pages, prot).unwrap());
}

#[test]
fn the_first_touch_of_a_block_brings_all_of_it() {
    for_each_world(|world| {
        world.machine.on(0, |pin| {
            world.store(pin, page(77), 0, 5).unwrap();
            (0..HUGE_PAGES)
                .for_each(|at| assert_eq!(world.load(pin, page(at), 0), Ok(if at == 77 { 5 } else { 0 })));
        });
        assert_eq!(world.count(Event::HugeFault), 1);
        assert_eq!(world.count(Event::AllocFault) + world.count(Event::FillFault), 0);
        assert_eq!(world.frames().used(), HUGE_PAGES as usize);
        world.machine.on(1, |pin| {
            assert_eq!(world.load(pin, page(77), 0), Ok(5));
            let resident = world.regions(pin, range(3, HUGE_PAGES))[0].resident;
            assert_eq!((resident.alone, resident.total()), (HUGE_PAGES - 3, HUGE_PAGES - 3));
        });
    });
}

/// Part of a block begins at its own frame.
#[test]
fn the_frames_of_a_block_are_side_by_side() {
    for_each_written(|world| {
        on_one(world, |pin| {
            let shown = |pages| {
                let mut found = Vec::new();
                world.space.frames(pin, pages, &mut |run| found.push(run));
                found
            };
            let &[FrameRun { pages, first, is_shown: false }] = &shown(range(0, HUGE_PAGES))[..] else {
                panic!("a block is one run");
            };
            assert_eq!(pages, range(0, HUGE_PAGES));
            let part =
                FrameRun { pages: range(5, 3), first: FrameNum::new(first.get() + 5), is_shown: false };
            assert_eq!(shown(range(5, 3)), [part]);
        });
    });
}

#[test]
fn a_block_that_cannot_be_huge_gets_small_pages() {
    for_each_world(|world| {
        world.machine.on(0, |pin| {
            let advice = |pages, set| world.space.advise(pin, pages, set, Flags::NONE).unwrap();
            advice(range(0, HUGE_PAGES), Flags::NOHUGE);
            world.store(pin, page(1), 0, 1).unwrap();
            world.space.unmap(pin, range(HUGE_PAGES, 1)).unwrap();
            world.store(pin, page(HUGE_PAGES + 1), 0, 1).unwrap();
            assert_eq!(world.frames().used(), 2);
            world.frames().offer_huge(false);
            world.space.unmap(pin, range(0, 2 * HUGE_PAGES)).unwrap();
            map(world, pin, 2 * HUGE_PAGES);
            world.store(pin, page(HUGE_PAGES + 1), 0, 1).unwrap();
        });
        assert_eq!((world.frames().used(), world.count(Event::HugeFault)), (1, 0));
    });
}

#[test]
fn a_block_without_rights_costs_nothing() {
    for_each_world(|world| {
        world.machine.on(0, |pin| {
            world.space.protect(pin, range(0, HUGE_PAGES), Prot::READ).unwrap();
            assert_eq!(world.store(pin, page(9), 0, 1), Err(FaultError::Denied));
        });
        assert_eq!(world.frames().used(), 0);
    });
}

#[test]
fn a_whole_block_goes_in_one_step() {
    for_each_written(|world| {
        let nodes = world.space.nodes().created;
        unmap(world, range(0, HUGE_PAGES));
        assert_eq!((world.count(Event::Shootdown), world.space.nodes().created), (1, nodes));
        assert_eq!(world.frames().used(), 0);
        assert_kept(world, range(0, HUGE_PAGES), Err(FaultError::NotMapped));
    });
}

#[test]
fn a_part_goes_and_the_rest_stays() {
    for_each_written(|world| {
        unmap(world, range(100, 50));
        assert_eq!(world.frames().used(), HUGE_PAGES as usize - 50);
        assert_kept(world, range(100, 50), Err(FaultError::NotMapped));
        (0..HUGE_PAGES).for_each(|at| unmap(world, range(at, 1)));
        assert_eq!(world.frames().used(), 0, "each page goes back alone");
    });
}

#[test]
fn a_part_is_discarded_and_the_rest_stays() {
    for_each_written(|world| {
        discard(world, range(500, 100));
        assert_eq!(world.frames().used(), 500);
        assert_kept(world, range(500, 12), Ok(0));
        discard(world, range(0, 2 * HUGE_PAGES));
        assert_kept(world, range(0, HUGE_PAGES), Ok(0));
    });
}

/// The pages of a block are discarded one by one, which leaves a leaf without contents. A discard of the
/// whole block folds it, so that the next touch brings a huge page.
#[test]
fn a_block_without_contents_folds_in_a_longer_discard() {
    for_each_world(|world| {
        on_one(world, |pin| {
            world.frames().offer_huge(false);
            world.store(pin, page(9), 1, 7).unwrap();
            world.space.discard(pin, range(9, 1)).unwrap();
            world.frames().offer_huge(true);
            world.store(pin, page(9), 1, 7).unwrap();
            assert_eq!(world.count(Event::HugeFault), 0, "there is a leaf");
            world.space.discard(pin, range(9, 1)).unwrap();
            world.space.discard(pin, range(0, HUGE_PAGES)).unwrap();
            world.store(pin, page(9), 1, 7).unwrap();
            assert_eq!(world.count(Event::HugeFault), 1);
        });
    });
}

#[test]
fn a_page_of_a_huge_one_is_shown_with_its_own_frame() {
    for_each_written(|world| {
        on_one(world, |pin| {
            for at in [0, 1, HUGE_PAGES - 1] {
                let mut shown = Vec::new();
                assert!(world.space.frame(pin, page(at), Access::Read, &mut |frame| shown.push(frame)));
                assert_eq!(shown, [world.reach(pin, page(at), Access::Read).unwrap()]);
            }
        });
    });
}

#[test]
fn rights_are_those_of_each_page() {
    for_each_written(|world| {
        protect(world, range(0, HUGE_PAGES), Prot::READ);
        assert_kept(world, PageRange::EMPTY, Ok(0));
        world.machine.on_each(|pin| assert_eq!(world.store(pin, page(6), 1, 0), Err(FaultError::Denied)));
        protect(world, range(6, 1), RW);
        world.machine.on_each(|pin| {
            assert_eq!(world.store(pin, page(6), 1, stamp(6)), Ok(()));
            assert_eq!(world.store(pin, page(7), 1, 0), Err(FaultError::Denied));
        });
        protect(world, range(8, 9), Prot::NONE);
        assert_kept(world, range(8, 9), Err(FaultError::Denied));
    });
}

#[test]
fn parent_and_child_part_ways_page_by_page() {
    for_each_written(|world| {
        let child = on_one(world, |pin| world.fork(pin).unwrap());
        assert_eq!(world.frames().used(), HUGE_PAGES as usize, "nothing is copied yet");
        world.machine.on_each(|pin| world.store(pin, page(40), 1, 1).unwrap());
        on_one(world, |pin| child.store(pin, page(41), 1, 2).unwrap());
        assert_eq!(world.frames().used(), HUGE_PAGES as usize + 2);
        assert_kept(world, range(40, 1), Ok(1));
        assert_kept(&child, range(41, 1), Ok(2));
        on_one(world, |_| child.end());
        assert_kept(world, range(40, 1), Ok(1));
    });
}

#[test]
fn a_child_that_shall_not_see_a_block_leaves_it_whole() {
    for advice in [Flags::DONTFORK, Flags::WIPEONFORK] {
        for_each_written(|world| {
            let sees = if advice == Flags::WIPEONFORK { Ok(0) } else { Err(FaultError::NotMapped) };
            on_one(world, |pin| {
                world.space.advise(pin, range(0, HUGE_PAGES), advice, Flags::NONE).unwrap();
                let child = world.fork(pin).unwrap();
                assert_eq!(child.load(pin, page(3), 1), sees);
                child.end();
            });
            unmap(world, range(0, HUGE_PAGES));
            assert_eq!(world.count(Event::Shootdown), 1, "it was never split, nor lost its translations");
        });
    }
}

#[test]
fn a_block_moves_with_its_contents() {
    for_each_written(|world| {
        for (from, to) in [(0, 5 * HUGE_PAGES), (5 * HUGE_PAGES, 3 * HUGE_PAGES + 3), (3 * HUGE_PAGES + 3, 0)]
        {
            on_one(world, |pin| {
                let (from, place) = (range(from, HUGE_PAGES), Placement::Fixed(page(to)));
                world.remap(pin, &Remap { from, pages: HUGE_PAGES, to: place, keep: false }).unwrap();
                (0..HUGE_PAGES).for_each(|at| assert_eq!(world.load(pin, page(to + at), 1), Ok(stamp(at))));
            });
        }
    });
}

#[test]
fn without_a_table_page_the_huge_frame_goes_back() {
    for_each_world(|world| {
        world.machine.on(0, |pin| {
            world.mmu.set_exhausted(true);
            assert_eq!(world.store(pin, page(9), 0, 1), Err(FaultError::OutOfMemory));
            assert_eq!(world.frames().used(), 0);
            world.mmu.set_exhausted(false);
            world.store(pin, page(9), 0, 1).unwrap();
        });
        assert_eq!(world.count(Event::HugeFault), 1);
    });
}

#[test]
fn a_mapping_of_another_kind_is_never_huge() {
    for_each_world(|world| {
        let file = world.machine.files.create(2 * HUGE_PAGES);
        world.machine.on(0, |pin| {
            let at = Placement::Fixed(page(0));
            world.map(pin, at, HUGE_PAGES, RW, Shows::Private(file, 0)).unwrap();
            world.store(pin, page(3), 0, 1).unwrap();
            let shared = world.map(pin, at, HUGE_PAGES, RW, Shows::Shared(file, 0));
            world.store(pin, PageNum::new(shared.unwrap().get() + 3), 0, 1).unwrap();
            let none = world.space.map(pin, at, 1, Mapping::anonymous(RW));
            assert_eq!(none, Ok(page(0)));
        });
        assert_eq!(world.count(Event::HugeFault), 0);
    });
}
