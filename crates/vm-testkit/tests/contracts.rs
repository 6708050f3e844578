//! The contract of a machine and its callers while slots are locked: a breach is found where it would do
//! harm.
#![cfg(debug_assertions)]

use std::ops::ControlFlow;
use std::sync::Arc;

use fuzzing::attempt;
use percore::Pinned;
use vm::{Access, PageNum, PageRange, Placement, Prot, Remap, Tables};
use vm_testkit::{Call, Design, Setup, Shows, World};
use vm_trees::Locking;

const RW: Prot = Prot::from_bits(3);
const PAGE: PageNum = PageNum::new(1000);
const FILE_PAGE: PageNum = PageNum::new(3000);

/// Two cores, both of which have written a page of zeroes, and a page of a file.
fn world(design: Design) -> Arc<World> {
    let world = World::new(Setup { cores: 2, ..Setup::new() }, design);
    let file = world.machine.files.create(1);
    world.machine.on(0, |pin| {
        world.map(pin, Placement::Fixed(PAGE), 1, RW, Shows::Zeroes).unwrap();
        world.map(pin, Placement::Fixed(FILE_PAGE), 1, RW, Shows::Private(file, 0)).unwrap();
    });
    (0..2).for_each(|core| world.machine.on(core, |pin| world.store(pin, PAGE, 0, 7).unwrap()));
    Arc::new(world)
}

/// Returns the message with which `act` on core 0 panics.
fn failure(world: &World, act: impl FnOnce(&Pinned)) -> String {
    world.machine.on(0, |pin| attempt(|| act(pin))).unwrap_err()
}

/// Operations that make a call, and need not be possible afterwards.
fn makes(world: &World, call: Call, pin: &Pinned) {
    let (one, untouched) = (PageRange::one(PAGE), PageNum::new(2000));
    match call {
        Call::Clear | Call::Shootdown | Call::Users | Call::Free => world.space.unmap(pin, one).unwrap(),
        Call::Fill | Call::Link | Call::Alloc => {
            world.map(pin, Placement::Fixed(untouched), 1, RW, Shows::Zeroes).unwrap();
            world.store(pin, untouched, 0, 1).unwrap();
        }
        Call::BackingFrame => _ = world.load(pin, FILE_PAGE, 0).unwrap(),
    }
}

/// The calls that a space of the design makes, and what the message names.
fn calls(design: Design) -> Vec<(Call, &'static str)> {
    let mut calls = vec![
        (Call::Clear, "an Mmu"),
        (Call::Shootdown, "an Mmu"),
        (Call::Fill, "an Mmu"),
        (Call::Alloc, "Frames"),
        (Call::Free, "Frames"),
        (Call::BackingFrame, "Backings"),
    ];
    match design {
        Design::Radix(Tables::PerCore) => {}
        Design::Radix(Tables::Adaptive) => calls.retain(|(call, _)| *call != Call::Fill),
        _ => calls.push((Call::Users, "an Mmu")),
    }
    if design == Design::Radix(Tables::Adaptive) {
        calls.push((Call::Link, "an Mmu"));
    }
    calls
}

#[test]
fn a_call_of_the_machine_uses_no_space() {
    for design in Design::ALL {
        for (call, named) in calls(design) {
            let world = world(design);
            let theirs = world.clone();
            // Far away: no slot of it is locked, and waited for.
            let far = PageRange::one(PageNum::new(1 << 20));
            world.machine.interpose(call, move |pin| theirs.space.unmap(pin, far).unwrap());
            let failure = failure(&world, |pin| makes(&world, call, pin));
            let what =
                format!("core 0 locks slots in a call of {named}, which must not sleep or use a space");
            assert_eq!(failure, what, "{design:?} {call:?}");
        }
    }
}

/// Not even another one.
#[test]
fn a_call_of_the_machine_uses_no_other_space() {
    for design in Design::ALL {
        let world = world(design);
        let other = world.machine.on(0, |pin| world.sibling(pin)).unwrap();
        world.machine.interpose(Call::Alloc, move |pin| {
            let _ = other.fault(pin, PAGE, Access::Read);
        });
        let failure = failure(&world, |pin| makes(&world, Call::Alloc, pin));
        assert!(failure.contains("in a call of Frames"), "{failure}");
    }
}

/// A tick would free the nodes that the locked slots are in.
#[test]
fn a_call_of_the_machine_ends_no_epoch() {
    for design in Design::ALL {
        let world = world(design);
        let machine = world.machine.clone();
        world.machine.interpose(Call::Alloc, move |pin| _ = machine.refcache.tick(pin));
        let failure = failure(&world, |pin| makes(&world, Call::Alloc, pin));
        assert!(failure.contains("objects that it has not counted"), "{failure}");
    }
}

/// Nor one of RCU, which the regions of the trees wait for.
#[test]
fn a_call_of_the_machine_is_no_quiescent_state() {
    for design in Locking::ALL.map(Design::Tree) {
        let world = world(design);
        let machine = world.machine.clone();
        world.machine.interpose(Call::Alloc, move |pin| _ = machine.rcu.quiesce(pin));
        let failure = failure(&world, |pin| makes(&world, Call::Alloc, pin));
        assert!(failure.contains("read"), "{failure}");
    }
}

type Visit = fn(&World, &Pinned, &mut dyn FnMut());

const VISITS: [Visit; 5] = [
    |world, pin, act| world.space.look(pin, PAGE, &mut |_| act()),
    |world, pin, act| _ = world.space.frame(pin, PAGE, Access::Read, &mut |_| act()),
    |world, pin, act| {
        world.space.regions(pin, PageRange::one(PAGE), &mut |_| {
            act();
            ControlFlow::Continue(())
        });
    },
    |world, pin, act| _ = world.space.resident(pin, PageRange::one(PAGE), &mut |_| act()).unwrap(),
    |world, pin, act| _ = world.space.frames(pin, PageRange::one(PAGE), &mut |_| act()),
];

#[test]
fn a_visitor_uses_no_space() {
    for design in Design::ALL {
        for visit in VISITS {
            let world = world(design);
            let failure = failure(&world, |pin| {
                visit(&world, pin, &mut || _ = world.fault(pin, FILE_PAGE, Access::Read));
            });
            assert!(failure.contains("core 0 locks slots in a call of a visitor"), "{failure}");
        }
    }
}

#[test]
fn callbacks_of_copies_and_moves_must_not_use_a_space() {
    for design in Design::ALL {
        let world = world(design);
        let child = world.machine.on(0, |pin| world.sibling(pin)).unwrap();
        let forks = |pin: &Pinned| {
            let _ = world.space.fork(pin, &*child.space, &mut |backing| {
                let _ = world.fault(pin, PAGE, Access::Read);
                Some(backing)
            });
        };
        let failure_of_fork = failure(&world, forks);
        assert!(failure_of_fork.contains("in a call of a ForkBacking"), "{failure_of_fork}");
    }
    for design in Design::ALL {
        let world = world(design);
        let to = Placement::Fixed(PageNum::new(5000));
        let what = Remap { from: PageRange::one(FILE_PAGE), pages: 1, to, keep: false };
        let moves = |pin: &Pinned| {
            let _ = world.space.remap(pin, &what, &mut |backing, _, _| {
                let _ = world.fault(pin, PAGE, Access::Read);
                Some(backing)
            });
        };
        let failure = failure(&world, moves);
        assert!(failure.contains("in a call of a RemapBacking"), "{failure}");
    }
}
