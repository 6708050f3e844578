//! The protocols under a model checker. The tree is small: three levels of two slots, keys 0 to 7.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-radixmap --test loom --release`
#![cfg(loom)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use percore::{CoreId, Pinned};
use radixmap::{BLOCK, Expand, NodeCounters, RadixMap, RangeGuard, Value};
use refcache::{Config, Refcache};

/// A small number; from `WIDE` on it has a second word. The keys of a slot that says `PARTED` have one of their own each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Twin(u64);

const WIDE: u64 = 100;
const PARTED: u64 = 50;

impl Value for Twin {
    fn to_words(self) -> (u64, u64) {
        (self.0 << 12, if self.0 < WIDE { 0 } else { !self.0 << 1 })
    }
    fn from_words(main: u64, second: u64) -> Self {
        let twin = Self(main >> 12);
        assert_eq!(twin.to_words(), (main, second), "a value was torn");
        twin
    }
    fn part(self, key: u64) -> Self {
        if self.0 == PARTED { Self(PARTED + 1 + key) } else { self }
    }
}

/// Overwrites the slots and sides of freed nodes and never gives them out again: a model that touches one goes astray at
/// once. Counts those that were not freed: loom runs a model's threads on one.
struct Poison;

thread_local! {
    static FRAMES: Cell<isize> = const { Cell::new(0) };
}

const FRAME_ALIGN: usize = 64;

// SAFETY: the system's allocator, but for blocks that it gets back never.
unsafe impl GlobalAlloc for Poison {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        FRAMES.set(FRAMES.get() + isize::from(layout.align() == FRAME_ALIGN));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.align() == FRAME_ALIGN {
            FRAMES.set(FRAMES.get() - 1);
            // SAFETY: the block is the caller's to dispose of.
            return unsafe { memory.write_bytes(0xa5, layout.size()) };
        }
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Poison = Poison;

const KEYS: Range<u64> = 0..8;

/// A failing model forgets it: its drop would run outside of the model.
type Map = ManuallyDrop<RadixMap<Twin, Arc<Refcache>>>;

/// A map, and for every key a cell that only the key's holder may touch: loom reports any other access.
struct World {
    map: Map,
    refcache: Arc<Refcache>,
    counters: Arc<NodeCounters>,
    owned: [UnsafeCell<u64>; 8],
    /// Frames before the map was made.
    frames: isize,
}

// SAFETY: the cells are what is tested; everything else is Sync by itself.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

/// The calling thread plays `core`.
fn pin(core: usize) -> Pinned {
    // SAFETY: each model thread plays its own core, and the main thread plays any while it is alone.
    unsafe { Pinned::assume(CoreId::new(core)) }
}

impl World {
    /// An empty map; cores 0 to `cores - 1` are online.
    fn new(cores: usize) -> Self {
        let frames = FRAMES.get();
        // One cache slot: which objects share a slot must not depend on addresses, or the model cannot be replayed.
        let refcache = Arc::new(Refcache::new(Config { cores, cache_slots: 1, review_budget: 8 }));
        (0..cores).for_each(|core| refcache.online(&pin(core)));
        let counters = Arc::new(NodeCounters::new(cores));
        let map = RadixMap::with_counters(&pin(0), refcache.clone(), counters.clone()).unwrap();
        let map = ManuallyDrop::new(map);
        Self { map, refcache, counters, owned: [0; 8].map(UnsafeCell::new), frames }
    }

    /// Another map, empty, to copy into.
    fn twin(&self) -> Arc<Map> {
        let twin = RadixMap::with_counters(&pin(0), self.refcache.clone(), self.counters.clone()).unwrap();
        Arc::new(ManuallyDrop::new(twin))
    }

    /// Every key of `keys` has the value `value`, folded where it can be.
    fn filled(self, keys: Range<u64>, value: u64) -> Self {
        let pin = pin(0);
        let mut guard = self.map.lock_range(&pin, keys.clone(), Expand::Always).unwrap();
        guard.fit(keys, Twin(value)).unwrap();
        guard.fill(Twin(value));
        drop(guard);
        self
    }

