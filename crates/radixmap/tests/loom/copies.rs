//! A map is copied while it changes.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use radixmap::{IfPresent, KEY_END, Run};

use crate::machine::{ALIKE, KEYS, Map, Twin, WIDE, World, model, pin, race};

/// A key that is cleared in a map and then in its twin, while the map is copied, is in neither: the copy of a
/// slot is there before the slot is unlocked.
#[test]
fn a_copy_against_a_removal_from_both() {
    model(2, || {
        let world = World::new(2).filled(0..1, 1);
        let twin = world.twin();
        let theirs = twin.clone();
        let copy = |world: &World| {
            world.map.copy_to(&pin(0), &twin, 0..KEY_END, |run| Ok(Some(run.value()))).unwrap();
        };
        let clear = move |world: &World| {
            world.clear(1, 0..1);
            let pin = pin(1);
            let mut guard = theirs.lock_range(&pin, 0..1, IfPresent).unwrap();
            guard.for_each(|entry| entry.clear());
        };
        let world = race(world, copy, clear);
        assert_eq!(world.values(), [0; 8]);
        assert_eq!(twin.first_used(&pin(0), KEYS), None);
        destroy(twin);
        world.end(2);
    });
}

/// A neighbour gets another second word while a leaf that has one for all slots is copied. Then the two are
/// no run, whatever their main words are.
fn a_copy_against_another_second_word(preemptions: usize, value: u64) {
    model(preemptions, move || {
        let world = World::new(2).with_leaf([value, value]);
        let twin = world.twin();
        let theirs = twin.clone();
        let copy = move |world: &World| {
            let copy = |run: &mut Run<'_, Twin>| {
                let value = run.value();
                run.set(Twin(3));
                run.set(value);
                Ok(Some(value))
            };
            world.map.copy_to(&pin(0), &theirs, 0..KEY_END, copy).unwrap();
        };
        let world = race(world, copy, |world| world.add_wide(1, 1..2, 2));
        let mut copied = Vec::new();
        twin.lock_whole(&pin(0), 0..2).for_each(|entry| copied.extend(entry.value()));
        let copied: Vec<_> = copied.into_iter().map(|Twin(value)| value).collect();
        assert!(copied == [value, value] || copied == [value, value + 2], "{copied:?}");
        // If the copy took the two for a run, it would write the first one's second word back to both.
        assert_eq!(world.values()[..2], [value, value + 2]);
        destroy(twin);
        world.end(2);
    });
}

#[test]
fn a_copy_against_another_value_with_two_words() {
    a_copy_against_another_second_word(2, WIDE);
}

#[test]
fn a_copy_against_another_value_with_the_same_main_word() {
    a_copy_against_another_second_word(2, ALIKE);
}

/// A leaf becomes one value while its keys are copied one by one: each is copied as it was before or after.
#[test]
fn a_copy_against_a_fold() {
    model(2, || {
        let world = World::new(2).with_leaf([1, 2]);
        let twin = world.twin();
        let theirs = twin.clone();
        let copy = move |world: &World| {
            world.map.copy_to(&pin(0), &theirs, 0..KEY_END, |run| Ok(Some(run.value()))).unwrap();
        };
        let world = race(world, copy, |world| world.fold(1, 0..2, 10));
        let mut copied = [0; 2];
        twin.lock_whole(&pin(0), 0..2).for_each(|entry| {
            entry.keys().for_each(|key| copied[key as usize] = entry.value().map_or(0, |Twin(value)| value));
        });
        assert!([1, 10].contains(&copied[0]) && [2, 10].contains(&copied[1]), "{copied:?}");
        assert_eq!(world.values()[..2], [10, 10]);
        destroy(twin);
        world.end(2);
    });
}

fn destroy(twin: Arc<Map>) {
    let Some(twin) = Arc::into_inner(twin) else { panic!("both are done") };
    ManuallyDrop::into_inner(twin).destroy(&pin(0));
}
