//! Looking along keys without a lock: it shows the same as a guard, also beside threads that change
//! everything.
#![cfg(not(loom))]

mod common;

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::{CORES, Twin, domain, settle};
use percore::{Pinned, pin};
use radixmap::{Always, BLOCK, IfPresent, RadixMap, Value};
use refcache::Refcache;

type Map<'r> = RadixMap<Twin, &'r Refcache>;

/// Returns the result of a look, with neighbours that have the same value joined, because the map does not
/// promise how they are split.
fn seen(map: &Map<'_>, pin: &Pinned, keys: Range<u64>) -> Vec<(Range<u64>, Twin)> {
    let mut seen: Vec<(Range<u64>, Twin)> = Vec::new();
    let _all = map.look(pin, keys, u64::MAX, |keys, value| {
        assert!(seen.last().is_none_or(|(before, _)| before.end <= keys.start) && !keys.is_empty());
        match seen.last_mut().filter(|(before, of)| before.end == keys.start && *of == value) {
            Some((before, _)) => before.end = keys.end,
            None => seen.push((keys, value)),
        }
        ControlFlow::<()>::Continue(())
    });
    seen
}

fn set(map: &Map<'_>, pin: &Pinned, keys: Range<u64>, value: Twin) {
    let mut guard = map.lock_range(pin, keys.clone(), Always).unwrap();
    guard.fit(keys, value).unwrap();
    guard.fill(value);
}

fn clear(map: &Map<'_>, pin: &Pinned, keys: Range<u64>) {
    map.lock_range(pin, keys, IfPresent).unwrap().for_each(|entry| entry.clear());
}

#[test]
fn a_look_shows_what_is_set_in_order_and_no_more() {
    let _core = percore::threads::enter_any(CORES);
    let (pin, refcache) = (pin(), domain());
    refcache.online(&pin);
    let map = Map::new(&pin, &refcache).unwrap();
    assert_eq!(seen(&map, &pin, 0..radixmap::KEY_END), []);
    let (far, all) = (1 << 30, 0..radixmap::KEY_END);
    set(&map, &pin, 5..9, Twin(2));
    set(&map, &pin, 9..700, Twin(3));
    set(&map, &pin, far..far + 4 * BLOCK, Twin(5));
    set(&map, &pin, far + BLOCK + 7..far + BLOCK + 8, Twin(7));
    let hole = far + 2 * BLOCK..far + 3 * BLOCK;
    clear(&map, &pin, hole.clone());
    let odd = far + BLOCK + 7;
    let expected = [
        (5..9, Twin(2)),
        (9..700, Twin(3)),
        (far..odd, Twin(5)),
        (odd..odd + 1, Twin(7)),
        (odd + 1..hole.start, Twin(5)),
        (hole.end..far + 4 * BLOCK, Twin(5)),
    ];
    assert_eq!(seen(&map, &pin, all.clone()), expected);
    assert_eq!(seen(&map, &pin, 7..10), [(7..9, Twin(2)), (9..10, Twin(3))], "clipped");
    assert_eq!(seen(&map, &pin, 3..3), []);
    let first = map.look(&pin, all, u64::MAX, |keys, _| ControlFlow::Break(keys.start));
    assert_eq!(first, ControlFlow::Break(5));
    map.destroy(&pin);
    settle(&refcache, &pin);
}

/// A run ends where the bits of the mask, the second word or the kind of value do, and nowhere else. Whole
/// groups of slots are compared together, so runs begin and end at odd places.
#[test]
fn values_that_agree_in_the_bits_of_the_mask_are_one_run() {
    let _core = percore::threads::enter_any(CORES);
    let (pin, refcache) = (pin(), domain());
    refcache.online(&pin);
    let map = Map::new(&pin, &refcache).unwrap();
    let mask = !(0b100 << 12);
    for key in 0..BLOCK {
        let differing = key % 2 * 4;
        let value = match key {
            0..21 => 2,
            21..100 => 3,
            100..131 => 67,
            131..203 => 8,
            203 => continue,
            _ => 8,
        };
        set(&map, &pin, key..key + 1, Twin(value + differing));
    }
    let runs = |mask| {
        let mut runs = Vec::new();
        let _all = map.look(&pin, 0..BLOCK, mask, |keys, value| {
            runs.push((keys, value));
            ControlFlow::<()>::Continue(())
        });
        runs
    };
    let expected = [
        (0..21, Twin(2)),
        (21..100, Twin(3 + 4)),
        (100..131, Twin(67)),
        (131..203, Twin(8 + 4)),
        (204..BLOCK, Twin(8)),
    ];
    assert_eq!(runs(mask), expected);
    assert_eq!(runs(u64::MAX).len() as u64, BLOCK - 1);
    map.destroy(&pin);
    settle(&refcache, &pin);
}

