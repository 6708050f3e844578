//! Slots that have the same value as one section: other operations on them must not show the difference.
// Miri has seen sections in the other tests.
#![cfg(not(any(loom, miri)))]

mod common;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{CORES, Twin, domain, settle};
use percore::Pinned;
use radixmap::{Always, BLOCK, IfPresent, KEY_END, RadixMap, Value};
use refcache::Refcache;

type Map<'r, V> = RadixMap<V, &'r Refcache>;

/// A value that is shown slot by slot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Single(u64);

impl Value for Single {
    fn to_words(self) -> (u64, u64) {
        (self.0 << 12, 0)
    }
    fn from_words(main: u64, _: u64) -> Self {
        Self(main >> 12)
    }
    fn joins(_: u64) -> bool {
        false
    }
}

fn on_a_core(test: impl FnOnce(&Pinned, &Refcache)) {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    test(&pin, &refcache);
    settle(&refcache, &pin);
    assert_eq!(refcache.garbage(), 0, "nodes are left");
}

fn fill<V: Value>(map: &Map<'_, V>, pin: &Pinned, keys: Range<u64>, value: V) {
    let mut guard = map.lock_range(pin, keys.clone(), Always).unwrap();
    guard.fit(keys, value).unwrap();
    guard.fill(value);
}

/// An empty node that is about to be freed is one slot of its parent, and hides none of its neighbours.
#[test]
fn a_dying_node_is_no_section() {
    on_a_core(|pin, refcache| {
        let map: Map<'_, Twin> = RadixMap::new(pin, refcache).unwrap();
        let first = BLOCK + 7;
        [3, first, 2 * BLOCK].into_iter().for_each(|key| fill(&map, pin, key..key + 1, Twin(2)));
        map.lock_range(pin, 3..4, IfPresent).unwrap().for_each(|entry| entry.clear());
        for epoch in 0..8 {
            refcache.tick(pin);
            // The leaf of `first` costs as much, so it ends the part in front of the last one.
            assert_eq!(map.extent(pin, 0..KEY_END, 29), 2 * BLOCK, "epoch {epoch}");
        }
    });
}

/// Empty leaves cost as much as others until they are freed, so a part does not have all of them.
#[test]
fn dying_leaves_are_counted() {
    on_a_core(|pin, refcache| {
        let map: Map<'_, Twin> = RadixMap::new(pin, refcache).unwrap();
        (0..64).for_each(|leaf| fill(&map, pin, leaf * BLOCK..leaf * BLOCK + 1, Twin(2)));
        map.lock_range(pin, 0..64 * BLOCK, IfPresent).unwrap().for_each(|entry| entry.clear());
        assert_eq!(map.extent(pin, 0..KEY_END, 1), BLOCK);
        assert_eq!(map.extent(pin, 5..KEY_END, 10 * 28), 10 * BLOCK);
    });
}

/// So do empty nodes above leaves, which are freed after these. A look at a dying node puts its end off, so
/// each map is looked at once.
#[test]
fn dying_parents_are_counted() {
    on_a_core(|pin, refcache| {
        let parent = BLOCK * BLOCK;
        let end_after = |ticks: usize| {
            let map: Map<'_, Twin> = RadixMap::new(pin, refcache).unwrap();
            (0..64).for_each(|index| fill(&map, pin, index * parent..index * parent + 1, Twin(2)));
            map.lock_range(pin, 0..64 * parent, IfPresent).unwrap().for_each(|entry| entry.clear());
            for _ in 0..ticks {
                refcache.tick(pin);
            }
            (map.extent(pin, 0..KEY_END, 1), refcache.garbage())
        };
        let ends: Vec<_> = (0..16).map(end_after).collect();
        // The first parents may be free already, and a few objects are left at last.
        assert!(ends.iter().all(|&(end, garbage)| end <= 8 * parent || garbage < 8), "{ends:?}");
        assert_eq!(ends.last(), Some(&(KEY_END, 0)));
    });
}

/// A leaf and its parent that an expansion made have a value as sections, whether or not it joins.
#[test]
fn values_that_do_not_join_are_copied_one_by_one() {
    on_a_core(|pin, refcache| {
        let map: Map<'_, Single> = RadixMap::new(pin, refcache).unwrap();
        fill(&map, pin, 0..BLOCK * BLOCK, Single(2));
        fill(&map, pin, 3..4, Single(4));
        let twin: Map<'_, Single> = RadixMap::new(pin, refcache).unwrap();
        let spans = |keys: Range<u64>| assert!(matches!(keys.end - keys.start, 1 | BLOCK), "{keys:?} as one");
        let copied = map.copy_to(pin, &twin, 0..KEY_END, |run| {
            spans(run.keys());
            Ok(Some(run.value()))
        });
        assert_eq!(copied, Ok(()));
        twin.lock_all(pin).for_each(|entry| entry.value().into_iter().for_each(|_| spans(entry.keys())));
        assert_eq!(twin.peek(pin, BLOCK * BLOCK - 1).span, BLOCK * BLOCK - BLOCK..BLOCK * BLOCK);
    });
}

/// A copy of keys that contain only a part of a section, without its last slot or its first, panics, and
/// leaves nothing locked.
#[test]
fn a_section_that_sticks_out_is_not_copied() {
    on_a_core(|pin, refcache| {
        let all = 16 * BLOCK..32 * BLOCK;
        for keys in [all.start..all.end - 1, all.start + 1..all.end] {
            let map: Map<'_, Twin> = RadixMap::new(pin, refcache).unwrap();
            let twin: Map<'_, Twin> = RadixMap::new(pin, refcache).unwrap();
            fill(&map, pin, all.clone(), Twin(2));
            let copy = || map.copy_to(pin, &twin, keys.clone(), |run| Ok(Some(run.value())));
            assert!(catch_unwind(AssertUnwindSafe(copy)).is_err());
            // This waits for ever for a slot that was left locked.
            [&map, &twin].into_iter().for_each(|map| fill(map, pin, all.clone(), Twin(4)));
        }
    });
}

/// The lock bit of a word.
const LOCK: u64 = 1 << 9;

fn assert_unlocked<V: Value>(map: &Map<'_, V>, pin: &Pinned, keys: Range<u64>) {
    let locked: Vec<_> =
        keys.filter(|&key| map.leaf_word(pin, key).is_some_and(|(_, word)| word & LOCK != 0)).collect();
    assert_eq!(locked, [], "left locked");
}

#[test]
fn a_map_is_dismantled_from_within_a_section() {
    on_a_core(|pin, refcache| {
        let mut map: Map<'_, Twin> = RadixMap::new(pin, refcache).unwrap();
        fill(&map, pin, 0..16, Twin(2));
        assert_eq!(map.dismantle_piece(pin, 5, u64::MAX, |_, _| {}, |_| {}), None);
        assert_unlocked(&map, pin, 0..16);
    });
}

#[test]
fn a_panic_in_a_section_that_is_dismantled_leaves_nothing_locked() {
    on_a_core(|pin, refcache| {
        let mut map: Map<'_, Single> = RadixMap::new(pin, refcache).unwrap();
        fill(&map, pin, 0..BLOCK, Single(2));
        fill(&map, pin, 100..101, Single(4));
        let mut shown = 0;
        let panics = |_, _| {
            shown += 1;
            assert!(shown < 3);
        };
        assert!(catch_unwind(AssertUnwindSafe(|| map.dismantle(pin, panics, |_| {}))).is_err());
        assert_unlocked(&map, pin, 0..16);
    });
}
