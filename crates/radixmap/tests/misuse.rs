//! Misuse of the map is a panic, or harmless. It never leaves a slot locked for ever, and never frees a node
//! in use.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

mod common;

use std::mem;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Barrier};
use std::thread;

use common::{CORES, Twin, domain, on_map, settle};
use fuzzing::attempt;
use percore::Pinned;
use radixmap::{
    Always, BLOCK, Expand, IfDiffering, IfPresent, KEY_END, Never, NodeCounters, OutOfMemory, RadixMap, Run,
    Value,
};
use refcache::Refcache;

type Map<'r> = RadixMap<Twin, &'r Refcache>;

/// A span that one slot of the root covers, far from the root's first.
const FAR: Range<u64> = 20 << 27..21 << 27;
const BACKWARDS: Range<u64> = Range { start: 5, end: 3 };

fn fill(map: &Map<'_>, pin: &Pinned, keys: Range<u64>, value: u64) {
    map.lock_range(pin, keys, Always).unwrap().fill(Twin(value));
}

fn values(map: &Map<'_>, pin: &Pinned, keys: Range<u64>) -> Vec<(Range<u64>, u64)> {
    let mut values = Vec::new();
    map.lock_whole(pin, keys)
        .for_each(|entry| values.extend(entry.value().map(|Twin(value)| (entry.keys(), value))));
    values
}

#[test]
fn only_a_block_within_the_range_shows_its_leaf() {
    on_map(|pin, map| {
        fill(map, pin, 0..1, 2);
        fill(map, pin, BLOCK..2 * BLOCK, 2);
        let mut guard = map.lock_range(pin, 0..2 * BLOCK, Always).unwrap();
        let mut leaf_of = |block: Range<u64>| attempt(|| guard.with_leaf_of(block, |_| ()).is_some()).ok();
        assert_eq!((leaf_of(0..BLOCK), leaf_of(BLOCK..2 * BLOCK)), (Some(true), Some(false)));
        for keys in [0..BLOCK - 1, 1..BLOCK + 1, 0..2 * BLOCK, 0..0, BACKWARDS, 2 * BLOCK..3 * BLOCK] {
            assert_eq!(leaf_of(keys.clone()), None, "{keys:?}");
        }
    });
}

#[test]
fn only_a_block_with_a_leaf_is_folded() {
    on_map(|pin, map| {
        fill(map, pin, 0..1, 2);
        fill(map, pin, BLOCK..2 * BLOCK, 2);
        let mut guard = map.lock_range(pin, 0..1 << 18, Always).unwrap();
        let folded = [BLOCK..2 * BLOCK, 2 * BLOCK..3 * BLOCK];
        let others =
            [0..BLOCK - 1, 1..BLOCK, 1..BLOCK + 1, 0..2 * BLOCK, 0..0, BACKWARDS, 1 << 18..(1 << 18) + BLOCK];
        for block in folded.into_iter().chain(others) {
            assert!(attempt(|| _ = guard.fold(block.clone(), Twin(4))).is_err(), "{block:?} was folded");
        }
        guard.fold(0..BLOCK, Twin(6)).unwrap();
        assert!(attempt(|| _ = guard.fold(0..BLOCK, Twin(8))).is_err(), "there is no leaf any more");
        drop(guard);
        assert_eq!(values(map, pin, 0..1 << 18), [(0..BLOCK, 6), (BLOCK..2 * BLOCK, 2)]);
    });
}

#[test]
fn only_held_keys_are_shown_and_changed() {
    on_map(|pin, map| {
        fill(map, pin, 0..100, 2);
        let mut guard = map.lock_range(pin, 10..20, Always).unwrap();
        for keys in [9..20, 10..21, 20..30, 0..KEY_END, FAR] {
            let shown = || _ = guard.try_for_each_in(keys.clone(), |_| ControlFlow::<()>::Continue(()));
            let (start, end) = (keys.start, keys.end);
            assert!(attempt(shown).is_err(), "{start}..{end}");
            assert!(attempt(|| guard.fill_in(start..end, Twin(4))).is_err());
            assert!(attempt(|| _ = guard.split(start..end)).is_err());
            assert!(attempt(|| _ = guard.widen(start..end)).is_err());
            assert!(attempt(|| _ = guard.fit(start..end, Twin(4))).is_err());
        }
        for key in [9, 20, KEY_END - 1, u64::MAX - 1] {
            assert!(attempt(|| _ = guard.with_key(key, |entry| entry.clear())).is_err());
        }
        drop(guard);
        assert!(values(map, pin, 0..100).iter().all(|(_, value)| *value == 2));
    });
}

