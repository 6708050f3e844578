//! Blocks: folded slots whose keys have values of their own, and faults that lock them as a whole.
#![cfg(not(loom))]

#[allow(dead_code)] // this binary has values of its own
mod common;

use std::ops::Range;

use percore::Pinned;
use radixmap::{Always, BLOCK, IfDiffering, IfPresent, RadixMap, Value};
use refcache::{Config, Refcache};

use common::joined;

/// A number. In a block with `first` it is the first key's number, and the others count on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    number: u64,
    first: bool,
    second: u64,
}

impl Value for Count {
    fn to_words(self) -> (u64, u64) {
        (self.number << 12 | u64::from(self.first), self.second)
    }
    fn from_words(main: u64, second: u64) -> Self {
        Self { number: main >> 12, first: main & 1 != 0, second }
    }
    fn part(self, key: u64) -> Self {
        if self.first { Self { number: self.number + key, first: false, ..self } } else { self }
    }
}

const FIRST: Count = Count { number: 1000, first: true, second: 0 };
const SAME: Count = Count { number: 1000, first: false, second: 0 };
const WIDE: Count = Count { second: 6, ..FIRST };
/// One value of each kind. The one that needs most of a node comes first, and is enough for Miri.
const KINDS: &[Count] = if cfg!(miri) { &[WIDE] } else { &[WIDE, FIRST, SAME] };
const START: u64 = 7 * BLOCK;
/// One slot that covers many blocks.
const SPAN: Range<u64> = if cfg!(miri) { 0..1 << 18 } else { 0..1 << 27 };
/// Test threads of one binary play different cores.
const CORES: usize = 8;

type Map<'r> = RadixMap<Count, &'r Refcache>;

