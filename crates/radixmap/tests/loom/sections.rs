//! The two keys of a leaf have the same value as one section, which other cores open and fold. Only leaves
//! fold here.

use std::mem::ManuallyDrop;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use radixmap::{Always, KEY_END};

use crate::machine::{KEYS, Map, Twin, WIDE, World, model, pin, race};

impl World {
    /// Makes the leaf of keys 0 and 1, as one section that has `value`.
    fn with_section(self, value: u64) -> Self {
        let world = self.with_leaf([value; 2]);
        world.fill(0, 0..2, value);
        world
    }

    /// Makes the leaf of keys 0 and 1, as one section without a value.
    fn with_empty_section(self) -> Self {
        let world = self.with_leaf([1; 2]);
        world.clear(0, 0..2);
        world
    }

    /// Locks `keys` exactly, touches them and gives them the value `value`. A section that is whole folds.
    fn fill(&self, core: usize, keys: Range<u64>, value: u64) {
        let pin = pin(core);
        let mut guard = self.map.lock_range(&pin, keys.clone(), Always).unwrap();
        self.touch(&guard);
        guard.fit(keys, Twin(value)).unwrap();
        guard.fill(Twin(value));
    }

    /// Returns the values of keys 0 and 1 that core 1 sees when it looks along all keys, 0 for none.
    fn look(&self) -> [u64; 2] {
        let mut seen = [0; 8];
        let _all = self.map.look(&pin(1), KEYS, u64::MAX, |keys, Twin(value)| {
            keys.for_each(|key| seen[key as usize] = value);
            ControlFlow::<()>::Continue(())
        });
        [seen[0], seen[1]]
    }

    /// Checks that core 1 sees that a key that always has a value has one.
    fn assert_used(&self, key: u64) {
        assert!(self.map.peek(&pin(1), key).used);
        assert!(self.map.first_used(&pin(1), key..key + 1).is_some(), "key {key} was missed");
    }

    fn assert_ends_with(self, values: [&[u64]; 2]) {
        let now = self.values();
        assert!(values[0].contains(&now[0]) && values[1].contains(&now[1]), "{now:?}");
        self.end(2);
    }
}

/// Two cores want the two keys of a section: the one opens it, the other finds it open.
#[test]
fn a_section_opens_for_two() {
    model(3, || {
        let world = World::new(2).with_section(10);
        race(world, |world| world.add(0, 0..1, 1), |world| world.add(1, 1..2, 2))
            .assert_ends_with([&[11], &[12]]);
    });
}

/// A core that finds the section open sees all writes of its holder before it was opened.
#[test]
fn a_section_is_handed_on_by_the_core_that_opens_it() {
    model(2, || {
        let world = World::new(2).with_section(10);
        let fold_and_open = |world: &World| {
            world.fill(1, 0..2, 3);
            world.add(1, 0..1, 1);
        };
        race(world, |world| world.add(0, 1..2, 2), fold_and_open).assert_ends_with([&[4], &[3, 5]]);
    });
}

/// As above without values.
#[test]
fn an_empty_section_opens_for_two() {
    model(3, || {
        let world = World::new(2).with_empty_section();
        race(world, |world| world.add(0, 0..1, 1), |world| world.add(1, 1..2, 2))
            .assert_ends_with([&[1], &[2]]);
    });
}

/// A fault opens a section while another core locks all of it, as one or as two.
#[test]
fn a_section_opens_beside_a_range() {
    model(2, || {
        let world = World::new(2).with_section(10);
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 2), Some(10 | 11)));
        race(world, |world| world.add(0, 0..2, 1), fault).assert_ends_with([&[11], &[13]]);
    });
}

/// A section folds while a fault comes to one of its keys.
#[test]
fn a_section_folds_beside_a_fault() {
    model(3, || {
        let world = World::new(2).with_leaf([1, 2]);
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 5), Some(2 | 3)));
        race(world, |world| world.fill(0, 0..2, 3), fault).assert_ends_with([&[3], &[3, 8]]);
    });
}

/// All keys of a section are cleared, and it folds as it is unlocked, while another core wants one of them.
fn clear_beside(world: impl Fn() -> World + Send + Sync + 'static) {
    model(2, move || {
        let world = race(world(), |world| world.clear(0, 0..2), |world| world.add(1, 1..2, 5));
        world.assert_ends_with([&[0], &[0, 5]]);
    });
}