/// A number with a second word of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wide(u64, u64);

impl Value for Wide {
    fn to_words(self) -> (u64, u64) {
        (self.0 << 12, self.1 << 1)
    }
    fn from_words(main: u64, second: u64) -> Self {
        Self(main >> 12, second >> 1)
    }
}

/// The values below key 256 differ in their second words only. Some fill sections, and some begin and end
/// within one.
#[test]
fn values_with_other_second_words_are_other_runs() {
    let _core = percore::threads::enter_any(CORES);
    let (pin, refcache) = (pin(), domain());
    refcache.online(&pin);
    let map: RadixMap<Wide, &Refcache> = RadixMap::new(&pin, &refcache).unwrap();
    let second = |key| match key {
        0..64 => 1,
        64..96 => 2,
        96..101 => 3,
        101..102 => 1,
        102..128 => 6,
        128..133 => 5,
        133..150 | 152..200 => 7,
        // Two of a group.
        150..152 => 3,
        200..201 => 3,
        201..208 => 7,
        208..224 => 5,
        _ => 0,
    };
    let value = |key| Wide(if key < 256 { 7 } else { 8 }, second(key));
    let mut expected: Vec<(Range<u64>, Wide)> = Vec::new();
    for key in 0..BLOCK {
        match expected.last_mut() {
            Some((keys, last)) if *last == value(key) => keys.end = key + 1,
            _ => expected.push((key..key + 1, value(key))),
        }
    }
    for (keys, value) in &expected {
        let mut guard = map.lock_range(&pin, keys.clone(), Always).unwrap();
        guard.widen(keys.clone()).unwrap();
        guard.fill(*value);
    }
    let runs = |map: &RadixMap<Wide, &Refcache>| {
        let mut runs = Vec::new();
        let _all = map.look(&pin, 0..BLOCK, u64::MAX, |keys, value| {
            runs.push((keys, value));
            ControlFlow::<()>::Continue(())
        });
        runs
    };
    assert_eq!(runs(&map), expected);
    // A walk of the holder may fold sections, but not those whose second words differ.
    let mut walked = Vec::new();
    map.lock_range(&pin, 0..BLOCK, IfPresent)
        .unwrap()
        .for_each_used(|run| walked.push((run.keys(), run.value())));
    assert_eq!(walked, expected);
    assert_eq!(runs(&map), expected);
    let twin = RadixMap::new(&pin, &refcache).unwrap();
    map.copy_to(&pin, &twin, 0..BLOCK, |run| Ok(Some(run.value()))).unwrap();
    assert_eq!(runs(&twin), expected);
    twin.destroy(&pin);
    map.destroy(&pin);
    settle(&refcache, &pin);
}