/// Runs `test` on a map in which `keys` have the value `value`.
fn filled(keys: Range<u64>, value: Count, test: impl Fn(&Pinned, &Map<'_>)) {
    let _core = percore::threads::enter_any(CORES);
    let refcache = Refcache::new(Config { cores: CORES, cache_slots: 64, review_budget: 64 });
    let pin = percore::pin();
    refcache.online(&pin);
    let map = RadixMap::new(&pin, &refcache).unwrap();
    let mut guard = map.lock_range(&pin, keys.clone(), Always).unwrap();
    guard.widen(keys).unwrap();
    guard.fill(value);
    drop(guard);
    test(&pin, &map);
    map.destroy(&pin);
    refcache.drain(&pin);
}

/// Returns the slots that `keys` touch, clipped, and their values.
fn slots(map: &Map<'_>, pin: &Pinned, keys: Range<u64>) -> Vec<(Range<u64>, Option<Count>)> {
    let mut found = Vec::new();
    let mut guard = map.lock_whole(pin, keys);
    guard.for_each(|entry| found.push((entry.keys(), entry.value())));
    found
}

/// Checks that each key has its part, except `cut`, which has no value.
fn assert_parts(map: &Map<'_>, pin: &Pinned, of: Count, cut: u64) {
    let parts = (0..BLOCK).map(|key| {
        let value = (key != cut).then(|| of.part(key));
        (START + key..START + key + 1, value)
    });
    assert_eq!(joined(slots(map, pin, START..START + BLOCK)), joined(parts));
}

#[test]
fn the_keys_of_a_block_get_their_parts_when_it_is_cut() {
    for &of in KINDS {
        filled(START..START + BLOCK, of, |pin, map| {
            let cut = START + 77..START + 78;
            map.lock_range(pin, cut, IfPresent).unwrap().for_each(|entry| entry.clear());
            assert_parts(map, pin, of, 77);
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of slots by ways that the others take too")]
fn a_holder_that_needs_no_parts_leaves_equal_slots_folded() {
    let piece = START + 5..START + 6;
    filled(START..START + BLOCK, SAME, |pin, map| {
        drop(map.lock_range(pin, piece.clone(), IfDiffering).unwrap());
        assert_eq!(map.peek(pin, START).span, START..START + BLOCK);
    });
    filled(START..START + BLOCK, FIRST, |pin, map| {
        map.lock_range(pin, piece.clone(), IfDiffering)
            .unwrap()
            .for_each(|entry| entry.whole().unwrap().clear());
        assert_parts(map, pin, FIRST, 5);
    });
}

#[test]
#[cfg_attr(miri, ignore = "thousands of slots by ways that the others take too")]
fn a_fault_takes_a_block_whole_if_it_is_folded_and_wanted() {
    for keys in [START..START + BLOCK, 0..1 << 27] {
        filled(keys, SAME, |pin, map| {
            let lock = |wanted| map.lock_key_or_block(pin, START + 9, |value| wanted && value == SAME);
            lock(true).unwrap().unwrap().for_each(|entry| {
                assert_eq!(entry.keys(), START..START + BLOCK);
                entry.set(FIRST);
            });
            assert_eq!(map.peek(pin, START).span, START..START + BLOCK);
            assert_eq!(lock(true).unwrap().unwrap().keys(), START + 9..START + 10, "not wanted any more");
            assert_parts(map, pin, FIRST, BLOCK);
            assert_eq!(lock(true).unwrap().unwrap().keys(), START + 9..START + 10, "not folded any more");
        });
    }
}

#[test]
fn a_block_is_split_under_its_lock() {
    filled(SPAN, SAME, |pin, map| {
        let mut guard = map.lock_key_or_block(pin, START + 9, |_| true).unwrap().unwrap();
        guard.fill(FIRST);
        guard.split(START + 9..START + 10).unwrap();
        let mut keys = 0;
        guard.for_each(|entry| {
            entry.keys().for_each(|key| assert_eq!(entry.value(), Some(FIRST.part(key - START))));
            keys += entry.keys().count() as u64;
        });
        assert_eq!(keys, BLOCK);
        drop(guard);
        drop(map.lock_range(pin, SPAN, Always).unwrap());
    });
}

/// All ways to hold a block, with or without keys around it.
const HOLDS: [Range<u64>; 3] = [START..START + BLOCK, START - 1..START + BLOCK + 1, 0..1 << 18];

#[test]
fn a_leaf_is_folded_under_its_lock() {
    for (keys, &of) in HOLDS.into_iter().zip(KINDS) {
        filled(0..1 << 18, SAME, |pin, map| {
            drop(map.lock_key(pin, START + 9).unwrap());
            let mut guard = map.lock_range(pin, keys.clone(), Always).unwrap();
            let before = map.stats().live();
            guard.fold(START..START + BLOCK, of).unwrap();
            let mut seen = None;
            guard.for_each(|entry| seen = seen.or((entry.keys().start == START).then(|| entry.value())));
            assert_eq!(seen, Some(Some(of)));
            drop(guard);
            assert_eq!(slots(map, pin, START..START + BLOCK), [(START..START + BLOCK, Some(of))]);
            map.domain().drain(pin);
            assert_eq!(map.stats().live(), before - 1, "the leaf goes");
            map.lock_range(pin, START + 77..START + 78, IfPresent).unwrap().for_each(|entry| entry.clear());
            assert_parts(map, pin, of, 77);
        });
    }
}

#[test]
fn a_leaf_with_holes_is_folded() {
    filled(START + 3..START + 5, SAME, |pin, map| {
        map.lock_range(pin, HOLDS[0].clone(), Always).unwrap().fold(HOLDS[0].clone(), FIRST).unwrap();
        assert_eq!(slots(map, pin, HOLDS[0].clone()), [(HOLDS[0].clone(), Some(FIRST))]);
        map.lock_range(pin, HOLDS[0].clone(), Always).unwrap().for_each(|entry| entry.clear());
        map.domain().drain(pin);
        assert_eq!(map.stats().live(), 1, "the leaf and what was above it go");
    });
}
