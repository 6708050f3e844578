//! The n-th allocation fails, for every n: the operation returns the error, and the map is as it was.
// Miri would need many minutes for all these nodes, and has seen their memory come and go in the other tests.
#![cfg(not(any(loom, miri)))]

mod common;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use common::{CORES, Twin, domain, settle};
use percore::Pinned;
use radixmap::{Always, IfPresent, KEY_END, NodeCounters, OutOfMemory, RadixMap};
use refcache::Refcache;
use test_memory::{Failing, owned, with_allocations};

#[global_allocator]
static ALLOCATOR: Failing = Failing;

type Map<'r> = RadixMap<Twin, &'r Refcache>;

/// Returns all values, in order, neighbours joined. It hangs if a slot was left locked.
fn contents(map: &Map<'_>, pin: &Pinned) -> Vec<(Range<u64>, u64)> {
    let mut segments: Vec<(Range<u64>, u64)> = Vec::new();
    map.lock_range(pin, 0..KEY_END, IfPresent).unwrap().for_each(|entry| {
        let Some(Twin(value)) = entry.value() else { return };
        match segments.last_mut() {
            Some((last, same)) if last.end == entry.keys().start && *same == value => {
                last.end = entry.keys().end
            }
            _ => segments.push((entry.keys(), value)),
        }
    });
    segments
}

