//! Second words: the cores that make room for them, and values that are never torn.

use test_memory::poisonable;

use crate::machine::{WIDE, World, model, pin, race};

/// Two holders of different slots of one leaf want second words: one makes the side, and both values are in
/// it.
#[test]
fn a_side_is_made_once() {
    model(3, || {
        let world = World::new(2).filled(0..1, 1);
        let world =
            race(world, |world| world.add_wide(0, 0..1, WIDE), |world| world.add_wide(1, 1..2, WIDE + 2));
        assert_eq!(world.values(), [WIDE + 1, WIDE + 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(poisonable() - world.frames, 3 + 1);
        world.end(2);
    });
}

/// A value gets a second word under another one's fault: it sees both words or neither.
#[test]
fn a_second_word_against_a_fault() {
    model(3, || {
        let world = World::new(2).filled(0..1, 1);
        let fault = |world: &World| assert!(matches!(world.fault(1, 0, 2), Some(1 | 101)));
        let world = race(world, |world| world.add_wide(0, 0..1, WIDE), fault);
        assert_eq!(world.values()[0], WIDE + 3);
        world.end(2);
    });
}

/// A folded value with a second word expands: each new slot has both words, for the expanding core and for
/// one that follows.
#[test]
fn expansion_of_a_folded_value_with_a_second_word() {
    model(3, || {
        let world = World::new(2).filled(0..4, WIDE);
        let world = race(world, |world| world.add_wide(0, 1..2, 1), |world| _ = world.fault(1, 3, 2));
        assert_eq!(world.values(), [WIDE, WIDE + 1, WIDE, WIDE + 2, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// An empty slot expands for a core that wants second words, against a core that does not.
#[test]
fn expansion_for_second_words() {
    model(3, || {
        let world = World::new(2);
        let world = race(world, |world| world.add_wide(0, 0..1, WIDE), |world| world.add(1, 1..2, 2));
        assert_eq!(world.values(), [WIDE, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(poisonable() - world.frames, 3, "one second word needs no side");
        world.end(2);
    });
}

/// An empty leaf with a side is about to be freed while a core wants a second word in it. The side is freed
/// with the old leaf, or stays with its word.
#[test]
fn collapse_of_a_side_against_use() {
    model(2, || {
        let world = World::new(2).filled(1..2, WIDE);
        world.add_wide(0, 0..1, WIDE + 2);
        world.clear(0, 0..2);
        let world = world.with_empty_leaf(2);
        assert_eq!(poisonable() - world.frames, 3 + 1);
        let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, |world| {
            world.add_wide(1, 0..1, WIDE);
            world.refcache.tick(&pin(1));
        });
        (0..6).for_each(|_| world.tick_all(2));
        assert_eq!(world.values(), [WIDE, 0, 0, 0, 0, 0, 0, 0]);
        assert!((3..=3 + 1).contains(&(poisonable() - world.frames)));
        world.end(2);
    });
}
