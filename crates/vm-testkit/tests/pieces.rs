//! A mapping moves piece by piece (`relocation.rs`): how many steps it takes, what it refuses, and where the
//! pages are when others unmap some of them meanwhile. (`oom.rs` tests memory that runs out,
//! `storms.rs` threads that look meanwhile.)

use std::cell::Cell;

use percore::Pinned;
use vm::{
    Access, Event, FaultError, HUGE_PAGES, Mapping, PageNum, PageRange, Placement, Prot, Relocation, Remap,
    Tables, VmError,
};
use vm_testkit::{ALL_TABLES, Design, Setup, Shows, World};

const RW: Prot = Prot::from_bits(3);
const PAGES: u64 = 10;
/// There is room for two more at the new place.
const ROOM: u64 = 12;
const OLD: u64 = 100;
const NEW: u64 = 200;
/// Pages of a piece.
const MOST: u64 = 3;
/// The first page of a leaf.
const BLOCK: u64 = 8 * HUGE_PAGES;

fn page(number: u64) -> PageNum {
    PageNum::new(number)
}

fn range(start: u64, pages: u64) -> PageRange {
    PageRange::new(page(start), pages).unwrap()
}

fn what(to: Placement) -> Remap {
    Remap { from: range(OLD, PAGES), pages: ROOM, to, keep: false }
}

/// The contents of a page of the mapping.
fn token(by: u64) -> u64 {
    0x7000 + by
}

/// Runs `test` with the mapping, all of which was written to, in each kind of space that moves in pieces.
fn with_tokens(test: impl Fn(&World, &Pinned)) {
    for tables in ALL_TABLES {
        let world = World::radix(Setup::new(), tables);
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(page(OLD)), PAGES, RW, Shows::Zeroes).unwrap();
            (0..PAGES).for_each(|by| world.store(pin, page(OLD + by), 0, token(by)).unwrap());
            test(&world, pin);
        });
        world.finish();
    }
}

/// Moves the mapping, and calls `between` with the number of each step that is not the last. Returns the
/// outcome, and how many steps there were.
fn move_it(
    world: &World,
    pin: &Pinned,
    what: &Remap,
    mut between: impl FnMut(u64),
) -> (Result<PageNum, VmError>, u64) {
    let steps = Cell::new(0);
    let answer = world.remap_in_pieces(pin, what, MOST, || {
        steps.set(steps.get() + 1);
        between(steps.get());
    });
    (answer, steps.get() + 1)
}

/// Each page at `start` has its token and can be written to, but for `gone`, which is not mapped.
fn assert_at(world: &World, pin: &Pinned, start: u64, gone: Option<u64>) {
    for by in 0..PAGES {
        let at = page(start + by);
        let expected = if gone == Some(at.get()) { Err(FaultError::NotMapped) } else { Ok(token(by)) };
        assert_eq!(world.load(pin, at, 0), expected);
        assert_eq!(world.store(pin, at, 1, 5), expected.map(drop));
    }
}

fn assert_unmapped(world: &World, pin: &Pinned, pages: PageRange) {
    for at in pages.iter() {
        assert!(!world.space.mapped(pin, PageRange::one(at)), "{at:?} is mapped");
    }
}

#[test]
fn only_designs_with_folded_slots_move_in_pieces() {
    for design in Design::ALL {
        let world = World::new(Setup::new(), design);
        let begins = Relocation::begin(&*world.space, what(Placement::Fixed(page(NEW))), MOST).is_some();
        assert_eq!(begins, matches!(design, Design::Radix(_)));
        world.finish();
    }
}

/// Pieces are what `MOST` says: of the check, of the claim at a fixed place, of the carrying. The two pages
/// more take one step, and so does the end.
#[test]
fn a_move_takes_as_many_steps_as_it_has_pieces() {
    let pieces = |pages: u64| pages.div_ceil(MOST);
    let places = [
        (Placement::Fixed(page(NEW)), pieces(ROOM)),
        (Placement::FixedNoReplace(page(NEW)), 1),
        (Placement::Anywhere { hint: None }, 1),
    ];
    for (to, claims) in places {
        with_tokens(|world, pin| {
            let (answer, steps) = move_it(world, pin, &what(to), |_| ());
            assert_eq!(steps, pieces(PAGES) + claims + pieces(PAGES) + 1 + 1);
            let start = answer.unwrap().get();
            assert_at(world, pin, start, None);
            for more in PAGES..ROOM {
                assert_eq!(world.load(pin, page(start + more), 0), Ok(0));
            }
            assert_unmapped(world, pin, range(OLD, PAGES));
            assert_eq!(world.count(Event::Mremap), 1);
        });
    }
}

