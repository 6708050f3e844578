//! A world with two blocks mapped, for the tests of huge pages.

use percore::Pinned;
use vm::{FaultError, HUGE_PAGES, PageNum, PageRange, Placement, Prot};
use vm_testkit::{ALL_TABLES, Setup, Shows, World};

pub const RW: Prot = Prot::from_bits(3);
const BASE: u64 = 8 * HUGE_PAGES;

pub fn page(at: u64) -> PageNum {
    PageNum::new(BASE + at)
}

pub fn range(at: u64, pages: u64) -> PageRange {
    PageRange::new(page(at), pages).unwrap()
}

/// Returns the number that is stored in a word of page `at`.
pub fn stamp(at: u64) -> u64 {
    at + 7
}

/// A world in which two blocks are mapped, with huge frames to be had.
pub fn for_each_world(test: impl Fn(&World)) {
    ALL_TABLES.into_iter().for_each(|tables| {
        let world = World::radix(Setup::new(), tables);
        world.frames().offer_huge(true);
        world.machine.on(0, |pin| map(&world, pin, 2 * HUGE_PAGES));
        test(&world);
        world.finish();
    });
}

pub fn map(world: &World, pin: &Pinned, pages: u64) {
    world.map(pin, Placement::Fixed(page(0)), pages, RW, Shows::Zeroes).unwrap();
}

pub fn on_one<R>(world: &World, f: impl FnOnce(&Pinned) -> R) -> R {
    world.machine.on(1, f)
}

/// Every core finds in the first block what was written, except in `gone`, where it finds what `there` says.
pub fn assert_kept(world: &World, gone: PageRange, there: Result<u64, FaultError>) {
    world.machine.on_each(|pin| {
        for at in 0..HUGE_PAGES {
            let expected = if gone.contains(page(at)) { there } else { Ok(stamp(at)) };
            assert_eq!(world.load(pin, page(at), 1), expected, "page {at}");
        }
    });
}
