//! Several cores at once, on the same pages: no answer is judged but by itself. The machine stops a core that
//! uses what is gone, and at the end nothing is lost.

use fuzzing::Dice;
use test_memory::with_blocks;
use vm::{Copies, HUGE_PAGES, Others, PageNum, PageRange, Placement, Prot, Remap};
use vm_testkit::{Attended, Design, Forks, Setup, Shows, World};

use crate::{blocks, panicking, wild};

const CORES: usize = 4;
const STEPS: usize = 150;
/// Pages of two leaves, across the end of a node.
const START: u64 = (1 << 18) - 40;
const PAGES: u64 = 80;
const RW: Prot = Prot::from_bits(3);

pub fn round(design: Design, dice: &mut Dice) {
    let world = World::new(Setup { cores: CORES, frames: 600, ..Setup::new() }, design);
    let files: Vec<_> = (0..2).map(|_| world.machine.files.create(PAGES)).collect();
    world.frames().offer_huge(true);
    let seed = dice.next_u64();
    world.machine.on_threads(CORES, |core| {
        let mut dice = Dice::new(seed ^ core.pin().core().index() as u64);
        for _ in 0..STEPS {
            core.serve();
            world.machine.tick(core.pin());
            let blocks = blocks(&mut dice);
            with_blocks(blocks, || act(&world, core, &files, &mut dice));
        }
        world.frames().set_exhausted(false);
        world.mmu.set_exhausted(false);
    });
    world.finish();
}

fn page(dice: &mut Dice) -> PageNum {
    PageNum::new(START + dice.below(PAGES as usize) as u64)
}

fn range(dice: &mut Dice) -> PageRange {
    PageRange::new(page(dice), 1 + dice.below(12) as u64).expect("a range of numbers")
}

fn shows(files: &[usize], dice: &mut Dice) -> Shows {
    let file = files[dice.below(files.len())];
    match dice.below(4) {
        0 => Shows::Private(file, 0),
        1 => Shows::Shared(file, 0),
        _ => Shows::Zeroes,
    }
}

fn act(world: &World, core: &Attended, files: &[usize], dice: &mut Dice) {
    let (pin, space) = (core.pin(), &world.space);
    let (at, some) = (page(dice), range(dice));
    let near = PageRange::new(PageNum::new(START), PAGES).expect("a range of numbers");
    match dice.below(20) {
        0..3 => _ = world.map(pin, Placement::Fixed(at), some.pages(), RW, shows(files, dice)),
        3 => _ = world.map(pin, wild::placement(dice, near), some.pages(), wild::prot(dice), Shows::Zeroes),
        4 | 5 => _ = space.unmap(pin, some),
        6 => _ = space.protect(pin, some, wild::prot(dice)),
        7 => _ = space.discard(pin, some),
        8 => {
            let what =
                Remap { from: some, pages: some.pages() + 1, to: Placement::Fixed(at), keep: dice.one_in(2) };
            let _ = world.remap(pin, &what);
        }
        9 => _ = space.extend(pin, some, 3),
        10 => fork(world, core, at, dice),
        11 => {
            let forks = if dice.one_in(2) { Forks::AtOnce } else { Forks::InPieces(Others::Freeze) };
            panicking::act_pinned(world, pin, near, dice, forks);
        }
        12 => _ = space.page_out(pin, at),
        13 => {
            let block = PageNum::new(at.get() & !(HUGE_PAGES - 1));
            let _ = world.map(pin, Placement::Fixed(block), HUGE_PAGES, RW, Shows::Zeroes);
            let _ = space.collapse(pin, block);
        }
        14 => world.zap(pin, near, files[0], 0, Copies::Keep),
        15 => world.frames().set_exhausted(dice.one_in(3)),
        16 => world.mmu.set_exhausted(dice.one_in(3)),
        17 => world.drop_tables(pin),
        18 => world.mmu.leave(pin),
        _ => _ = space.unmap(pin, wild::range(dice, near)),
    }
    for _ in 0..6 {
        let at = page(dice);
        let _ = if dice.one_in(2) { world.store(pin, at, 0, 1) } else { world.load(pin, at, 0).map(drop) };
    }
}

/// A child that lives for a moment: what others write to the parent it does not see.
fn fork(world: &World, core: &Attended, at: PageNum, dice: &mut Dice) {
    let Ok(child) = world.fork(core.pin()) else { return };
    let _ = world.store(core.pin(), at, 1, dice.next_u64());
    let _ = child.store(core.pin(), at, 1, dice.next_u64());
    child.end();
}
