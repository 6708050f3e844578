//! Random operations on the map and on a naive model of it must agree, through any mixture of epochs and
//! collapses.
#![cfg(not(loom))]

mod common;
#[path = "common/segments.rs"]
mod segments;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use common::{CORES, Twin, domain, settle};
use percore::Pinned;
use proptest::prelude::*;
use radixmap::{Always, BLOCK, Expand, ExpandUsed, IfPresent, KEY_END, Never, NodeCounters, RadixMap};
use refcache::Refcache;
use segments::{Model, Segments};

#[derive(Clone, Debug)]
enum Op {
    Fill(Range<u64>, u64, bool),
    Clear(Range<u64>, bool),
    Bump(Range<u64>),
    Cut(Range<u64>, Range<u64>, u64),
    Fold(Range<u64>, u64),
    SetKey(u64, u64),
    ClearKey(u64),
    Peek(u64),
    Tick(usize),
}

/// Makes keys near the boundaries of every level, and anywhere.
fn key() -> impl Strategy<Value = u64> {
    let edge = prop::sample::select(vec![0, 1 << 9, 3 << 9, 1 << 18, 1 << 27, 5 << 27, 1 << 35, KEY_END - 4]);
    prop_oneof![
        8 => (edge, 0..8u64).prop_map(|(edge, by)| (edge + by).saturating_sub(4).min(KEY_END - 1)),
        1 => 0..KEY_END,
    ]
}

fn keys() -> impl Strategy<Value = Range<u64>> {
    let short = (key(), 1..6u64).prop_map(|(start, len)| start..(start + len).min(KEY_END));
    let long = (key(), key()).prop_map(|(one, other)| one.min(other)..one.max(other) + 1);
    prop_oneof![3 => short, 2 => long]
}

/// Makes a range, and another one within it.
fn nested() -> impl Strategy<Value = (Range<u64>, Range<u64>)> {
    let within = |keys: Range<u64>| {
        let (start, end) = (keys.start, keys.end);
        (Just(keys), start..end, 1..6u64).prop_map(move |(keys, at, len)| (keys, at..(at + len).min(end)))
    };
    keys().prop_flat_map(within)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (keys(), 1..1000u64, any::<bool>()).prop_map(|(keys, value, widen)| Op::Fill(keys, value, widen)),
        3 => (keys(), any::<bool>()).prop_map(|(keys, exactly)| Op::Clear(keys, exactly)),
        2 => keys().prop_map(Op::Bump),
        3 => (nested(), 1..1000u64).prop_map(|((all, part), value)| Op::Cut(all, part, value)),
        2 => (keys(), 1..1000u64).prop_map(|(keys, value)| Op::Fold(keys, value)),
        2 => (key(), 1..1000u64).prop_map(|(key, value)| Op::SetKey(key, value)),
        1 => key().prop_map(Op::ClearKey),
        2 => key().prop_map(Op::Peek),
        2 => (1..8usize).prop_map(Op::Tick),
    ]
}

type Map<'r> = RadixMap<Twin, &'r Refcache>;

fn contents(map: &Map<'_>, pin: &Pinned, keys: Range<u64>, expand: impl Expand) -> Vec<(Range<u64>, u64)> {
    let mut segments = Segments::default();
    let mut at = keys.start;
    map.lock_range(pin, keys.clone(), expand).unwrap().for_each(|entry| {
        assert_eq!(entry.keys().start, at, "entries must be adjacent");
        at = entry.keys().end;
        segments.push(entry.keys(), entry.value().map(|twin| twin.0));
    });
    assert_eq!(at, keys.end);
    segments.0
}

fn apply(op: Op, map: &Map<'_>, model: &mut Model, refcache: &Refcache, pin: &Pinned) {
    match op {
        Op::Fill(keys, value, widen) => {
            let mut guard = map.lock_range(pin, keys.clone(), Always).unwrap();
            match widen {
                true => guard.widen(keys.clone()).unwrap(),
                false => guard.fit(keys.clone(), Twin(value)).unwrap(),
            }
            guard.fill(Twin(value));
            drop(guard);
            model.set(keys.clone(), Some(value));
            assert_eq!(contents(map, pin, keys.clone(), IfPresent), model.used(keys));
        }
        Op::Clear(keys, true) => clear(map, model, pin, keys, Always),
        Op::Clear(keys, false) => clear(map, model, pin, keys, IfPresent),
        Op::Bump(keys) => {
            let mut guard = map.lock_range(pin, keys.clone(), IfPresent).unwrap();
            guard.widen(keys.clone()).unwrap();
            guard.for_each(|entry| {
                if let Some(Twin(value)) = entry.value() {
                    entry.whole().unwrap().set(Twin(value + 2));
                }
            });
            drop(guard);
            for (segment, value) in model.used(keys.clone()) {
                model.set(segment, Some(value + 2));
            }
            assert_eq!(contents(map, pin, keys.clone(), Always), model.used(keys));
        }
        Op::Cut(all, part, value) => cut(map, model, pin, all, part, value),
        Op::Fold(keys, value) => fold(map, model, pin, keys, value),
        Op::SetKey(key, value) => change_key(map, model, pin, key, Some(value)),
        Op::ClearKey(key) => change_key(map, model, pin, key, None),
        Op::Peek(key) => {
            assert_eq!(contents(map, pin, key..key + 1, Never), model.used(key..key + 1));
            let seen = map.peek(pin, key);
            assert!(seen.span.contains(&key));
            assert_eq!(seen.used, model.get(key).is_some());
            assert!(seen.used || model.used(seen.span).is_empty());
            let keys = key..(key + 1000).min(KEY_END);
            let first = map.first_used(pin, keys.clone()).map(|span| span.start.max(key));
            assert_eq!(first, model.used(keys).first().map(|(segment, _)| segment.start));
        }
        Op::Tick(times) => (0..times).for_each(|_| _ = refcache.tick(pin)),
    }
}