#[test]
fn a_part_of_a_slot_is_not_changed() {
    on_map(|pin, map| {
        fill(map, pin, FAR, 2);
        let part = FAR.start + 5..FAR.start + 6;
        let mut guard = map.lock_range(pin, FAR, Always).unwrap();
        let _ = guard.try_for_each_in(part.clone(), |entry| {
            assert!(entry.whole().is_none() && entry.used().is_none() && entry.value() == Some(Twin(2)));
            ControlFlow::<()>::Continue(())
        });
        assert!(attempt(|| guard.fill_in(part.clone(), Twin(4))).is_err());
        drop(guard);
        let mut guard = map.lock_whole(pin, part.clone());
        guard.for_each(|entry| assert!(entry.whole().is_none() && entry.used().is_none()));
        guard.for_each_used(|run| assert!(run.whole().is_none()));
        drop(guard);
        assert_eq!(values(map, pin, FAR), [(FAR, 2)]);
    });
}

/// However the range was locked.
#[test]
fn a_slot_with_a_value_that_does_not_stick_out_is_changed() {
    fn change<E: Expand>(map: &Map<'_>, pin: &Pinned, expand: E) {
        fill(map, pin, 0..4, 2);
        map.lock_range(pin, 0..5, expand).unwrap().for_each(|entry| {
            let is_used = entry.keys().start < 4;
            assert_eq!(entry.used().map(|(mut entry, _)| entry.set(Twin(4))), is_used.then_some(()));
        });
        assert_eq!(values(map, pin, 0..5), [0, 1, 2, 3].map(|key| (key..key + 1, 4)));
    }
    on_map(|pin, map| {
        change(map, pin, Always);
        change(map, pin, IfPresent);
        change(map, pin, IfDiffering);
        change(map, pin, Never);
    });
}

/// One of the ends is enough, and equal distances from the ends of two slots are no help.
#[test]
fn a_range_that_cuts_a_slot_at_one_end_is_not_filled() {
    on_map(|pin, map| {
        let held = FAR.start..FAR.end + (FAR.end - FAR.start);
        fill(map, pin, held.clone(), 2);
        let mut guard = map.lock_range(pin, held.clone(), Always).unwrap();
        for keys in [FAR.start..FAR.end + 6, FAR.start + 5..held.end, FAR.start + 5..FAR.end + 5] {
            assert!(attempt(|| guard.fill_in(keys.clone(), Twin(4))).is_err(), "{keys:?}");
        }
        guard.fill_in(FAR, Twin(2));
        drop(guard);
    });
}

/// Another core gets at the keys around, and the holder keeps its own.
#[test]
#[cfg_attr(miri, ignore = "thousands of slots by ways that the others take too")]
fn a_split_lets_the_keys_around_the_range_go() {
    for keys in [FAR.start + 5..FAR.start + 6, FAR.start + 5..FAR.start + 3 * BLOCK + 1, FAR] {
        on_map(|pin, map| {
            fill(map, pin, FAR, 2);
            let mut guard = map.lock_whole(pin, keys.clone());
            guard.split(keys.start + 1..keys.end - 1).unwrap();
            guard.split(keys.start..keys.start + 1).unwrap();
            guard.split(keys.end - 1..keys.end).unwrap();
            let [before, after] = [FAR.start..keys.start, keys.end..FAR.end];
            for around in [before, after].into_iter().filter(|around| !around.is_empty()) {
                map.lock_range(pin, around.clone(), Always).unwrap().fill(Twin(4));
            }
            guard.for_each(|entry| entry.whole().unwrap().set(Twin(6)));
            drop(guard);
            let wrong = values(map, pin, FAR)
                .into_iter()
                .find(|(slot, value)| *value != if keys.contains(&slot.start) { 6 } else { 4 });
            assert_eq!(wrong, None);
        });
    }
}

