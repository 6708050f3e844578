//! A map, the cores that use it, and cells that only a key's holder may access.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use percore::{CoreId, Pinned};
use radixmap::{Always, BLOCK, Expand, IfPresent, NodeCounters, RadixMap, RangeGuard, Value};
use refcache::{Config, Refcache};
use test_memory::{Poison, poisonable};

#[global_allocator]
static ALLOCATOR: Poison = Poison;

/// A small number. From `WIDE` on it has a second word. In a slot with the value `PARTED` each key has a
/// value of its own. Numbers from `ALIKE` on differ in their second words only. Those from `AGAIN` on have
/// another main word and the same second words. Second words of such numbers may have no bit in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin(pub u64);

pub const WIDE: u64 = 100;
pub const PARTED: u64 = 50;
pub const ALIKE: u64 = 1000;
pub const AGAIN: u64 = 2000;

impl Value for Twin {
    fn to_words(self) -> (u64, u64) {
        let from = if self.0 < AGAIN { ALIKE } else { AGAIN };
        let second = match self.0 {
            ..WIDE => 0,
            WIDE..ALIKE => !self.0 << 1,
            ALIKE.. => (self.0 - from + 1) << 1,
        };
        (self.0.min(from) << 12, second)
    }
    fn from_words(main: u64, second: u64) -> Self {
        let twin = Self(if main >> 12 < ALIKE { main >> 12 } else { (main >> 12) + (second >> 1) - 1 });
        assert_eq!(twin.to_words(), (main, second), "a value was torn");
        twin
    }
    fn part(self, key: u64) -> Self {
        if self.0 == PARTED { Self(PARTED + 1 + key) } else { self }
    }
}

pub const KEYS: Range<u64> = 0..8;

/// A failing model leaks it, because its drop would run outside the model.
pub type Map = ManuallyDrop<RadixMap<Twin, Arc<Refcache>>>;

/// A map, and for every key a cell that only the key's holder may access: loom reports any other access.
pub struct World {
    pub map: Map,
    pub refcache: Arc<Refcache>,
    pub counters: Arc<NodeCounters>,
    owned: [UnsafeCell<u64>; 8],
    /// The number of frames before the map was made.
    pub frames: isize,
}

// SAFETY: the cells are the subject of the test, and everything else is `Sync` by itself.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

/// Returns the token of the calling thread as `core`.
pub fn pin(core: usize) -> Pinned {
    // SAFETY: each model thread plays its own core, and the main thread plays any while it is alone.
    unsafe { Pinned::assume(CoreId::new(core)) }
}

impl World {
    /// Makes an empty map. Cores 0 to `cores - 1` are online.
    pub fn new(cores: usize) -> Self {
        let frames = poisonable();
        // There is one cache slot: if the addresses of objects decided which ones share a slot, the model
        // could not be replayed.
        let refcache = Arc::new(Refcache::new(Config { cores, cache_slots: 1, review_budget: 8 }));
        (0..cores).for_each(|core| refcache.online(&pin(core)));
        let counters = Arc::new(NodeCounters::new(cores));
        let map = RadixMap::with_counters(&pin(0), refcache.clone(), counters.clone()).unwrap();
        let map = ManuallyDrop::new(map);
        Self { map, refcache, counters, owned: [0; 8].map(UnsafeCell::new), frames }
    }

    /// Makes another map, empty, to copy into.
    pub fn twin(&self) -> Arc<Map> {
        let twin = RadixMap::with_counters(&pin(0), self.refcache.clone(), self.counters.clone()).unwrap();
        Arc::new(ManuallyDrop::new(twin))
    }

    /// Gives every key of `keys` the value `value`, folded where possible.
    pub fn filled(self, keys: Range<u64>, value: u64) -> Self {
        let pin = pin(0);
        let mut guard = self.map.lock_range(&pin, keys.clone(), Always).unwrap();
        guard.fit(keys, Twin(value)).unwrap();
        guard.fill(Twin(value));
        drop(guard);
        self
    }

    /// Makes the leaf of keys 0 and 1, and its parent. The leaf is empty and has waited for its review for
    /// `epochs` epochs.
    pub fn with_empty_leaf(self, epochs: usize) -> Self {
        let world = self.filled(0..1, 7);
        world.map.lock_range(&pin(0), 0..1, Always).unwrap().for_each(|entry| entry.clear());
        (0..epochs).for_each(|_| world.tick_all(2));
        assert_eq!(world.counters.total().live(), 3);
        world
    }

