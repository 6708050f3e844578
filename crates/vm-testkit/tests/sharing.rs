//! Copying before a write, files, children and moves: each verb by itself, and the cores that it interrupts.

use percore::Pinned;
use vm::{
    Access, Copies, Event, Fault, FaultError, Flags, Mapping, Others, PAGE_SIZE, PageNum, PageRange,
    Placement, Prot, Remap, Resident, Tables, VirtAddr, VmError,
};
use vm_testkit::{ALL_TABLES, Setup, Shows, World, for_each_design, original};

const RW: Prot = Prot::from_bits(3);

fn page(number: u64) -> PageNum {
    PageNum::new(number)
}

fn range(start: u64, pages: u64) -> PageRange {
    PageRange::new(page(start), pages).unwrap()
}

fn map(world: &World, pin: &Pinned, at: PageRange, prot: Prot, shows: Shows) {
    let answer = world.map(pin, Placement::Fixed(at.start()), at.pages(), prot, shows);
    assert_eq!(answer, Ok(at.start()));
}

/// A world with one file of ten pages.
fn on_every_design(test: impl Fn(&World, &Pinned, usize)) {
    for_each_design(Setup::new(), |world| {
        let file = world.machine.files.create(10);
        world.machine.on(0, |pin| test(&world, pin, file));
        world.finish();
    });
}

fn resident(world: &World, pin: &Pinned, at: PageRange) -> Resident {
    world.regions(pin, at).iter().fold(Resident::default(), |sum, region| Resident {
        alone: sum.alone + region.resident.alone,
        counted: sum.counted + region.resident.counted,
        shown: sum.shown + region.resident.shown,
        huge: sum.huge + region.resident.huge,
        compressed: sum.compressed + region.resident.compressed,
    })
}

/// A page of a shared mapping that may be written is not asked for again before the write.
#[test]
fn a_file_is_told_of_pages_that_may_be_written_through_it() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(100, 2), RW, Shows::Private(file, 0));
        map(world, pin, range(200, 2), Prot::READ, Shows::Shared(file, 2));
        map(world, pin, range(300, 2), RW, Shows::Shared(file, 4));
        for at in [100, 101, 200, 201, 300, 301] {
            world.load(pin, page(at), 0).unwrap();
        }
        world.store(pin, page(101), 0, 1).unwrap();
        assert_eq!(world.machine.files.written(file), [4, 5]);
    });
}

#[test]
fn the_first_write_to_a_private_page_is_one_fault() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(100, 1), RW, Shows::Private(file, 0));
        let fault = || world.space.fault(pin, VirtAddr::new(100 * PAGE_SIZE), Access::Write);
        assert_eq!((fault(), fault()), (Ok(Fault::Copy), Ok(Fault::Spurious)));
    });
}

#[test]
fn a_private_page_shows_the_file_until_it_is_written() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(100, 4), RW, Shows::Private(file, 2));
        map(world, pin, range(200, 4), RW, Shows::Shared(file, 2));
        assert_eq!(world.load(pin, page(101), 5), Ok(original(file, 3, 5)));
        world.store(pin, page(201), 5, 77).unwrap();
        assert_eq!(world.load(pin, page(101), 5), Ok(77), "not copied yet");
        world.store(pin, page(101), 5, 88).unwrap();
        assert_eq!(world.load(pin, page(201), 5), Ok(77));
        world.store(pin, page(201), 6, 99).unwrap();
        assert_eq!(world.load(pin, page(101), 6), Ok(original(file, 3, 6)), "copied");
        assert_eq!(
            resident(world, pin, range(0, 300)),
            Resident { alone: 1, shown: 1, ..Resident::default() }
        );
        assert_eq!(world.count(Event::CowCopy), 1);
    });
}

#[test]
fn a_frame_is_shown_to_whose_access_reaches_it() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(100, 4), RW, Shows::Private(file, 2));
        let reaches = |at, access| {
            let mut shown = 0;
            let answer = world.space.frame(pin, page(at), access, &mut |_| shown += 1);
            assert_eq!(shown, u32::from(answer));
            answer
        };
        assert!(!reaches(100, Access::Read), "untouched");
        world.load(pin, page(100), 0).unwrap();
        assert!(reaches(100, Access::Read) && !reaches(100, Access::Write), "a write has to copy first");
        world.store(pin, page(100), 0, 1).unwrap();
        assert!(reaches(100, Access::Write));
        assert!(!reaches(300, Access::Read), "a hole");
    });
}

