//! Threads on overlapping and on disjoint ranges: every key has one holder at a time, and no value is lost
//! through expansions and collapses.
#![cfg(not(loom))]

mod common;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::{Twin, domain, settle};
use percore::{CoreId, Pinned};
use radixmap::{Always, BLOCK, ExpandUsed, IfPresent, RadixMap, RangeGuard};
use refcache::Refcache;

const THREADS: usize = if cfg!(miri) { 2 } else { 4 };
/// All threads do some rounds, then all let a few epochs pass, so that empty nodes are freed.
const PHASES: usize = if cfg!(miri) { 1 } else { 400 };
const ROUNDS: usize = if cfg!(miri) { 2 } else { 50 };

/// The keys of the test are islands, each across a boundary between two leaves, in nodes far apart. Most of
/// them are unused most of the time, so their nodes collapse and are made again.
const ISLANDS: u64 = if cfg!(miri) { 2 } else { 8 };
const ISLAND: u64 = 24;
const DISTANCE: u64 = 3 << 26;
const ALL: Range<u64> = 0..ISLANDS * DISTANCE;

fn island(index: u64) -> Range<u64> {
    let start = index * DISTANCE + 512 - ISLAND / 2;
    start..start + ISLAND
}

/// The cells of the island keys in `keys`.
fn cells(keys: Range<u64>) -> impl Iterator<Item = usize> {
    let near = keys.start / DISTANCE..=(keys.end - 1) / DISTANCE;
    near.flat_map(move |index| {
        let island = island(index);
        let (start, end) = (keys.start.max(island.start), keys.end.min(island.end));
        (start..end).map(move |key| (index * ISLAND + key - island.start) as usize)
    })
}

struct Arena {
    refcache: Refcache,
    /// For each island key its value plus one, or 0. Relaxed: only the key's holder accesses it, which the
    /// test checks.
    expected: Vec<AtomicU64>,
    /// For each island key the number of its holder.
    holder: Vec<AtomicU64>,
}

/// Aborts on a panic: other threads would wait at the barrier for ever for a thread that failed.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

type Map<'r> = RadixMap<Twin, &'r Refcache>;

/// The generator xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn part_of(&mut self, keys: Range<u64>) -> Range<u64> {
        let start = keys.start + self.below(keys.end - keys.start);
        start..start + 1 + self.below(keys.end - start)
    }
}

impl Arena {
    fn new() -> Self {
        let cells = || (0..ISLANDS * ISLAND).map(|_| AtomicU64::new(0)).collect();
        Self { refcache: domain(), expected: cells(), holder: cells() }
    }

    /// Claims the keys of a guard, shows each entry to `change`, which returns the new value, and releases
    /// them.
    fn change<E: ExpandUsed>(
        &self,
        pin: &Pinned,
        guard: &mut RangeGuard<'_, Twin, E>,
        mut change: impl FnMut(Option<Twin>) -> Option<Twin>,
    ) {
        let me = 1 + pin.core().index() as u64;
        let hand_over = |from: u64, to: u64, keys| {
            cells(keys).for_each(|at| assert_eq!(self.holder[at].swap(to, Relaxed), from, "two holders"));
        };
        hand_over(0, me, guard.keys());
        guard.for_each(|entry| {
            let (seen, next) = (entry.value(), change(entry.value()));
            for expected in cells(entry.keys()).map(|at| &self.expected[at]) {
                assert_eq!(seen, expected.load(Relaxed).checked_sub(1).map(Twin), "a lost update");
                expected.store(next.map_or(0, |Twin(value)| value + 1), Relaxed);
            }
            match next {
                Some(value) => entry.whole().unwrap().set(value),
                None => entry.clear(),
            }
        });
        hand_over(me, 0, guard.keys());
    }