#[test]
fn the_old_place_is_kept_if_it_is_to_be() {
    with_tokens(|world, pin| {
        let what = Remap { keep: true, ..what(Placement::Fixed(page(NEW))) };
        move_it(world, pin, &what, |_| ()).0.unwrap();
        assert_at(world, pin, NEW, None);
        (0..PAGES).for_each(|by| assert_eq!(world.load(pin, page(OLD + by), 0), Ok(0)));
    });
}

#[test]
fn mappings_at_the_new_place_are_replaced() {
    with_tokens(|world, pin| {
        world.map(pin, Placement::Fixed(page(NEW + 4)), 20, RW, Shows::Zeroes).unwrap();
        (4..24).for_each(|by| world.store(pin, page(NEW + by), 0, 1).unwrap());
        assert_eq!(
            move_it(world, pin, &what(Placement::FixedNoReplace(page(NEW))), |_| ()).0,
            Err(VmError::Exists)
        );
        assert_at(world, pin, OLD, None);
        move_it(world, pin, &what(Placement::Fixed(page(NEW))), |_| ()).0.unwrap();
        assert_at(world, pin, NEW, None);
        assert_eq!(world.load(pin, page(NEW + ROOM - 1), 0), Ok(0));
        assert_eq!(world.load(pin, page(NEW + ROOM), 0), Ok(1));
    });
}

#[test]
fn a_move_that_is_refused_changes_nothing() {
    with_tokens(|world, pin| {
        let refused = |what: &Remap, error| {
            assert_eq!(move_it(world, pin, what, |_| ()).0, Err(error));
            assert_at(world, pin, OLD, None);
            assert_eq!(world.count(Event::Mremap), 0);
        };
        let to = Placement::Fixed(page(NEW));
        refused(&Remap { from: range(OLD, PAGES + 1), ..what(to) }, VmError::NotMapped);
        refused(&Remap { from: range(OLD - 1, PAGES), ..what(to) }, VmError::NotMapped);
        refused(&what(Placement::Fixed(page(OLD + PAGES - 1))), VmError::Exists);
        refused(&what(Placement::Fixed(page(OLD - ROOM + 1))), VmError::Exists);
        refused(&what(Placement::Fixed(page(u64::MAX))), VmError::OutOfRange);
        refused(&what(Placement::Fixed(page(u64::MAX - ROOM))), VmError::OutOfRange);
        refused(&Remap { from: range(u64::MAX - PAGES, PAGES), ..what(to) }, VmError::OutOfRange);
        assert_unmapped(world, pin, range(NEW, ROOM));
        world.map(pin, Placement::Fixed(page(OLD + PAGES)), 1, Prot::READ, Shows::Zeroes).unwrap();
        refused(&Remap { from: range(OLD, PAGES + 1), ..what(to) }, VmError::Mixed);
        // A piece begins with the other mapping, and has a hole behind it.
        refused(&Remap { from: range(OLD + 1, PAGES + 1), ..what(to) }, VmError::Mixed);
        assert_unmapped(world, pin, range(NEW, ROOM));
    });
}

/// After each step in turn another thread unmaps a page of the new place. The move fails if a page was still
/// to come there, and all pages are where they were. If not, the contents of that page are gone.
#[test]
fn a_page_of_the_new_place_is_unmapped_meanwhile() {
    for (lost, step) in
        [0, 5, PAGES - 1, ROOM - 1].into_iter().flat_map(|by| (1..14).map(move |step| (NEW + by, step)))
    {
        with_tokens(|world, pin| {
            let unmap = |now| {
                if now == step {
                    world.space.unmap(pin, PageRange::one(page(lost))).unwrap();
                }
            };
            match move_it(world, pin, &what(Placement::Fixed(page(NEW))), unmap).0 {
                Ok(at) => {
                    assert_eq!(at, page(NEW));
                    let carried = world.space.mapped(pin, PageRange::one(page(lost)));
                    assert_at(world, pin, NEW, (!carried).then_some(lost));
                    assert_unmapped(world, pin, range(OLD, PAGES));
                }
                Err(error) => {
                    assert!(matches!(error, VmError::NotMapped | VmError::Mixed), "{error:?}");
                    assert_at(world, pin, OLD, None);
                    assert_unmapped(world, pin, range(NEW, ROOM));
                }
            }
        });
    }
}