    /// The leaf of keys 0 and 1 exists, and its parent; it is empty and has waited for its review for `epochs` epochs.
    fn with_empty_leaf(self, epochs: usize) -> Self {
        let world = self.filled(0..1, 7);
        world.map.lock_range(&pin(0), 0..1, Expand::Always).unwrap().for_each(|entry| entry.clear());
        (0..epochs).for_each(|_| world.tick_all(2));
        assert_eq!(world.counters.total().live(), 3);
        world
    }

    fn tick_all(&self, cores: usize) {
        (0..cores).for_each(|core| _ = self.refcache.tick(&pin(core)));
    }

    /// Writes the cells of all keys of a held range: a race if somebody else holds one of them.
    fn touch(&self, guard: &RangeGuard<'_, Twin>) {
        for key in guard.keys() {
            // SAFETY: we hold the key; loom checks that nobody else touches the cell.
            self.owned[key as usize].with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    /// Locks `keys` exactly, touches them and adds `by` to their values; an empty key becomes `by`.
    fn add(&self, core: usize, keys: Range<u64>, by: u64) {
        let pin = pin(core);
        self.add_under(self.map.lock_range(&pin, keys, Expand::Always).unwrap(), by);
    }

    /// The same for one key, which may get a second word, or another one.
    fn add_wide(&self, core: usize, keys: Range<u64>, by: u64) {
        let pin = pin(core);
        let mut guard = self.map.lock_range(&pin, keys.clone(), Expand::Always).unwrap();
        let mut sum = by;
        guard.for_each(|entry| sum += entry.value().map_or(0, |Twin(value)| value));
        guard.fit(keys, Twin(sum)).unwrap();
        self.add_under(guard, by);
    }

    fn add_under(&self, mut guard: RangeGuard<'_, Twin>, by: u64) {
        self.touch(&guard);
        guard.for_each(|entry| entry.set(Twin(entry.value().map_or(by, |Twin(value)| value + by))));
    }

    /// Locks `keys` or more, touches them and takes their values away.
    fn clear(&self, core: usize, keys: Range<u64>) {
        let pin = pin(core);
        let mut guard = self.map.lock_range(&pin, keys, Expand::IfPresent).unwrap();
        self.touch(&guard);
        guard.for_each(|entry| entry.clear());
    }

    /// Adds `by` to the value of `key` on the fault path; none if there is no value.
    fn fault(&self, core: usize, key: u64, by: u64) -> Option<u64> {
        let pin = pin(core);
        let mut guard = self.map.lock_key(&pin, key).unwrap()?;
        assert_eq!(guard.keys(), key..key + 1);
        self.touch(&guard);
        let mut seen = 0;
        guard.for_each(|entry| seen = entry.value().expect("locked because it has a value").0);
        guard.fit(key..key + 1, Twin(seen + by)).unwrap();
        guard.fill(Twin(seen + by));
        Some(seen)
    }

    /// Makes the block of `key` `PARTED` on the fault path if it is folded, and adds 1 to the key otherwise.
    fn fault_block(&self, core: usize, key: u64) {
        let pin = pin(core);
        let Some(mut guard) = self.map.lock_key_or_block(&pin, key, |_| true).unwrap() else { return };
        self.touch(&guard);
        let folded = guard.keys().end - guard.keys().start == BLOCK;
        guard.for_each(|entry| match entry.value() {
            Some(_) if folded => entry.set(Twin(PARTED)),
            value => entry.set(Twin(value.expect("locked because it has a value").0 + 1)),
        });
    }

    /// Locks `keys`, folds the block of keys 0 and 1, and gives it the value `value`.
    fn fold(&self, core: usize, keys: Range<u64>, value: u64) {
        let pin = pin(core);
        let mut guard = self.map.lock_range(&pin, keys, Expand::Always).unwrap();
        self.touch(&guard);
        guard.fold(0..BLOCK, Twin(value)).unwrap();
        let mut spans = Vec::new();
        guard.for_each(|entry| spans.push(entry.keys()));
        assert_eq!(spans[0], 0..BLOCK);
    }

    /// The leaf of keys 0 and 1 exists and has these values.
    fn with_leaf(self, values: [u64; 2]) -> Self {
        (0..2).zip(values).fold(self, |world, (key, value)| world.filled(key..key + 1, value))
    }

    /// Holds the leaf of `key` if the key has a value; whether it has.
    fn hold(&self, core: usize, key: u64) -> bool {
        let pin = pin(core);
        let Some(mut guard) = self.map.lock_key(&pin, key).unwrap() else { return false };
        guard.for_each(|entry| entry.leaf().hold(1));
        true
    }

    /// The value of every key; 0 is none.
    fn values(&self) -> [u64; 8] {
        let pin = pin(0);
        let mut values = [0; 8];
        self.map.lock_range(&pin, KEYS, Expand::IfPresent).unwrap().for_each(|entry| {
            entry.keys().for_each(|key| values[key as usize] = entry.value().map_or(0, |Twin(value)| value));
        });
        values
    }

    /// Alone again: every node must come back.
    fn end(self, cores: usize) {
        ManuallyDrop::into_inner(self.map).destroy(&pin(0));
        (0..24).for_each(|_| (0..cores).for_each(|core| _ = self.refcache.tick(&pin(core))));
        assert_eq!(self.counters.total().live(), 0);
        assert_eq!(FRAMES.get(), self.frames, "slots or a side leaked");
    }
}

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        run()
    });
    println!("{} executions", runs.load(Relaxed));
}

