//! A copy has what was made of each value, folded alike, and no node for nothing.
#![cfg(not(loom))]

mod common;

use std::ops::Range;

use common::{CORES, Twin, domain, settle};
use percore::Pinned;
use proptest::prelude::*;
use radixmap::{Expand, KEY_END, RadixMap};
use refcache::Refcache;

type Map<'r> = RadixMap<Twin, &'r Refcache>;

/// Runs `test` on two empty maps, and sees to it that nothing is left of them.
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
    let mut guard = map.lock_range(pin, keys.clone(), Expand::Always).unwrap();
    guard.widen(keys).unwrap();
    guard.fill(Twin(value));
}

/// Every slot that has a value: its keys, and the value.
fn slots(map: &Map<'_>, pin: &Pinned) -> Vec<(Range<u64>, u64)> {
    let mut slots = Vec::new();
    map.lock_range(pin, 0..KEY_END, Expand::Never).unwrap().for_each(|entry| {
        slots.extend(entry.value().map(|Twin(value)| (entry.keys(), value)));
    });
    slots
}

/// What the copy makes of a value: nothing of one in four, and a sum of the others, which become wide or not as before.
fn made(value: u64) -> Option<u64> {
    (value % 8 > 1).then_some(value + 100)
}

fn copy(map: &Map<'_>, pin: &Pinned, twin: &Map<'_>) {
    let mut all = map.lock_range(pin, 0..KEY_END, Expand::Never).unwrap();
    let copied = all.copy_to(pin, twin, |run| {
        let value = run.value().0;
        if value >= 16 {
            run.set(Twin(value + 1000));
        }
        Ok(made(value).map(Twin))
    });
    copied.unwrap();
}

/// Ranges that are filled, at most.
const MOST: usize = if cfg!(miri) { 3 } else { 12 };

/// Ranges of a key, of a few, and of whole slots of each level.
fn range() -> impl Strategy<Value = Range<u64>> {
    let start = prop_oneof![0u64..1500, (1u64 << 27) - 3..(1 << 27) + 3, Just(5 << 18), Just(1 << 30)];
    let size = prop_oneof![1u64..4, 500u64..1100, Just(1 << 18), Just(1 << 27)];
    (start, size).prop_map(|(start, size)| start..(start + size).min(KEY_END))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]
    #[test]
    fn a_copy_is_what_was_made_of_each_slot(fills in prop::collection::vec((range(), 0u64..32), 0..MOST)) {
        on_two(|pin, map, twin| {
            fills.iter().for_each(|(keys, value)| fill(map, pin, keys.clone(), *value));
            let before = slots(map, pin);
            copy(map, pin, twin);
            let copied = before.iter().filter_map(|(keys, value)| Some((keys.clone(), made(*value)?)));
            assert_eq!(slots(twin, pin), copied.collect::<Vec<_>>());
            let kept = |value| if value >= 16 { value + 1000 } else { value };
            let kept = before.iter().map(|(keys, value)| (keys.clone(), kept(*value)));
            assert_eq!(slots(map, pin), kept.collect::<Vec<_>>());
            assert!(twin.stats().live() <= map.stats().live());
            fill(twin, pin, 0..KEY_END, 6);
        });
    }
}

#[test]
fn there_is_no_node_for_nothing() {
    on_two(|pin, map, twin| {
        fill(map, pin, 3..9, 1);
        map.lock_range(pin, 1 << 27..(1 << 27) + 7, Expand::Always).unwrap();
        copy(map, pin, twin);
        assert_eq!((map.stats().created, twin.stats().created), (7, 1));
    });
}

#[test]
#[cfg_attr(miri, ignore = "what panics under a lock leaves its nodes behind")]
#[should_panic(expected = "keys of its own")]
fn a_twin_must_be_empty() {
    on_two(|pin, map, twin| {
        [map, twin].into_iter().for_each(|map| fill(map, pin, 0..KEY_END, 2));
        copy(map, pin, twin);
    });
}
