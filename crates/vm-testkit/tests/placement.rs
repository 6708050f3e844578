//! Choosing an address never fails while there is a hole, however few there are and however many cores look
//! for them.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use percore::Pinned;
use vm::{Mapping, PageNum, PageRange, Placement, Prot, Tables, VmError};
use vm_testkit::{Dice, Setup, World};

const ANYWHERE: Placement = Placement::Anywhere { hint: None };

fn map(world: &World, pin: &Pinned, pages: u64) -> Result<PageRange, VmError> {
    let start = world.space.map(pin, ANYWHERE, pages, Mapping::anonymous(Prot::READ))?;
    Ok(PageRange::new(start, pages).unwrap())
}

fn small(cores: usize, pages: u64) -> World {
    let user = PageRange::new(PageNum::new(700), pages).unwrap();
    World::radix(Setup { cores, user, ..Setup::new() }, Tables::PerCore)
}

#[test]
fn a_small_space_is_full_only_when_every_page_is_taken() {
    for (cores, pages) in [(1, 1), (4, 3), (4, 600), (3, 2000)] {
        let world = small(cores, pages);
        world.machine.on(cores - 1, |pin| {
            let mut taken: HashSet<_> =
                (0..pages).map(|_| map(&world, pin, 1).unwrap().start().get()).collect();
            assert_eq!(taken.len() as u64, pages);
            assert_eq!(map(&world, pin, 1), Err(VmError::NoSpace));
            for hole in [700, 700 + pages / 2, 700 + pages - 1] {
                world.space.unmap(pin, PageRange::one(PageNum::new(hole))).unwrap();
                taken.remove(&hole);
                assert_eq!(map(&world, pin, 1), Ok(PageRange::one(PageNum::new(hole))));
            }
        });
        world.finish();
    }
}

#[test]
fn a_large_hole_is_found_even_if_it_is_not_aligned() {
    let world = small(2, 1100);
    world.machine.on(0, |pin| {
        world
            .space
            .map(pin, Placement::Fixed(PageNum::new(1700)), 100, Mapping::anonymous(Prot::READ))
            .unwrap();
        assert_eq!(map(&world, pin, 1000), Ok(PageRange::new(PageNum::new(700), 1000).unwrap()));
        assert_eq!(map(&world, pin, 1), Err(VmError::NoSpace));
    });
    world.finish();
}

/// A gigabyte of pages is one slot, below one node: it sticks out of none.
#[test]
fn a_gigabyte_of_pages_needs_one_node() {
    let gigabyte = 1 << 18;
    let world = small(1, 1 << 30);
    world.machine.on(0, |pin| {
        let before = world.space.nodes().created;
        let range = map(&world, pin, gigabyte).unwrap();
        assert!(range.start().get().is_multiple_of(gigabyte), "{range:?}");
        assert_eq!(world.space.nodes().created, before + 1);
    });
    world.finish();
}

#[test]
fn cores_that_race_for_the_last_pages_get_each_once() {
    let world = small(3, 1500);
    let taken = Mutex::new(HashSet::new());
    world.machine.on_threads(3, |core| {
        let pin = core.pin();
        while let Ok(range) = map(&world, pin, 1) {
            assert!(taken.lock().unwrap().insert(range.start()), "{range:?} was given out twice");
        }
    });
    assert_eq!(taken.into_inner().unwrap().len(), 1500);
    world.finish();
}

/// The pages of [`a_hole_that_moves_is_found`] that are not mapped for good.
fn movable(dice: &mut Dice) -> PageNum {
    PageNum::new(700 + 140 * dice.below(7))
}

/// Two cores keep moving 3 pages each about in 7. However they move, a third core finds a page.
#[test]
fn a_hole_that_moves_is_found() {
    let world = small(3, 1000);
    world.machine.on(0, |pin| {
        world
            .space
            .map(pin, Placement::Fixed(PageNum::new(700)), 1000, Mapping::anonymous(Prot::READ))
            .unwrap();
        (0..7).for_each(|at| world.space.unmap(pin, PageRange::one(PageNum::new(700 + 140 * at))).unwrap());
    });
    let moves = AtomicUsize::new(0);
    world.machine.on_threads(3, |core| {
        let mut dice = Dice(0x9e37 + core.pin().core().index() as u64);
        let mut held = Vec::new();
        while moves.load(SeqCst) < 40_000 {
            core.serve();
            if core.pin().core().index() > 0 {
                move_about(&world, core.pin(), &mut dice, &mut held);
                moves.fetch_add(1, SeqCst);
            } else {
                let hole = world.space.map(
                    core.pin(),
                    Placement::Below(PageNum::new(1700)),
                    1,
                    Mapping::anonymous(Prot::READ),
                );
                let hole = hole.expect("one page at least is free at any moment");
                world.space.unmap(core.pin(), PageRange::one(hole)).unwrap();
            }
        }
    });
    world.finish();
}

/// Gives a page up for another one.
fn move_about(world: &World, pin: &Pinned, dice: &mut Dice, held: &mut Vec<PageNum>) {
    if held.len() == 3 {
        let page = held.swap_remove(dice.below(3) as usize);
        world.space.unmap(pin, PageRange::one(page)).unwrap();
    }
    while held.len() < 3 {
        let place = Placement::FixedNoReplace(movable(dice));
        held.extend(world.space.map(pin, place, 1, Mapping::anonymous(Prot::READ)));
    }
}