/// The same with a page of the old place.
#[test]
fn a_page_of_the_old_place_is_unmapped_meanwhile() {
    for (lost, step) in [0, 5, PAGES - 1].into_iter().flat_map(|by| (1..14).map(move |step| (OLD + by, step)))
    {
        with_tokens(|world, pin| {
            let unmap = |now| {
                if now == step {
                    world.space.unmap(pin, PageRange::one(page(lost))).unwrap();
                }
            };
            match move_it(world, pin, &what(Placement::Fixed(page(NEW))), unmap).0 {
                Ok(at) => {
                    assert_eq!(at, page(NEW));
                    assert_at(world, pin, NEW, None);
                    assert_unmapped(world, pin, range(OLD, PAGES));
                }
                Err(error) => {
                    assert_eq!(error, VmError::NotMapped);
                    assert_at(world, pin, OLD, Some(lost));
                    assert_unmapped(world, pin, range(NEW, ROOM));
                }
            }
        });
    }
}

/// Once the new place is held, another thread maps a page of it: that stays, whether it comes before the page
/// that moves there or after.
#[test]
fn mappings_of_others_at_the_new_place_stay() {
    let claimed = PAGES.div_ceil(MOST) + ROOM.div_ceil(MOST);
    for (at, step) in
        [0, 5, PAGES - 1].into_iter().flat_map(|by| (claimed..14).map(move |step| (NEW + by, step)))
    {
        with_tokens(|world, pin| {
            let map = |now| {
                if now == step {
                    world.map(pin, Placement::Fixed(page(at)), 1, RW, Shows::Zeroes).unwrap();
                    world.store(pin, page(at), 0, 1).unwrap();
                }
            };
            let answer = move_it(world, pin, &what(Placement::Fixed(page(NEW))), map).0;
            assert_eq!(world.load(pin, page(at), 0), Ok(1), "page {at}, after step {step}");
            if answer.is_ok() {
                return assert_unmapped(world, pin, range(OLD, PAGES));
            }
            assert_eq!(answer, Err(VmError::Mixed));
            assert_at(world, pin, OLD, None);
            assert_unmapped(world, pin, range(NEW, at - NEW));
            assert_unmapped(world, pin, range(at + 1, NEW + ROOM - at - 1));
        });
    }
}

/// A place that sticks out of user space is refused before anything happens to the part that does not.
#[test]
fn a_place_beyond_user_space_is_refused_at_once() {
    with_tokens(|world, pin| {
        let end = Setup::new().user.end().get();
        let beyond = Remap { from: range(end - MOST, PAGES), ..what(Placement::Fixed(page(NEW))) };
        assert_eq!(move_it(world, pin, &beyond, |_| ()).0, Err(VmError::OutOfRange));
        world.map(pin, Placement::Fixed(page(end - MOST)), MOST, RW, Shows::Zeroes).unwrap();
        world.store(pin, page(end - MOST), 0, 1).unwrap();
        let answer = move_it(world, pin, &what(Placement::Fixed(page(end - MOST))), |_| ()).0;
        assert_eq!(answer, Err(VmError::OutOfRange));
        assert_eq!(world.load(pin, page(end - MOST), 0), Ok(1));
        assert_at(world, pin, OLD, None);
    });
}

/// After each step in turn another thread removes the right to write a page of the old place. If the page has
/// not moved yet, the move fails, and the page is as they left it. If it has moved, it is not mapped there.
#[test]
fn a_page_of_the_old_place_is_protected_meanwhile() {
    for step in 1..14 {
        with_tokens(|world, pin| {
            let at = OLD + 5;
            let mut protected = Err(VmError::NotMapped);
            let protect = |now| {
                if now == step {
                    protected = world.space.protect(pin, PageRange::one(page(at)), Prot::READ);
                }
            };
            let answer = move_it(world, pin, &what(Placement::Fixed(page(NEW))), protect).0;
            if answer.is_ok() {
                assert_eq!(protected, Err(VmError::NotMapped));
                return assert_at(world, pin, NEW, None);
            }
            assert_eq!((answer, protected), (Err(VmError::Mixed), Ok(())));
            (0..PAGES).for_each(|by| assert_eq!(world.load(pin, page(OLD + by), 0), Ok(token(by))));
            assert_eq!(world.store(pin, page(at), 0, 1), Err(FaultError::Denied));
            assert_unmapped(world, pin, range(NEW, ROOM));
        });
    }
}

