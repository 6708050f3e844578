//! Each verb does what it says, on every design. Known mistakes of other kernels are tested by name.

use percore::Pinned;
use vm::{
    Access, Event, Fault, FaultError, Flags, FrameNum, FrameRun, Installed, Mapping, PageNum, PageRange,
    Placement, Prot, VirtAddr, VmError,
};
use vm_testkit::{Setup, Shows, World, for_each_design};

const RW: Prot = Prot::from_bits(3);
/// One folded slot of a 2 MiB node, and one of 1 GiB.
const LARGE: u64 = 512;
const HUGE: u64 = 512 * 512;

fn page(number: u64) -> PageNum {
    PageNum::new(number)
}

fn range(start: u64, pages: u64) -> PageRange {
    PageRange::new(page(start), pages).unwrap()
}

fn fixed(world: &World, pin: &Pinned, at: PageRange, prot: Prot) {
    let answer = world.space.map(pin, Placement::Fixed(at.start()), at.pages(), Mapping::anonymous(prot));
    assert_eq!(answer, Ok(at.start()));
}

fn fault(world: &World, pin: &Pinned, at: u64, access: Access) -> Result<Fault, FaultError> {
    world.space.fault(pin, VirtAddr::new(at * vm::PAGE_SIZE + 7), access)
}

/// Runs `test` on core 0 of every design, then looks for leaks.
fn on_every_design(test: impl Fn(&World, &Pinned)) {
    for_each_design(Setup::new(), |world| {
        world.machine.on(0, |pin| test(&world, pin));
        world.finish();
    });
}

#[test]
fn a_page_is_zero_then_what_was_written_on_every_core_then_gone() {
    for_each_design(Setup::new(), |world| {
        let at = world.machine.on(0, |pin| {
            let at =
                world.space.map(pin, Placement::Anywhere { hint: None }, 1, Mapping::anonymous(RW)).unwrap();
            assert_eq!(world.load(pin, at, 3), Ok(0));
            world.store(pin, at, 3, 77).unwrap();
            at
        });
        world.machine.on_each(|pin| assert_eq!(world.load(pin, at, 3), Ok(77)));
        world.machine.on(1, |pin| world.space.unmap(pin, PageRange::one(at)).unwrap());
        world.machine.on_each(|pin| assert_eq!(world.load(pin, at, 3), Err(FaultError::NotMapped)));
        world.finish();
    });
}

#[test]
fn faults_say_what_they_did() {
    for_each_design(Setup::new(), |world| {
        let refault = |core, access| world.machine.on(core, |pin| fault(&world, pin, 100, access));
        world.machine.on(0, |pin| fixed(&world, pin, range(100, 1), Prot::READ));
        assert_eq!(refault(0, Access::Read), Ok(Fault::Alloc));
        assert_eq!(refault(0, Access::Read), Ok(Fault::Spurious));
        let other = if world.is_shared() { Fault::Spurious } else { Fault::Fill };
        assert_eq!(refault(1, Access::Read), Ok(other));
        assert_eq!(refault(1, Access::Write), Err(FaultError::Denied));
        assert_eq!(refault(1, Access::Exec), Err(FaultError::Denied));
        world.finish();
    });
}

#[test]
fn a_page_without_rights_denies_everything_until_it_has_some() {
    on_every_design(|world, pin| {
        fixed(world, pin, range(100, 2), Prot::NONE);
        assert_eq!(world.load(pin, page(100), 0), Err(FaultError::Denied));
        assert_eq!(world.frames().used(), 0);
        world.space.protect(pin, range(100, 2), RW).unwrap();
        world.store(pin, page(101), 0, 5).unwrap();
        world.space.protect(pin, range(100, 2), Prot::NONE).unwrap();
        assert_eq!(world.load(pin, page(101), 0), Err(FaultError::Denied));
        world.space.protect(pin, range(100, 2), Prot::READ).unwrap();
        assert_eq!(world.load(pin, page(101), 0), Ok(5));
        assert_eq!(world.store(pin, page(101), 0, 6), Err(FaultError::Denied));
    });
}