/// Slots with the same value are one run at every level, except those that stick out of the range. A change
/// reaches all of them.
#[test]
fn neighbours_that_say_the_same_are_one_run() {
    let folded = 8 * BLOCK..12 * BLOCK;
    let [first, last] = [folded.start + 5..9 * BLOCK, 11 * BLOCK..folded.end - 5];
    for value in [2, 3] {
        on_map(|pin, map| {
            let set = |keys: Range<u64>, value| {
                let mut guard = map.lock_range(pin, keys.clone(), Always).unwrap();
                guard.fit(keys, Twin(value)).unwrap();
                guard.fill(Twin(value));
            };
            let runs = |keys: Range<u64>| {
                let mut runs = Vec::new();
                map.lock_whole(pin, keys)
                    .for_each_used(|run| runs.push((run.keys(), run.whole().is_some(), run.is_in_leaf())));
                runs
            };
            set(folded.clone(), value);
            let middle = first.end..last.start;
            let expected =
                [(first.clone(), false, false), (middle, true, false), (last.clone(), false, false)];
            assert_eq!(runs(first.start..last.end), expected);
            assert_eq!(runs(folded.clone()), [(folded.clone(), true, false)]);
            map.lock_range(pin, folded.clone(), Always).unwrap().for_each_used(|run| {
                run.set(Twin(value + 2));
                run.clear();
                run.set(Twin(value));
            });
            set(5..600, value);
            set(100..101, value + 2);
            let in_leaf = [5..100, 100..101, 101..512, 512..600].map(|keys| (keys, true, true));
            assert_eq!(runs(0..BLOCK * 2), in_leaf);
            let mut seen = Vec::new();
            let first_two =
                map.lock_range(pin, 0..1 << 18, Always).unwrap().try_for_each_used_in(50..300, |run| {
                    seen.push(run.keys());
                    if seen.len() < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(run.value()) }
                });
            assert_eq!((first_two, seen), (ControlFlow::Break(Twin(value + 2)), vec![50..100, 100..101]));
            settle(map.domain(), pin);
            let blocks = (8..12).map(|block| (block * BLOCK..(block + 1) * BLOCK, value));
            assert_eq!(values(map, pin, folded.clone()), blocks.collect::<Vec<_>>());
        });
    }
}

#[test]
fn a_run_is_counted_once_whatever_is_done_to_it() {
    on_map(|pin, map| {
        for keys in [0..4, FAR] {
            fill(map, pin, keys.clone(), 2);
            fill(map, pin, 5..6, 2);
            map.lock_range(pin, keys.clone(), Always).unwrap().for_each_used(|run| {
                run.clear();
                run.clear();
                run.whole().unwrap().clear();
                run.set(Twin(4));
                run.set(Twin(6));
                run.whole().unwrap().clear();
                run.clear();
            });
            map.lock_range(pin, 5..6, Always).unwrap().for_each_used(|run| {
                run.one().clear();
                run.clear();
                run.one().set(Twin(4));
                run.set(Twin(8));
            });
            settle(map.domain(), pin);
            assert_eq!(values(map, pin, keys), []);
            assert_eq!(values(map, pin, 5..6), [(5..6, 8)], "its leaf was taken away");
        }
    });
}

/// A value is in an upper node that no core had used there before. Walks that skip slots that were never used
/// must find it.
#[test]
fn a_value_that_is_set_far_from_others_is_found() {
    on_map(|pin, map| {
        map.lock_range(pin, FAR, Always).unwrap().for_each(|entry| entry.set(Twin(2)));
        let mut found = Vec::new();
        map.lock_all(pin).for_each_used(|run| found.push(run.keys()));
        assert_eq!(found, [FAR]);
        map.lock_all(pin).for_each_used(|run| run.clear());
        assert_eq!(values(map, pin, 0..KEY_END), []);
    });
}

