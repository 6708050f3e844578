//! One table for all cores: the cores that run the space are interrupted.

use std::sync::Arc;

use percore::Pinned;
use vm::{Access, Event, Mapping, PageNum, PageRange, Placement, Prot};
use vm_testkit::{Call, Design, Setup, World};

const PAGE: PageNum = PageNum::new(1000);

/// Two cores, and a page that core 0 has mapped and written. Core 1 has left the space.
fn worlds() -> impl Iterator<Item = Arc<World>> {
    Design::ALL.into_iter().filter_map(|design| {
        let world = World::new(Setup { cores: 2, ..Setup::new() }, design);
        world.is_shared().then(|| {
            world.machine.on(0, |pin| write(&world, pin));
            world.machine.on(1, |pin| world.mmu.leave(pin));
            Arc::new(world)
        })
    })
}

fn write(world: &World, pin: &Pinned) {
    let mapping = Mapping::anonymous(Prot::READ | Prot::WRITE);
    world.space.map(pin, Placement::Fixed(PAGE), 1, mapping).unwrap();
    world.store(pin, PAGE, 0, 7).unwrap();
}

fn unmap(world: &World) {
    world.machine.on(0, |pin| world.space.unmap(pin, PageRange::one(PAGE)).unwrap());
}

fn end(world: Arc<World>) {
    Arc::into_inner(world).expect("nobody else has the world").finish();
}

#[test]
fn a_core_that_left_is_not_shot_at_until_it_comes_back() {
    for world in worlds() {
        unmap(&world);
        assert_eq!(world.count(Event::IpiTarget), 0);
        world.machine.on(0, |pin| write(&world, pin));
        world.machine.on(1, |pin| assert_eq!(world.load(pin, PAGE, 0), Ok(7)));
        unmap(&world);
        assert_eq!(world.count(Event::IpiTarget), 1);
        world.machine.on(1, |pin| assert!(world.load(pin, PAGE, 0).is_err()));
        end(world);
    }
}

/// The users are asked after the table is clear, or a core that comes in between would be missed.
#[test]
fn a_core_that_comes_after_the_users_were_asked_finds_nothing() {
    for world in worlds() {
        let theirs = world.clone();
        world.machine.interpose(Call::Users, move |_| {
            let comes = |pin: &Pinned| {
                theirs.mmu.enter(pin);
                theirs.mmu.translate(pin, &*theirs.space, PAGE, Access::Read)
            };
            assert_eq!(theirs.machine.elsewhere(1, comes), None, "the table still has the page");
        });
        unmap(&world);
        end(world);
    }
}