/// Makes `operation` fail at its first, second, ... allocation, each time on a new map made by `prepare`,
/// until it succeeds. Returns the number of allocations that it needs.
fn fails_cleanly(
    prepare: impl Fn(&Map<'_>, &Pinned),
    operation: impl Fn(&Map<'_>, &Pinned) -> Result<(), OutOfMemory>,
) -> usize {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let succeeds = |&left: &usize| {
        let before = owned();
        let map = RadixMap::new(&pin, &refcache).unwrap();
        prepare(&map, &pin);
        let whole = contents(&map, &pin);
        let result = with_allocations(left, || operation(&map, &pin));
        assert_eq!(contents(&map, &pin), whole, "allocation {left} failed and the map changed");
        drop((map, whole));
        settle(&refcache, &pin);
        assert_eq!(owned(), before, "allocation {left} failed and others were leaked");
        result.is_ok()
    };
    (0..).find(succeeds).unwrap()
}

fn lock(map: &Map<'_>, pin: &Pinned, keys: Range<u64>) -> Result<(), OutOfMemory> {
    map.lock_range(pin, keys, Always).map(drop)
}

fn lock_wide(map: &Map<'_>, pin: &Pinned, keys: Range<u64>) -> Result<(), OutOfMemory> {
    map.lock_range(pin, keys.clone(), Always)?.widen(keys)
}

fn fill(map: &Map<'_>, pin: &Pinned, keys: Range<u64>) {
    map.lock_range(pin, keys, Always).unwrap().fill(Twin(4));
}

#[test]
fn one_key_of_nothing() {
    let needed = fails_cleanly(|_, _| {}, |map, pin| lock(map, pin, 77..78));
    assert_eq!(needed, 6, "three nodes of two blocks each");
}

/// Nothing is held when the first slot fails, so nothing is unlocked.
#[test]
fn the_first_key_of_all() {
    let needed = fails_cleanly(|_, _| {}, |map, pin| lock(map, pin, 0..1));
    assert_eq!(needed, 6);
}

#[test]
fn both_ends_of_a_folded_value() {
    let half = KEY_END / 2;
    let inside = half + 1..KEY_END - 1;
    let needed = fails_cleanly(
        |map, pin| fill(map, pin, half..KEY_END),
        |map, pin| {
            let mut guard = map.lock_range(pin, inside.clone(), IfPresent)?;
            guard.for_each(|entry| assert_eq!(entry.value(), Some(Twin(4))));
            Ok(())
        },
    );
    assert_eq!(needed, 12, "three nodes for each end");
}

#[test]
fn a_fault_in_a_folded_value() {
    let needed = fails_cleanly(
        |map, pin| fill(map, pin, 0..1 << 27),
        |map, pin| map.lock_key(pin, 512).map(|guard| assert!(guard.is_some())),
    );
    assert_eq!(needed, 6);
}

/// Keys to the left of the failure are locked already, on three levels.
#[test]
fn locked_slots_are_unlocked() {
    let needed = fails_cleanly(
        |map, pin| fill(map, pin, 1000..(1 << 18) + 7),
        |map, pin| lock(map, pin, 1003..(1 << 27) + 3),
    );
    assert_eq!(needed, 6, "nothing is there at the right end");
}

/// The slots that were held before are still held, and unlocked in the end.
#[test]
fn a_split_of_what_is_held() {
    let needed = fails_cleanly(
        |map, pin| fill(map, pin, 0..1 << 28),
        |map, pin| {
            let mut guard = map.lock_range(pin, 0..1 << 28, Always)?;
            guard.split(77..(1 << 27) + 3)
        },
    );
    assert_eq!(needed, 12, "three nodes for each end");
}

#[test]
fn second_words_for_a_leaf_that_is_there() {
    let needed = fails_cleanly(|map, pin| fill(map, pin, 70..80), |map, pin| lock_wide(map, pin, 77..78));
    assert_eq!(needed, 1, "a side");
}

#[test]
fn second_words_for_one_key_of_nothing() {
    let needed = fails_cleanly(|_, _| {}, |map, pin| lock_wide(map, pin, 77..78));
    assert_eq!(needed, 7, "three nodes, and a side where the key is");
}

#[test]
fn every_frame_of_a_map_is_shown() {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let map = RadixMap::new(&pin, &refcache).unwrap();
    let frames = || {
        let mut frames = BTreeSet::new();
        map.each_frame(&pin, &mut |at| assert!(frames.insert(at)));
        frames.len()
    };
    assert_eq!(frames(), 1);
    fill(&map, &pin, 77..78);
    assert_eq!(frames(), 4);
    lock_wide(&map, &pin, 77..78).unwrap();
    assert_eq!(frames(), 5);
}

#[test]
fn second_words_for_a_folded_slot() {
    let needed = fails_cleanly(|_, _| {}, |map, pin| lock_wide(map, pin, 0..1 << 27));
    assert_eq!(needed, 1, "the root's side");
}

#[test]
fn a_fault_in_a_folded_value_with_a_second_word() {
    let needed = fails_cleanly(
        |map, pin| {
            let mut guard = map.lock_range(pin, 0..1 << 27, Always).unwrap();
            guard.widen(0..1 << 27).unwrap();
            guard.fill(Twin(7));
        },
        |map, pin| map.lock_key(pin, 512).map(|guard| assert!(guard.is_some())),
    );
    assert_eq!(needed, 8, "three nodes of two blocks each, and the sides of those two that are no leaves");
}

/// As above, but every node in which slots are held gets a side too. At the left end these are the nodes of
/// three levels, and the two between, and at the right end one of the three new nodes.
#[test]
fn slots_locked_for_second_words_are_unlocked() {
    let needed = fails_cleanly(
        |map, pin| fill(map, pin, 1000..(1 << 18) + 7),
        |map, pin| lock_wide(map, pin, 1003..(1 << 27) + 3),
    );
    assert_eq!(needed, 6 + 6);
}

#[test]
fn a_new_map() {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let counters = Arc::new(NodeCounters::new(CORES));
    for left in 0..2 {
        let made =
            with_allocations(left, || RadixMap::<Twin, _>::with_counters(&pin, &refcache, counters.clone()));
        assert_eq!(made.map(drop), Err(OutOfMemory));
    }
    assert_eq!((Arc::strong_count(&counters), counters.total().created), (1, 0));
}

/// The keys that were copied before the failure are there, and all of them are freed with the twin.
#[test]
fn a_copy() {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let succeeds = |&left: &usize| {
        let before = owned();
        let [map, twin] = [(); 2].map(|()| RadixMap::new(&pin, &refcache).unwrap());
        [1000..1003, 1 << 27..(1 << 27) + 1].into_iter().for_each(|keys| fill(&map, &pin, keys));
        let copied = with_allocations(left, || {
            let mut all = map.lock_all(&pin);
            all.copy_to(&pin, &twin, |run| Ok(Some(run.value())))
        });
        let (all, had) = (contents(&map, &pin), contents(&twin, &pin));
        assert!(all.starts_with(&had) && (copied.is_err() || had == all), "{had:?} of {all:?}");
        drop((map, twin, all, had));
        settle(&refcache, &pin);
        assert_eq!(owned(), before, "allocation {left} failed and others were leaked");
        copied.is_ok()
    };
    assert_eq!((0..).find(succeeds), Some(12), "two paths of three nodes of two blocks");
}

/// A value that was made for the twin is there, even if memory runs out: its maker may have counted it. The
/// values of the leaf have different second words, so the twin's leaf needs a side.
#[test]
fn a_copy_loses_no_value_that_was_made_for_it() {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let succeeds = |&left: &usize| {
        let [map, twin] = [(); 2].map(|()| RadixMap::new(&pin, &refcache).unwrap());
        for (key, value) in [(70, Twin(1)), (71, Twin(65)), (1 << 27, Twin(129))] {
            let mut guard = map.lock_range(&pin, key..key + 1, Always).unwrap();
            guard.fit(key..key + 1, value).unwrap();
            guard.fill(value);
        }
        let mut made = Vec::with_capacity(3); // so that it allocates nothing later
        let copied = with_allocations(left, || {
            map.lock_all(&pin).copy_to(&pin, &twin, |run| {
                made.push((run.keys(), run.value().0));
                Ok(Some(run.value()))
            })
        });
        assert_eq!(contents(&twin, &pin), made, "after {left} allocations");
        copied.is_ok()
    };
    assert_eq!((0..).find(succeeds), Some(13), "as above, and a side");
    settle(&refcache, &pin);
}