#[test]
fn a_leaf_is_given_up_as_often_as_it_was_held() {
    on_map(|pin, map| {
        fill(map, pin, 0..1, 2);
        let mut guard = map.lock_range(pin, 0..1, Always).unwrap();
        guard.for_each(|entry| {
            let leaf = entry.leaf();
            leaf.hold();
            leaf.hold();
            assert!(attempt(|| leaf.release(3)).is_err());
            leaf.release(1);
            entry.clear();
        });
        drop(guard);
        settle(map.domain(), pin);
        assert_eq!(map.stats().live(), 4, "it is held");
        map.each_leaf(pin, |leaf| {
            leaf.release(1);
            assert!(attempt(|| leaf.release(1)).is_err() && attempt(|| leaf.release(usize::MAX)).is_err());
        });
    });
}

/// Words that no value should have.
#[derive(Clone, Copy, Debug)]
struct Raw(u64, u64);

impl Value for Raw {
    fn to_words(self) -> (u64, u64) {
        (self.0, self.1)
    }
    fn from_words(main: u64, second: u64) -> Self {
        Self(main, second)
    }
    fn part(self, _: u64) -> Self {
        if self.0 == 1 { Self(radixmap::TAGS, 0) } else { self }
    }
}

#[test]
fn bits_of_the_map_s_own_are_refused() {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let (map, twin) = (RadixMap::new(&pin, &refcache).unwrap(), RadixMap::new(&pin, &refcache).unwrap());
    let tags = (0..64).map(|bit| 1 << bit).filter(|bit| radixmap::TAGS & bit != 0);
    for bad in tags.map(|tag| Raw(tag, 0)).chain([Raw(0, 1), Raw(u64::MAX, u64::MAX)]) {
        let mut guard = map.lock_range(&pin, 0..1 << 18, Always).unwrap();
        assert!(attempt(|| guard.fill(bad)).is_err());
        assert!(attempt(|| guard.for_each(|entry| entry.set(bad))).is_err());
        guard.fill(Raw(2, 0));
        assert!(attempt(|| guard.for_each_used(|run| run.set(bad))).is_err());
        drop(guard);
        assert!(attempt(|| map.copy_to(&pin, &twin, 0..KEY_END, |_| Ok(Some(bad)))).is_err());
    }
    map.lock_range(&pin, 0..BLOCK, Always).unwrap().fill(Raw(1, 0));
    assert!(attempt(|| _ = map.lock_key(&pin, 5)).is_err(), "a part with such bits");
    for map in [map, twin] {
        map.lock_all(&pin).for_each_used(|run| run.clear());
        map.destroy(&pin);
    }
    settle(&refcache, &pin);
    assert_eq!(refcache.garbage(), 0);
}

/// A value that joins its neighbours when it is stored, and not when it is copied.
#[derive(Clone, Copy)]
struct Fickle;

static JOINS: AtomicBool = AtomicBool::new(true);

impl Value for Fickle {
    fn to_words(self) -> (u64, u64) {
        (2 << 12, 0)
    }
    fn from_words(_: u64, _: u64) -> Self {
        Self
    }
    fn joins(_: u64) -> bool {
        JOINS.load(Acquire)
    }
}

/// A slot that stands for its neighbours too is copied alone, and they are not locked afterwards.
#[test]
fn a_value_that_joins_no_more_is_copied_slot_by_slot() {
    on_map(|pin, map: &RadixMap<Fickle, _>| {
        let twin = RadixMap::new(pin, map.domain()).unwrap();
        map.lock_range(pin, 0..32, Always).unwrap().fill(Fickle);
        JOINS.store(false, Release);
        let mut lengths = Vec::new();
        let copy = |run: &mut Run<'_, Fickle>| {
            lengths.push(run.keys().end - run.keys().start);
            Ok(Some(Fickle))
        };
        map.copy_to(pin, &twin, 0..KEY_END, copy).unwrap();
        assert_eq!(lengths, [1; 32]);
        let mut copied = 0;
        twin.lock_all(pin).for_each_used(|run| copied += run.keys().end - run.keys().start);
        assert_eq!(copied, 32);
        map.lock_all(pin).for_each_used(|run| run.clear());
    });
}

