//! Host threads and several spaces: children that are made while others write, mappings that move while
//! others look.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use vm::{FaultError, HUGE_PAGES, Others, PageNum, PageRange, Placement, Prot, Remap};
use vm_testkit::{ALL_TABLES, Attended, Design, Dice, Forks, Setup, Shows, World};

const CORES: usize = 4;
const RW: Prot = Prot::from_bits(3);

fn page(number: u64) -> PageNum {
    PageNum::new(number)
}

/// Runs `lead` on core 0 and `follow` on the others, again and again until `lead` has ended.
fn play(
    design: Design,
    lead: impl Fn(&World, &Attended) + Sync,
    follow: impl Fn(&World, &Attended, u64) + Sync,
) {
    let world = World::new(Setup { cores: CORES, ..Setup::new() }, design);
    let over = AtomicBool::new(false);
    world.machine.on_threads(CORES, |core| {
        if core.pin().core().index() == 0 {
            lead(&world, core);
            return over.store(true, SeqCst);
        }
        let mut turn = 0;
        while !over.load(SeqCst) {
            turn += 1;
            follow(&world, core, turn);
            breathe(&world, core);
        }
    });
    world.finish();
}

/// Takes interrupts, and lets an epoch pass.
fn breathe(world: &World, core: &Attended) {
    core.serve();
    world.machine.tick(core.pin());
}

/// Each core writes a number to one page, and then to another one far away.
fn pair(core: u64) -> [PageNum; 2] {
    [page((1 << 18) - 3 * core), page((1 << 19) + 700 * core)]
}

/// Looks at all pairs of a child, of which one page was written before the other.
fn judge_snapshot(child: &World, core: &Attended) -> Vec<u64> {
    let look = |at: PageNum| child.glance(core.pin(), at);
    let pairs = (1..CORES as u64).map(|core| pair(core).map(look));
    let seen: Vec<_> = pairs.collect();
    for [first, second] in &seen {
        assert!(first - second <= 1, "a child of two moments: {first} and {second}");
    }
    seen.into_iter().flatten().collect()
}

#[test]
fn a_child_is_a_copy_of_one_moment() {
    Design::ALL.into_iter().for_each(|design| snapshots(design, Forks::AtOnce));
}

/// Both pages of a pair are of one piece.
#[test]
fn a_piece_is_a_copy_of_one_moment() {
    ALL_TABLES
        .into_iter()
        .for_each(|tables| snapshots(Design::Radix(tables), Forks::InPieces(Others::Freeze)));
}

fn snapshots(design: Design, forks: Forks) {
    let ready = AtomicBool::new(false);
    let fork = |world: &World, core: &Attended| {
        for at in (1..CORES as u64).flat_map(pair) {
            let place = Placement::Fixed(at);
            world.map(core.pin(), place, 1, RW, Shows::Zeroes).unwrap();
        }
        ready.store(true, SeqCst);
        for round in 0..100 {
            breathe(world, core);
            let child = world.fork_as(core.pin(), forks).unwrap();
            let seen = judge_snapshot(&child, core);
            breathe(world, core);
            assert_eq!(judge_snapshot(&child, core), seen, "a child that others write to");
            child.store(core.pin(), pair(1 + round % 3)[1], 0, u64::MAX).unwrap();
            child.end();
        }
    };
    let write = |world: &World, core: &Attended, turn: u64| {
        while !ready.load(SeqCst) {
            breathe(world, core);
        }
        let pages = pair(core.pin().core().index() as u64);
        pages.iter().for_each(|&at| world.store(core.pin(), at, 0, turn).unwrap());
    };
    play(design, fork, write);
}

const AREA: u64 = (1 << 18) - 1000;
const SPAN: u64 = 2000;
const TOKENS: u64 = 5;

/// Returns what word 0 of a page of the mapping that moves must be.
fn token(at: u64) -> u64 {
    0x7000 + at
}

#[test]
fn a_moved_page_is_found_at_one_place_with_its_contents() {
    Design::ALL.into_iter().for_each(|design| move_about(design, None));
}

/// Pages on their way may not be accessed: a kernel makes a thread that tries wait.
#[test]
fn a_page_moved_in_pieces_is_found_at_one_place_too() {
    ALL_TABLES.into_iter().for_each(|tables| move_about(Design::Radix(tables), Some(2)));
}

/// Moves a few pages about, in pieces of `most` or in one step, while others look for them.
fn move_about(design: Design, most: Option<u64>) {
    {
        let ready = AtomicBool::new(false);
        let carry = |world: &World, core: &Attended| {
            let (pin, mut dice) = (core.pin(), Dice(7));
            let mut at = page(AREA);
            world.map(pin, Placement::Fixed(at), TOKENS, RW, Shows::Zeroes).unwrap();
            (0..TOKENS).for_each(|by| world.store(pin, page(at.get() + by), 0, token(by)).unwrap());
            ready.store(true, SeqCst);
            for _ in 0..if most.is_some() { 60 } else { 800 } {
                breathe(world, core);
                let to = page(AREA + dice.below(SPAN - TOKENS));
                let from = PageRange::new(at, TOKENS).unwrap();
                let what = Remap { from, pages: TOKENS, to: Placement::Fixed(to), keep: false };
                let moved = match most {
                    Some(most) => world.remap_in_pieces(pin, &what, most, || breathe(world, core)),
                    None => world.remap(pin, &what),
                };
                at = moved.unwrap_or(at);
                (0..TOKENS).for_each(|by| assert_eq!(world.glance(pin, page(at.get() + by)), token(by)));
            }
        };
        let look = |world: &World, core: &Attended, turn: u64| {
            while !ready.load(SeqCst) {
                breathe(world, core);
            }
            let at = page(AREA + turn * 7919 % SPAN);
            match world.load(core.pin(), at, 0) {
                Ok(found) => assert!((0..TOKENS).any(|by| found == token(by)), "{at:?} holds {found:#x}"),
                Err(FaultError::Denied) => assert!(most.is_some(), "{at:?} is there, and denied"),
                Err(error) => assert_eq!(error, FaultError::NotMapped),
            }
        };
        play(design, carry, look);
    }
}

/// Every core has children, and writes to pages that others write to as well.
#[test]
fn children_everywhere_leave_nothing_behind() {
    for (design, frames) in Design::ALL.into_iter().flat_map(|design| [(design, 4096), (design, 40)]) {
        let world = World::new(Setup { cores: CORES, frames, ..Setup::new() }, design);
        world.frames().offer_huge(true);
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(page(AREA)), SPAN, RW, Shows::Zeroes).unwrap();
        });
        world.machine.on_threads(CORES, |core| {
            let (pin, me) = (core.pin(), core.pin().core().index() as u64);
            let mut dice = Dice(me + 1);
            for _ in 0..150 {
                breathe(&world, core);
                let at = page(AREA + dice.below(6) * 300);
                let _short = world.store(pin, at, me as usize, dice.below(1000));
                let _ = world.space.collapse(pin, page(at.get() & !(HUGE_PAGES - 1)));
                let Ok(child) = world.fork(pin) else { continue };
                let before = child.load(pin, at, me as usize);
                let _short = world.store(pin, at, me as usize, dice.below(1000));
                let after = child.load(pin, at, me as usize);
                assert!(before == after || frames < 100, "{before:?} became {after:?}");
                child.end();
            }
        });
        world.finish();
    }
}
