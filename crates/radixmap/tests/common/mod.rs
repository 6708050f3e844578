//! The common part of the tests of the map.

use std::ops::Range;

use percore::Pinned;
use radixmap::{IfPresent, KEY_END, RadixMap, Value};
use refcache::{Config, Refcache};

/// Number of cores. Test threads of one binary play different ones.
pub const CORES: usize = 32;

/// A small number. An odd one has a second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin(pub u64);

impl Value for Twin {
    fn to_words(self) -> (u64, u64) {
        (self.0 << 12, if self.0.is_multiple_of(2) { 0 } else { !(self.0 / 64) << 1 })
    }
    fn from_words(main: u64, second: u64) -> Self {
        let twin = Self(main >> 12);
        assert_eq!(twin.to_words(), (main, second), "a value was torn");
        twin
    }
}

/// Joins neighbouring runs of keys that have the same value.
#[allow(dead_code)] // not every binary compares runs
pub fn joined<T: PartialEq>(runs: impl IntoIterator<Item = (Range<u64>, T)>) -> Vec<(Range<u64>, T)> {
    let mut joined: Vec<(Range<u64>, T)> = Vec::new();
    for (keys, value) in runs {
        match joined.last_mut() {
            Some((last, same)) if last.end == keys.start && *same == value => last.end = keys.end,
            _ => joined.push((keys, value)),
        }
    }
    joined
}

pub fn domain() -> Refcache {
    Refcache::new(Config { cores: CORES, cache_slots: 64, review_budget: 64 })
}

/// Turns enough epochs for a whole path of empty nodes to be freed, one level after the other. No other core
/// is online.
pub fn settle(refcache: &Refcache, pin: &Pinned) {
    for _ in 0..32 {
        refcache.tick(pin);
    }
}

/// Runs `test` on an empty map, and checks that all keys can be locked, and that all its memory is freed.
#[allow(dead_code)] // not every binary has one map for each test
pub fn on_map<V: Value>(test: impl FnOnce(&Pinned, &RadixMap<V, &Refcache>)) {
    let _core = percore::threads::enter_any(CORES);
    let pin = percore::pin();
    let refcache = domain();
    refcache.online(&pin);
    let map = RadixMap::new(&pin, &refcache).unwrap();
    test(&pin, &map);
    map.lock_range(&pin, 0..KEY_END, IfPresent).unwrap().for_each(|entry| entry.clear());
    settle(&refcache, &pin);
    assert_eq!(map.stats().live(), 1, "only the root stays");
    drop(map);
    settle(&refcache, &pin);
    assert_eq!(refcache.garbage(), 0, "nodes are left");
}
