//! Pages that leave memory and come back: each verb meets compressed pages, and cores meet the clock.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use percore::Pinned;
use vm::{
    Copies, Event, Flags, HUGE_PAGES, PageNum, PageRange, Placement, Prot, Remap, Resident, Tables, VmError,
};
use vm_testkit::{Attended, Design, Dice, Forks, Setup, Shows, World};

const RW: Prot = Prot::from_bits(3);
const RADIX: [Tables; 3] = [Tables::PerCore, Tables::Shared, Tables::Adaptive];
/// In the middle of a block.
const START: u64 = (1 << 18) + 100;
const PAGES: u64 = 8;

fn page(number: u64) -> PageNum {
    PageNum::new(number)
}

fn all() -> PageRange {
    PageRange::new(page(START), PAGES).unwrap()
}

/// Contents that compressed memory takes, different for each page.
fn token(at: u64) -> u64 {
    4 * (at + 1)
}

/// Goes once round the space: how many pages leave it.
fn turn(world: &World, pin: &Pinned) -> u64 {
    let (mut gone, mut at) = (0, page(0));
    while let Some((pages, next)) = world.space.page_out(pin, at) {
        (gone, at) = (gone + pages, next);
    }
    gone
}

fn resident(world: &World, pin: &Pinned, at: PageRange) -> Resident {
    world.regions(pin, at).iter().fold(Resident::default(), |sum, region| Resident {
        alone: sum.alone + region.resident.alone,
        counted: sum.counted + region.resident.counted,
        compressed: sum.compressed + region.resident.compressed,
        ..sum
    })
}

/// Returns the number of pages that are in huge pages.
fn huge(world: &World, pin: &Pinned, at: PageRange) -> u64 {
    world.regions(pin, at).iter().map(|region| region.resident.huge).sum()
}

fn write_all(world: &World, pin: &Pinned) {
    write_all_of(world, pin, 1);
}

fn write_all_of(world: &World, pin: &Pinned, word: usize) {
    (START..START + PAGES).for_each(|at| world.store(pin, page(at), word, token(at)).unwrap());
}

fn judge_all(world: &World, pin: &Pinned) {
    (START..START + PAGES).for_each(|at| assert_eq!(world.load(pin, page(at), 1), Ok(token(at))));
}

/// Runs `test` with pages of which all are compressed.
fn on_compressed(test: impl Fn(&World, &Pinned)) {
    for tables in RADIX {
        let world = World::radix(Setup::new(), tables);
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(page(START)), PAGES, RW, Shows::Zeroes).unwrap();
            write_all(&world, pin);
            assert_eq!((turn(&world, pin), turn(&world, pin)), (0, PAGES));
            assert_eq!((world.frames().used(), world.frames().compressed()), (0, PAGES as usize));
            test(&world, pin);
        });
        world.finish();
    }
}

#[test]
fn untouched_pages_leave_and_come_back() {
    on_compressed(|world, pin| {
        assert_eq!(resident(world, pin, all()), Resident { compressed: PAGES, ..Resident::default() });
        assert!(!world.space.frame(pin, page(START), vm::Access::Read, &mut |_| panic!("there is none")));
        judge_all(world, pin);
        assert_eq!((world.count(Event::PageOut), world.count(Event::PageIn)), (PAGES, PAGES));
        assert_eq!(world.frames().compressed(), 0);
    });
}

#[test]
fn a_page_touched_between_two_turns_stays() {
    on_compressed(|world, pin| {
        judge_all(world, pin);
        assert_eq!(turn(world, pin), 0);
        world.load(pin, page(START + 3), 0).unwrap();
        assert_eq!(turn(world, pin), PAGES - 1);
        judge_all(world, pin);
    });
}

#[test]
fn locked_and_incompressible_pages_stay() {
    on_compressed(|world, pin| {
        judge_all(world, pin);
        let locked = PageRange::new(page(START), 3).unwrap();
        world.space.advise(pin, locked, Flags::LOCKED, Flags::NONE).unwrap();
        world.store(pin, page(START + 5), 0, 3).unwrap();
        assert_eq!((turn(world, pin), turn(world, pin), turn(world, pin)), (0, PAGES - 4, 0));
        assert_eq!(resident(world, pin, all()).alone, 4);
        world.store(pin, page(START + 5), 0, 0).unwrap();
        assert_eq!((turn(world, pin), turn(world, pin)), (0, 1), "it is worth it now");
        judge_all(world, pin);
    });
}

#[test]
fn unmap_discard_and_the_end_forget_what_is_compressed() {
    on_compressed(|world, pin| {
        world.space.unmap(pin, PageRange::new(page(START), 3).unwrap()).unwrap();
        world.space.discard(pin, PageRange::new(page(START + 3), 2).unwrap()).unwrap();
        assert_eq!(world.frames().compressed(), 3);
        assert_eq!(world.load(pin, page(START + 4), 1), Ok(0));
    });
}

