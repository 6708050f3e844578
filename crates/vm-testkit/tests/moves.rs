//! Moves of whole leaves in pieces, while other cores do random operations at both places. After each step
//! every translation agrees with the space. The machine stops a core that uses a stale translation, and at
//! the end all memory is counted.

use std::sync::{Mutex, MutexGuard};

use percore::Pinned;
use vm::{Access, Copies, Flags, HUGE_PAGES, PageNum, PageRange, Placement, Prot, Remap, Tables};
use vm_testkit::{ALL_TABLES, Setup, Shows, World};

const RW: Prot = Prot::from_bits(3);
const CORES: usize = 5;
/// The old place ends where a table above the leaves does: the second leaf is another table's.
const OLD: u64 = 511 * HUGE_PAGES;
const NEW: u64 = 516 * HUGE_PAGES;
/// Pages of each place.
const ALL: u64 = 3 * HUGE_PAGES;
/// Turns of a storm.
const TURNS: usize = 60;
const SEEDS: u64 = 12;

/// Numbers that look random (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let once = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let twice = (once ^ (once >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (twice ^ (twice >> 31)) % end
    }

    fn prot(&mut self) -> Prot {
        Prot::from_bits(self.below(8))
    }

    /// A page at one of the places, often near the end of a leaf.
    fn page(&mut self) -> PageNum {
        let base = [OLD, NEW][self.below(2) as usize];
        PageNum::new(
            base + match self.below(3) {
                0 => self.below(ALL),
                _ => [0, 505, 512, 1020, 1024, 1500][self.below(6) as usize] + self.below(8),
            },
        )
    }

    /// Some pages, a leaf, or more than one.
    fn pages(&mut self) -> PageRange {
        let start = self.page().get();
        match self.below(6) {
            0 => range(start, HUGE_PAGES + self.below(700)),
            1 => range(start - start % HUGE_PAGES, HUGE_PAGES * (1 + self.below(2))),
            _ => range(start, 1 + self.below(12)),
        }
    }

    /// A move from the old place to the new one, and how many pages at most move in a step.
    fn remap(&mut self) -> (Remap, u64) {
        let from = match self.below(2) {
            0 => range(OLD, ALL),
            _ => range(OLD + self.below(500), 600 + self.below(400)),
        };
        let to = Placement::Fixed(PageNum::new(NEW + self.below(2) * self.below(400)));
        let (more, keep) = (100 * self.below(2), self.below(3) == 0);
        let most = [100, 300, 600, 5000][self.below(4) as usize];
        (Remap { from, pages: from.pages() + more, to, keep }, most)
    }
}

fn range(start: u64, pages: u64) -> PageRange {
    PageRange::new(PageNum::new(start), pages).unwrap()
}

/// Does a random operation on pages of the two places. Operations that must not happen beside other threads
/// happen only if it is `alone`.
fn act(world: &World, pin: &Pinned, files: &[usize], dice: &mut Dice, alone: bool) {
    let space = &world.space;
    let (at, pages) = (dice.page(), dice.pages());
    match dice.below(16) {
        0..3 => {
            let shows = match dice.below(4) {
                0 => Shows::Private(files[0], 0),
                1 => Shows::Shared(files[1], 0),
                _ => Shows::Zeroes,
            };
            let prot = if dice.below(3) == 0 { dice.prot() } else { RW };
            let _ = world.map(pin, Placement::Fixed(at), 1 + dice.below(6), prot, shows);
        }
        3 => _ = space.unmap(pin, range(at.get(), 1 + dice.below(3))),
        4 if dice.below(3) == 0 => _ = space.unmap(pin, pages),
        5 => _ = space.protect(pin, pages, RW),
        6 => _ = space.protect(pin, pages, dice.prot()),
        7 => _ = space.discard(pin, pages),
        8 => {
            _ = space.advise(pin, pages, [Flags::DONTFORK, Flags::NONE][dice.below(2) as usize], Flags::NONE)
        }
        9 => world.zap(pin, range(OLD, 2048 + ALL), files[dice.below(2) as usize], 0, Copies::Keep),
        10 => _ = space.page_out(pin, at),
        11 => world.drop_tables(pin),
        12 => world.mmu.leave(pin),
        13 if alone => world.frames().offer_huge(dice.below(2) == 0),
        14 if dice.below(4) == 0 => {
            _ = space.collapse(pin, PageNum::new(at.get() - at.get() % HUGE_PAGES));
        }
        _ => {}
    }
}