/// sv6: `mprotect` of one page of a folded span changed the whole span.
#[test]
fn protect_changes_exactly_the_pages_asked_for_in_a_folded_span() {
    on_every_design(|world, pin| {
        for (start, pages) in [(4 * LARGE, LARGE), (HUGE, HUGE)] {
            fixed(world, pin, range(start, pages), RW);
            let middle = start + pages / 2;
            world.space.protect(pin, range(middle, 1), Prot::READ).unwrap();
            for (at, writable) in [(start, true), (middle - 1, true), (middle, false), (middle + 1, true)] {
                let wrote = world.store(pin, page(at), 0, 1);
                assert_eq!(wrote.is_ok(), writable, "page {at} of {start}..{}", start + pages);
            }
        }
    });
}

#[test]
fn protect_changes_the_pages_before_a_hole_on_every_core() {
    for_each_design(Setup::new(), |world| {
        let mapped = [98, 99, 102];
        world.machine.on(0, |pin| {
            fixed(&world, pin, range(98, 5), RW);
            world.space.unmap(pin, range(100, 2)).unwrap();
        });
        world.machine.on_each(|pin| _ = mapped.map(|at| world.store(pin, page(at), 0, 1).unwrap()));
        world.machine.on(1, |pin| {
            assert_eq!(world.space.protect(pin, range(98, 5), Prot::READ), Err(VmError::NotMapped));
            assert_eq!(world.space.protect(pin, range(101, 2), Prot::NONE), Err(VmError::NotMapped));
        });
        world.machine.on_each(|pin| {
            let stored = mapped.map(|at| world.store(pin, page(at), 0, 2));
            assert_eq!(stored, [Err(FaultError::Denied), Err(FaultError::Denied), Ok(())]);
        });
        world.finish();
    });
}

/// Pages behind the hole are not touched: no core is interrupted for them.
#[test]
fn protect_shoots_at_no_core_for_pages_after_a_hole() {
    for_each_design(Setup::new(), |world| {
        world.machine.on(0, |pin| {
            fixed(&world, pin, range(100, 1), RW);
            fixed(&world, pin, range(102, 1), RW);
        });
        world.machine.on(1, |pin| world.store(pin, page(102), 0, 1).unwrap());
        world.machine.on(0, |pin| {
            assert_eq!(world.space.protect(pin, range(100, 3), Prot::NONE), Err(VmError::NotMapped));
        });
        assert_eq!(world.count(Event::Shootdown), 0);
        world.finish();
    });
}

#[test]
fn protect_stops_at_a_hole_in_folded_spans() {
    on_every_design(|world, pin| {
        fixed(world, pin, range(4 * LARGE, LARGE), RW);
        fixed(world, pin, range(6 * LARGE, LARGE), RW);
        let most = range(4 * LARGE + 1, 3 * LARGE - 2);
        assert_eq!(world.space.protect(pin, most, Prot::READ), Err(VmError::NotMapped));
        for (at, writable) in
            [(4 * LARGE, true), (4 * LARGE + 1, false), (5 * LARGE - 1, false), (6 * LARGE, true)]
        {
            assert_eq!(world.store(pin, page(at), 0, 1).is_ok(), writable, "page {at}");
        }
    });
}

#[test]
fn unmap_in_the_middle_of_a_folded_span_leaves_the_rest() {
    on_every_design(|world, pin| {
        fixed(world, pin, range(HUGE, HUGE), RW);
        world.space.unmap(pin, range(HUGE + 1000, 3)).unwrap();
        assert!(world.space.mapped(pin, range(HUGE, 1000)));
        assert!(!world.space.mapped(pin, range(HUGE + 999, 2)));
        assert!(!world.space.mapped(pin, range(HUGE + 1002, 2)));
        assert!(world.space.mapped(pin, range(HUGE + 1003, HUGE - 1003)));
    });
}