fn clear(map: &Map<'_>, model: &mut Model, pin: &Pinned, keys: Range<u64>, expand: impl ExpandUsed) {
    let mut guard = map.lock_range(pin, keys.clone(), expand).unwrap();
    assert_eq!(guard.is_empty(), model.used(keys.clone()).is_empty());
    guard.for_each(|entry| entry.clear());
    assert!(guard.is_empty());
    drop(guard);
    model.set(keys, None);
}

/// Locks `all`, and then sets `part` of it alone.
fn cut(map: &Map<'_>, model: &mut Model, pin: &Pinned, all: Range<u64>, part: Range<u64>, value: u64) {
    let mut guard = map.lock_range(pin, all, Always).unwrap();
    guard.split(part.clone()).unwrap();
    guard.fit(part.clone(), Twin(value)).unwrap();
    let seen = guard.try_for_each_in(part.clone(), |entry| {
        assert!(part.start <= entry.keys().start && entry.keys().end <= part.end);
        match entry.whole().is_some() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    assert!(seen.is_continue());
    guard.fill_in(part.clone(), Twin(value));
    model.set(part, Some(value));
}

/// Locks the blocks that `keys` touches at both ends, and folds those that have leaves.
fn fold(map: &Map<'_>, model: &mut Model, pin: &Pinned, keys: Range<u64>, value: u64) {
    let block = |key: u64| key & !(BLOCK - 1)..(key | (BLOCK - 1)) + 1;
    let (first, last) = (block(keys.start), block(keys.end - 1));
    let mut guard = map.lock_range(pin, first.start..last.end, Always).unwrap();
    for block in if first == last { vec![first] } else { vec![first, last] } {
        if map.peek(pin, block.start).span.end == block.start + 1 {
            guard.fold(block.clone(), Twin(value)).unwrap();
            model.set(block, Some(value));
        }
    }
}

/// Does the fault path: only a key that has a value is locked, and then alone.
fn change_key(map: &Map<'_>, model: &mut Model, pin: &Pinned, key: u64, value: Option<u64>) {
    let guard = map.lock_key(pin, key).unwrap();
    assert_eq!(guard.is_some(), model.get(key).is_some());
    let Some(mut guard) = guard else { return };
    guard.fit(key..key + 1, Twin(value.unwrap_or(0))).unwrap();
    guard.for_each(|entry| {
        assert_eq!(entry.keys(), key..key + 1);
        assert_eq!(entry.value().map(|twin| twin.0), model.get(key));
        match value {
            Some(value) => entry.set(Twin(value)),
            None => entry.clear(),
        }
    });
    model.set(key..key + 1, value);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 192 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn agrees_with_the_model(ops in prop::collection::vec(op(), 1..if cfg!(miri) { 8 } else { 60 })) {
        let _core = percore::threads::enter_any(CORES);
        let pin = percore::pin();
        let refcache = domain();
        refcache.online(&pin);
        let counters = Arc::new(NodeCounters::new(CORES));
        let map = RadixMap::with_counters(&pin, &refcache, counters.clone()).unwrap();
        let mut model = Model::new();
        for op in ops {
            apply(op, &map, &mut model, &refcache, &pin);
        }
        let everything = 0..KEY_END;
        prop_assert_eq!(contents(&map, &pin, everything.clone(), Always), model.used(everything.clone()));

        map.lock_range(&pin, everything, IfPresent).unwrap().for_each(|entry| entry.clear());
        settle(&refcache, &pin);
        prop_assert_eq!(map.stats().live(), 1, "only the root stays");
        map.destroy(&pin);
        settle(&refcache, &pin);
        prop_assert_eq!(counters.total().live(), 0);
        refcache.offline(&pin);
    }

    /// Destroying a map that still has values frees every node too.
    #[test]
    fn destroy_leaks_nothing(fills in prop::collection::vec(keys(), 1..if cfg!(miri) { 3 } else { 12 }), ticks in 0..4usize) {
        let _core = percore::threads::enter_any(CORES);
        let pin = percore::pin();
        let refcache = domain();
        refcache.online(&pin);
        let counters = Arc::new(NodeCounters::new(CORES));
        let map = RadixMap::<Twin, _>::with_counters(&pin, &refcache, counters.clone()).unwrap();
        for (value, keys) in fills.into_iter().enumerate() {
            let mut guard = map.lock_range(&pin, keys.clone(), Always).unwrap();
            guard.widen(keys).unwrap();
            guard.fill(Twin(value as u64));
            drop(guard);
            (0..ticks).for_each(|_| _ = refcache.tick(&pin));
        }
        drop(map);
        settle(&refcache, &pin);
        prop_assert_eq!(counters.total().live(), 0);
        prop_assert_eq!(refcache.garbage(), 0);
        refcache.offline(&pin);
    }
}
