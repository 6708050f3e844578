//! A folded or empty slot expands into a node while other cores want it.

use radixmap::Always;

use crate::machine::{PARTED, Twin, World, model, pin, race};

/// Two lockers of different pages of one folded value: one of them expands, the other one follows it down.
#[test]
fn expansion_of_a_folded_slot() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let world = race(world, |world| world.add(0, 0..1, 1), |world| world.add(1, 1..2, 2));
        assert_eq!(world.values(), [11, 12, 10, 10, 0, 0, 0, 0]);
        assert_eq!(world.counters.total().created, 3);
        world.end(2);
    });
}

/// As above for an empty slot, with pages in different leaves: the second locker expands the rest.
#[test]
fn expansion_of_an_empty_slot() {
    model(3, || {
        let world = race(World::new(2), |world| world.add(0, 0..1, 1), |world| world.add(1, 3..4, 2));
        assert_eq!(world.values(), [1, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(world.counters.total().created, 4);
        world.end(2);
    });
}

/// Two lockers of the same page of a folded value, one on the fault path.
#[test]
fn expansion_for_the_same_key() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 2), Some(10 | 11)));
        let world = race(world, |world| world.add(0, 1..2, 1), fault);
        assert_eq!(world.values(), [10, 13, 10, 10, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// A folded slot is held as a whole while another locker waits for a part of it.
#[test]
fn a_waiter_expands_what_was_held_whole() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let world = race(world, |world| world.add(0, 0..4, 1), |world| world.add(1, 1..2, 2));
        assert_eq!(world.values(), [11, 13, 11, 11, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// The holder's slot moved down two levels under it (it expanded), while a waiter for the whole slot waits.
/// The waiter must find the child and wait there, and the unlock must reach the child.
#[test]
fn unlock_after_expansion() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let world = race(world, |world| world.add(0, 1..2, 1), |world| world.add(1, 0..4, 2));
        assert_eq!(world.values(), [12, 13, 12, 12, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// The holder splits a page off a slot that it holds as a whole, while a fault waits for the slot. The fault
/// must follow it down, and find the value that was written there.
#[test]
fn a_split_under_the_lock() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let cut = |world: &World| {
            let pin = pin(0);
            let mut guard = world.map.lock_range(&pin, 0..4, Always).unwrap();
            guard.split(1..2).unwrap();
            world.touch(&guard);
            guard.fill_in(1..2, Twin(20));
        };
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 2), Some(10 | 20)));
        let world = race(world, cut, fault);
        let values = world.values();
        assert!(matches!(values[1], 20 | 22));
        assert_eq!([values[0], values[2], values[3], values[4]], [10, 10, 10, 0]);
        world.end(2);
    });
}

/// A fault locks a folded block as a whole while a key of it is taken away: each other key keeps its part.
#[test]
fn a_block_is_cut_against_a_fault() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let world = race(world, |world| world.clear(0, 0..1), |world| world.fault_block(1, 1));
        let values = world.values();
        let after = if values[1] == PARTED + 2 { PARTED + 2 } else { 11 };
        assert_eq!(values, [0, after, 10, 10, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// One fault holds a block as a whole. Another waits for the block, and a third for a key of it alone.
#[test]
fn faults_agree_on_a_block() {
    model(3, || {
        let world = World::new(2).filled(0..2, 10);
        let both = |world: &World| {
            world.fault_block(1, 0);
            world.fault(1, 1, 5);
        };
        let world = race(world, |world| world.fault_block(0, 1), both);
        let values = world.values();
        let second = if values[0] == PARTED + 1 { [PARTED + 7, PARTED + 8] } else { [0, 0] };
        assert!(second.contains(&values[1]), "{values:?}");
        world.end(2);
    });
}