/// sv6: munmap past the top panicked the kernel.
#[test]
fn ranges_that_leave_user_space_are_refused() {
    on_every_design(|world, pin| {
        let (first, end) = (16, 1 << 35);
        fixed(world, pin, range(end - 1, 1), RW);
        for bad in [
            range(end - 1, 2),
            range(end, 1),
            range(first - 1, 2),
            range(0, u64::MAX),
            range(u64::MAX - 1, 1),
        ] {
            assert_eq!(world.space.unmap(pin, bad), Err(VmError::OutOfRange), "{bad:?}");
            assert_eq!(world.space.protect(pin, bad, RW), Err(VmError::OutOfRange), "{bad:?}");
            assert_eq!(world.space.discard(pin, bad), Err(VmError::OutOfRange), "{bad:?}");
            for place in [Placement::Fixed, Placement::FixedNoReplace] {
                let answer = world.space.map(pin, place(bad.start()), bad.pages(), Mapping::anonymous(RW));
                assert_eq!(answer, Err(VmError::OutOfRange), "{bad:?}");
            }
            assert!(!world.space.mapped(pin, bad));
        }
        let overflow = world.space.map(pin, Placement::Fixed(page(16)), u64::MAX, Mapping::anonymous(RW));
        assert_eq!(overflow, Err(VmError::OutOfRange));
        assert!(world.space.mapped(pin, range(end - 1, 1)), "a refused call changed something");
    });
}

#[test]
fn nothing_is_refused_as_empty() {
    on_every_design(|world, pin| {
        for place in
            [Placement::Fixed(page(100)), Placement::Anywhere { hint: None }, Placement::Below(page(4096))]
        {
            assert_eq!(world.space.map(pin, place, 0, Mapping::anonymous(RW)), Err(VmError::Empty));
        }
        assert_eq!(world.space.unmap(pin, range(100, 0)), Err(VmError::Empty));
        assert_eq!(world.space.protect(pin, range(100, 0), RW), Err(VmError::Empty));
    });
}

#[test]
fn faults_outside_user_space_are_not_mapped() {
    on_every_design(|world, pin| {
        for at in [0, 15, 1 << 35, 1 << 36, (1 << 52) - 1] {
            assert_eq!(fault(world, pin, at, Access::Read), Err(FaultError::NotMapped));
        }
    });
}

#[test]
fn map_fixed_replaces_and_the_old_contents_are_gone_everywhere() {
    for_each_design(Setup::new(), |world| {
        world.machine.on(0, |pin| fixed(&world, pin, range(100, 4), RW));
        world.machine.on_each(|pin| world.store(pin, page(101), 0, 9).unwrap());
        world.machine.on(2, |pin| fixed(&world, pin, range(101, 2), Prot::READ));
        assert_eq!(world.frames().used(), 0, "the replaced frame is free");
        world.machine.on_each(|pin| {
            assert_eq!(world.store(pin, page(101), 0, 9), Err(FaultError::Denied));
            assert_eq!(world.load(pin, page(101), 0), Ok(0));
        });
        world.finish();
    });
}

#[test]
fn map_noreplace_never_replaces() {
    on_every_design(|world, pin| {
        fixed(world, pin, range(103, 1), RW);
        world.store(pin, page(103), 0, 9).unwrap();
        let answer =
            world.space.map(pin, Placement::FixedNoReplace(page(100)), 4, Mapping::anonymous(Prot::READ));
        assert_eq!(answer, Err(VmError::Exists));
        assert_eq!(world.load(pin, page(103), 0), Ok(9));
        assert!(!world.space.mapped(pin, range(102, 1)));
        assert_eq!(
            world.space.map(pin, Placement::FixedNoReplace(page(100)), 3, Mapping::anonymous(RW)),
            Ok(page(100))
        );
    });
}

/// sv6: a hint without MAP_FIXED overwrote mappings.
#[test]
fn a_hint_is_honoured_if_free_and_never_overwrites() {
    on_every_design(|world, pin| {
        let hinted = |at, pages| {
            world.space.map(pin, Placement::Anywhere { hint: Some(page(at)) }, pages, Mapping::anonymous(RW))
        };
        assert_eq!(hinted(5000, 4), Ok(page(5000)));
        world.store(pin, page(5003), 0, 9).unwrap();
        let elsewhere = hinted(5003, 1).unwrap();
        assert_ne!(elsewhere, page(5003));
        assert_eq!(world.load(pin, page(5003), 0), Ok(9));
        for bad in [0, 1 << 35, u64::MAX] {
            assert!(hinted(bad, 1).unwrap() != page(bad), "a hint outside user space");
        }
    });
}