/// The first piece has moved. Another thread maps one of its pages at the old place, and the move fails: that
/// page stays, and the others come back.
#[test]
fn mappings_of_others_at_the_old_place_stay() {
    with_tokens(|world, pin| {
        let carried = PAGES.div_ceil(MOST) + ROOM.div_ceil(MOST) + 1;
        let disturb = |now| {
            if now == carried {
                world.map(pin, Placement::Fixed(page(OLD)), 1, RW, Shows::Zeroes).unwrap();
                world.store(pin, page(OLD), 0, 1).unwrap();
                world.space.unmap(pin, PageRange::one(page(NEW + PAGES - 1))).unwrap();
            }
        };
        let answer = move_it(world, pin, &what(Placement::Fixed(page(NEW))), disturb).0;
        assert_eq!(answer, Err(VmError::NotMapped));
        assert_eq!(world.load(pin, page(OLD), 0), Ok(1));
        (1..PAGES).for_each(|by| assert_eq!(world.load(pin, page(OLD + by), 0), Ok(token(by))));
        assert_unmapped(world, pin, range(NEW, ROOM));
    });
}

/// The first piece has moved. Another thread removes the right to write one of its pages, and the move fails:
/// that page stays at the new place, with what was written to it, and the others come back.
#[test]
fn a_page_of_the_new_place_is_protected_meanwhile() {
    with_tokens(|world, pin| {
        let carried = PAGES.div_ceil(MOST) + ROOM.div_ceil(MOST) + 1;
        let disturb = |now| {
            if now == carried {
                world.space.protect(pin, PageRange::one(page(NEW)), Prot::READ).unwrap();
                world.space.unmap(pin, PageRange::one(page(NEW + PAGES - 1))).unwrap();
            }
        };
        let answer = move_it(world, pin, &what(Placement::Fixed(page(NEW))), disturb).0;
        assert_eq!(answer, Err(VmError::NotMapped));
        assert_eq!(world.load(pin, page(NEW), 0), Ok(token(0)));
        assert_eq!(world.store(pin, page(NEW), 0, 1), Err(FaultError::Denied));
        assert_eq!(world.load(pin, page(OLD), 0), Ok(0));
        (1..PAGES).for_each(|by| assert_eq!(world.load(pin, page(OLD + by), 0), Ok(token(by))));
        assert_unmapped(world, pin, range(NEW + 1, ROOM - 1));
    });
}

/// The steps of a move, called directly: the leaf is dropped but for a page that others have mapped there.
#[test]
fn a_sharer_of_a_page_in_a_held_leaf_is_not_forgotten() {
    for tables in vm_testkit::ALL_TABLES {
        let world = World::radix(Setup::new(), tables);
        let on = |core, act: &dyn Fn(&Pinned)| world.machine.on(core, act);
        let parts = || world.space.moves_in_pieces().unwrap();
        on(0, &|pin| _ = parts().claim(pin, Placement::Fixed(page(BLOCK)), HUGE_PAGES).unwrap());
        let mine = range(BLOCK + 7, 1);
        let map = |pin: &Pinned| {
            world.space.map(pin, Placement::Fixed(mine.start()), 1, Mapping::anonymous(RW)).unwrap();
        };
        on(0, &map);
        // The owner of the leaf, and a private sharer.
        on(1, &|pin| world.store(pin, mine.start(), 0, 5).unwrap());
        on(2, &|pin| assert_eq!(world.load(pin, mine.start(), 0), Ok(5)));
        on(0, &|pin| parts().settle(pin, range(BLOCK, HUGE_PAGES), None).unwrap());
        on(2, &|pin| assert_eq!(world.load(pin, mine.start(), 0), Ok(5)));
        on(0, &|pin| world.space.unmap(pin, mine).unwrap());
        assert_gone(&world, 2, mine.start());
        world.finish();
    }
}

