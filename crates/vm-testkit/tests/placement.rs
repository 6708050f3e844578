//! Where mappings go: near to what the core used last, apart from other cores, never out of addresses.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use percore::Pinned;
use vm::{Mapping, PageNum, PageRange, Placement, Prot, Tables, VmError};
use vm_testkit::{Setup, World};

const ANYWHERE: Placement = Placement::Anywhere { hint: None };

fn map(world: &World, pin: &Pinned, pages: u64) -> Result<PageRange, VmError> {
    let start = world.space.map(pin, ANYWHERE, pages, Mapping::anonymous(Prot::READ))?;
    Ok(PageRange::new(start, pages).unwrap())
}

fn small(cores: usize, pages: u64) -> World {
    let user = PageRange::new(PageNum::new(700), pages).unwrap();
    World::radix(Setup { cores, user, ..Setup::new() }, Tables::PerCore)
}

/// A generator of numbers, so that every run does the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn who_maps_and_unmaps_in_a_loop_stays_on_the_same_pages() {
    let world = World::radix(Setup::new(), Tables::PerCore);
    world.machine.on_each(|pin| {
        for pages in [1, 3, 512, 2000] {
            let first = map(&world, pin, pages).unwrap();
            let nodes = world.space.nodes().created;
            for _ in 0..1000 {
                world.space.unmap(pin, first).unwrap();
                assert_eq!(map(&world, pin, pages), Ok(first));
            }
            assert_eq!(world.space.nodes().created, nodes, "the loop makes no nodes");
        }
    });
    world.finish();
}

#[test]
fn cores_stay_out_of_each_others_nodes() {
    for cores in [2, 64, 250] {
        let world = World::radix(Setup { cores, ..Setup::new() }, Tables::PerCore);
        let mut top_slots = HashSet::new();
        world.machine.on_each(|pin| {
            let at = map(&world, pin, 1000).unwrap().start();
            assert!(top_slots.insert(at.get() >> 27), "{cores} cores: two cores share more than the root");
        });
        world.finish();
    }
}

/// What one core has mapped, and how far it got.
struct Tenant {
    dice: Dice,
    live: Vec<PageRange>,
    pages: u64,
    peak: u64,
    lowest: u64,
    highest: u64,
}

impl Tenant {
    fn new(seed: u64) -> Self {
        Self { dice: Dice(seed), live: Vec::new(), pages: 0, peak: 0, lowest: u64::MAX, highest: 0 }
    }

    fn map(&mut self, world: &World, pin: &Pinned) {
        let class = [4, 30, 600][self.dice.below(20) as usize / 9];
        let pages = 1 + self.dice.below(class);
        let range = map(world, pin, pages).expect("there is plenty of space");
        self.live.push(range);
        self.pages += pages;
        self.peak = self.peak.max(self.pages);
        self.lowest = self.lowest.min(range.start().get());
        self.highest = self.highest.max(range.end().get());
    }

    fn take(&mut self) -> PageRange {
        let at = self.dice.below(self.live.len() as u64) as usize;
        let range = self.live.swap_remove(at);
        self.pages -= range.pages();
        range
    }
}

/// sv6: the mmap address hint only ever advanced.
#[test]
fn a_million_operations_of_random_size_and_lifetime_stay_within_a_bounded_spread() {
    let world = World::radix(Setup { cores: 3, ..Setup::new() }, Tables::PerCore);
    world.machine.on_threads(3, |core| {
        let pin = core.pin();
        let mut tenant = Tenant::new(0x9e37_79b9 + pin.core().index() as u64);
        for _ in 0..340_000 {
            if tenant.dice.below(100) < tenant.live.len() as u64 {
                let range = tenant.take();
                world.space.unmap(pin, range).unwrap();
            } else {
                tenant.map(&world, pin);
            }
            world.machine.refcache.tick(pin);
        }
        let spread = tenant.highest - tenant.lowest;
        assert!(spread <= 8 * tenant.peak, "{} pages at most were mapped, over {spread}", tenant.peak);
    });
    world.finish();
}

#[test]
fn what_others_unmap_is_used_again() {
    let world = World::radix(Setup { cores: 2, ..Setup::new() }, Tables::PerCore);
    let mut tenant = Tenant::new(77);
    for _ in 0..20_000 {
        world.machine.on(0, |pin| tenant.map(&world, pin));
        if tenant.live.len() > 50 {
            let range = tenant.take();
            world.machine.on(1, |pin| world.space.unmap(pin, range).unwrap());
        }
        world.machine.on_each(|pin| _ = world.machine.refcache.tick(pin));
    }
    let spread = tenant.highest - tenant.lowest;
    assert!(spread <= 8 * tenant.peak, "{} pages at most were mapped, over {spread}", tenant.peak);
    world.finish();
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