#[test]
fn below_a_limit_stays_below() {
    on_every_design(|world, pin| {
        let limit = page(1 << 19);
        let below = |pages| world.space.map(pin, Placement::Below(limit), pages, Mapping::anonymous(RW));
        for pages in [1, 7, LARGE, HUGE] {
            let at = below(pages).unwrap();
            assert!(at.get() + pages <= limit.get());
        }
        assert_eq!(below(HUGE), Err(VmError::NoSpace));
        assert_eq!(
            world.space.map(pin, Placement::Below(page(3)), 1, Mapping::anonymous(RW)),
            Err(VmError::NoSpace)
        );
    });
}

#[test]
fn large_maps_are_aligned_and_folded() {
    on_every_design(|world, pin| {
        world.space.map(pin, Placement::Anywhere { hint: None }, 1, Mapping::anonymous(RW)).unwrap();
        let before = world.space.nodes().created;
        let at = world
            .space
            .map(pin, Placement::Anywhere { hint: None }, 3 * LARGE, Mapping::anonymous(RW))
            .unwrap();
        assert_eq!(at.get() % LARGE, 0);
        assert!(world.space.nodes().created <= before + 2, "three slots of interior nodes, not 1536 pages");
    });
}

#[test]
fn discard_drops_contents_and_keeps_the_mapping() {
    for_each_design(Setup::new(), |world| {
        world.machine.on(0, |pin| fixed(&world, pin, range(100, 4), RW));
        world.machine.on_each(|pin| world.store(pin, page(102), 1, 9).unwrap());
        world.machine.on(1, |pin| world.space.discard(pin, range(101, 2)).unwrap());
        assert_eq!(world.frames().used(), 0);
        world.machine.on_each(|pin| assert_eq!(world.load(pin, page(102), 1), Ok(0)));
        world.machine.on(0, |pin| {
            world.store(pin, page(100), 0, 1).unwrap();
            world.space.unmap(pin, range(101, 1)).unwrap();
            assert_eq!(world.space.discard(pin, range(100, 4)), Err(VmError::NotMapped));
            assert_eq!(world.load(pin, page(100), 0), Ok(0), "the mapped part is discarded all the same");
        });
        world.finish();
    });
}

/// If one page of the range must not be dropped, none is. Translations of the cores are still invalidated.
#[test]
fn discard_refuses_as_a_whole() {
    for_each_design(Setup::new(), |world| {
        let all = range(100, 4);
        world.machine.on(0, |pin| {
            fixed(&world, pin, all, RW);
            world.space.advise(pin, range(102, 1), Flags::LOCKED, Flags::NONE).unwrap();
        });
        let stored = |core: &Pinned| all.iter().for_each(|at| world.store(core, at, 1, 9).unwrap());
        world.machine.on_each(stored);
        let used = world.frames().used();
        world.machine.on(1, |pin| {
            for pages in [all, range(102, 1)] {
                let refused = world.space.discard_without(pin, pages, Flags::LOCKED | Flags::DONTFORK);
                assert_eq!(refused, Err(VmError::Mixed));
            }
            assert_eq!(world.space.discard_without(pin, range(102, 2), Flags::DONTFORK), Ok(()));
        });
        assert_eq!(world.frames().used(), used - 2);
        let words = |core: &Pinned| all.iter().map(|at| world.load(core, at, 1).unwrap()).collect::<Vec<_>>();
        world.machine.on_each(|pin| assert_eq!(words(pin), [9, 9, 0, 0]));
        world.machine.on(2, |pin| world.space.unmap(pin, all).unwrap());
        world.machine.on_each(|pin| assert_eq!(world.load(pin, page(100), 1), Err(FaultError::NotMapped)));
        world.finish();
    });
}