    /// Does the operations of a core of an address space: map, unmap, fault, look.
    fn round(&self, map: &Map<'_>, pin: &Pinned, random: &mut Random, keys: Range<u64>) {
        let part = random.part_of(keys);
        let lock = |keys| map.lock_range(pin, keys, Always).unwrap();
        let lock_used = |keys| map.lock_range(pin, keys, IfPresent).unwrap();
        match random.below(64) {
            0 => self.change(pin, &mut lock_used(random.part_of(ALL)), |_| None),
            1..20 => {
                let value = random.below(1000);
                let mut guard = lock(part.clone());
                guard.fit(part, Twin(value)).unwrap();
                self.change(pin, &mut guard, |_| Some(Twin(value)));
            }
            20..40 => self.change(pin, &mut lock(part), |_| None),
            40..50 => self.change(pin, &mut lock_used(part), |_| None),
            50..60 => {
                if let Some(mut guard) = map.lock_key(pin, part.start).unwrap() {
                    guard.widen(part.start..part.start + 1).unwrap();
                    self.change(pin, &mut guard, |value| {
                        Some(Twin(value.expect("locked for its value").0 + 2))
                    });
                }
            }
            60 => {
                let (start, end) = (part.start / BLOCK * BLOCK, part.end.next_multiple_of(BLOCK));
                self.fold(pin, lock(start..end), 2 * random.below(500));
            }
            _ => assert!(map.peek(pin, part.start).span.contains(&part.start)),
        }
    }

    /// Gives all keys of a guard, which are whole blocks, the value `value`, and folds those that have a
    /// leaf.
    fn fold(&self, pin: &Pinned, mut guard: RangeGuard<'_, Twin>, value: u64) {
        let mut leaves = BTreeSet::new();
        guard.for_each(|entry| {
            if entry.keys().end - entry.keys().start == 1 {
                leaves.insert(entry.keys().start / BLOCK * BLOCK);
            }
        });
        self.change(pin, &mut guard, |_| Some(Twin(value)));
        leaves.into_iter().for_each(|start| guard.fold(start..start + BLOCK, Twin(value)).unwrap());
    }

    /// Runs one thread as `core`, on the islands `mine`.
    fn play(&self, map: &Map<'_>, core: usize, everybody: &Barrier, mine: Range<u64>) {
        let _abort = AbortOnPanic;
        let _core = percore::threads::enter(CoreId::new(core));
        let mut random = Random(core as u64 * 77 + 1);
        self.refcache.online(&percore::pin());
        for _ in 0..PHASES {
            for round in 0..ROUNDS {
                let at = mine.start + random.below(mine.end - mine.start);
                self.round(map, &percore::pin(), &mut random, island(at));
                if round % 2 == 0 {
                    self.refcache.tick(&percore::pin());
                }
            }
            for _ in 0..4 {
                everybody.wait();
                self.refcache.tick(&percore::pin());
            }
        }
        self.refcache.offline(&percore::pin());
    }
}

/// Runs a test. `first` is the first core, because the tests of this file run at the same time.
/// `islands(thread)` are a thread's islands.
fn stress(first: usize, islands: impl Fn(u64) -> Range<u64>) {
    let arena = Arena::new();
    let _core = percore::threads::enter(CoreId::new(first));
    let pin = percore::pin();
    arena.refcache.online(&pin);
    let map = RadixMap::new(&pin, &arena.refcache).unwrap();
    arena.refcache.offline(&pin);

    let everybody = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (arena, map, everybody, mine) = (&arena, &map, &everybody, islands(thread as u64));
            scope.spawn(move || arena.play(map, first + 1 + thread, everybody, mine));
        }
    });
    assert!(cfg!(miri) || map.stats().collapsed > 100, "too little happened: {:?}", map.stats());

    arena.refcache.online(&pin);
    arena.change(&pin, &mut map.lock_range(&pin, ALL, IfPresent).unwrap(), |_| None);
    settle(&arena.refcache, &pin);
    assert_eq!(map.stats().live(), 1);
    map.destroy(&pin);
    settle(&arena.refcache, &pin);
    assert_eq!(arena.refcache.garbage(), 0);
}

#[test]
fn overlapping_ranges() {
    stress(0, |_| 0..ISLANDS);
}

#[test]
fn mostly_disjoint_ranges() {
    let share = ISLANDS / THREADS as u64;
    stress(8, |thread| thread * share..(thread + 1) * share);
}
