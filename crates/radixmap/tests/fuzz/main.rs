//! Random calls of the map's public functions, with misuse and with callbacks that panic: by one core,
//! checked by a model, and by several at once.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

mod alone;
#[path = "../common/segments.rs"]
mod segments;
mod together;
#[path = "../common/trap.rs"]
mod trap;

use std::ops::Range;

use fuzzing::{Dice, attempt, rounds};
use percore::Pinned;
use radixmap::{BLOCK, KEY_END, RadixMap};
use refcache::{Config, Refcache};
use trap::{CALLS, Trap, WIDE, trap};

/// The end of the keys that are used. Miri, for which a walk over every level takes minutes, sees two blocks.
const END: u64 = if cfg!(miri) { 2 * BLOCK } else { KEY_END };
const LEVELS: usize = if cfg!(miri) { 2 } else { 4 };

/// Number of cores. The tests of this file use different ones at the same time.
const CORES: usize = 16;

type Map<'r> = RadixMap<Trap, &'r Refcache>;

fn domain(dice: &mut Dice) -> Refcache {
    Refcache::new(Config { cores: CORES, cache_slots: 1 << dice.below(7), review_budget: 1 + dice.below(64) })
}

/// Returns a key near the ends of slots of every level, or anywhere.
fn key(dice: &mut Dice) -> u64 {
    const EDGES: [u64; 8] = [0, BLOCK, 3 * BLOCK, 1 << 18, 1 << 27, 20 << 27, 1 << 35, KEY_END - 4];
    let edge = EDGES[dice.below(EDGES.len())].min(END - 4) + dice.below(8) as u64;
    if dice.one_in(100) { dice.next_u64() % END } else { edge.saturating_sub(4).min(END - 1) }
}

/// Returns a few keys, one slot of some level, or any range.
fn keys(dice: &mut Dice) -> Range<u64> {
    let start = key(dice);
    match dice.below(4) {
        0 | 1 => start..(start + 1 + dice.below(9) as u64).min(END),
        2 => {
            let span = 1 << (9 * dice.below(LEVELS));
            start & !(span - 1)..(start & !(span - 1)) + span
        }
        _ => {
            let other = key(dice);
            start.min(other)..start.max(other) + 1
        }
    }
}

/// Returns some of `keys`, and rarely others.
fn part_of(keys: &Range<u64>, dice: &mut Dice) -> Range<u64> {
    if dice.one_in(12) {
        return self::keys(dice);
    }
    let len = keys.end - keys.start;
    let start = keys.start + dice.next_u64() % len;
    start..start + 1 + dice.next_u64() % (keys.end - start).min(1 << dice.below(20))
}

fn block_of(key: u64) -> Range<u64> {
    key & !(BLOCK - 1)..(key | (BLOCK - 1)) + 1
}

fn value(dice: &mut Dice) -> Trap {
    Trap::new(dice.below(9) as u64 + if dice.one_in(4) { WIDE } else { 0 })
}

/// Turns epochs until all unused nodes are freed.
fn settle(refcache: &Refcache, pin: &Pinned) {
    for _ in 0..10_000 {
        refcache.tick(pin);
        if refcache.garbage() == 0 {
            return;
        }
    }
    panic!("{} nodes are left", refcache.garbage());
}

/// The messages of misuse, and of a trap. All others are a mistake of the map.
const EXPECTED: [&str; 8] = [
    "sprung",
    "keys that are not held",
    "not a range of keys",
    "not a block",
    "has no leaf",
    "that its range was not made fit for",
    "sticks out",
    "which it holds itself",
];

/// Runs `act`, which may be a misuse, or in which functions that the map calls may panic.
fn provoke(dice: &mut Dice, act: impl FnOnce(&mut Dice)) {
    if dice.one_in(3) {
        trap(CALLS[dice.below(CALLS.len())], dice.below(12));
    }
    let outcome = attempt(|| act(dice));
    trap::disarm();
    if let Err(said) = outcome {
        assert!(EXPECTED.iter().any(|expected| said.contains(expected)), "an unexpected panic: {said}");
    }
}

#[test]
fn a_model_judges_one_core() {
    rounds(20, alone::round);
}

#[test]
fn cores_share_maps() {
    rounds(4, together::round);
}