#[test]
fn a_section_is_cleared_beside_a_locker() {
    clear_beside(|| World::new(2).with_section(1));
}

#[test]
fn an_open_section_is_cleared_beside_a_locker() {
    clear_beside(|| World::new(2).with_leaf([1, 2]));
}

/// A leaf that is one section becomes one value of its parent: a core that waits at a silent slot finds it
/// gone.
#[test]
fn a_section_s_leaf_is_folded_beside_a_fault() {
    model(2, || {
        let world = World::new(2).with_section(1);
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 5), Some(1 | 10)));
        race(world, |world| world.fold(0, 0..2, 10), fault).assert_ends_with([&[10], &[10, 15]]);
    });
}

/// A section folds. The key that has a value before and after has one meanwhile, whatever the first key had.
#[test]
fn a_section_folds_under_a_search_for_a_value() {
    model(3, || {
        let world = World::new(2).filled(1..2, 2);
        race(world, |world| world.fill(0, 0..2, 3), |world| world.assert_used(1)).end(2);
    });
}

/// A section opens, and the first key loses its value: the other one has its own all the time.
#[test]
fn a_section_opens_under_a_search_for_a_value() {
    model(3, || {
        let world = World::new(2).with_section(2);
        race(world, |world| world.clear(0, 0..1), |world| world.assert_used(1)).end(2);
    });
}