/// In a release build the core waits for ever.
#[cfg(debug_assertions)]
#[test]
fn a_core_that_waits_for_itself_panics() {
    on_map(|pin, map| {
        fill(map, pin, FAR, 2);
        fill(map, pin, 0..4, 2);
        let other = Map::new(pin, map.domain()).unwrap();
        let message = |act: &dyn Fn()| attempt(act).unwrap_err();
        let guards =
            (map.lock_range(pin, 2..4, Always).unwrap(), map.lock_whole(pin, FAR.start..FAR.start + 1));
        for keys in [0..3, 3..4, 0..KEY_END, FAR.end - 1..FAR.end] {
            let told = message(&|| drop(map.lock_range(pin, keys.clone(), IfPresent)));
            assert!(told.contains("which it holds itself"), "{told}");
        }
        assert!(message(&|| drop(map.lock_key(pin, 2))).contains("which it holds itself"));
        assert!(
            message(&|| map.copy_to(pin, &other, 0..KEY_END, |_| Ok(None)).unwrap())
                .contains("which it holds itself")
        );
        // Keys of other cores, and the same keys of another map.
        drop(map.lock_range(pin, 0..2, Always).unwrap());
        drop(other.lock_range(pin, 0..4, Always).unwrap());
        drop(guards);
        drop(map.lock_range(pin, 0..KEY_END, IfPresent).unwrap());
        let inner = |_| {
            drop(map.lock_key(pin, FAR.start + 9));
            true
        };
        let told = message(&|| drop(map.lock_key_or_block(pin, FAR.start + 9, inner)));
        assert!(told.contains("which it holds itself"), "{told}");
        let other = Map::new(pin, map.domain()).unwrap();
        let shown = |run: &mut radixmap::Run<'_, Twin>| {
            drop(map.lock_key(pin, run.keys().start));
            Ok(None)
        };
        assert!(
            message(&|| map.copy_to(pin, &other, 0..KEY_END, shown).unwrap())
                .contains("which it holds itself")
        );
    });
}

/// A core that waits for another one may hold the keys around, one of them cut out of a larger slot.
#[test]
fn a_core_that_waits_for_another_does_not_panic() {
    static WAITS: AtomicBool = AtomicBool::new(false);
    let core = percore::threads::enter_any(CORES);
    core.on_relax(|| WAITS.store(true, Release));
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let map = Map::new(&pin, &refcache).unwrap();
    fill(&map, &pin, FAR, 2);
    let around = [4..5, 6..7].map(|keys| map.lock_range(&pin, keys, Always).unwrap());
    let cut = map.lock_key(&pin, FAR.start + 9).unwrap();
    for key in [5, FAR.start + 10] {
        WAITS.store(false, Release);
        let held = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _core = percore::threads::enter_any(CORES);
                let pin = percore::pin();
                refcache.online(&pin);
                let guard = map.lock_range(&pin, key..key + 1, Always).unwrap();
                held.wait();
                while !WAITS.load(Acquire) {
                    thread::yield_now();
                }
                drop(guard);
                refcache.offline(&pin);
            });
            held.wait();
            let waited = attempt(|| drop(map.lock_range(&pin, key..key + 1, Always).unwrap()));
            WAITS.store(true, Release);
            assert_eq!(waited, Ok(()), "key {key}");
        });
    }
    drop((around, cut));
    map.destroy(&pin);
    settle(&refcache, &pin);
    assert_eq!(refcache.garbage(), 0);
}

