//! Looking without a lock: values are whole, and a leaf that is folded meanwhile is not lost.

use std::ops::ControlFlow;

use crate::machine::{KEYS, Twin, WIDE, World, model, pin, race};

/// Returns the values that `core` sees, 0 for none. A torn value is a panic of `Twin`.
fn look(world: &World, core: usize) -> [u64; 8] {
    let mut seen = [0; 8];
    let _all = world.map.look(&pin(core), KEYS, u64::MAX, |keys, Twin(value)| {
        assert_ne!(value, 0, "a slot without a value is shown");
        keys.for_each(|key| seen[key as usize] = value);
        ControlFlow::<()>::Continue(())
    });
    seen
}

/// A value above the leaves goes: it is seen, or nothing is.
#[test]
fn a_value_above_the_leaves_goes_under_a_look() {
    model(3, || {
        let world = World::new(2).filled(4..8, 5);
        let world = race(
            world,
            |world| world.clear(0, 4..8),
            |world| {
                let seen = look(world, 1);
                assert!(matches!(seen, [0, 0, 0, 0, 5, 5, 5, 5] | [0, 0, 0, 0, 0, 0, 0, 0]), "{seen:?}");
            },
        );
        world.end(2);
    });
}

/// A value gets another second word: a core that looks sees both words of the old value or both of the new
/// one.
#[test]
fn a_second_word_is_replaced_under_a_look() {
    model(3, || {
        let world = World::new(2).filled(0..1, WIDE).filled(1..2, WIDE + 7);
        let replace = |world: &World| world.add_wide(0, 0..1, 5);
        let world = race(world, replace, |world| {
            let seen = look(world, 1);
            assert!(matches!(seen, [WIDE | 105, 107, 0, 0, 0, 0, 0, 0]), "{seen:?}");
        });
        world.end(2);
    });
}

/// A leaf with one second word for all slots gets a side with two.
#[test]
fn a_side_grows_under_a_look() {
    model(3, || {
        let world = World::new(2).filled(0..1, WIDE).filled(1..2, 3);
        let world = race(
            world,
            |world| world.add_wide(0, 1..2, WIDE),
            |world| {
                let seen = look(world, 1);
                assert!(matches!(seen, [WIDE, 3 | 103, 0, 0, 0, 0, 0, 0]), "{seen:?}");
            },
        );
        world.end(2);
    });
}

/// A leaf is folded: a core that looks sees its values, or the one that all keys have now.
#[test]
fn a_leaf_is_folded_under_a_look() {
    model(3, || {
        let world = World::new(2).with_leaf([7, 8]);
        let world = race(
            world,
            |world| world.fold(0, 0..2, 9),
            |world| {
                let seen = look(world, 1);
                assert!(matches!(seen[..2], [7, 8] | [7, 9] | [9, 9]), "{seen:?}");
            },
        );
        world.end(2);
    });
}
