//! Cores that come and go, and forced epochs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use percore::{CoreId, threads};

use refcache::{Config, Tick};

use crate::world::{World, panics, roomy};

#[test]
fn an_offline_core_does_not_hold_the_epoch() {
    let world = World::new(roomy(3));
    assert_eq!(world.refcache.cores(), 3);
    world.refcache.offline(world.pin(2));
    let epoch = world.refcache.epoch();
    assert_eq!(world.tick(2), Tick::default(), "an offline core has no duties");
    world.tick(0);
    world.tick(1);
    assert_eq!(world.refcache.epoch(), epoch + 1);
}

#[test]
fn going_offline_can_be_what_turns_the_epoch() {
    let world = World::new(roomy(2));
    let epoch = world.refcache.epoch();
    world.tick(0);
    world.refcache.offline(world.pin(1));
    assert_eq!(world.refcache.epoch(), epoch + 1);
    world.refcache.offline(world.pin(0));
    assert_eq!(world.refcache.epoch(), epoch + 2);
}

#[test]
fn a_core_that_goes_offline_flushes_and_hands_on_its_queue() {
    let mut world = World::new(roomy(2));
    let (dead, kept) = (world.object(1), world.object(1));
    world.adjust(1, dead, -1);
    world.adjust(1, kept, 1);
    world.adjust(0, kept, -1);
    world.refcache.offline(world.pin(1));
    assert_eq!(world.refcache.garbage(), 1, "an orphan is garbage too");
    world.turns(4);
    assert_eq!((dead.is_released(), kept.is_released()), (true, false));
}

#[test]
fn orphans_survive_a_time_without_any_core() {
    let mut world = World::new(roomy(2));
    let object = world.object(1);
    world.adjust(1, object, -1);
    world.refcache.offline(world.pin(0));
    world.refcache.offline(world.pin(1));
    assert_eq!(world.refcache.garbage(), 1);
    world.refcache.online(world.pin(0));
    assert_eq!(world.refcache.drain(world.pin(0)), 1);
    assert!(object.is_released());
}

/// No core needs the epoch: it stands still through any number of short sleeps.
#[test]
fn a_core_that_dozes_keeps_its_place() {
    let mut world = World::new(roomy(2));
    let (core, epoch) = (1, world.refcache.epoch());
    let object = world.object(1);
    world.adjust(core, object, -1);
    for _ in 0..5 {
        assert!(world.refcache.doze(world.pin(core), 1));
        assert!(!world.refcache.is_online(world.pin(core)));
        assert_eq!((world.refcache.garbage(), world.refcache.orphaned()), (1, 0));
        assert!(world.refcache.doze(world.pin(core), 0), "twice is once");
        world.refcache.online(world.pin(core));
        assert_eq!((world.refcache.garbage(), world.refcache.epoch()), (1, epoch));
    }
    assert!(!world.refcache.doze(world.pin(core), 0), "more waits than may wait");
    assert!(world.refcache.is_online(world.pin(core)));
    world.turns(4);
    assert!(object.is_released());
}

/// A dozing core holds an epoch up for one tick of another core, which then takes it offline.
#[test]
fn a_core_that_dozes_does_not_hold_the_epoch() {
    let mut world = World::new(roomy(3));
    let object = world.object(1);
    world.adjust(2, object, -1);
    let epoch = world.refcache.epoch();
    assert!(world.refcache.doze(world.pin(1), 1) && world.refcache.doze(world.pin(2), 1));
    world.tick(0);
    assert_eq!(world.refcache.epoch(), epoch, "two have said nothing");
    assert!(world.refcache.wants_tick(world.pin(0)));
    world.tick(0);
    assert_eq!((world.refcache.epoch(), world.refcache.orphaned()), (epoch + 1, 1));
    for _ in 0..4 {
        world.tick(0);
    }
    assert!(object.is_released());
    world.refcache.online(world.pin(2));
    assert!(!world.refcache.wants_tick(world.pin(2)), "it has come anew");
}

/// The last core that is awake forces epochs, and the objects that dozing cores parked are released too.
#[test]
fn a_drain_takes_what_dozing_cores_left() {
    let mut world = World::new(roomy(3));
    let objects = [1, 2].map(|core| {
        let object = world.object(1);
        world.adjust(core, object, -1);
        assert!(world.refcache.doze(world.pin(core), 1));
        object
    });
    assert_eq!(world.refcache.drain(world.pin(0)), 2);
    assert!(objects.iter().all(|object| object.is_released()));
    assert_eq!(world.refcache.garbage(), 0);
}

#[test]
fn a_core_that_dozes_goes_offline() {
    let mut world = World::new(roomy(2));
    let object = world.object(1);
    world.adjust(1, object, -1);
    assert!(world.refcache.doze(world.pin(1), 1));
    world.refcache.offline(world.pin(1));
    assert_eq!((world.refcache.garbage(), world.refcache.orphaned()), (1, 1));
    let epoch = world.refcache.epoch();
    world.tick(0);
    assert_eq!(world.refcache.epoch(), epoch + 1);
}