/// A long range with contents in one, two and more places is discarded as a short one is.
#[test]
fn a_discard_finds_the_few_pages_of_a_long_range() {
    let (start, end) = (3 * LARGE - 5, 3 * LARGE + 4 * LARGE + 9);
    let long = range(start, end - start);
    for touched in [&[][..], &[start], &[start, end - 1], &[start + 1, start + 7, 4 * LARGE, 6 * LARGE + 77]]
    {
        on_every_design(|world, pin| {
            fixed(world, pin, range(start - 2, end - start + 4), RW);
            for &at in touched.iter().chain(&[start - 1, end]) {
                world.store(pin, page(at), 1, 7).unwrap();
            }
            world.space.discard(pin, long).unwrap();
            assert_eq!(world.frames().used(), 2, "those beside the range");
            touched.iter().for_each(|&at| assert_eq!(world.load(pin, page(at), 1), Ok(0)));
            assert_eq!((world.load(pin, page(start - 1), 1), world.load(pin, page(end), 1)), (Ok(7), Ok(7)));
        });
    }
}

#[test]
fn a_long_discard_is_refused_as_a_whole_and_reports_a_gap() {
    let long = range(100, 2 * LARGE);
    on_every_design(|world, pin| {
        fixed(world, pin, long, RW);
        world.store(pin, page(100), 1, 7).unwrap();
        world.space.advise(pin, range(800, 1), Flags::LOCKED, Flags::NONE).unwrap();
        assert_eq!(world.space.discard_without(pin, long, Flags::LOCKED), Err(VmError::Mixed));
        assert_eq!(world.load(pin, page(100), 1), Ok(7), "one page must not be dropped, so none is");
        world.space.unmap(pin, range(800, 1)).unwrap();
        assert_eq!(world.space.discard_without(pin, long, Flags::LOCKED), Err(VmError::NotMapped));
        assert_eq!(world.load(pin, page(100), 1), Ok(0), "the mapped part is discarded all the same");
    });
}

#[test]
fn a_long_discard_of_untouched_pages_is_refused_too() {
    let long = range(100, 2 * LARGE);
    on_every_design(|world, pin| {
        fixed(world, pin, long, RW);
        world.space.advise(pin, long, Flags::LOCKED, Flags::NONE).unwrap();
        assert_eq!(world.space.discard_without(pin, long, Flags::LOCKED), Err(VmError::Mixed));
    });
}

/// Pages in two places that two cores have: two shootdowns. In more places: one.
#[test]
fn a_long_discard_interrupts_the_cores_that_have_its_pages() {
    for (places, most) in [(1, 1), (2, 2), (5, 1)] {
        for_each_design(Setup::new(), |world| {
            let long = range(LARGE, places * LARGE);
            world.machine.on(0, |pin| {
                fixed(&world, pin, long, RW);
                world.space.advise(pin, long, Flags::NOHUGE, Flags::NONE).unwrap();
            });
            let at = |place| page(LARGE + place * LARGE + 9);
            world
                .machine
                .on_each(|pin| (0..places).for_each(|place| world.store(pin, at(place), 1, 7).unwrap()));
            let before = world.count(Event::Shootdown);
            world.machine.on(0, |pin| world.space.discard(pin, long).unwrap());
            assert!((1..=most).contains(&(world.count(Event::Shootdown) - before)), "{places} places");
            world.machine.on_each(|pin| {
                (0..places).for_each(|place| assert_eq!(world.load(pin, at(place), 1), Ok(0)));
            });
            world.finish();
        });
    }
}

/// Returns the frames of all pages, each with its page, and the calls that showed them.
fn frames(world: &World, pin: &Pinned, pages: PageRange) -> (Vec<(PageNum, FrameNum, bool)>, usize) {
    let (mut found, mut calls, mut rest) = (Vec::new(), 0, pages);
    while !rest.is_empty() {
        let visit = &mut |run: FrameRun| {
            found.extend(run.pages.iter().zip(run.frames()).map(|(page, frame)| (page, frame, run.is_shown)))
        };
        let end = world.space.frames(pin, rest, visit);
        assert!(end > rest.start(), "it goes on");
        (calls, rest) = (calls + 1, PageRange::between(end, rest.end()));
    }
    (found, calls)
}