#[test]
fn other_cores_that_read_the_file_see_the_copy_after_the_write() {
    for_each_design(Setup::new(), |world| {
        let file = world.machine.files.create(10);
        world.machine.on(0, |pin| map(&world, pin, range(100, 2), RW, Shows::Private(file, 0)));
        world.machine.on_each(|pin| assert_eq!(world.glance(pin, page(100)), original(file, 0, 0)));
        world.machine.on(1, |pin| world.store(pin, page(100), 0, 5).unwrap());
        world.machine.on_each(|pin| assert_eq!(world.glance(pin, page(100)), 5));
        assert_eq!(world.count(Event::IpiTarget), 3, "all that read the page, and nobody else");
        world.finish();
    });
}

#[test]
fn beyond_the_end_is_an_error_of_its_own() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(100, 20), RW, Shows::Shared(file, 0));
        assert_eq!(world.load(pin, page(109), 0), Ok(original(file, 9, 0)));
        assert_eq!(world.load(pin, page(110), 0), Err(FaultError::BeyondEnd));
        assert_eq!(world.store(pin, page(110), 0, 1), Err(FaultError::BeyondEnd));
    });
}

#[test]
fn a_sealed_mapping_is_never_writable() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(99, 1), Prot::READ, Shows::Zeroes);
        map(world, pin, range(100, 2), RW, Shows::Sealed(file, 0));
        assert_eq!(world.store(pin, page(100), 0, 1), Err(FaultError::Denied));
        assert_eq!(world.space.protect(pin, range(99, 3), RW), Err(VmError::Denied));
        assert_eq!(world.store(pin, page(99), 0, 1), Ok(()), "pages before have changed");
        assert_eq!(world.space.protect(pin, range(99, 3), Prot::NONE), Ok(()));
    });
}

#[test]
fn a_child_and_its_parent_diverge() {
    on_every_design(|world, pin, _| {
        map(world, pin, range(100, 3), RW, Shows::Zeroes);
        world.store(pin, page(100), 0, 1).unwrap();
        world.store(pin, page(101), 0, 2).unwrap();
        let child = world.fork(pin).unwrap();
        world.store(pin, page(100), 0, 10).unwrap();
        child.store(pin, page(101), 0, 20).unwrap();
        child.store(pin, page(102), 0, 30).unwrap();
        let found = |world: &World| [100, 101, 102].map(|at| world.glance(pin, page(at)));
        assert_eq!((found(world), found(&child)), ([10, 2, 0], [1, 20, 30]));
        child.end();
    });
}

#[test]
fn the_last_holder_writes_in_place() {
    on_every_design(|world, pin, _| {
        map(world, pin, range(100, 1), RW, Shows::Zeroes);
        world.store(pin, page(100), 0, 1).unwrap();
        let child = world.fork(pin).unwrap();
        child.store(pin, page(100), 0, 2).unwrap();
        world.store(pin, page(100), 0, 3).unwrap();
        assert_eq!((child.count(Event::CowCopy), world.count(Event::CowReuse)), (1, 1));
        assert_eq!((world.glance(pin, page(100)), child.glance(pin, page(100))), (3, 2));
        assert_eq!(world.frames().used(), 2);
        child.end();
    });
}

#[test]
fn an_unconfirmed_last_holder_copies_and_loses_nothing() {
    on_every_design(|world, pin, _| {
        map(world, pin, range(100, 1), RW, Shows::Zeroes);
        world.store(pin, page(100), 1, 1).unwrap();
        world.fork(pin).unwrap().end();
        world.frames().set_unsure(true);
        world.store(pin, page(100), 0, 3).unwrap();
        assert_eq!((world.count(Event::CowCopy), world.frames().used()), (1, 1));
        assert_eq!(world.load(pin, page(100), 1), Ok(1));
    });
}

