//! A copy has the value that was made of each original, folded alike, and no superfluous node.
#![cfg(not(loom))]

mod common;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{CORES, Twin, domain, joined, settle};
use percore::Pinned;
use proptest::prelude::*;
use radixmap::{Always, IfPresent, KEY_END, OutOfMemory, RadixMap, Run};
use refcache::Refcache;

type Map<'r> = RadixMap<Twin, &'r Refcache>;

/// Runs `test` on two empty maps, and checks that all their memory is freed.
fn on_two(test: impl FnOnce(&Pinned, &Map<'_>, &Map<'_>)) {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let (map, twin) = (RadixMap::new(&pin, &refcache).unwrap(), RadixMap::new(&pin, &refcache).unwrap());
    test(&pin, &map, &twin);
    drop((map, twin));
    settle(&refcache, &pin);
    assert_eq!(refcache.garbage(), 0, "nodes are left");
}

fn fill(map: &Map<'_>, pin: &Pinned, keys: Range<u64>, value: u64) {
    let mut guard = map.lock_range(pin, keys.clone(), Always).unwrap();
    guard.widen(keys).unwrap();
    guard.fill(Twin(value));
}

/// Returns every slot that has a value: its keys, and the value.
fn slots(map: &Map<'_>, pin: &Pinned) -> Vec<(Range<u64>, u64)> {
    let mut slots = Vec::new();
    map.lock_all(pin).for_each(|entry| {
        slots.extend(entry.value().map(|Twin(value)| (entry.keys(), value)));
    });
    slots
}

/// Makes the copy's value: none for one value in four, and a sum for the others, which stay wide or not as
/// before.
fn made(value: u64) -> Option<u64> {
    (value % 8 > 1).then_some(value + 100)
}

type Made = fn(&mut Run<'_, Twin>) -> Result<Option<Twin>, OutOfMemory>;

fn made_of(run: &mut Run<'_, Twin>) -> Result<Option<Twin>, OutOfMemory> {
    let value = run.value().0;
    if value >= 16 {
        run.set(Twin(value + 1000));
    }
    Ok(made(value).map(Twin))
}

/// The part of a map that is held while it is copied.
#[derive(Clone, Copy, Debug)]
enum Held {
    All,
    /// Part by part, each of one leaf, or of one more folded slot.
    Parts,
    /// The slots that are shown. Part by part as well.
    Shown,
}

const HELD: &[Held] =
    if cfg!(miri) { &[Held::Parts, Held::Shown] } else { &[Held::All, Held::Parts, Held::Shown] };

fn copy(map: &Map<'_>, pin: &Pinned, twin: &Map<'_>, held: Held, made: Made) {
    let copied = match held {
        Held::All => map.lock_all(pin).copy_to(pin, twin, made),
        Held::Parts => {
            copy_parts(map, pin, |part| map.lock_range(pin, part, Always)?.copy_to(pin, twin, made))
        }
        Held::Shown => copy_parts(map, pin, |part| map.copy_to(pin, twin, part, made)),
    };
    copied.unwrap();
}

fn copy_parts(
    map: &Map<'_>,
    pin: &Pinned,
    mut copy: impl FnMut(Range<u64>) -> Result<(), OutOfMemory>,
) -> Result<(), OutOfMemory> {
    let mut start = 0;
    while start < KEY_END {
        let end = map.extent(pin, start..KEY_END, 1);
        assert!(end > start);
        copy(start..end)?;
        start = end;
    }
    Ok(())
}

/// The keys end within slots that are stored as one.
#[test]
fn a_copy_ends_with_its_keys() {
    on_two(|pin, map, twin| {
        fill(map, pin, 0..32, 4);
        map.copy_to(pin, twin, 0..24, |run| Ok(Some(run.value()))).unwrap();
        assert_eq!(joined(slots(twin, pin)), [(0..24, 4)]);
    });
}

/// Makes ranges of one key, of a few, and of whole slots of each level.
fn range() -> impl Strategy<Value = Range<u64>> {
    let start = prop_oneof![0u64..1500, (1u64 << 27) - 3..(1 << 27) + 3, Just(5 << 18), Just(1 << 30)];
    let size = prop_oneof![1u64..4, 500u64..1100, Just(1 << 18), Just(1 << 27)];
    (start, size).prop_map(|(start, size)| start..(start + size).min(KEY_END))
}

/// A core looks for keys in the twin while it is made. It waits for locked slots there, and does not mistake
/// them for keys.
#[test]
fn a_copy_waits_for_a_core_that_looks_at_the_twin() {
    for _ in 0..if cfg!(miri) { 1 } else { 200 } {
        on_two(|pin, map, twin| {
            fill(map, pin, 5..6, 3);
            let (looks, copies) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| look(twin, &looks, &copies));
                wait_for(&looks);
                let mut all = map.lock_all(pin);
                copies.store(true, Ordering::Release);
                all.copy_to(pin, twin, |run| Ok(Some(run.value()))).unwrap();
            });
            assert_eq!(slots(twin, pin), [(5..6, 3)]);
        });
    }
}