#[test]
fn the_frames_of_pages_are_shown_in_pieces() {
    on_every_design(|world, pin| {
        let file = world.machine.files.create(2);
        world.map(pin, Placement::Fixed(page(7 + LARGE)), 2, RW, Shows::Private(file, 0)).unwrap();
        fixed(world, pin, range(HUGE, 8000), RW);
        world.load(pin, page(7 + LARGE), 0).unwrap();
        world.store(pin, page(8 + LARGE), 0, 1).unwrap();
        (0..8000).step_by(2).for_each(|at| world.store(pin, page(HUGE + at), 0, 1).unwrap());
        let (found, calls) = frames(world, pin, Setup::new().user);
        assert_eq!(found.len(), 4002);
        assert!(calls > 2, "a step is bounded");
        assert_eq!(found.iter().map(|one| one.2).take(3).collect::<Vec<_>>(), [true, false, false]);
        for &(page, frame, _) in &found {
            assert!(world.space.frame(pin, page, Access::Read, &mut |is| assert_eq!(is, frame)), "{page:?}");
        }
        assert_eq!(frames(world, pin, range(HUGE + 1, 2)).0, found[3..4]);
    });
}

/// A gap ends a run: a range is resident, or mapped, as a whole only without gaps.
#[test]
fn gaps_are_found_at_every_level() {
    on_every_design(|world, pin| {
        let (long, end) = (4 * HUGE, 2 * HUGE + 3 * LARGE + 5);
        fixed(world, pin, range(long, end), RW);
        world.store(pin, page(long + 7), 0, 1).unwrap();
        let whole = range(long, end);
        let resident = |pages| {
            let mut runs = Vec::new();
            let answer = world.space.resident(pin, pages, &mut |run| runs.push(run));
            (answer, runs)
        };
        assert_eq!(resident(whole), (Ok(false), vec![range(long + 7, 1)]));
        for hole in [
            range(long + 7, 1),
            range(long + LARGE, LARGE),
            range(long + HUGE, HUGE),
            range(long + end - 1, 1),
        ] {
            assert!(world.space.mapped(pin, hole) && world.space.mapped(pin, whole));
            world.space.unmap(pin, hole).unwrap();
            assert!(!world.space.mapped(pin, whole) && !world.space.mapped(pin, hole));
            assert_eq!(resident(whole).0, Err(VmError::NotMapped));
            assert_eq!(world.space.discard(pin, whole), Err(VmError::NotMapped));
            assert_eq!(world.space.advise(pin, whole, Flags::NONE, Flags::DONTFORK), Err(VmError::NotMapped));
            assert_eq!(world.space.protect(pin, whole, RW), Err(VmError::NotMapped));
            fixed(world, pin, hole, RW);
        }
        assert!(world.space.mapped(pin, range(long + end, 0)));
        assert_eq!(world.space.protect(pin, whole, Prot::READ), Ok(()));
    });
}

#[test]
fn an_installed_frame_is_what_every_core_sees() {
    use vm::Frames;
    for_each_design(Setup::new(), |world| {
        world.machine.on(0, |pin| {
            fixed(&world, pin, range(LARGE, LARGE), Prot::READ);
            let frame = world.frames().alloc_zeroed(pin).unwrap();
            world.frames().write(frame, 0, 42);
            let given = Installed::Frame(frame);
            assert_eq!(world.space.install(pin, page(600), given), Ok(()));
            assert_eq!(world.space.install(pin, page(600), given), Err(VmError::Exists));
            assert_eq!(world.space.install(pin, page(100), given), Err(VmError::NotMapped));
            assert_eq!(world.space.install(pin, page(1 << 36), given), Err(VmError::OutOfRange));
        });
        world.machine.on_each(|pin| assert_eq!(world.load(pin, page(600), 0), Ok(42)));
        world.finish();
    });
}

#[test]
fn a_frame_of_which_a_reference_was_installed_is_never_written() {
    use vm::Frames;
    for_each_design(Setup::new(), |world| {
        let frame = world.machine.on(0, |pin| {
            let frame = world.frames().alloc_zeroed(pin).unwrap();
            world.frames().write(frame, 0, 42);
            world.frames().share(pin, frame);
            world.frames().adjust(pin, frame, 2);
            for at in [600, 601] {
                fixed(&world, pin, range(at, 1), RW);
                assert_eq!(world.space.install(pin, page(at), Installed::Reference(frame)), Ok(()));
            }
            assert_eq!(world.store(pin, page(600), 0, 43), Ok(()));
            frame
        });
        world.machine.on_each(|pin| {
            assert_eq!(world.load(pin, page(600), 0), Ok(43));
            assert_eq!(world.load(pin, page(601), 0), Ok(42));
        });
        world.machine.on(0, |pin| world.frames().adjust(pin, frame, -1));
        world.finish();
    });
}