#[test]
fn rights_that_are_raised_do_not_reach_what_others_hold() {
    on_every_design(|world, pin, _| {
        map(world, pin, range(100, 1), RW, Shows::Zeroes);
        world.store(pin, page(100), 0, 1).unwrap();
        world.space.protect(pin, range(100, 1), Prot::READ).unwrap();
        let child = world.fork(pin).unwrap();
        assert_eq!(world.glance(pin, page(100)), 1);
        world.space.protect(pin, range(100, 1), RW).unwrap();
        world.store(pin, page(100), 0, 2).unwrap();
        assert_eq!(child.glance(pin, page(100)), 1);
        child.end();
    });
}

#[test]
fn a_child_inherits_what_it_was_advised_to() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(100, 4), RW, Shows::Zeroes);
        (100..104).for_each(|at| world.store(pin, page(at), 0, at).unwrap());
        map(world, pin, range(104, 1), RW, Shows::Shared(file, 0));
        let advise = |at, set| world.space.advise(pin, range(at, 1), set, Flags::NONE).unwrap();
        advise(101, Flags::DONTFORK);
        advise(102, Flags::WIPEONFORK);
        advise(103, Flags::LOCKED);
        assert_eq!(
            world.space.advise(pin, range(103, 2), Flags::WIPEONFORK, Flags::NONE),
            Err(VmError::Mixed)
        );
        let child = world.fork(pin).unwrap();
        assert_eq!(child.load(pin, page(101), 0), Err(FaultError::NotMapped));
        assert_eq!((child.glance(pin, page(102)), child.glance(pin, page(103))), (0, 103));
        child.store(pin, page(104), 0, 9).unwrap();
        assert_eq!(world.glance(pin, page(104)), 9, "shared");
        let flags: Vec<_> = child.regions(pin, range(0, 200)).iter().map(|it| it.mapping.flags()).collect();
        assert_eq!(flags, [Flags::NONE, Flags::WIPEONFORK, Flags::NONE, Flags::SHARED]);
        child.end();
    });
}

#[test]
fn folded_slots_stay_folded_in_a_child() {
    on_every_design(|world, pin, _| {
        map(world, pin, range(1 << 18, 1 << 19), RW, Shows::Zeroes);
        let before = world.space.nodes().created;
        let child = world.fork(pin).unwrap();
        let made = world.space.nodes().created - before;
        assert!(made <= 2, "{made} nodes: more than a root, and the node of the 1 GiB slots");
        assert_eq!(child.regions(pin, range(0, 1 << 30)).len(), 1);
        child.end();
    });
}

/// A piece has 512 slots at most.
#[test]
fn a_fork_in_pieces_has_pieces_of_bounded_size() {
    for (tables, others) in ALL_TABLES
        .into_iter()
        .flat_map(|tables| [Others::None, Others::Freeze].map(|others| (tables, others)))
    {
        let world = World::radix(Setup::new(), tables);
        world.machine.on(0, |pin| {
            (0..2000).for_each(|at| map(&world, pin, range(1000 + 2 * at, 1), RW, Shows::Zeroes));
            let child = world.sibling(pin).unwrap();
            let (mut from, mut pieces) = (Some(page(0)), 0);
            while let Some(at) = from {
                from = world.space.fork_piece(pin, &*child.space, at, others, &mut |_| None).unwrap();
                pieces += 1;
            }
            assert!(pieces >= 4, "{pieces} pieces, {others:?}");
            assert_eq!(child.regions(pin, range(0, 1 << 30)).len(), 2000);
            child.end();
        });
        world.finish();
    }
}

#[test]
fn fork_shoots_at_exactly_the_cores_that_could_write() {
    let world = World::radix(Setup::new(), Tables::PerCore);
    let on = |core, at| world.machine.on(core, |pin| world.store(pin, page(at), 0, 1).unwrap());
    world.machine.on(0, |pin| map(&world, pin, range(100, 50), RW, Shows::Zeroes));
    on(0, 100);
    on(1, 110);
    on(2, 140);
    let child = world.machine.on(0, |pin| world.fork(pin).unwrap());
    assert_eq!((world.count(Event::Shootdown), world.count(Event::IpiTarget)), (1, 2));
    let second = world.machine.on(0, |pin| world.fork(pin).unwrap());
    assert_eq!(world.count(Event::IpiTarget), 2, "nobody could write any more");
    world.machine.on(0, |pin| world.space.unmap(pin, range(100, 50)).unwrap());
    assert_eq!(world.count(Event::IpiTarget), 2, "nobody had anything left to lose");
    world.machine.on(3, |_| [child, second].map(World::end));
    world.finish();
}