#[test]
fn rights_and_advice_change_compressed_pages_too() {
    on_compressed(|world, pin| {
        world.space.protect(pin, all(), Prot::READ).unwrap();
        assert_eq!(world.store(pin, page(START), 1, 8), Err(vm::FaultError::Denied));
        world.space.advise(pin, all(), Flags::DONTFORK, Flags::NONE).unwrap();
        judge_all(world, pin);
    });
}

#[test]
fn moved_pages_stay_compressed() {
    on_compressed(|world, pin| {
        let to = START + 5 * HUGE_PAGES;
        let what = Remap { from: all(), pages: PAGES, to: Placement::Fixed(page(to)), keep: true };
        world.remap(pin, &what).unwrap();
        assert_eq!(world.frames().compressed(), PAGES as usize);
        for by in 0..PAGES {
            assert_eq!(world.load(pin, page(START + by), 1), Ok(0));
            assert_eq!(world.load(pin, page(to + by), 1), Ok(token(START + by)));
        }
    });
}

#[test]
fn a_child_has_the_same_bytes_and_no_others_writes() {
    on_compressed(|world, pin| {
        for child in Forks::ALL.map(|forks| world.fork_as(pin, forks).unwrap()) {
            assert_eq!(world.frames().compressed(), PAGES as usize, "held twice, kept once");
            child.store(pin, page(START), 1, 99).unwrap();
            (START + 1..START + PAGES).for_each(|at| assert_eq!(child.load(pin, page(at), 1), Ok(token(at))));
            child.end();
        }
        assert_eq!(world.frames().compressed(), PAGES as usize);
        judge_all(world, pin);
    });
}

#[test]
fn pages_of_parent_and_child_stay_until_one_of_them_has_them_alone() {
    on_compressed(|world, pin| {
        judge_all(world, pin);
        let child = world.fork(pin).unwrap();
        (0..3).for_each(|_| assert_eq!(turn(world, pin) + turn(&child, pin), 0));
        child.end();
        assert_eq!(turn(world, pin), PAGES);
        judge_all(world, pin);
    });
}

#[test]
fn private_copies_of_a_file_leave_and_the_file_s_pages_do_not() {
    for tables in RADIX {
        let world = World::radix(Setup::new(), tables);
        let file = world.machine.files.create(PAGES);
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(page(START)), PAGES, RW, Shows::Private(file, 0)).unwrap();
            world.store(pin, page(START), 1, token(START)).unwrap();
            world.load(pin, page(START + 1), 1).unwrap();
            assert_eq!((turn(&world, pin), turn(&world, pin)), (0, 1));
            world.zap(pin, all(), file, 0, Copies::Keep);
            assert_eq!(world.load(pin, page(START), 1), Ok(token(START)));
            (0..2).for_each(|_| _ = turn(&world, pin));
            world.zap(pin, all(), file, 0, Copies::Drop);
            assert_eq!((world.frames().compressed(), world.frames().used()), (0, 2), "the file's own");
        });
        world.finish();
    }
}

/// Runs `test` with a huge page that was written to, and its pages.
fn on_huge(test: impl Fn(&World, &Pinned, PageRange)) {
    for tables in RADIX {
        let world = World::radix(Setup::new(), tables);
        world.frames().offer_huge(true);
        world.machine.on(0, |pin| {
            let block = PageRange::new(page(1 << 18), HUGE_PAGES).unwrap();
            world.map(pin, Placement::Fixed(block.start()), HUGE_PAGES, RW, Shows::Zeroes).unwrap();
            world.store(pin, page(START), 1, token(START)).unwrap();
            assert_eq!(world.count(Event::HugeFault), 1);
            test(&world, pin, block);
        });
        world.finish();
    }
}

#[test]
fn a_huge_page_leaves_page_by_page_and_comes_together_again() {
    on_huge(|world, pin, block| {
        assert_eq!((turn(world, pin), huge(world, pin, block)), (0, HUGE_PAGES), "whole until it is idle");
        assert_eq!((turn(world, pin), huge(world, pin, block)), (HUGE_PAGES, 0));
        world.space.collapse(pin, block.start()).unwrap();
        assert_eq!((world.frames().compressed(), resident(world, pin, block).alone), (0, HUGE_PAGES));
        assert_eq!(world.load(pin, page(START), 1), Ok(token(START)));
    });
}

#[test]
fn a_huge_page_that_is_locked_stays_whole() {
    on_huge(|world, pin, block| {
        world.space.advise(pin, block, Flags::LOCKED, Flags::NONE).unwrap();
        assert_eq!((turn(world, pin), turn(world, pin)), (0, 0));
        assert_eq!(huge(world, pin, block), HUGE_PAGES);
    });
}