#[test]
fn coming_and_going_twice_is_once() {
    let world = World::new(roomy(2));
    let epoch = world.refcache.epoch();
    world.refcache.online(world.pin(0));
    world.refcache.offline(world.pin(1));
    world.refcache.offline(world.pin(1));
    assert!(world.refcache.is_online(world.pin(0)) && !world.refcache.is_online(world.pin(1)));
    world.tick(0);
    assert_eq!(world.refcache.epoch(), epoch + 1);
}

#[test]
fn a_core_that_comes_online_is_not_waited_for_in_this_epoch() {
    let world = World::new(roomy(2));
    world.refcache.offline(world.pin(1));
    let epoch = world.refcache.epoch();
    world.refcache.online(world.pin(1));
    assert!(!world.refcache.wants_tick(world.pin(1)));
    world.tick(0);
    assert_eq!(world.refcache.epoch(), epoch + 1);
    assert!(world.refcache.wants_tick(world.pin(1)));
}

#[test]
fn an_offline_core_neither_counts_nor_borrows() {
    let mut world = World::new(roomy(1));
    let object = world.object(1);
    world.adjust(0, object, 1);
    world.refcache.offline(world.pin(0));
    assert!(panics(|| world.adjust(0, object, 1)));
    assert!(panics(|| world.refcache.loan(world.pin(0))));
    assert!(panics(|| world.refcache.drain(world.pin(0))));
}

#[test]
fn drain_frees_a_whole_chain() {
    let mut world = World::new(roomy(2));
    let mut chain = vec![world.object(1)];
    (1..10).for_each(|at| chain.push(world.object_holding(1, chain[at - 1])));
    world.adjust(0, chain[9], -1);
    world.refcache.offline(world.pin(1));
    assert_eq!(world.refcache.drain(world.pin(0)), 10);
    assert!(chain.iter().all(|link| link.is_released()));
}

/// A drain waits as long as other cores may have deltas in their caches, and not longer.
#[test]
fn a_drain_of_nothing_takes_three_epochs() {
    let world = World::new(roomy(1));
    (0..10).for_each(|_| _ = world.tick(0));
    let epoch = world.refcache.epoch();
    assert_eq!(world.refcache.drain(world.pin(0)), 0);
    assert_eq!(world.refcache.epoch(), epoch + 3);
}