#[test]
fn a_program_of_one_thread_forks_without_shooting_and_keeps_what_it_only_reads() {
    let world = World::radix(Setup::new(), Tables::PerCore);
    world.machine.on(0, |pin| {
        map(&world, pin, range(100, 3), RW, Shows::Zeroes);
        (100..103).for_each(|at| world.store(pin, page(at), 0, 1).unwrap());
        world.space.protect(pin, range(101, 1), Prot::READ).unwrap();
        assert_eq!(world.glance(pin, page(101)), 1);
        let child = world.fork(pin).unwrap();
        assert_eq!(world.count(Event::Shootdown), 0);
        let left: Vec<_> = world.mmu.translations().iter().map(|(_, page, _)| page.get()).collect();
        assert!(!left.is_empty() && left.iter().all(|&at| at == 101), "{left:?}");
        child.end();
    });
    world.finish();
}

#[test]
fn truncation_takes_copies_too_and_reclaim_does_not() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(100, 10), RW, Shows::Private(file, 0));
        (100..110).for_each(|at| _ = world.glance(pin, page(at)));
        world.store(pin, page(108), 0, 1).unwrap();
        let child = world.fork(pin).unwrap();
        child.zap(pin, range(16, 1000), file, 0, Copies::Keep);
        assert_eq!(resident(&child, pin, range(0, 200)), Resident { counted: 1, ..Resident::default() });
        assert_eq!(child.glance(pin, page(108)), 1, "a copy that others have too is a copy");
        child.zap(pin, range(16, 1000), file, 8, Copies::Drop);
        assert_eq!(child.glance(pin, page(108)), original(file, 8, 0));
        assert_eq!(world.glance(pin, page(108)), 1);
        child.end();
    });
}

fn remap(world: &World, pin: &Pinned, from: PageRange, pages: u64, to: Placement, keep: bool) -> PageNum {
    world.remap(pin, &Remap { from, pages, to, keep }).unwrap()
}

#[test]
fn a_mapping_moves_with_its_contents_and_its_file() {
    for_each_design(Setup::new(), |world| {
        let file = world.machine.files.create(10);
        let to = world.machine.on(0, |pin| {
            map(&world, pin, range(100, 4), RW, Shows::Private(file, 1));
            world.store(pin, page(101), 0, 7).unwrap();
            remap(&world, pin, range(101, 3), 5, Placement::Anywhere { hint: None }, false)
        });
        let at = |by| page(to.get() + by);
        world.machine.on_each(|pin| {
            assert_eq!(world.glance(pin, at(0)), 7);
            assert_eq!(world.glance(pin, at(4)), original(file, 6, 0), "grown");
            assert_eq!(world.load(pin, page(101), 0), Err(FaultError::NotMapped));
            assert_eq!(world.glance(pin, page(100)), original(file, 1, 0), "left behind");
        });
        world.finish();
    });
}

#[test]
fn a_large_mapping_moves_page_by_page_to_a_place_aligned_otherwise() {
    on_every_design(|world, pin, _| {
        map(world, pin, range(1 << 18, 1 << 18), RW, Shows::Zeroes);
        let touched = [0, 511, 512, 99_999, (1 << 18) - 1];
        touched.iter().for_each(|by| world.store(pin, page((1 << 18) + by), 0, by + 1).unwrap());
        let to = Placement::Fixed(page((1 << 20) + 77));
        remap(world, pin, range(1 << 18, 1 << 18), 1 << 18, to, false);
        touched.iter().for_each(|by| assert_eq!(world.glance(pin, page((1 << 20) + 77 + by)), by + 1));
        assert_eq!(world.frames().used(), touched.len());
    });
}

#[test]
fn an_old_place_that_stays_is_empty() {
    on_every_design(|world, pin, _| {
        map(world, pin, range(100, 2), RW, Shows::Zeroes);
        world.store(pin, page(100), 0, 7).unwrap();
        remap(world, pin, range(100, 2), 2, Placement::Fixed(page(90)), true);
        assert_eq!((world.glance(pin, page(90)), world.glance(pin, page(100))), (7, 0));
    });
}