fn touch(world: &World, pin: &Pinned, dice: &mut Dice) {
    let at = dice.page();
    match dice.below(2) {
        0 => _ = world.store(pin, at, 0, 1),
        _ => _ = world.load(pin, at, 0),
    }
}

/// Asserts that what any core can use is what the space says.
fn judge(world: &World, pin: &Pinned) {
    for (core, page, found) in world.mmu.translations() {
        let mut frame = None;
        world.space.frame(pin, page, Access::Read, &mut |it| frame = Some(it));
        assert_eq!(frame, Some(found.frame), "core {core}, {page:?}");
        let mut prot = Prot::NONE;
        world.space.look(pin, page, &mut |mapping| prot = mapping.prot());
        let allowed = if prot == Prot::NONE { prot } else { prot | Prot::READ };
        assert!(allowed.contains(found.prot), "core {core}, {page:?}: {found:?}, and has {prot:?}");
    }
}

/// Moves step by step; between two steps other cores act, one after the other.
fn play(seed: u64, tables: Tables) {
    let world = World::radix(Setup { cores: CORES, frames: 6000, ..Setup::new() }, tables);
    let files: Vec<_> = (0..2).map(|_| world.machine.files.create(64)).collect();
    let dice = Mutex::new(Dice(seed));
    let dice = || -> MutexGuard<'_, Dice> { dice.lock().unwrap() };
    world.frames().offer_huge(dice().below(2) == 0);
    for turn in 0..4 {
        let core = dice().below(CORES as u64) as usize;
        let another = || (core + 1 + dice().below(CORES as u64 - 1) as usize) % CORES;
        world.machine.on(core, |pin| {
            let shows = if dice().below(3) == 0 { Shows::Private(files[0], 0) } else { Shows::Zeroes };
            let _ = world.map(pin, Placement::Fixed(PageNum::new(OLD)), ALL, RW, shows);
            (0..40).for_each(|_| touch(&world, pin, &mut dice()));
            if turn % 2 == 1 {
                let _ = world.space.unmap(pin, range(NEW, ALL));
            }
        });
        let others_act = || {
            let times = dice().below(4);
            for _ in 0..times {
                world.machine.elsewhere(another(), |pin| act(&world, pin, &files, &mut dice(), true));
                for _ in 0..4 {
                    let touch = |pin: &Pinned| (0..3).for_each(|_| touch(&world, pin, &mut dice()));
                    world.machine.elsewhere(another(), touch);
                }
            }
        };
        world.machine.on(core, |pin| {
            let (what, most) = dice().remap();
            let _ = world.remap_in_pieces(pin, &what, most, || {
                others_act();
                judge(&world, pin);
            });
            judge(&world, pin);
        });
        world.machine.settle();
    }
    world.finish();
}

/// One thread moves while others act.
fn storm(seed: u64, tables: Tables) {
    let world = World::radix(Setup { cores: 4, frames: 12000, ..Setup::new() }, tables);
    let files: Vec<_> = (0..2).map(|_| world.machine.files.create(64)).collect();
    world.frames().offer_huge(seed.is_multiple_of(2));
    world.machine.on_threads(4, |core| {
        let pin = core.pin();
        let mut dice = Dice(seed * 64 + pin.core().index() as u64);
        for _ in 0..TURNS {
            core.serve();
            world.machine.tick(pin);
            if pin.core().index() == 0 {
                let _ = world.map(pin, Placement::Fixed(PageNum::new(OLD)), ALL, RW, Shows::Zeroes);
                let (what, most) = dice.remap();
                let _ = world.remap_in_pieces(pin, &what, most, || core.serve());
            } else {
                act(&world, pin, &files, &mut dice, false);
            }
            (0..10).for_each(|_| touch(&world, pin, &mut dice));
        }
    });
    world.machine.on(0, |pin| judge(&world, pin));
    world.finish();
}

/// Calls `f` with some seeds and each kind of tables.
fn each(f: impl Fn(u64, Tables)) {
    (1..=SEEDS).for_each(|seed| ALL_TABLES.into_iter().for_each(|tables| f(seed, tables)));
}

#[test]
fn others_do_anything_while_a_mapping_moves() {
    each(play);
}

#[test]
fn threads_do_anything_while_a_mapping_moves() {
    each(storm);
}