#[test]
fn without_memory_a_page_stays_compressed() {
    on_compressed(|world, pin| {
        world.frames().set_exhausted(true);
        assert_eq!(world.load(pin, page(START), 1), Err(vm::FaultError::OutOfMemory));
        world.frames().set_exhausted(false);
        world.mmu.set_exhausted(true);
        // Tables that are there already may do.
        let answer = world.load(pin, page(START), 1);
        assert!(matches!(answer, Err(vm::FaultError::OutOfMemory) | Ok(_)), "{answer:?}");
        world.mmu.set_exhausted(false);
        judge_all(world, pin);
    });
}

#[test]
fn only_what_others_translate_is_shot_at_and_only_once() {
    let world = World::radix(Setup::new(), Tables::PerCore);
    world.machine.on(0, |pin| {
        world.map(pin, Placement::Fixed(page(START)), PAGES, RW, Shows::Zeroes).unwrap();
        write_all(&world, pin);
    });
    world.machine.on(1, |pin| judge_all(&world, pin));
    world.machine.on(0, |pin| (0..3).for_each(|_| _ = turn(&world, pin)));
    assert_eq!((world.count(Event::PageOut), world.count(Event::IpiTarget)), (PAGES, 1));
    world.finish();
}

#[test]
fn rival_designs_take_nothing_out() {
    for design in Design::ALL.into_iter().filter(|design| matches!(design, Design::Tree(_))) {
        let world = World::new(Setup::new(), design);
        world.machine.on(0, |pin| assert_eq!(world.space.page_out(pin, page(0)), None));
        world.finish();
    }
}

/// Each core counts in words of its own of pages that all use, while the clock runs, and children come and
/// go.
#[test]
fn no_write_is_lost_while_the_clock_runs() {
    const CORES: usize = 4;
    for tables in RADIX {
        let world = World::radix(Setup { cores: CORES, ..Setup::new() }, tables);
        let left = AtomicUsize::new(CORES - 1);
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(page(START)), PAGES, RW, Shows::Zeroes).unwrap();
            write_all_of(&world, pin, CORES);
            assert_eq!((turn(&world, pin), turn(&world, pin)), (0, PAGES));
        });
        world.machine.on_threads(CORES, |core| {
            if core.pin().core().index() == 0 {
                while left.load(SeqCst) > 0 {
                    (0..2).for_each(|_| _ = turn(&world, core.pin()));
                    let child = world.fork(core.pin()).unwrap();
                    breathe(&world, core);
                    child.end();
                }
            } else {
                count(&world, core);
                left.fetch_sub(1, SeqCst);
            }
        });
        assert!(world.count(Event::PageIn) >= PAGES);
        world.finish();
    }
}

fn breathe(world: &World, core: &Attended) {
    core.serve();
    world.machine.tick(core.pin());
}

fn count(world: &World, core: &Attended) {
    let (pin, me) = (core.pin(), core.pin().core().index());
    let (mut dice, mut counts) = (Dice(me as u64), [0; PAGES as usize]);
    for _ in 0..3000 {
        let by = dice.below(PAGES);
        let at = page(START + by);
        assert_eq!(world.load(pin, at, me), Ok(counts[by as usize]));
        counts[by as usize] += 4;
        world.store(pin, at, me, counts[by as usize]).unwrap();
        breathe(world, core);
    }
}

/// Mappings come and go under the clock.
#[test]
fn the_clock_meets_unmap_and_moves() {
    const CORES: usize = 4;
    for tables in RADIX {
        let world = World::radix(Setup { cores: CORES, ..Setup::new() }, tables);
        world.machine.on_threads(CORES, |core| {
            let (pin, mut dice) = (core.pin(), Dice(core.pin().core().index() as u64 + 1));
            for _ in 0..1500 {
                breathe(&world, core);
                let at = page(START + 600 * dice.below(3));
                let range = PageRange::new(at, 1 + dice.below(4)).unwrap();
                let to = Placement::Fixed(page(START + 600 * dice.below(3) + 8));
                match dice.below(6) {
                    0 => _ = world.map(pin, Placement::Fixed(at), range.pages(), RW, Shows::Zeroes),
                    1 => world.space.unmap(pin, range).unwrap(),
                    2 => _ = world.remap(pin, &Remap { from: range, pages: range.pages(), to, keep: false }),
                    3 => assert!(matches!(world.space.discard(pin, range), Ok(()) | Err(VmError::NotMapped))),
                    4 => _ = turn(&world, pin),
                    _ => _ = world.store(pin, at, 0, 4 * dice.below(9)),
                }
            }
        });
        world.finish();
    }
}
