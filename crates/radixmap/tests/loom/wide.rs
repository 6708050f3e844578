//! Groups of slots within a node, which smaller nodes do not have.

use std::ops::ControlFlow;

use radixmap::Always;

use crate::machine::{AGAIN, ALIKE, KEYS, Twin, World, model, pin, race};

/// The last slot of a leaf gets the main word of the others and a second word of its own. A look reads the
/// main words of a group without ordering, finds them equal, and must then find the second word that belongs
/// to the last one.
#[test]
fn a_group_is_alike_but_for_a_second_word_under_a_look() {
    model(3, || {
        let world = World::new(2).filled(0..3, ALIKE + 5).filled(3..4, 3);
        let world = race(
            world,
            |world| world.add_wide(0, 3..4, ALIKE + 4),
            |world| {
                let mut seen = [0; 8];
                let _all = world.map.look(&pin(1), KEYS, u64::MAX, |keys, Twin(value)| {
                    keys.for_each(|key| seen[key as usize] = value);
                    ControlFlow::<()>::Continue(())
                });
                assert!(seen[..3] == [ALIKE + 5; 3] && [3, ALIKE + 7].contains(&seen[3]), "{seen:?}");
            },
        );
        world.end(2);
    });
}

/// The same for the last two slots, whose second words become the same: neither may hide the other.
#[test]
fn a_group_is_alike_but_for_two_second_words_under_a_look() {
    model(2, || {
        let world = World::new(2).filled(0..2, ALIKE + 5).filled(2..4, 3);
        let world = race(
            world,
            |world| world.add_wide(0, 2..4, ALIKE + 4),
            |world| {
                let mut seen = [0; 8];
                let _all = world.map.look(&pin(1), KEYS, u64::MAX, |keys, Twin(value)| {
                    keys.for_each(|key| seen[key as usize] = value);
                    ControlFlow::<()>::Continue(())
                });
                let known = seen[2..4].iter().all(|value| [3, ALIKE + 7].contains(value));
                assert!(seen[..2] == [ALIKE + 5; 2] && known, "{seen:?}");
            },
        );
        world.end(2);
    });
}

/// Both words of two slots change, and the new second word is that of the others. The main words from before
/// do not belong to it.
#[test]
fn a_group_is_alike_but_for_two_main_words_under_a_look() {
    model(2, || {
        let world = World::new(2).filled(0..2, ALIKE + 5).filled(2..4, ALIKE + 7);
        let world = race(
            world,
            |world| world.add_wide(0, 2..4, AGAIN - ALIKE - 2),
            |world| {
                let mut seen = [0; 8];
                let _all = world.map.look(&pin(1), KEYS, u64::MAX, |keys, Twin(value)| {
                    keys.for_each(|key| seen[key as usize] = value);
                    ControlFlow::<()>::Continue(())
                });
                let known = seen[2..4].iter().all(|value| [ALIKE + 7, AGAIN + 5].contains(value));
                assert!(seen[..2] == [ALIKE + 5; 2] && known, "{seen:?}");
            },
        );
        world.end(2);
    });
}

/// Two slots have the same value and make a run. The first expands between the look at the run and the step
/// into it. The leaf has the keys of the first slot only, and the range that is asked for ends in the second.
#[test]
fn the_first_slot_of_a_run_expands_under_extent() {
    model(3, || {
        let world = World::new(2).filled(KEYS, 5);
        let expand = |world: &World| drop(world.map.lock_range(&pin(0), 1..2, Always).unwrap());
        let world = race(world, expand, |world| {
            let end = world.map.extent(&pin(1), 2..5, 1);
            assert!([4, 5].contains(&end), "{end}");
        });
        world.end(2);
    });
}