    pub fn tick_all(&self, cores: usize) {
        (0..cores).for_each(|core| _ = self.refcache.tick(&pin(core)));
    }

    /// Writes the cells of all keys of a held range, which is a race if another core holds one of them.
    pub fn touch<E: Expand>(&self, guard: &RangeGuard<'_, Twin, E>) {
        for key in guard.keys() {
            // SAFETY: we hold the key, and loom checks that no other core accesses the cell.
            self.owned[key as usize].with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    /// Locks `keys` exactly, touches them and adds `by` to their values. An empty key becomes `by`.
    pub fn add(&self, core: usize, keys: Range<u64>, by: u64) {
        let pin = pin(core);
        self.add_under(self.map.lock_range(&pin, keys, Always).unwrap(), by);
    }

    /// Adds as `add` does to one key, which may get a second word, or another one.
    pub fn add_wide(&self, core: usize, keys: Range<u64>, by: u64) {
        let pin = pin(core);
        let mut guard = self.map.lock_range(&pin, keys.clone(), Always).unwrap();
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
    pub fn clear(&self, core: usize, keys: Range<u64>) {
        let pin = pin(core);
        let mut guard = self.map.lock_range(&pin, keys, IfPresent).unwrap();
        self.touch(&guard);
        guard.for_each(|entry| entry.clear());
    }

    /// Adds `by` to the value of `key` on the fault path. Returns `None` if there is no value.
    pub fn fault(&self, core: usize, key: u64, by: u64) -> Option<u64> {
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
    pub fn fault_block(&self, core: usize, key: u64) {
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
    pub fn fold(&self, core: usize, keys: Range<u64>, value: u64) {
        let pin = pin(core);
        let mut guard = self.map.lock_range(&pin, keys, Always).unwrap();
        self.touch(&guard);
        guard.fold(0..BLOCK, Twin(value)).unwrap();
        let mut spans = Vec::new();
        guard.for_each(|entry| spans.push(entry.keys()));
        assert_eq!(spans[0], 0..BLOCK);
    }

    /// Makes the leaf of keys 0 and 1 with these values.
    pub fn with_leaf(self, values: [u64; 2]) -> Self {
        (0..2).zip(values).fold(self, |world, (key, value)| world.filled(key..key + 1, value))
    }

    /// Holds the leaf of `key` if the key has a value. Returns whether it has.
    pub fn hold(&self, core: usize, key: u64) -> bool {
        let pin = pin(core);
        let Some(mut guard) = self.map.lock_key(&pin, key).unwrap() else { return false };
        guard.for_each(|entry| entry.leaf().hold());
        true
    }

    /// Returns the value of every key, 0 for none.
    pub fn values(&self) -> [u64; 8] {
        let pin = pin(0);
        let mut values = [0; 8];
        self.map.lock_range(&pin, KEYS, IfPresent).unwrap().for_each(|entry| {
            entry.keys().for_each(|key| values[key as usize] = entry.value().map_or(0, |Twin(value)| value));
        });
        values
    }

    /// Checks, when no other core is left, that every node is freed.
    pub fn end(self, cores: usize) {
        self.end_before(cores, 0, || {});
    }

    /// Makes `core` dismantle the map before it waits for the other cores to be done.
    pub fn end_before(self, cores: usize, core: usize, wait: impl FnOnce()) {
        ManuallyDrop::into_inner(self.map).destroy(&pin(core));
        wait();
        (0..24).for_each(|_| (0..cores).for_each(|core| _ = self.refcache.tick(&pin(core))));
        assert_eq!(self.counters.total().live(), 0);
        assert_eq!(poisonable(), self.frames, "slots or a side leaked");
    }
}

pub fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
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
pub fn race(world: World, one: impl FnOnce(&World), other: impl FnOnce(&World) + Send + 'static) -> World {
    let world = Arc::new(world);
    let theirs = world.clone();
    let thread = thread::spawn(move || other(&theirs));
    one(&world);
    thread.join().unwrap();
    Arc::into_inner(world).unwrap()
}