/// Runs `one` on core 0 against `other` on core 1.
fn race(world: World, one: impl FnOnce(&World), other: impl FnOnce(&World) + Send + 'static) -> World {
    let world = Arc::new(world);
    let theirs = world.clone();
    let thread = thread::spawn(move || other(&theirs));
    one(&world);
    thread.join().unwrap();
    Arc::into_inner(world).unwrap()
}

/// Two lockers of different pages of one folded value: one of them expands, the other one follows it down.
#[test]
fn expansion_of_a_folded_slot() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let world = race(world, |world| world.add(0, 0..1, 1), |world| world.add(1, 1..2, 2));
        assert_eq!(world.values(), [11, 12, 10, 10, 0, 0, 0, 0]);
        assert_eq!(world.counters.total().created, 3);
        world.end(2);
    });
}

/// The same for an empty slot, with pages in different leaves: the second one expands the rest.
#[test]
fn expansion_of_an_empty_slot() {
    model(3, || {
        let world = race(World::new(2), |world| world.add(0, 0..1, 1), |world| world.add(1, 3..4, 2));
        assert_eq!(world.values(), [1, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(world.counters.total().created, 4);
        world.end(2);
    });
}

/// Two lockers of the same page of a folded value, one on the fault path.
#[test]
fn expansion_for_the_same_key() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 2), Some(10 | 11)));
        let world = race(world, |world| world.add(0, 1..2, 1), fault);
        assert_eq!(world.values(), [10, 13, 10, 10, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// A folded slot is held whole while another locker waits for a part of it.
#[test]
fn a_waiter_expands_what_was_held_whole() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let world = race(world, |world| world.add(0, 0..4, 1), |world| world.add(1, 1..2, 2));
        assert_eq!(world.values(), [11, 13, 11, 11, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// The holder's slot moved down two levels under it (it expanded), while a waiter for the whole slot waits: the
/// waiter must find the child and wait there, and the unlock must reach the child.
#[test]
fn unlock_after_expansion() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let world = race(world, |world| world.add(0, 1..2, 1), |world| world.add(1, 0..4, 2));
        assert_eq!(world.values(), [12, 13, 12, 12, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// The holder cuts a page out of a slot that it holds whole, while a fault waits for the slot: the fault must follow it
/// down, and find what was written there.
#[test]
fn a_split_under_the_lock() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let cut = |world: &World| {
            let pin = pin(0);
            let mut guard = world.map.lock_range(&pin, 0..4, Expand::Always).unwrap();
            guard.split(1..2).unwrap();
            world.touch(&guard);
            let _ = guard.try_for_each_in(1..2, |entry| {
                entry.set(Twin(20));
                ControlFlow::<()>::Continue(())
            });
        };
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 2), Some(10 | 20)));
        let world = race(world, cut, fault);
        let values = world.values();
        assert!(matches!(values[1], 20 | 22));
        assert_eq!([values[0], values[2], values[3], values[4]], [10, 10, 10, 0]);
        world.end(2);
    });
}

