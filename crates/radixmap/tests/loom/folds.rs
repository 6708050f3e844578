//! A leaf becomes one value while a core comes to one of its keys.

use std::ops::Range;

use radixmap::Always;

use crate::machine::{Twin, World, model, pin, race};

/// A leaf is folded while a fault comes to one of its keys: before, after, or at the leaf that is gone.
#[test]
fn a_fold_against_a_fault() {
    model(3, || {
        let world = World::new(2).with_leaf([1, 2]);
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 5), Some(2 | 10)));
        let world = race(world, |world| world.fold(0, 0..2, 10), fault);
        let values = world.values();
        assert!(values == [10, 10, 0, 0, 0, 0, 0, 0] || values == [10, 15, 0, 0, 0, 0, 0, 0], "{values:?}");
        world.end(2);
    });
}

/// As above against a core that locks a range that begins, or ends, in the leaf, and one that wants nothing
/// else.
fn fold_against_range(keys: Range<u64>) {
    model(3, move || {
        let world = World::new(2).with_leaf([1, 1]);
        let theirs = keys.clone();
        let world = race(world, |world| world.fold(0, 0..2, 10), move |world| world.add(1, theirs, 5));
        let values = world.values();
        for key in 0..2 {
            let sum = if keys.contains(&key) { 15 } else { 10 };
            assert!([10, sum].contains(&values[key as usize]), "{values:?}");
        }
        assert!((2..8).all(|key| values[key as usize] == if keys.contains(&key) { 5 } else { 0 }));
        world.end(2);
    });
}

#[test]
fn a_fold_against_a_range_within() {
    fold_against_range(1..2);
}

#[test]
fn a_fold_against_a_range_that_begins_there() {
    fold_against_range(1..3);
}

#[test]
fn a_fold_against_a_range_around() {
    fold_against_range(0..4);
}

/// Two cores fold one leaf, with locks of different sizes. The second one finds no leaf, and waits for the
/// value.
#[test]
fn a_fold_against_a_fold() {
    model(3, || {
        let world = World::new(2).with_leaf([1, 2]);
        let refold = |world: &World| {
            let pin = pin(1);
            let mut guard = world.map.lock_range(&pin, 0..4, Always).unwrap();
            guard.for_each(|entry| entry.set(Twin(20)));
        };
        let world = race(world, |world| world.fold(0, 0..2, 10), refold);
        assert!([10, 20].contains(&world.values()[0]));
        world.end(2);
    });
}

/// An empty leaf is about to be freed while a core folds it. The value stays, whichever comes first.
fn fold_against_collapse(epochs: usize) {
    let world = World::new(2).with_empty_leaf(epochs);
    let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
    let world = race(world, collapse, |world| {
        let pin = pin(1);
        let mut guard = world.map.lock_range(&pin, 0..2, Always).unwrap();
        let mut slots = 0;
        guard.for_each(|_| slots += 1);
        match slots {
            1 => guard.fill(Twin(10)),
            _ => guard.fold(0..2, Twin(10)).unwrap(),
        }
        drop(guard);
        world.refcache.tick(&pin);
    });
    (0..6).for_each(|_| world.tick_all(2));
    assert_eq!(world.values(), [10, 10, 0, 0, 0, 0, 0, 0]);
    assert_eq!(world.counters.total().live(), 2);
    world.end(2);
}

#[test]
fn a_fold_against_collapse_one_epoch_early() {
    model(2, || fold_against_collapse(1));
}

#[test]
fn a_fold_against_collapse_at_the_last_moment() {
    model(2, || fold_against_collapse(2));
}

/// A leaf is folded and its slot expands again, into another leaf, while the first one waits for its end. Its
/// end takes nothing away from the second.
#[test]
fn a_folded_leaf_goes_beside_its_successor() {
    model(2, || {
        let world = World::new(2).with_leaf([1, 2]);
        world.fold(0, 0..2, 10);
        world.tick_all(2);
        let collapse = |world: &World| (0..4).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, |world| {
            world.fault(1, 1, 5);
            (0..2).for_each(|_| _ = world.refcache.tick(&pin(1)));
        });
        (0..6).for_each(|_| world.tick_all(2));
        assert_eq!(world.values(), [10, 15, 0, 0, 0, 0, 0, 0]);
        assert_eq!(world.counters.total().live(), 3);
        world.end(2);
    });
}

/// A core that looks without a lock sees the keys of a leaf used before, while and after it is folded.
#[test]
fn a_fold_against_a_look() {
    model(3, || {
        let world = World::new(2).with_leaf([1, 2]);
        let look = |world: &World| {
            assert!(world.map.peek(&pin(1), 1).used);
            assert!(world.map.first_used(&pin(1), 1..2).is_some());
        };
        race(world, |world| world.fold(0, 0..2, 10), look).end(2);
    });
}
