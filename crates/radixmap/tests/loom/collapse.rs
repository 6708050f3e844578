//! An empty leaf is freed while a core comes to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use loom::thread;

use crate::machine::{World, model, pin, race};

/// An empty leaf is about to be freed while a core uses it again. Either the core finds the leaf and keeps
/// it, or it finds an empty slot and makes a new leaf. The value is never lost, and no core accesses freed
/// memory.
fn collapse_against_use(epochs: usize) {
    let world = World::new(2).with_empty_leaf(epochs);
    let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
    let world = race(world, collapse, |world| {
        world.add(1, 0..1, 5);
        world.refcache.tick(&pin(1));
    });
    (0..6).for_each(|_| world.tick_all(2));
    assert_eq!(world.values(), [5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(world.counters.total().live(), 3);
    world.end(2);
}

#[test]
fn collapse_against_use_one_epoch_early() {
    model(2, || collapse_against_use(1));
}

#[test]
fn collapse_against_use_at_the_last_moment() {
    model(3, || collapse_against_use(2));
}

/// A leaf that is emptied, filled and emptied again by two cores, while epochs pass on both.
#[test]
fn collapse_against_changing_hands() {
    model(3, || {
        let world = World::new(2).with_empty_leaf(1);
        let fill = |world: &World| {
            world.add(0, 0..1, 5);
            world.refcache.tick(&pin(0));
        };
        let world = race(world, fill, |world| {
            world.clear(1, 0..1);
            world.refcache.tick(&pin(1));
        });
        let values = world.values();
        (0..12).for_each(|_| world.tick_all(2));
        assert_eq!(world.values(), values);
        assert_eq!(world.counters.total().live(), if values[0] == 0 { 1 } else { 3 });
        world.end(2);
    });
}

/// An empty leaf is locked, read and unlocked while the other core tries to collapse it. It must not be freed
/// under the guard, and it must be freed afterwards.
#[test]
fn collapse_against_a_guard() {
    model(3, || {
        let world = World::new(2).with_empty_leaf(2);
        let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, |world| {
            world.clear(1, 1..2);
            world.refcache.tick(&pin(1));
        });
        (0..12).for_each(|_| world.tick_all(2));
        assert_eq!(world.counters.total().live(), 1);
        world.end(2);
    });
}

/// One core empties the leaf while the other one, if it still finds a value there, holds it. Then it stays
/// until the hold is released.
#[test]
fn collapse_against_a_hold() {
    model(2, || {
        let world = World::new(2).filled(0..1, 7);
        let held = Arc::new(AtomicBool::new(false));
        let theirs = held.clone();
        let empty = |world: &World| {
            world.clear(0, 0..1);
            _ = world.refcache.tick(&pin(0));
        };
        let world = race(world, empty, move |world| theirs.store(world.hold(1, 0), Relaxed));
        (0..8).for_each(|_| world.tick_all(2));
        assert_eq!(world.counters.total().live(), if held.load(Relaxed) { 3 } else { 1 });
        world.map.each_leaf(&pin(1), |leaf| leaf.release(1));
        world.end(2);
    });
}

/// An empty leaf is about to be freed while its map is destroyed: it must be subtracted from its parent's
/// count once.
#[test]
fn collapse_against_the_end_of_the_map() {
    model(2, || {
        let world = World::new(2).with_empty_leaf(2);
        let refcache = world.refcache.clone();
        let collapse = thread::spawn(move || (0..3).for_each(|_| _ = refcache.tick(&pin(0))));
        world.end_before(2, 1, || collapse.join().unwrap());
    });
}

/// As above against a look without a lock, which may keep the leaf for a while but not for ever.
#[test]
fn collapse_against_peek() {
    model(2, || {
        let world = World::new(2).with_empty_leaf(2);
        let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, |world| {
            let peek = world.map.peek(&pin(1), 1);
            assert!(!peek.used && peek.span.contains(&1), "{peek:?}");
            world.refcache.tick(&pin(1));
        });
        (0..12).for_each(|_| world.tick_all(2));
        assert_eq!(world.counters.total().live(), 1);
        world.end(2);
    });
}