thread_local! {
    static MACHINE: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// A host that ticks rarely asks whether an epoch is forced.
#[test]
fn epochs_are_forced_during_a_drain_only() {
    let world = World::new(roomy(1));
    (0..10).for_each(|_| _ = world.tick(0));
    assert!(!world.refcache.is_forced());
    let (was_forced, turns) = (Cell::new(true), Cell::new(0));
    world.refcache.drain_while(world.pin(0), || {
        // The first look is before the drain forces anything.
        was_forced
            .set(was_forced.get() && (turns.replace(turns.get() + 1) == 0 || world.refcache.is_forced()));
        true
    });
    assert!(was_forced.get() && turns.get() == 3, "{} turns", turns.get());
    assert!(!world.refcache.is_forced());
}

#[test]
fn a_drain_alone_waits_for_no_core() {
    let world = World::new(roomy(1));
    let waiting = threads::enter(CoreId::new(98));
    waiting.on_relax(|| panic!("no other core is online"));
    world.refcache.drain(world.pin(0));
}

/// Three objects are locked by their owner. Each is reviewed every two epochs.
#[test]
fn a_drain_gives_up_after_sixteen_epochs() {
    let mut world = World::new(roomy(1));
    (0..10).for_each(|_| _ = world.tick(0));
    for _ in 0..3 {
        let locked = world.weak_object(1);
        locked.object().word.0.fetch_or(1, Ordering::Relaxed);
        world.adjust(0, locked, -1);
    }
    let epoch = world.refcache.epoch();
    assert_eq!(world.refcache.drain(world.pin(0)), 0);
    assert_eq!(world.refcache.epoch(), epoch + 16);
    assert_eq!(world.refcache.garbage(), 3);
}

/// Core 1 flushes at the last moment, after core 0 has looked for the last time in the epoch.
#[test]
fn a_drain_waits_for_what_others_flush_late() {
    let mut world = World::new(roomy(2));
    let object = world.object(1);
    world.tick(1);
    world.adjust(1, object, -1);
    let world = Rc::new(world);
    MACHINE.set(Some(world.clone()));
    // The thread waits as this core; the tokens of the world name other cores.
    let waiting = threads::enter(CoreId::new(99));
    waiting.on_relax(|| {
        MACHINE.with_borrow(|world| world.as_ref().unwrap().tick(1));
    });
    world.refcache.drain(world.pin(0));
    assert!(object.is_released());
    MACHINE.take();
}

#[test]
fn drain_ends_although_an_object_stays() {
    let mut world = World::new(roomy(1));
    let (locked, dead) = (world.weak_object(1), world.object(1));
    locked.object().word.0.fetch_or(1, Ordering::Relaxed);
    world.adjust(0, locked, -1);
    world.adjust(0, dead, -1);
    assert_eq!(world.refcache.drain(world.pin(0)), 1);
    assert_eq!(world.refcache.garbage(), 1);
}

/// The release of an object keeps it, again and again. The drain ends, and what dies meanwhile is released.
#[test]
fn a_drain_does_not_go_on_for_an_object_that_is_kept() {
    let mut world = World::new(roomy(1));
    let (kept, dead) = (world.object(1), world.object(1));
    kept.keep(true);
    world.adjust(0, kept, -1);
    world.adjust(0, dead, -1);
    let end = world.refcache.epoch() + 100;
    let drain = |world: &World| world.refcache.drain_while(world.pin(0), || world.refcache.epoch() < end);
    assert_eq!((drain(&world), dead.is_released(), kept.is_released()), (1, true, false));
    assert!(world.refcache.epoch() < end, "the drain took the object for progress");
    kept.keep(false);
    assert_eq!((drain(&world), kept.is_released(), world.refcache.garbage()), (1, true, 0));
}

/// A release that takes many steps, each of which begins the object anew without keeping it, is progress.
#[test]
fn a_drain_goes_on_for_an_object_that_is_released_in_steps() {
    let mut world = World::new(roomy(1));
    let (kept, slow) = (world.object(1), world.object(1));
    kept.keep(true);
    slow.take_steps(100);
    world.adjust(0, kept, -1);
    world.adjust(0, slow, -1);
    let end = world.refcache.epoch() + 1000;
    let drain = |world: &World| world.refcache.drain_while(world.pin(0), || world.refcache.epoch() < end);
    assert_eq!((drain(&world), slow.is_released(), kept.is_released()), (101, true, false));
    assert!(world.refcache.epoch() < end, "the drain took the other object for progress");
}

/// Core 1 keeps an object while core 0 drains. The object is seen wherever it is, and is no progress.
#[test]
fn a_drain_sees_an_object_that_another_core_keeps() {
    let mut world = World::new(roomy(2));
    let kept = world.object(1);
    kept.keep(true);
    world.adjust(1, kept, -1);
    let end = world.refcache.epoch() + 100;
    let world = Rc::new(world);
    MACHINE.set(Some(world.clone()));
    let waiting = threads::enter(CoreId::new(97));
    waiting.on_relax(|| {
        MACHINE.with_borrow(|world| world.as_ref().unwrap().tick(1));
    });
    let begin = world.refcache.epoch();
    assert_eq!(world.refcache.drain_while(world.pin(0), || world.refcache.epoch() < end), 0);
    let took = world.refcache.epoch() - begin;
    assert!((16..100).contains(&took), "{took} epochs");
    MACHINE.take();
}

/// Core 1 reviews an object after its flush, and keeps it: until the next flush it waits for nothing, and
/// core 0 sees only that an object was kept. The drain goes on, and core 1 releases the object.
#[test]
fn a_drain_sees_that_another_core_has_kept_an_object() {
    let mut world = World::new(Config { review_budget: 1, ..roomy(2) });
    let (used, kept) = ([world.object(1), world.object(1)], world.object(1));
    kept.keep(true);
    used.iter().for_each(|&object| world.adjust(1, object, -1));
    world.tick(1);
    used.iter().for_each(|&object| world.adjust(1, object, 1));
    world.adjust(1, kept, -1);
    world.turns(2);
    let world = Rc::new(world);
    MACHINE.set(Some(world.clone()));
    let waiting = threads::enter(CoreId::new(96));
    waiting.on_relax(|| {
        MACHINE.with_borrow(|world| {
            let world = world.as_ref().unwrap();
            (0..3).for_each(|_| _ = world.tick(1));
            world.keep_none();
        });
    });
    assert_eq!(world.refcache.garbage(), 3);
    assert_eq!(world.refcache.drain(world.pin(0)), 0);
    assert!(kept.is_released());
    MACHINE.take();
}

#[test]
fn only_a_release_keeps_an_object() {
    let world = World::new(roomy(1));
    assert!(panics(|| world.refcache.note_kept(world.pin(0))));
}

/// Each object is found dirty when it is first reviewed, since its count changed while it waited, and a tick
/// reviews only a few. So no object is released for much longer than a drain waits for a single one.
#[test]
fn a_drain_reviews_a_long_queue_to_its_end() {
    let mut world = World::new(Config { review_budget: 2, ..roomy(1) });
    let objects: Vec<_> = (0..200).map(|_| world.object(1)).collect();
    for delta in [-1, 1, -1] {
        objects.iter().for_each(|&object| world.adjust(0, object, delta));
        world.refcache.offline(world.pin(0));
        world.refcache.online(world.pin(0));
    }
    assert_eq!(world.refcache.drain(world.pin(0)), 200);
}