/// A copy sets several slots of the twin at once, but not one that is held. It waits for exactly that one.
#[cfg(debug_assertions)]
#[test]
fn a_copy_does_not_set_a_slot_that_is_held() {
    for size in [1, BLOCK] {
        on_map(|pin, map| {
            let twin = Map::new(pin, map.domain()).unwrap();
            let copied = 8 * size..16 * size;
            fill(map, pin, copied.clone(), 2);
            let held = 11 * size..12 * size;
            let guard = twin.lock_range(pin, held.clone(), Always).unwrap();
            let copy =
                || map.lock_range(pin, copied.clone(), Always)?.copy_to(pin, &twin, |_| Ok(Some(Twin(4))));
            let told = attempt(|| copy().unwrap()).unwrap_err();
            assert!(told.contains(&format!("waits for keys {held:?}, which it holds itself")), "{told}");
            drop(guard);
            assert_eq!(values(&twin, pin, 0..KEY_END), []);
            copy().unwrap();
            let slots = (8..16).map(|at| (at * size..(at + 1) * size, 4));
            assert_eq!(values(&twin, pin, 0..KEY_END), slots.collect::<Vec<_>>());
        });
    }
}

#[test]
fn a_map_is_not_copied_to_itself() {
    on_map(|pin, map| {
        fill(map, pin, 0..4, 2);
        assert!(attempt(|| map.copy_to(pin, map, 0..KEY_END, |run| Ok(Some(run.value())))).is_err());
        assert!(attempt(|| map.lock_all(pin).copy_to(pin, map, |run| Ok(Some(run.value())))).is_err());
        let some = &mut map.lock_range(pin, 0..1 << 18, Always).unwrap();
        assert!(attempt(|| some.copy_to(pin, map, |_| Ok(None))).is_err(), "below its root");
    });
}

#[test]
fn keys_are_where_they_are() {
    on_map(|pin, map: &Map<'_>| {
        for keys in [3..3, BACKWARDS, 0..KEY_END + 1, KEY_END..KEY_END + 1, 0..u64::MAX] {
            assert!(attempt(|| drop(map.lock_range(pin, keys.clone(), Always))).is_err());
            assert!(attempt(|| drop(map.lock_whole(pin, keys.clone()))).is_err());
            assert!(attempt(|| _ = map.first_used(pin, keys.clone())).is_err());
        }
        for key in [KEY_END, u64::MAX] {
            assert!(attempt(|| drop(map.lock_key(pin, key))).is_err());
            assert!(attempt(|| _ = map.peek(pin, key)).is_err());
            assert!(attempt(|| _ = map.leaf_word(pin, key)).is_err());
        }
    });
}

/// The records of leaked guards are freed with their maps.
#[cfg(debug_assertions)]
#[test]
fn forgotten_guards_do_not_make_a_core_forget_others() {
    on_map(|pin, map: &Map<'_>| {
        let refcache = domain();
        refcache.online(pin);
        for _ in 0..if cfg!(miri) { 0 } else { 100 } {
            mem::forget(Map::new(pin, &refcache).unwrap().lock_range(pin, 0..4, Always).unwrap());
        }
        let _guard = map.lock_range(pin, 0..4, Always).unwrap();
        assert!(attempt(|| drop(map.lock_range(pin, 3..5, Always))).is_err());
    });
}

/// The keys of a leaked guard are held for ever. All others can be used, and the map can be dropped.
#[test]
#[cfg_attr(miri, ignore = "what is leaked is found")]
fn a_guard_may_be_forgotten() {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let map = Map::new(&pin, &refcache).unwrap();
    fill(&map, &pin, 0..8, 2);
    mem::forget(map.lock_range(&pin, 0..4, Always).unwrap());
    assert!(attempt(|| refcache.tick(&pin)).is_err(), "nothing that the guard has reached may be freed");
    assert_eq!(values(&map, &pin, 4..8).len(), 4);
    drop(map);
    drop(Map::new(&pin, &refcache).unwrap().lock_range(&pin, 0..4, Always).unwrap());
}

#[test]
fn a_map_that_was_taken_apart_is_empty() {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let mut map = Map::new(&pin, &refcache).unwrap();
    fill(&map, &pin, 0..4, 2);
    fill(&map, &pin, FAR, 2);
    let mut taken = Vec::new();
    map.dismantle(&pin, |keys, value| taken.push((keys, value.0)), |_| {});
    assert_eq!(taken, [(0..4, 2), (FAR, 2)]);
    assert_eq!(values(&map, &pin, 0..KEY_END), []);
    fill(&map, &pin, 1..3, 4);
    fill(&map, &pin, FAR, 4);
    map.dismantle(&pin, |_, _| {}, |_| {});
    drop(map);
    settle(&refcache, &pin);
    assert_eq!(refcache.garbage(), 0);
}