/// Held pages are of no mapping that could move or become huge.
#[test]
fn held_pages_do_not_become_a_huge_page() {
    for tables in ALL_TABLES {
        let world = World::radix(Setup::new(), tables);
        world.frames().offer_huge(true);
        world.machine.on(0, |pin| {
            let parts = world.space.moves_in_pieces().unwrap();
            for piece in [range(BLOCK, 1), range(BLOCK + 1, HUGE_PAGES - 1)] {
                parts.claim(pin, Placement::Fixed(piece.start()), piece.pages()).unwrap();
            }
            assert_eq!(world.space.collapse(pin, page(BLOCK)), Err(VmError::Mixed));
            assert_eq!(parts.mapping_of(pin, range(BLOCK, HUGE_PAGES)), Err(VmError::Mixed));
            parts.settle(pin, range(BLOCK, HUGE_PAGES), None).unwrap();
            assert_unmapped(&world, pin, range(BLOCK, HUGE_PAGES));
        });
        world.finish();
    }
}

/// `core` has no translation of the page, which is not mapped.
fn assert_gone(world: &World, core: usize, at: PageNum) {
    let found = world.machine.on(core, |pin| world.mmu.translate(pin, &*world.space, at, Access::Read));
    assert_eq!(found, None, "core {core} can read a frame that is free");
}

/// The same by a move of two leaves, while others map one page at the old place.
#[test]
fn a_page_mapped_where_a_mapping_leaves_is_invalidated_everywhere() {
    let world = World::radix(Setup::new(), Tables::Adaptive);
    let (old, mine) = (range(BLOCK, 2 * HUGE_PAGES), range(BLOCK + 7, 1));
    let what = Remap { from: old, pages: old.pages(), to: Placement::Fixed(page(2 * BLOCK)), keep: false };
    world.machine.on(0, |pin| {
        world.map(pin, Placement::Fixed(page(BLOCK)), old.pages(), RW, Shows::Zeroes).unwrap();
    });
    // So that there is a leaf, which core 1 owns.
    world.machine.on(1, |pin| world.store(pin, page(BLOCK + 100), 0, 1).unwrap());
    let mut done = false;
    let moved = world.machine.on(0, |pin| {
        world.remap_in_pieces(pin, &what, 600, || {
            let holds = world.machine.elsewhere(3, |pin| {
                let mut held = false;
                world.space.look(pin, mine.start(), &mut |mapping| held = mapping.prot() == Prot::NONE);
                held
            });
            if !done && holds {
                done = true;
                world.machine.elsewhere(3, |pin| {
                    world.space.map(pin, Placement::Fixed(mine.start()), 1, Mapping::anonymous(RW)).unwrap();
                });
                world.machine.elsewhere(1, |pin| world.store(pin, mine.start(), 0, 5).unwrap());
                world.machine.elsewhere(2, |pin| assert_eq!(world.load(pin, mine.start(), 0), Ok(5)));
            }
        })
    });
    assert_eq!((moved, done), (Ok(page(2 * BLOCK)), true));
    world.machine.on(3, |pin| world.space.unmap(pin, mine).unwrap());
    assert_gone(&world, 2, mine.start());
    world.machine.on(0, |pin| world.space.unmap(pin, range(2 * BLOCK, 2 * HUGE_PAGES)).unwrap());
    world.finish();
}

/// A held page gets no rights: it could be touched then, and would be at both places.
#[test]
fn rights_of_a_page_that_moves_are_refused() {
    with_tokens(|world, pin| {
        let refused = Cell::new(0);
        let protect = |_| match world.space.protect(pin, range(OLD, 1), RW) {
            Ok(()) => assert_eq!(world.load(pin, page(OLD), 0), Ok(token(0))),
            Err(error) => {
                assert_eq!(error, VmError::NotMapped);
                assert!(world.load(pin, page(OLD), 0).is_err());
                refused.set(refused.get() + 1);
            }
        };
        assert_eq!(move_it(world, pin, &what(Placement::Fixed(page(NEW))), protect).0, Ok(page(NEW)));
        assert!(refused.get() > 0);
        assert_unmapped(world, pin, range(OLD, PAGES));
        assert_at(world, pin, NEW, None);
    });
}