#[test]
fn only_one_mapping_moves_at_a_time() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(100, 2), RW, Shows::Zeroes);
        map(world, pin, range(102, 2), Prot::READ, Shows::Zeroes);
        map(world, pin, range(104, 2), Prot::READ, Shows::Private(file, 0));
        let try_move = |from, pages, to| {
            let what = Remap { from: range(from, pages), pages, to: Placement::Fixed(page(to)), keep: false };
            world.remap(pin, &what)
        };
        assert_eq!(try_move(101, 2, 200), Err(VmError::Mixed));
        assert_eq!(try_move(103, 2, 200), Err(VmError::Mixed));
        assert_eq!(try_move(105, 2, 200), Err(VmError::NotMapped));
        assert_eq!(try_move(100, 2, 101), Err(VmError::Exists), "over itself");
        assert_eq!(world.space.extend(pin, range(104, 2), 1), Ok(()));
        assert_eq!(world.space.extend(pin, range(100, 2), 1), Err(VmError::Exists));
        assert_eq!(world.glance(pin, page(106)), original(file, 2, 0), "grown");
    });
}

#[test]
fn a_refused_heir_leaves_both_spaces_in_order() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(100, 2), RW, Shows::Zeroes);
        map(world, pin, range(102, 2), RW, Shows::Private(file, 0));
        world.store(pin, page(100), 0, 1).unwrap();
        let child = world.sibling(pin).unwrap();
        assert_eq!(world.space.fork(pin, &*child.space, &mut |_| None), Err(VmError::OutOfMemory));
        assert_eq!(child.glance(pin, page(100)), 1, "what comes before the file is there");
        child.end();
        let from = range(102, 2);
        let what = Remap { from, pages: 2, to: Placement::Fixed(page(200)), keep: false };
        assert_eq!(world.space.remap(pin, &what, &mut |_, _, _| None), Err(VmError::OutOfMemory));
        world.store(pin, page(100), 0, 2).unwrap();
        assert_eq!(world.glance(pin, page(102)), original(file, 0, 0));
    });
}

#[test]
fn a_page_is_looked_at_without_memory() {
    on_every_design(|world, pin, file| {
        map(world, pin, range(1 << 18, 1 << 18), Prot::READ, Shows::Shared(file, 0));
        let mut seen = Vec::new();
        world.space.look(pin, page((1 << 18) + 5), &mut |mapping: Mapping| seen.push(mapping));
        world.space.look(pin, page(5), &mut |mapping| seen.push(mapping));
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].prot(), seen[0].flags()), (Prot::READ, Flags::SHARED));
    });
}

/// A debugger writes to a page that the program may only read: the page gets a frame of its own, which each
/// core sees from then on, and keeps its rights. The file and other spaces see nothing.
#[test]
fn a_debugger_writes_to_one_space_alone() {
    for tables in ALL_TABLES {
        let world = World::radix(Setup::new(), tables);
        let file = world.machine.files.create(10);
        world.machine.on(0, |pin| {
            map(&world, pin, range(100, 2), Prot::READ, Shows::Private(file, 0));
            map(&world, pin, range(200, 1), Prot::READ, Shows::Shared(file, 0));
            map(&world, pin, range(300, 1), Prot::from_bits(0), Shows::Zeroes);
            assert_eq!(world.load(pin, page(100), 1), Ok(original(file, 0, 1)));
        });
        world.machine.on(1, |pin| assert_eq!(world.load(pin, page(100), 1), Ok(original(file, 0, 1))));
        world.machine.on(2, |pin| {
            let write = |at, value| {
                let mut store = |frame| world.frames().write(frame, 1, value);
                world.space.debug_frame(pin, page(at), Access::Write, &mut store)
            };
            assert_eq!((write(100, 7), write(101, 8)), (Ok(()), Ok(())));
            assert_eq!((write(200, 9), write(300, 9)), (Err(FaultError::Denied), Err(FaultError::Denied)));
            assert_eq!(write(400, 9), Err(FaultError::NotMapped));
            assert_eq!(world.load(pin, page(200), 1), Ok(original(file, 0, 1)), "the file's own");
            assert_eq!(world.store(pin, page(100), 1, 1), Err(FaultError::Denied));
        });
        for core in [0, 1] {
            world.machine.on(core, |pin| {
                assert_eq!((world.load(pin, page(100), 1), world.load(pin, page(101), 1)), (Ok(7), Ok(8)));
            });
        }
        world.finish();
    }
}
