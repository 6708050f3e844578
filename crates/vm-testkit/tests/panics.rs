//! Visitors, and callbacks that return the backings of copies, may panic: nothing stays locked, nothing is
//! lost, and no core keeps what it must not.

use std::ops::ControlFlow;
use std::thread;

use fuzzing::attempt;
use percore::Pinned;
use vm::{Access, Event, Others, PageNum, PageRange, Placement, Prot, Remap};
use vm_testkit::{Design, Forks, Setup, Shows, World};

const RW: Prot = Prot::from_bits(3);
/// Pages of zeroes that both cores have written, up to the first of the files.
const START: u64 = 1000;
const PAGES: u64 = 8;
const FILES: u64 = 3;

fn page(at: u64) -> PageNum {
    PageNum::new(START + at)
}

/// Pages of zeroes, then one of each file.
fn worlds() -> impl Iterator<Item = World> {
    Design::ALL.into_iter().map(|design| {
        let world = World::new(Setup { cores: 2, ..Setup::new() }, design);
        world.machine.on(0, |pin| {
            world.map(pin, Placement::Fixed(page(0)), PAGES, RW, Shows::Zeroes).unwrap();
            for at in 0..FILES {
                let file = world.machine.files.create(1);
                world.map(pin, Placement::Fixed(page(PAGES + at)), 1, RW, Shows::Private(file, 0)).unwrap();
            }
        });
        (0..2).for_each(|core| write_all(&world, core));
        world
    })
}

/// The core writes to every page, and finds there what it wrote: nothing is locked.
fn write_all(world: &World, core: usize) {
    world.machine.on(core, |pin| {
        for at in 0..PAGES + FILES {
            world.store(pin, page(at), core, at).unwrap();
            assert_eq!(world.load(pin, page(at), core), Ok(at));
        }
    });
}

fn panics(world: &World, act: impl FnOnce(&Pinned)) {
    assert_eq!(world.machine.on(0, |pin| attempt(|| act(pin))), Err("on purpose".to_owned()));
}

/// All is as it was, and goes.
fn ends_well(world: World) {
    world.machine.on(0, |pin| {
        let regions = world.regions(pin, Setup::new().user);
        let mapped: u64 = regions.iter().map(|region| region.pages.pages()).sum();
        assert_eq!(mapped, PAGES + FILES);
    });
    (0..2).for_each(|core| write_all(&world, core));
    world
        .machine
        .on(0, |pin| world.space.unmap(pin, PageRange::new(page(0), PAGES + FILES).unwrap()).unwrap());
    world.finish();
}

type Visit = fn(&World, &Pinned);

const VISITS: [Visit; 5] = [
    |world, pin| world.space.look(pin, page(0), &mut |_| panic!("on purpose")),
    |world, pin| _ = world.space.frame(pin, page(0), Access::Read, &mut |_| panic!("on purpose")),
    |world, pin| {
        let all = PageRange::new(page(0), 100).unwrap();
        let mut regions = 0;
        world.space.regions(pin, all, &mut |_| {
            regions += 1;
            assert!(regions < 3, "on purpose");
            ControlFlow::Continue(())
        });
    },
    |world, pin| {
        let all = PageRange::new(page(0), PAGES + FILES).unwrap();
        let _ = world.space.resident(pin, all, &mut |_| panic!("on purpose"));
    },
    |world, pin| {
        let all = PageRange::new(page(0), PAGES + FILES).unwrap();
        world.space.frames(pin, all, &mut |_| panic!("on purpose"));
    },
];

#[test]
fn a_visitor_panics() {
    for world in worlds() {
        VISITS.into_iter().for_each(|visit| panics(&world, |pin| visit(&world, pin)));
        ends_well(world);
    }
}

/// Ends the world in `drop`.
struct EndsLate(Option<World>);

impl Drop for EndsLate {
    fn drop(&mut self) {
        self.0.take().expect("it ends once").end();
    }
}

/// Frames are leaked by a thread that plays no core of the machine, and nothing panics, also while the thread
/// unwinds.
#[test]
fn a_space_may_be_dropped_by_any_thread() {
    let ways: [fn(World); 3] = [
        World::end,
        |world| {
            let _core = percore::threads::enter(percore::CoreId::new(2));
            world.end();
        },
        |world| {
            let _ends = EndsLate(Some(world));
            panic!("on purpose");
        },
    ];
    for way in ways {
        for world in worlds() {
            let machine = world.machine.clone();
            let frames = machine.frames.used();
            let told = thread::scope(|scope| scope.spawn(|| attempt(|| way(world))).join())
                .expect("it does not panic");
            assert!(told.is_ok() || told == Err("on purpose".to_owned()), "{told:?}");
            assert_eq!(machine.frames.used(), frames, "nobody else could have given them up");
        }
    }
}

/// The child has some of the pages: neither program sees what the other writes to them, though the parent's
/// core could write before.
fn a_fork_panics(forks: Forks) {
    for (world, bad) in worlds().zip((0..FILES).cycle()) {
        let child = world.machine.on(0, |pin| world.sibling(pin)).unwrap();
        let mut made = Vec::new();
        panics(&world, |pin| {
            let fork_backing = &mut |backing| {
                assert!(made.len() as u64 != bad, "on purpose");
                made.push(world.machine.files.again(backing));
                made.last().copied()
            };
            let _ = forks.fork(&*world.space, pin, &*child.space, fork_backing);
        });
        made.into_iter().for_each(|backing| world.machine.files.adjust(backing, -1));
        let inherited = world.machine.on(1, |pin| child.load(pin, page(0), 1));
        world.machine.on(0, |pin| world.store(pin, page(0), 1, 77).unwrap());
        assert_eq!(world.machine.on(1, |pin| child.load(pin, page(0), 1)), inherited);
        world.machine.on(0, |_| child.end());
        ends_well(world);
    }
}

#[test]
fn a_fork_of_one_moment_panics() {
    a_fork_panics(Forks::AtOnce);
}

#[test]
fn a_fork_without_other_threads_panics() {
    a_fork_panics(Forks::InPieces(Others::None));
}

#[test]
fn a_fork_beside_frozen_threads_panics() {
    a_fork_panics(Forks::InPieces(Others::Freeze));
}

#[test]
fn a_move_panics() {
    for world in worlds() {
        for to in [Placement::Anywhere { hint: None }, Placement::Fixed(page(100)), Placement::Fixed(page(0))]
        {
            let what = Remap { from: PageRange::one(page(PAGES + 1)), pages: 3, to, keep: false };
            panics(&world, |pin| _ = world.space.remap(pin, &what, &mut |_, _, _| panic!("on purpose")));
        }
        assert_eq!(world.count(Event::Mremap), 0);
        ends_well(world);
    }
}