/// Pieces end between nodes, each takes some values away, and the last one returns that it is the last.
#[test]
fn a_map_is_taken_apart_piece_by_piece() {
    const PLACES: u64 = 30;
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let mut map = Map::new(&pin, &refcache).unwrap();
    let places = |step: u64| (0..PLACES).map(move |place| place * step..place * step + 3);
    // The keys are in adjacent leaves, and in leaves far apart.
    for step in [BLOCK, 1 << 27] {
        places(step).skip(1).for_each(|keys| fill(&map, &pin, keys, 2));
    }
    let (mut taken, mut from, mut pieces) = (Vec::new(), 0, 0);
    while !map.is_dismantled() {
        let before = taken.len();
        let next = map.dismantle_piece(&pin, from, 40, |keys, value| taken.push((keys, value.0)), |_| {});
        assert!(taken.len() <= before + 5, "{taken:?}");
        assert_eq!(next.is_none(), map.is_dismantled());
        assert!(next.is_none_or(|next| next > from && taken.iter().all(|(keys, _)| keys.end <= next)));
        (from, pieces) = (next.unwrap_or(KEY_END), pieces + 1);
        refcache.tick(&pin);
    }
    let all: Vec<_> = places(BLOCK).skip(1).chain(places(1 << 27).skip(1)).map(|keys| (keys, 2)).collect();
    assert_eq!(taken, all);
    assert!(pieces >= PLACES / 2, "{pieces}");
    drop(map);
    settle(&refcache, &pin);
    assert_eq!(refcache.garbage(), 0);
}

/// The nodes on the path to the piece's first key are no progress, so a piece has at least one leaf, however
/// few slots were asked for.
#[test]
fn the_smallest_piece_takes_a_leaf_apart() {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let mut map = Map::new(&pin, &refcache).unwrap();
    let next_leaf = BLOCK..BLOCK + 3;
    [0..3, next_leaf.clone()].into_iter().for_each(|keys| fill(&map, &pin, keys, 2));
    let mut taken = Vec::new();
    let mut piece = |from| map.dismantle_piece(&pin, from, 0, |keys, _| taken.push(keys), |_| {});
    assert_eq!((piece(0), piece(BLOCK)), (Some(BLOCK), None));
    assert_eq!(taken, [0..3, next_leaf]);
    drop(map);
    settle(&refcache, &pin);
    assert_eq!(refcache.garbage(), 0);
}

/// The map is leaked there, also while the thread unwinds.
#[test]
#[cfg_attr(miri, ignore = "what is leaked is found")]
fn a_map_may_be_dropped_by_any_thread() {
    let refcache = Arc::new(domain());
    let counters = Arc::new(NodeCounters::new(CORES));
    let make = || {
        let _core = percore::threads::enter_any(CORES);
        let pin = percore::pin();
        let make = || RadixMap::<Twin, _>::with_counters(&pin, refcache.clone(), counters.clone()).unwrap();
        refcache.while_online(&pin, make)
    };
    let (one, other, third) = (make(), make(), make());
    thread::spawn(move || drop(one)).join().unwrap();
    let unwound = thread::spawn(move || {
        let _map = other;
        panic::<()>();
    });
    assert!(unwound.join().is_err());
    thread::spawn(move || {
        let _core = percore::threads::enter(percore::CoreId::new(CORES));
        drop(third);
    })
    .join()
    .unwrap();
    assert_eq!(counters.total().live(), 3, "roots that nobody could give up");
}

#[test]
fn an_error_has_a_message() {
    assert_eq!(OutOfMemory.to_string(), "no memory for a node of the map");
}

fn panic<T>() -> T {
    std::panic::resume_unwind(Box::new(()))
}