#[test]
fn a_write_after_rights_were_raised_succeeds_although_old_translations_linger() {
    for_each_design(Setup::new(), |world| {
        world.machine.on(0, |pin| fixed(&world, pin, range(100, 1), Prot::READ));
        world.machine.on_each(|pin| assert_eq!(world.load(pin, page(100), 0), Ok(0)));
        world.machine.on(0, |pin| world.space.protect(pin, range(100, 1), RW).unwrap());
        world.machine.on_each(|pin| {
            world.store(pin, page(100), pin.core().index(), 1).unwrap();
        });
        world.finish();
    });
}

#[test]
fn destroy_leaves_an_empty_space_that_still_works() {
    on_every_design(|world, pin| {
        fixed(world, pin, range(100, 4), RW);
        world.store(pin, page(100), 0, 1).unwrap();
        world.space.destroy(pin);
        assert_eq!(world.frames().used(), 0);
        assert_eq!(world.load(pin, page(100), 0), Err(FaultError::NotMapped));
        fixed(world, pin, range(100, 4), RW);
        assert_eq!(world.load(pin, page(100), 0), Ok(0));
    });
}

#[test]
fn a_space_may_be_dropped_on_an_offline_core() {
    for_each_design(Setup::new(), |world| {
        world.machine.on(0, |pin| {
            fixed(&world, pin, range(100, 8), RW);
            fault(&world, pin, 101, Access::Write).unwrap();
            world.machine.refcache.offline(pin);
        });
        world.finish();
    });
}

/// A piece of a space that no core runs any more is a few leaves, and what they map is free before the space
/// is dropped.
#[test]
fn a_space_is_dismantled_piece_by_piece() {
    const FAR: u64 = 1 << 20;
    const PLACES: u64 = 100;
    for_each_design(Setup::new(), |mut world| {
        let machine = world.machine.clone();
        machine.on(0, |pin| {
            for place in 1..=PLACES {
                fixed(&world, pin, range(place * FAR, 2), RW);
                world.store(pin, page(place * FAR), 0, place).unwrap();
            }
            assert_eq!(world.frames().used(), PLACES as usize);
            let pieces = world.dismantle(pin);
            assert!(pieces.len() >= PLACES as usize / 40, "{pieces:?}");
            assert_eq!(world.frames().used(), 0);
        });
        world.finish();
    });
}

/// The pieces of a long range cover it. Each begins and ends where a page is mapped, and has no more than a
/// few leaves.
#[test]
fn a_long_range_is_unmapped_piece_by_piece() {
    const FAR: u64 = 1 << 20;
    const PLACES: u64 = 40;
    on_every_design(|world, pin| {
        for place in 1..=PLACES {
            fixed(world, pin, range(place * FAR, 2), RW);
            world.store(pin, page(place * FAR), 0, place).unwrap();
        }
        fixed(world, pin, range((PLACES + 1) * FAR, HUGE), RW);
        let (all, mut pieces) = (range(FAR, (PLACES + 1) * FAR), 0);
        let mut rest = all;
        while !rest.is_empty() {
            let piece = world.space.piece(pin, rest);
            assert!(piece.start() == rest.start() && !piece.is_empty() && piece.end() <= rest.end());
            rest = PageRange::between(piece.end(), rest.end());
            assert!(rest.is_empty() || world.space.mapped(pin, PageRange::one(rest.start())));
            world.space.unmap(pin, piece).unwrap();
            assert!(rest.is_empty() || world.space.mapped(pin, PageRange::one(rest.start())));
            pieces += 1;
        }
        assert!(pieces >= PLACES / 8, "{pieces} pieces");
        assert!(world.regions(pin, all).is_empty());
        assert_eq!(world.space.piece(pin, range(7, 512)), range(7, 512), "what is short is one piece");
        let beyond = range(1 << 40, 1 << 30);
        assert_eq!(world.space.piece(pin, beyond), beyond, "it is refused by the operation");
    });
}
