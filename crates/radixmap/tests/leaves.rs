//! Leaves as their holders see them, and entries of a page table in them.
#![cfg(not(loom))]

#[allow(dead_code)] // this binary has values of its own
mod common;

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use common::{CORES, on_map};
use percore::{CoreId, Pinned};
use radixmap::{Always, BLOCK, RadixMap, Value};
use refcache::Refcache;

/// A number. The lowest bit of the main word says that a machine may walk it, and the second word is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    number: u64,
    walked: bool,
    second: u64,
}

impl Value for Entry {
    fn to_words(self) -> (u64, u64) {
        (self.number << 12 | u64::from(self.walked), self.second << 1)
    }
    fn from_words(main: u64, second: u64) -> Self {
        Self { number: main >> 12, walked: main & 1 != 0, second: second >> 1 }
    }
}

const PLAIN: Entry = Entry { number: 7, walked: false, second: 0 };

type Map<'r> = RadixMap<Entry, &'r Refcache>;

fn fill(map: &Map<'_>, pin: &Pinned, keys: Range<u64>, value: Entry) {
    let mut guard = map.lock_range(pin, keys.clone(), Always).unwrap();
    guard.widen(keys).unwrap();
    guard.fill(value);
}

/// Leaves of which some keys are not locked are not shown.
#[test]
fn leaves_that_are_held_as_a_whole_are_shown() {
    const THIRD: u64 = 1 << 18;
    on_map(|pin, map| {
        let used = [5, 3 * BLOCK + 5, THIRD + 1].map(|key| key..key + 1);
        used.iter().for_each(|keys| fill(map, pin, keys.clone(), PLAIN));
        let whole = [0..BLOCK, 3 * BLOCK..4 * BLOCK];
        let mut guard = map.lock_range(pin, 0..THIRD + 3, Always).unwrap();
        let mut shown = Vec::new();
        guard.for_each_whole_leaf(|leaf, keys| shown.push((keys, leaf.address())));
        assert_eq!(shown.iter().map(|(keys, _)| keys.clone()).collect::<Vec<_>>(), whole);
        let mut all = Vec::new();
        guard.for_each_used_and_whole_leaf(
            &mut all,
            |all, _, keys| all.push(keys),
            |all, run| all.push(run.keys()),
        );
        let [first, second, third] = used;
        assert_eq!(all, [whole[0].clone(), first, whole[1].clone(), second, third]);
        assert_eq!(guard.with_leaf(|_| ()), None, "the keys are in several leaves");
        drop(guard);
        let mut frames = Vec::new();
        map.each_frame(pin, &mut |frame| frames.push(frame));
        for (keys, address) in shown {
            let mut guard = map.lock_range(pin, keys.start + 1..keys.start + 9, Always).unwrap();
            assert_eq!(guard.with_leaf(|leaf| leaf.address()), Some(address));
            assert!(frames.contains(&address));
        }
    });
}

/// The map writes nothing into the words that a leaf keeps for the map's user.
#[test]
fn the_annex_is_the_users_alone() {
    on_map(|pin, map| {
        fill(map, pin, 5..100, PLAIN);
        fill(map, pin, 7..8, Entry { number: 8, ..PLAIN });
        map.lock_key(pin, 9).unwrap().unwrap().for_each(|entry| entry.set(PLAIN));
        let mut leaves = 0;
        map.each_leaf(pin, |leaf| {
            let annex = leaf.annex();
            let all = annex.words.iter().chain(annex.cores);
            assert!(all.map(|word| word.load(Relaxed)).all(|word| word == 0));
            leaves += 1;
        });
        assert_eq!(leaves, 1);
    });
}

/// A page table has an entry for each page that is present.
#[test]
fn a_machine_finds_each_entry_that_is_present() {
    on_map(|pin, map| {
        fill(map, pin, 0..1, PLAIN);
        fill(map, pin, 0..BLOCK, Entry { walked: true, ..PLAIN });
        // A look at the values changes nothing.
        assert_eq!(map.extent(pin, 0..BLOCK, 1), BLOCK);
        for key in 0..BLOCK {
            let (_, word) = map.leaf_word(pin, key).unwrap();
            assert_eq!(word & !radixmap::TAGS, 7 << 12 | 1, "key {key}");
        }
    });
}

/// A block with one value for all pages expands into a page table.
#[test]
fn a_machine_finds_each_entry_of_a_block_that_expands() {
    on_map(|pin, map| {
        fill(map, pin, 0..BLOCK, Entry { walked: true, ..PLAIN });
        assert_eq!(map.leaf_word(pin, 0), None);
        drop(map.lock_range(pin, 5..6, Always).unwrap());
        for key in 0..BLOCK {
            let (_, word) = map.leaf_word(pin, key).unwrap();
            assert_eq!(word & !radixmap::TAGS, 7 << 12 | 1, "key {key}");
        }
    });
}

#[test]
fn nodes_are_counted_on_the_core_that_creates_them() {
    on_map(|pin, map| {
        let of = |core| map.counters().of(CoreId::new(core)).created;
        let (mine, all) = (pin.core().index(), map.stats().created);
        assert_eq!(of(mine), all);
        fill(map, pin, 5..6, PLAIN);
        let created = map.stats().created;
        assert!(created > all && of(mine) == created);
        assert!((0..CORES).filter(|&core| core != mine).all(|core| of(core) == 0));
    });
}