/// Holds all of an empty map until the other core is about to copy into it, which then finds some of it still
/// locked.
fn look(twin: &Map<'_>, looks: &AtomicBool, copies: &AtomicBool) {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    twin.domain().online(&pin);
    let all = twin.lock_range(&pin, 0..KEY_END, IfPresent).unwrap();
    looks.store(true, Ordering::Release);
    wait_for(copies);
    drop(all);
    twin.domain().offline(&pin);
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    #[cfg_attr(miri, ignore = "minutes, by ways that the others take too")]
    fn a_copy_is_what_was_made_of_each_slot(
        fills in prop::collection::vec((range(), 0u64..32), 0..12),
        held in prop::sample::select(HELD),
    ) {
        on_two(|pin, map, twin| {
            fills.iter().for_each(|(keys, value)| fill(map, pin, keys.clone(), *value));
            let before = slots(map, pin);
            copy(map, pin, twin, held, made_of);
            let copied = before.iter().filter_map(|(keys, value)| Some((keys.clone(), made(*value)?)));
            assert_eq!(joined(slots(twin, pin)), joined(copied));
            let kept = |value| if value >= 16 { value + 1000 } else { value };
            let kept = before.iter().map(|(keys, value)| (keys.clone(), kept(*value)));
            assert_eq!(joined(slots(map, pin)), joined(kept));
            assert!(twin.stats().live() <= map.stats().live());
            fill(twin, pin, 0..KEY_END, 6);
        });
    }
}

/// The leaf has no side, and needs none for the copy.
#[test]
fn a_leaf_with_one_second_word_has_a_copy_with_one() {
    for &held in HELD {
        on_two(|pin, map, twin| {
            for (key, value) in [(5, 3), (6, 3), (20, 7)] {
                let mut guard = map.lock_range(pin, key..key + 1, Always).unwrap();
                guard.fit(key..key + 1, Twin(value)).unwrap();
                guard.fill(Twin(value));
            }
            copy(map, pin, twin, held, |run| Ok(Some(Twin(run.value().0 + 64))));
            assert_eq!(slots(twin, pin), [(5..6, 67), (6..7, 67), (20..21, 71)]);
            let mut frames = 0;
            twin.each_frame(pin, &mut |_| frames += 1);
            assert_eq!(frames, 4, "one for each node");
        });
    }
}

#[test]
fn a_node_for_nothing_goes() {
    for &held in HELD {
        on_two(|pin, map, twin| {
            fill(map, pin, 3..9, 1);
            copy(map, pin, twin, held, made_of);
            settle(map.domain(), pin);
            assert_eq!((map.stats().live(), twin.stats().live()), (4, 1));
        });
    }
}

/// A core that clears a key of the map and then of the twin, while the map is copied, has cleared it in both.
#[test]
fn a_value_taken_from_both_is_in_neither() {
    HELD.iter().for_each(|&held| taken_from_both(held));
}