/// Checks that a look beside `change` sees for each of keys 0 and 1 one of the values in `seen`.
fn look_beside(
    world: impl Fn() -> World + Send + Sync + 'static,
    change: impl Fn(&World) + Copy + Send + Sync + 'static,
    seen: [&'static [u64]; 2],
) {
    model(2, move || {
        let world = race(world(), change, move |world| {
            let now = world.look();
            assert!(seen[0].contains(&now[0]) && seen[1].contains(&now[1]), "{now:?}");
        });
        world.end(2);
    });
}

/// The first key gets the second key's value, and the look never sees the second key with the first key's old
/// value.
#[test]
fn a_section_folds_under_a_look() {
    look_beside(|| World::new(2).with_leaf([1, 2]), |world| world.fill(0, 0..2, 2), [&[1, 2], &[2]]);
}

#[test]
fn a_section_opens_under_a_look() {
    look_beside(|| World::new(2).with_section(1), |world| world.add(0, 0..1, 5), [&[1, 6], &[1]]);
}

/// All of a section gets another value at once, and then one of its keys gets a third.
#[test]
fn a_section_changes_and_opens_under_a_look() {
    let change = |world: &World| {
        world.fill(0, 0..2, 2);
        world.add(0, 1..2, 5);
    };
    look_beside(|| World::new(2).with_section(1), change, [&[1, 2], &[1, 2, 7]]);
}

#[test]
fn a_section_with_second_words_opens_under_a_look() {
    look_beside(
        || World::new(2).with_section(WIDE),
        |world| world.add_wide(0, 0..1, 5),
        [&[WIDE, WIDE + 5], &[WIDE]],
    );
}

/// All of a section gets other second words: a core that asks for its silent key sees both words of one
/// value.
#[test]
fn a_section_gets_other_second_words_under_a_look() {
    model(2, || {
        let world = World::new(2).with_section(WIDE);
        let look = |world: &World| {
            let mut seen = 0;
            let _all = world.map.look(&pin(1), 1..2, u64::MAX, |_, Twin(value)| {
                seen = value;
                ControlFlow::<()>::Continue(())
            });
            assert!([WIDE, WIDE + 5].contains(&seen), "{seen}");
        };
        race(world, |world| world.fill(0, 0..2, WIDE + 5), look).end(2);
    });
}

/// Checks that a copy without a guard beside `change` has for each of keys 0 and 1 one of the values in
/// `copied`.
fn copy_beside(
    world: impl Fn() -> World + Send + Sync + 'static,
    change: impl Fn(&World) + Copy + Send + Sync + 'static,
    copied: [&'static [u64]; 2],
) {
    model(2, move || {
        let world = world();
        let twin = world.twin();
        let theirs = twin.clone();
        let copy = move |world: &World| {
            world.map.copy_to(&pin(1), &theirs, 0..KEY_END, |run| Ok(Some(run.value()))).unwrap();
        };
        let world = race(world, change, copy);
        let mut now = [0; 2];
        twin.lock_whole(&pin(0), 0..2).for_each(|entry| {
            let value = entry.value().map_or(0, |Twin(value)| value);
            entry.keys().filter(|&key| key < 2).for_each(|key| now[key as usize] = value);
        });
        assert!(copied[0].contains(&now[0]) && copied[1].contains(&now[1]), "{now:?}");
        destroy(twin);
        world.end(2);
    });
}

#[test]
fn a_section_opens_under_a_copy() {
    copy_beside(|| World::new(2).with_section(1), |world| world.add(0, 0..1, 5), [&[1, 6], &[1]]);
}

/// The first key of a section loses its value: the copy has the other.
#[test]
fn a_section_is_cut_under_a_copy() {
    copy_beside(|| World::new(2).with_section(1), |world| world.clear(0, 0..1), [&[0, 1], &[1]]);
}

/// The first key gets the second key's value: the copy has the second.
#[test]
fn a_section_folds_under_a_copy() {
    copy_beside(|| World::new(2).filled(1..2, 2), |world| world.fill(0, 0..2, 2), [&[0, 2], &[2]]);
}

fn destroy(twin: Arc<Map>) {
    let Some(twin) = Arc::into_inner(twin) else { panic!("both are done") };
    ManuallyDrop::into_inner(twin).destroy(&pin(0));
}

/// A core sees the value that it has set itself, though another is about to open the section.
#[test]
fn a_section_that_opens_shows_what_a_looker_has_set() {
    model(3, || {
        let world = World::new(2).with_empty_section();
        let other = |world: &World| {
            world.add(1, 1..2, 5);
            let now = world.look();
            assert_eq!(now[1], 5, "look misses what this core has set");
        };
        race(world, |world| world.add(0, 0..1, 1), other).end(2);
    });
}

#[test]
fn a_section_that_opens_has_the_value_that_a_seeker_has_set() {
    model(3, || {
        let world = World::new(2).with_empty_section();
        let other = |world: &World| {
            world.add(1, 1..2, 5);
            assert!(
                world.map.first_used(&pin(1), 0..2).is_some(),
                "first_used misses what this core has set"
            );
        };
        race(world, |world| world.add(0, 0..1, 1), other).end(2);
    });
}

#[test]
fn a_section_that_opens_shows_what_a_looker_has_changed() {
    model(3, || {
        let world = World::new(2).with_section(1);
        let other = |world: &World| {
            world.add(1, 1..2, 5);
            let now = world.look();
            assert_eq!(now[1], 6, "look shows what was before this core's change");
        };
        race(world, |world| world.add(0, 0..1, 1), other).end(2);
    });
}

#[test]
fn a_section_that_opens_is_copied_with_what_its_copier_has_set() {
    model(3, || {
        let world = World::new(2).with_empty_section();
        let twin = world.twin();
        let theirs = twin.clone();
        let copy = move |world: &World| {
            world.add(1, 1..2, 5);
            world.map.copy_to(&pin(1), &theirs, 0..KEY_END, |run| Ok(Some(run.value()))).unwrap();
        };
        let world = race(world, |world| world.add(0, 0..1, 1), copy);
        assert!(twin.first_used(&pin(0), 1..2).is_some(), "the copy lost what its core had set");
        destroy(twin);
        world.end(2);
    });
}

impl World {
    /// Makes a node above the leaves that is one section with `value`.
    fn with_upper_section(self, value: u64) -> Self {
        let world = self.filled(0..1, 7).filled(2..4, 1);
        world.clear(0, 0..1);
        for _ in 0..12 {
            world.tick_all(2);
        }
        assert_eq!(world.counters.total().live(), 2);
        if value == 0 {
            world.clear(0, 0..4)
        } else {
            world.fill(0, 0..4, value)
        }
        world
    }
}

fn upper_model(f: impl Fn() + Send + Sync + 'static) {
    radixmap::with_upper_sections(|| model(2, f));
}

#[test]
fn an_upper_section_opens_for_two() {
    upper_model(|| {
        let world = World::new(2).with_upper_section(10);
        let world = race(world, |world| world.add(0, 0..1, 1), |world| world.add(1, 2..4, 2));
        assert_eq!(world.values()[..4], [11, 10, 12, 12]);
        world.end(2);
    });
}

#[test]
fn an_upper_section_opens_beside_a_fill() {
    upper_model(|| {
        let world = World::new(2).with_upper_section(10);
        let world = race(world, |world| world.add(0, 1..4, 1), |world| world.fill(1, 0..4, 3));
        let now = world.values();
        assert!(now[..4] == [3, 3, 3, 3] || now[..4] == [3, 4, 4, 4], "{now:?}");
        world.end(2);
    });
}

#[test]
fn an_upper_section_that_opens_shows_what_a_looker_has_set() {
    upper_model(|| {
        let world = World::new(2).with_upper_section(10);
        let other = |world: &World| {
            world.add(1, 2..4, 5);
            let mut seen = [0; 8];
            let _all = world.map.look(&pin(1), KEYS, u64::MAX, |keys, Twin(value)| {
                keys.for_each(|key| seen[key as usize] = value);
                ControlFlow::<()>::Continue(())
            });
            assert_eq!(seen[2..4], [15, 15]);
            assert!([10, 11].contains(&seen[0]) && seen[1] == 10);
        };
        race(world, |world| world.add(0, 0..1, 1), other).end(2);
    });
}

/// The section has an empty leaf that is about to be freed. Another core fills all keys, so that it folds, or
/// half of them.
fn upper_collapse(keys: Range<u64>, epochs: usize) {
    upper_model(move || {
        let world = World::new(2).with_empty_leaf(epochs);
        let keys = keys.clone();
        let theirs = keys.clone();
        let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, move |world| {
            world.fill(1, theirs, 5);
            assert!(world.map.first_used(&pin(1), 0..4).is_some());
            world.refcache.tick(&pin(1));
        });
        (0..6).for_each(|_| world.tick_all(2));
        let now = world.values();
        assert!((0..8).all(|key| now[key as usize] == if keys.contains(&key) { 5 } else { 0 }), "{now:?}");
        world.end(2);
    });
}

#[test]
fn an_upper_section_folds_as_its_leaf_collapses() {
    upper_collapse(0..4, 2);
}

#[test]
fn an_upper_section_folds_one_epoch_before_its_leaf_collapses() {
    upper_collapse(0..4, 1);
}

#[test]
fn an_upper_section_gets_a_value_as_its_leaf_collapses() {
    upper_collapse(2..4, 2);
}

/// As above against a core that clears all keys: the section folds as it is unlocked if the leaf has been
/// freed.
#[test]
fn an_upper_section_is_cleared_as_its_leaf_collapses() {
    upper_model(|| {
        let world = World::new(2).with_empty_leaf(2);
        let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, |world| {
            world.clear(1, 0..4);
            world.add(1, 3..4, 5);
            world.refcache.tick(&pin(1));
        });
        (0..6).for_each(|_| world.tick_all(2));
        assert_eq!(world.values(), [0, 0, 0, 5, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// A leaf is folded into its slot, and the parent's section folds with it.
#[test]
fn an_upper_section_folds_with_its_leaf() {
    upper_model(|| {
        let world = World::new(2).with_leaf([1, 2]).filled(2..4, 10);
        let fold = |world: &World| {
            let pin = pin(0);
            let mut guard = world.map.lock_range(&pin, 0..4, Always).unwrap();
            guard.fold(0..2, Twin(10)).unwrap();
            let mut runs = 0;
            guard.for_each_used(|_| runs += 1);
            assert_eq!(runs, 1);
        };
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 5), Some(2 | 10)));
        let world = race(world, fold, fault);
        let now = world.values();
        assert!(now[..4] == [10; 4] || now[..4] == [10, 15, 10, 10], "{now:?}");
        world.end(2);
    });
}

#[test]
fn an_upper_section_opens_under_a_copy() {
    radixmap::with_upper_sections(|| {
        copy_beside(
            || World::new(2).with_upper_section(10),
            |world| world.add(0, 0..1, 5),
            [&[10, 15], &[10]],
        );
    });
}
#[test]
fn a_section_that_opens_shows_a_second_word_that_a_looker_has_set() {
    model(2, || {
        let world = World::new(2).with_section(10);
        let other = |world: &World| {
            world.add_wide(1, 1..2, WIDE);
            let now = world.look();
            assert_eq!(now[1], WIDE + 10);
        };
        race(world, |world| world.add(0, 0..1, 1), other).end(2);
    });
}