/// A fault takes a folded block whole while a key of it is taken away: each other key keeps its part.
#[test]
fn a_block_is_cut_against_a_fault() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let world = race(world, |world| world.clear(0, 0..1), |world| world.fault_block(1, 1));
        let values = world.values();
        let after = if values[1] == PARTED + 2 { PARTED + 2 } else { 11 };
        assert_eq!(values, [0, after, 10, 10, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// A block that is held whole by one fault is waited for by another, and by one for a key of it alone.
#[test]
fn faults_agree_on_a_block() {
    model(3, || {
        let world = World::new(2).filled(0..2, 10);
        let both = |world: &World| {
            world.fault_block(1, 0);
            world.fault(1, 1, 5);
        };
        let world = race(world, |world| world.fault_block(0, 1), both);
        let values = world.values();
        let second = if values[0] == PARTED + 1 { [PARTED + 7, PARTED + 8] } else { [0, 0] };
        assert!(second.contains(&values[1]), "{values:?}");
        world.end(2);
    });
}

/// Overlapping ranges that end inside slots, from both sides: no deadlock, and the common part is exclusive.
#[test]
fn overlapping_ranges_serialise() {
    model(3, || {
        let world = World::new(2).filled(0..8, 10);
        let world = race(world, |world| world.add(0, 1..5, 1), |world| world.add(1, 3..7, 2));
        assert_eq!(world.values(), [10, 11, 11, 13, 13, 12, 12, 10]);
        world.end(2);
    });
}

/// The same on an empty map, where one of them holds empty slots whole that stick out of its range.
#[test]
fn overlapping_ranges_over_nothing() {
    model(2, || {
        let world = race(World::new(2), |world| world.add(0, 1..5, 1), |world| world.clear(1, 3..7));
        let values = world.values();
        let after = [0, 1, 1, 0, 0, 0, 0, 0];
        assert!(values == after || values == [0, 1, 1, 1, 1, 0, 0, 0], "{values:?}");
        world.end(2);
    });
}

/// Three cores, three ranges, each overlapping the next.
#[test]
fn a_chain_of_overlapping_ranges() {
    model(2, || {
        let world = (0..4).fold(World::new(3), |world, key| world.filled(key..key + 1, 10));
        let world = Arc::new(world);
        let others = [(1, 1..3), (2, 2..4)].map(|(core, keys)| {
            let world = world.clone();
            thread::spawn(move || world.add(core, keys, 1))
        });
        world.add(0, 0..2, 1);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.values(), [11, 12, 12, 11, 0, 0, 0, 0]);
        Arc::into_inner(world).unwrap().end(3);
    });
}

/// A replaced mapping is never seen half way: the fault path waits for the holder, even if the slot is empty now.
#[test]
fn a_fault_waits_for_a_replacement() {
    model(3, || {
        let replace = |world: &World| {
            let pin = pin(0);
            let mut guard = world.map.lock_range(&pin, 0..1, Expand::Always).unwrap();
            guard.for_each(|entry| entry.clear());
            guard.for_each(|entry| entry.set(Twin(2)));
        };
        let fault = |world: &World| assert!(matches!(world.fault(1, 0, 0), Some(1 | 2)));
        race(World::new(2).filled(0..1, 1), replace, fault).end(2);
    });
}

/// A mapping that disappears is seen or not, and a fault never brings it back.
#[test]
fn a_fault_against_a_removal() {
    model(3, || {
        let world = World::new(2).filled(0..4, 10);
        let fault = |world: &World| assert!(matches!(world.fault(1, 2, 1), Some(10) | None));
        let world = race(world, |world| world.clear(0, 1..3), fault);
        assert_eq!(world.values(), [10, 0, 0, 10, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// An empty leaf is about to be taken away while somebody uses it again: either the use finds the leaf and keeps it,
/// or it finds an empty slot and grows a new one. The value is never lost, and nobody touches freed memory.
fn collapse_against_use(epochs: usize) {
    let world = World::new(2).with_empty_leaf(epochs);
    let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
    let world = race(world, collapse, |world| {
        world.add(1, 0..1, 5);
        world.refcache.tick(&pin(1));
    });
    (0..6).for_each(|_| world.tick_all(2));
    assert_eq!(world.values(), [5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(world.counters.total().live(), 3);
    world.end(2);
}

#[test]
fn collapse_against_use_one_epoch_early() {
    model(2, || collapse_against_use(1));
}

#[test]
fn collapse_against_use_at_the_last_moment() {
    model(3, || collapse_against_use(2));
}

/// A leaf that is emptied, filled and emptied again by two cores, while epochs pass on both.
#[test]
fn collapse_against_changing_hands() {
    model(3, || {
        let world = World::new(2).with_empty_leaf(1);
        let fill = |world: &World| {
            world.add(0, 0..1, 5);
            world.refcache.tick(&pin(0));
        };
        let world = race(world, fill, |world| {
            world.clear(1, 0..1);
            world.refcache.tick(&pin(1));
        });
        let values = world.values();
        (0..12).for_each(|_| world.tick_all(2));
        assert_eq!(world.values(), values);
        assert_eq!(world.counters.total().live(), if values[0] == 0 { 1 } else { 3 });
        world.end(2);
    });
}

/// An empty leaf is locked, looked at and unlocked while the other core pushes for its collapse: it must not go under
/// the guard, and it must go afterwards.
#[test]
fn collapse_against_a_guard() {
    model(3, || {
        let world = World::new(2).with_empty_leaf(2);
        let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, |world| {
            world.clear(1, 1..2);
            world.refcache.tick(&pin(1));
        });
        (0..12).for_each(|_| world.tick_all(2));
        assert_eq!(world.counters.total().live(), 1);
        world.end(2);
    });
}

/// One core empties the leaf while the other one, if it still finds a value there, holds it: then it stays until it is let
/// go of.
#[test]
fn collapse_against_a_hold() {
    model(2, || {
        let world = World::new(2).filled(0..1, 7);
        let held = Arc::new(AtomicBool::new(false));
        let theirs = held.clone();
        let empty = |world: &World| {
            world.clear(0, 0..1);
            _ = world.refcache.tick(&pin(0));
        };
        let world = race(world, empty, move |world| theirs.store(world.hold(1, 0), Relaxed));
        (0..8).for_each(|_| world.tick_all(2));
        assert_eq!(world.counters.total().live(), if held.load(Relaxed) { 3 } else { 1 });
        world.map.each_leaf(&pin(1), |mut leaf| leaf.hold(-1));
        world.end(2);
    });
}

/// The same against a look without a lock, which may keep the leaf for a while but not for ever.
#[test]
fn collapse_against_peek() {
    model(2, || {
        let world = World::new(2).with_empty_leaf(2);
        let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, |world| {
            let peek = world.map.peek(&pin(1), 1);
            assert!(!peek.used && peek.span.contains(&1), "{peek:?}");
            world.refcache.tick(&pin(1));
        });
        (0..12).for_each(|_| world.tick_all(2));
        assert_eq!(world.counters.total().live(), 1);
        world.end(2);
    });
}

/// Two holders of different slots of one leaf want second words: one makes the side, and both values are in it.
#[test]
fn a_side_is_made_once() {
    model(3, || {
        let world = World::new(2).filled(0..1, 1);
        let world =
            race(world, |world| world.add_wide(0, 0..1, WIDE), |world| world.add_wide(1, 1..2, WIDE + 2));
        assert_eq!(world.values(), [WIDE + 1, WIDE + 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(FRAMES.get() - world.frames, 3 + 1);
        world.end(2);
    });
}

/// A value gets a second word under another one's fault: it sees both words or neither.
#[test]
fn a_second_word_against_a_fault() {
    model(3, || {
        let world = World::new(2).filled(0..1, 1);
        let fault = |world: &World| assert!(matches!(world.fault(1, 0, 2), Some(1 | 101)));
        let world = race(world, |world| world.add_wide(0, 0..1, WIDE), fault);
        assert_eq!(world.values()[0], WIDE + 3);
        world.end(2);
    });
}

/// A folded value with a second word expands: each new slot has both words, for the expander and for who follows.
#[test]
fn expansion_of_a_folded_value_with_a_second_word() {
    model(3, || {
        let world = World::new(2).filled(0..4, WIDE);
        let world = race(world, |world| world.add_wide(0, 1..2, 1), |world| _ = world.fault(1, 3, 2));
        assert_eq!(world.values(), [WIDE, WIDE + 1, WIDE, WIDE + 2, 0, 0, 0, 0]);
        world.end(2);
    });
}

/// An empty slot expands for somebody who wants second words, against somebody who does not.
#[test]
fn expansion_for_second_words() {
    model(3, || {
        let world = World::new(2);
        let world = race(world, |world| world.add_wide(0, 0..1, WIDE), |world| world.add(1, 1..2, 2));
        assert_eq!(world.values(), [WIDE, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(FRAMES.get() - world.frames, 3, "one second word needs no side");
        world.end(2);
    });
}

/// An empty leaf with a side is about to be taken away while somebody wants a second word in it: the side goes with the
/// old leaf, or stays with its word.
#[test]
fn collapse_of_a_side_against_use() {
    model(2, || {
        let world = World::new(2).filled(1..2, WIDE);
        world.add_wide(0, 0..1, WIDE + 2);
        world.clear(0, 0..2);
        let world = world.with_empty_leaf(2);
        assert_eq!(FRAMES.get() - world.frames, 3 + 1);
        let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, |world| {
            world.add_wide(1, 0..1, WIDE);
            world.refcache.tick(&pin(1));
        });
        (0..6).for_each(|_| world.tick_all(2));
        assert_eq!(world.values(), [WIDE, 0, 0, 0, 0, 0, 0, 0]);
        assert!((3..=3 + 1).contains(&(FRAMES.get() - world.frames)));
        world.end(2);
    });
}

/// A leaf is folded while a fault comes to one of its keys: before, after, or at the leaf that is gone.
#[test]
fn a_fold_against_a_fault() {
    model(3, || {
        let world = World::new(2).with_leaf([1, 2]);
        let fault = |world: &World| assert!(matches!(world.fault(1, 1, 5), Some(2 | 10)));
        let world = race(world, |world| world.fold(0, 0..2, 10), fault);
        let values = world.values();
        assert!(values == [10, 10, 0, 0, 0, 0, 0, 0] || values == [10, 15, 0, 0, 0, 0, 0, 0], "{values:?}");
        world.end(2);
    });
}

/// The same against one who locks a range that begins, or ends, in the leaf, and one who wants nothing else.
fn fold_against_range(keys: Range<u64>) {
    model(3, move || {
        let world = World::new(2).with_leaf([1, 1]);
        let theirs = keys.clone();
        let world = race(world, |world| world.fold(0, 0..2, 10), move |world| world.add(1, theirs, 5));
        let values = world.values();
        for key in 0..2 {
            let sum = if keys.contains(&key) { 15 } else { 10 };
            assert!([10, sum].contains(&values[key as usize]), "{values:?}");
        }
        assert!((2..8).all(|key| values[key as usize] == if keys.contains(&key) { 5 } else { 0 }));
        world.end(2);
    });
}

#[test]
fn a_fold_against_a_range_within() {
    fold_against_range(1..2);
}

#[test]
fn a_fold_against_a_range_that_begins_there() {
    fold_against_range(1..3);
}

#[test]
fn a_fold_against_a_range_around() {
    fold_against_range(0..4);
}

/// Two folders of one leaf, with locks of different sizes: the second one finds no leaf, and waits for the value.
#[test]
fn a_fold_against_a_fold() {
    model(3, || {
        let world = World::new(2).with_leaf([1, 2]);
        let refold = |world: &World| {
            let pin = pin(1);
            let mut guard = world.map.lock_range(&pin, 0..4, Expand::Always).unwrap();
            guard.for_each(|entry| entry.set(Twin(20)));
        };
        let world = race(world, |world| world.fold(0, 0..2, 10), refold);
        assert!([10, 20].contains(&world.values()[0]));
        world.end(2);
    });
}

/// An empty leaf is about to be taken away while somebody folds it: the value stays, whoever comes first.
fn fold_against_collapse(epochs: usize) {
    let world = World::new(2).with_empty_leaf(epochs);
    let collapse = |world: &World| (0..3).for_each(|_| _ = world.refcache.tick(&pin(0)));
    let world = race(world, collapse, |world| {
        let pin = pin(1);
        let mut guard = world.map.lock_range(&pin, 0..2, Expand::Always).unwrap();
        let mut slots = 0;
        guard.for_each(|_| slots += 1);
        match slots {
            1 => guard.fill(Twin(10)),
            _ => guard.fold(0..2, Twin(10)).unwrap(),
        }
        drop(guard);
        world.refcache.tick(&pin);
    });
    (0..6).for_each(|_| world.tick_all(2));
    assert_eq!(world.values(), [10, 10, 0, 0, 0, 0, 0, 0]);
    assert_eq!(world.counters.total().live(), 2);
    world.end(2);
}

#[test]
fn a_fold_against_collapse_one_epoch_early() {
    model(2, || fold_against_collapse(1));
}

#[test]
fn a_fold_against_collapse_at_the_last_moment() {
    model(2, || fold_against_collapse(2));
}

/// A leaf is folded and its slot expands again, into another leaf, while the first one waits for its end: that takes
/// nothing away from the second.
#[test]
fn a_folded_leaf_goes_beside_its_successor() {
    model(2, || {
        let world = World::new(2).with_leaf([1, 2]);
        world.fold(0, 0..2, 10);
        world.tick_all(2);
        let collapse = |world: &World| (0..4).for_each(|_| _ = world.refcache.tick(&pin(0)));
        let world = race(world, collapse, |world| {
            world.fault(1, 1, 5);
            (0..2).for_each(|_| _ = world.refcache.tick(&pin(1)));
        });
        (0..6).for_each(|_| world.tick_all(2));
        assert_eq!(world.values(), [10, 15, 0, 0, 0, 0, 0, 0]);
        assert_eq!(world.counters.total().live(), 3);
        world.end(2);
    });
}

/// Who looks without a lock sees the keys of a leaf used, before, while and after it is folded.
#[test]
fn a_fold_against_a_look() {
    model(3, || {
        let world = World::new(2).with_leaf([1, 2]);
        let look = |world: &World| {
            assert!(world.map.peek(&pin(1), 1).used);
            assert!(world.map.first_used(&pin(1), 1..2).is_some());
        };
        race(world, |world| world.fold(0, 0..2, 10), look).end(2);
    });
}

/// What is cleared in a map and then in its twin, while it is copied, is in neither: the copy of a slot is there before the
/// slot is unlocked.
#[test]
fn a_copy_against_a_removal_from_both() {
    model(2, || {
        let world = World::new(2).filled(0..1, 1);
        let twin = world.twin();
        let theirs = twin.clone();
        let copy = |world: &World| {
            world.map.copy_to(&pin(0), &twin, |run| Ok(Some(run.value()))).unwrap();
        };
        let clear = move |world: &World| {
            world.clear(1, 0..1);
            let pin = pin(1);
            let mut guard = theirs.lock_range(&pin, 0..1, Expand::IfPresent).unwrap();
            guard.for_each(|entry| entry.clear());
        };
        let world = race(world, copy, clear);
        assert_eq!(world.values(), [0; 8]);
        assert_eq!(twin.first_used(&pin(0), KEYS), None);
        destroy(twin);
        world.end(2);
    });
}

/// A neighbour gets another second word while a leaf that has one for all is copied: they are no run then.
#[test]
fn a_copy_against_another_second_word() {
    model(2, || {
        let world = World::new(2).with_leaf([WIDE, WIDE]);
        let twin = world.twin();
        let theirs = twin.clone();
        let copy = move |world: &World| {
            world.map.copy_to(&pin(0), &theirs, |run| Ok(Some(run.value()))).unwrap();
        };
        let world = race(world, copy, |world| world.add_wide(1, 1..2, 2));
        let mut copied = Vec::new();
        twin.lock_range(&pin(0), 0..2, Expand::Never).unwrap().for_each(|entry| copied.extend(entry.value()));
        let copied: Vec<_> = copied.into_iter().map(|Twin(value)| value).collect();
        assert!(copied == [WIDE, WIDE] || copied == [WIDE, WIDE + 2], "{copied:?}");
        destroy(twin);
        world.end(2);
    });
}

fn destroy(twin: Arc<Map>) {
    let Some(twin) = Arc::into_inner(twin) else { panic!("both are done") };
    ManuallyDrop::into_inner(twin).destroy(&pin(0));
}