fn taken_from_both(held: Held) {
    on_two(|pin, map, twin| {
        let keys = if cfg!(miri) { 500..530 } else { 0..1030 };
        let clear = |map: &Map<'_>, pin: &Pinned| {
            let mut guard = map.lock_range(pin, keys.clone(), IfPresent).unwrap();
            guard.for_each(|entry| entry.clear());
        };
        for _ in 0..if cfg!(miri) { 1 } else { 50 } {
            fill(map, pin, keys.clone(), 2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _core = percore::threads::enter_any(CORES);
                    let pin = percore::pin();
                    map.domain().online(&pin);
                    [map, twin].into_iter().for_each(|map| clear(map, &pin));
                    map.domain().offline(&pin);
                });
                copy(map, pin, twin, held, |run| Ok(Some(run.value())));
            });
            assert_eq!((slots(map, pin), slots(twin, pin)), (vec![], vec![]));
            settle(map.domain(), pin);
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "what panics under a lock leaves its nodes behind")]
#[should_panic(expected = "keys of its own")]
fn a_twin_must_be_empty() {
    on_two(|pin, map, twin| {
        [map, twin].into_iter().for_each(|map| fill(map, pin, 0..KEY_END, 2));
        copy(map, pin, twin, Held::All, made_of);
    });
}

/// A part has one leaf, or as many folded slots as were asked for, or one more run of equal ones, and ends at
/// the next key with a value.
#[test]
fn a_part_ends_at_a_key_with_a_value() {
    on_two(|pin, map, _| {
        fill(map, pin, 3..5, 2);
        fill(map, pin, 511..514, 2);
        (4..8).for_each(|block| fill(map, pin, block << 9..(block + 1) << 9, 2 * block));
        (8..12).for_each(|block| fill(map, pin, block << 9..(block + 1) << 9, 4));
        fill(map, pin, 1 << 30..(1 << 30) + 1, 2);
        let end = |start, slots| map.extent(pin, start..KEY_END, slots);
        assert_eq!([end(0, 1), end(4, 1), end(512, 1)], [512, 512, 4 << 9]);
        assert_eq!([end(4 << 9, 1), end(4 << 9, 3), end(4 << 9, 4)], [5 << 9, 7 << 9, 8 << 9]);
        assert_eq!(end(8 << 9, 1), 1 << 30);
        assert_eq!([end(1 << 30, 1), end(0, 1 << 20), map.extent(pin, 0..512, 1)], [KEY_END, KEY_END, 512]);
    });
}

/// A leaf costs 28 slots and one for each run in it.
#[test]
fn a_leaf_costs_more_than_its_runs() {
    on_two(|pin, map, _| {
        [9, 512, 1024].into_iter().for_each(|key| fill(map, pin, key..key + 1, 2));
        let end = |slots| map.extent(pin, 0..KEY_END, slots);
        assert_eq!([end(0), end(1), end(29), end(30)], [9, 512, 512, 1024]);
        assert_eq!(map.extent(pin, 5..20, 0), 9, "a range within a leaf");
    });
}

/// A leaf of different values costs 540 slots. Two leaves are one part if at most 84 slots of their parent
/// are in the range, because 28 + 84 + 2 * 540 is the most that two leaves and their parent may cost.
#[test]
#[cfg_attr(miri, ignore = "thousands of keys by ways that the others take too")]
fn two_leaves_are_one_part_and_three_are_not() {
    on_two(|pin, map, _| {
        let fill_leaves = |start: u64, leaves: u64| {
            (start..start + (leaves << 9)).for_each(|key| fill(map, pin, key..key + 1, 2 * key + 2));
        };
        let part = |start, blocks: u64| map.extent(pin, start..start + (blocks << 9), 512) - start;
        fill_leaves(0, 3);
        assert_eq!([part(0, 1), part(0, 2), part(0, 3)], [1 << 9, 2 << 9, 1 << 9]);
        // Below another parent.
        let start = 1 << 18;
        fill_leaves(start, 2);
        assert_eq!([part(start, 84), part(start, 85)], [84 << 9, 1 << 9]);
    });
}
