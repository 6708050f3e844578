//! All addresses that a machine may have, and numbers that are none. A refused call returns an error, and the
//! space works as well as before.

use std::ops::ControlFlow;

use fuzzing::Dice;
use percore::Pinned;
use test_memory::with_blocks;
use vm::{
    Access, BackingNum, Copies, FaultError, Frames, HUGE_PAGES, Installed, Mapping, PageNum, PageRange,
    Placement, Prot, Remap, VirtAddr,
};
use vm_testkit::{Design, Setup, World};

use crate::{blocks, panicking, wild};

const CORES: usize = 3;
const STEPS: usize = 120;

pub fn round(design: Design, dice: &mut Dice) {
    let ends = [1 << 35, 1 << 36];
    let user = PageRange::between(PageNum::new(dice.below(2) as u64 * 16), PageNum::new(ends[dice.below(2)]));
    let world = World::new(Setup { cores: CORES, frames: 512, user, seed: dice.next_u64() }, design);
    world.frames().offer_huge(dice.one_in(2));
    for _ in 0..STEPS {
        world.frames().set_exhausted(dice.one_in(6));
        world.mmu.set_exhausted(dice.one_in(6));
        let core = dice.below(CORES);
        match dice.below(8) {
            0 => panicking::act(&world, core, user, dice),
            _ => world.machine.on(core, |pin| with_blocks(blocks(dice), || act(&world, pin, user, dice))),
        }
    }
    world.frames().set_exhausted(false);
    world.mmu.set_exhausted(false);
    still_works(&world, user, dice);
    world.finish();
}

/// One call with numbers of any kind. Its success is not judged, but it must not take what lies outside.
fn act(world: &World, pin: &Pinned, user: PageRange, dice: &mut Dice) {
    let (range, at) = (wild::range(dice, user), PageNum::new(wild::number(dice, user)));
    let inside = user.covers(range) && !range.is_empty();
    let space = &world.space;
    match dice.below(16) {
        0..4 => {
            let mapping = Mapping::anonymous(wild::prot(dice));
            let pages = wild::pages(dice, user);
            if let Ok(start) = space.map(pin, wild::placement(dice, user), pages, mapping) {
                assert!(PageRange::new(start, pages).is_some_and(|range| user.covers(range)));
            }
        }
        4 => assert!(inside || space.unmap(pin, range).is_err(), "{range:?}"),
        5 => assert!(inside || space.protect(pin, range, wild::prot(dice)).is_err(), "{range:?}"),
        6 => assert!(inside || space.discard(pin, range).is_err(), "{range:?}"),
        7 => _ = space.unmap(pin, range),
        8 => _ = space.protect(pin, range, wild::prot(dice)),
        9 => {
            let _ = space.advise(pin, range, wild::flags(dice), wild::flags(dice));
            let _ = space.extend(pin, range, wild::pages(dice, user));
        }
        10 => {
            let (pages, to) =
                (range.pages().saturating_add(wild::pages(dice, user)), wild::placement(dice, user));
            let what = Remap { from: range, pages, to, keep: dice.one_in(2) };
            let _ = space.remap(pin, &what, &mut |backing, _, _| Some(backing));
        }
        11 => {
            let block = PageNum::new(at.get() & !(HUGE_PAGES - 1));
            let _ = (space.collapse(pin, block), space.page_out(pin, at), space.discard(pin, range));
        }
        12 => install(world, pin, at),
        13 => {
            let address = VirtAddr::new(dice.next_u64() >> dice.below(64));
            let fault = space.fault(pin, address, Access::Write);
            assert!(user.contains(address.page()) || fault == Err(FaultError::NotMapped), "{address:?}");
        }
        14 => {
            space.zap(pin, range, BackingNum::new(7), Copies::Drop);
            space.look(pin, at, &mut |_| assert!(user.contains(at)));
            let found = space.frame(pin, at, Access::Read, &mut |_| {});
            assert!(user.contains(at) || !found);
            assert!(!space.mapped(pin, range) || user.covers(range));
        }
        _ => {
            space.regions(pin, range, &mut |region| {
                assert!(range.covers(region.pages) && user.covers(region.pages));
                ControlFlow::Continue(())
            });
            let _ = space.resident(pin, range, &mut |run| assert!(range.covers(run) && user.covers(run)));
            let _ = world.store(pin, at, 0, 1);
        }
    }
}

/// A frame that the space does not take is still the caller's.
fn install(world: &World, pin: &Pinned, at: PageNum) {
    let Some(frame) = world.frames().alloc_zeroed(pin) else { return };
    if world.space.install(pin, at, Installed::Frame(frame)).is_err() {
        world.frames().free(pin, frame);
    }
}

/// Anything can be mapped, used and unmapped, everywhere.
fn still_works(world: &World, user: PageRange, dice: &mut Dice) {
    let offset = dice.next_u64() % (user.pages() - 3);
    let start = PageNum::new(user.start().get() + offset);
    let three = PageRange::new(start, 3).expect("a range of numbers");
    let mapping = Mapping::anonymous(Prot::READ | Prot::WRITE);
    world.machine.on(0, |pin| {
        assert_eq!(world.space.map(pin, Placement::Fixed(start), 3, mapping), Ok(start));
        three.iter().for_each(|at| world.store(pin, at, 0, at.get()).unwrap());
    });
    world.machine.on(1, |pin| {
        three.iter().for_each(|at| assert_eq!(world.load(pin, at, 0), Ok(at.get())));
        world.space.unmap(pin, three).unwrap();
        three.iter().for_each(|at| assert_eq!(world.load(pin, at, 0), Err(FaultError::NotMapped)));
    });
    world.machine.on(0, |pin| assert_eq!(world.load(pin, start, 0), Err(FaultError::NotMapped)));
}