/// A section of blocks is shown as one run, and no key twice.
#[test]
fn a_section_above_the_leaves_is_one_run() {
    let _core = percore::threads::enter_any(CORES);
    let (pin, refcache) = (pin(), domain());
    refcache.online(&pin);
    let map = Map::new(&pin, &refcache).unwrap();
    let section = 16 * BLOCK..32 * BLOCK;
    set(&map, &pin, section.clone(), Twin(2));
    let mut runs = Vec::new();
    let _all = map.look(&pin, 0..radixmap::KEY_END, u64::MAX, |keys, _| {
        runs.push(keys);
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(runs, [section]);
    map.destroy(&pin);
    settle(&refcache, &pin);
}

/// The keys of a slot follow from its place in its node, wherever in the node the look begins.
#[test]
fn a_look_from_the_middle_of_a_node() {
    let _core = percore::threads::enter_any(CORES);
    let (pin, refcache) = (pin(), domain());
    refcache.online(&pin);
    let map = Map::new(&pin, &refcache).unwrap();
    let (block, keys) = (300 * BLOCK..301 * BLOCK, 200 * BLOCK + 5..400 * BLOCK);
    set(&map, &pin, block.clone(), Twin(2));
    set(&map, &pin, 350 * BLOCK + 7..350 * BLOCK + 9, Twin(3));
    let expected = [(block, Twin(2)), (350 * BLOCK + 7..350 * BLOCK + 9, Twin(3))];
    assert_eq!(seen(&map, &pin, keys), expected);
    map.destroy(&pin);
    settle(&refcache, &pin);
}

/// Keys that never change.
const STILL: [u64; 3] = [0, 3 * BLOCK - 1, 5 * BLOCK];
/// A key that always has a value, in a block that is folded again and again.
const FOLDED: u64 = 2 * BLOCK - 7;
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
const LOOKS: u64 = if cfg!(miri) { 2 } else { 300 };

/// Sets, clears and folds blocks between the keys that stay, a new value each time, until there are enough
/// `looks`.
fn churn(map: &Map<'_>, refcache: &Refcache, looks: &AtomicU64, over: &AtomicBool) {
    let _core = percore::threads::enter_any(CORES);
    refcache.online(&pin());
    let mut round = 0;
    while round < ROUNDS || looks.load(Relaxed) < LOOKS && !over.load(Relaxed) {
        round += 1;
        // The value is odd, and no two have the same second word.
        let (pin, value) = (pin(), Twin(128 * round + 1));
        let start = 1 + round * 37 % (BLOCK - 1);
        set(map, &pin, start..start + 1 + round % 90, value);
        match round % 4 {
            0 => clear(map, &pin, 1..BLOCK),
            1 => set(map, &pin, BLOCK..2 * BLOCK, value),
            _ => fold(map, &pin, BLOCK..2 * BLOCK, value),
        }
        refcache.tick(&pin);
    }
    refcache.offline(&pin());
}

/// Gives the block a leaf, and folds it again.
fn fold(map: &Map<'_>, pin: &Pinned, block: Range<u64>, value: Twin) {
    set(map, pin, block.start..block.start + 3, value);
    let mut guard = map.lock_range(pin, block.clone(), Always).unwrap();
    let mut leaf = false;
    guard.for_each_whole_leaf(|_, keys| leaf |= keys == block);
    if leaf {
        guard.fold(block, value).unwrap();
    }
}

/// Values are whole, keys are in order, and a key that no core changes is always there, also in a leaf that
/// is folded, or collapses, meanwhile. A value that was torn is a panic of the test's `Twin`.
#[test]
fn a_look_beside_threads_that_change_everything() {
    let refcache = domain();
    let (looks, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let _core = percore::threads::enter_any(CORES);
    refcache.online(&pin());
    let map = Map::new(&pin(), &refcache).unwrap();
    STILL.iter().for_each(|&key| set(&map, &pin(), key..key + 1, Twin(key * 2 + 1)));
    set(&map, &pin(), BLOCK..2 * BLOCK, Twin(1));
    std::thread::scope(|scope| {
        let churner = scope.spawn(|| churn(&map, &refcache, &looks, &over));
        while !churner.is_finished() {
            let seen = seen(&map, &pin(), 0..radixmap::KEY_END);
            for key in STILL.into_iter().chain([FOLDED]) {
                let found = seen.iter().find(|(keys, _)| keys.contains(&key)).map(|(_, value)| value.0);
                let is_right = if key == FOLDED { found.is_some() } else { found == Some(key * 2 + 1) };
                if !is_right {
                    over.store(true, Relaxed);
                }
                assert!(is_right, "{key} has {found:?} in {seen:?}");
            }
            looks.fetch_add(1, Relaxed);
            refcache.tick(&pin());
        }
    });
    map.destroy(&pin());
    settle(&refcache, &pin());
    assert_eq!(refcache.garbage(), 0);
}
