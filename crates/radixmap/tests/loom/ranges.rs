//! Ranges that overlap, and faults against cores that replace or remove values.

use std::sync::Arc;

use loom::thread;
use radixmap::Always;

use crate::machine::{Twin, World, model, pin, race};

/// Overlapping ranges that end inside slots, from both sides: no deadlock, and the common part is exclusive.
#[test]
fn overlapping_ranges_serialise() {
    model(3, || {
        let world = World::new(2).filled(0..8, 10);
        let world = race(world, |world| world.add(0, 1..5, 1), |world| world.add(1, 3..7, 2));
        assert_eq!(world.values(), [10, 11, 11, 13, 13, 12, 12, 10]);
        world.end(2);
    });
}

/// As above on an empty map, where one core holds whole empty slots that stick out of its range.
#[test]
fn overlapping_ranges_over_nothing() {
    model(2, || {
        let world = race(World::new(2), |world| world.add(0, 1..5, 1), |world| world.clear(1, 3..7));
        let values = world.values();
        let after = [0, 1, 1, 0, 0, 0, 0, 0];
        assert!(values == after || values == [0, 1, 1, 1, 1, 0, 0, 0], "{values:?}");
        world.end(2);
    });
}

/// Three cores, three ranges, each overlapping the next.
#[test]
fn a_chain_of_overlapping_ranges() {
    model(2, || {
        let world = (0..4).fold(World::new(3), |world, key| world.filled(key..key + 1, 10));
        let world = Arc::new(world);
        let others = [(1, 1..3), (2, 2..4)].map(|(core, keys)| {
            let world = world.clone();
            thread::spawn(move || world.add(core, keys, 1))
        });
        world.add(0, 0..2, 1);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.values(), [11, 12, 12, 11, 0, 0, 0, 0]);
        Arc::into_inner(world).unwrap().end(3);
    });
}

/// A replaced mapping is never seen half-way: the fault path waits for the holder, even if the slot is empty
/// now.
#[test]
fn a_fault_waits_for_a_replacement() {
    model(3, || {
        let replace = |world: &World| {
            let pin = pin(0);
            let mut guard = world.map.lock_range(&pin, 0..1, Always).unwrap();
            guard.for_each(|entry| entry.clear());
            guard.for_each(|entry| entry.set(Twin(2)));
        };
        let fault = |world: &World| assert!(matches!(world.fault(1, 0, 0), Some(1 | 2)));
        race(World::new(2).filled(0..1, 1), replace, fault).end(2);
    });
}

/// A mapping that disappears is seen or not, and a fault never brings it back.
#[test]
fn a_fault_against_a_removal() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let fault = |world: &World| assert!(matches!(world.fault(1, 2, 1), Some(10) | None));
        let world = race(world, |world| world.clear(0, 1..3), fault);
        assert_eq!(world.values(), [10, 0, 0, 10, 0, 0, 0, 0]);
        world.end(2);
    });
}
