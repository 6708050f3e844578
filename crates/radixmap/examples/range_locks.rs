//! A map from keys to the users that own them, in ranges.
//!
//! Four threads play four cores. Each claims a range of its own at the same time: they lock different slots
//! and do not wait for each other. Then one key in the middle of a range is changed, and the whole range is
//! read again.
//!
//! Run it with `cargo run --example range_locks`.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;

use percore::CoreId;
use radixmap::{Always, IfPresent, RadixMap, Value};
use refcache::{Config, Refcache};

const CORES: usize = 4;
/// Aligned to a power of 512, a range of this size is one slot of the map.
const KEYS: u64 = 512 * 512;

/// A user of keys. The map stores a word for each key: this number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct User(u64);

impl Value for User {
    fn to_words(self) -> (u64, u64) {
        (self.0, 0)
    }
    fn from_words(main: u64, _: u64) -> Self {
        Self(main)
    }
}

type Map = RadixMap<User, Arc<Refcache>>;

fn main() -> Result<(), radixmap::OutOfMemory> {
    let refcache =
        Arc::new(Refcache::new(Config { cores: CORES, cache_slots: 64, review_budget: usize::MAX }));
    let core = percore::threads::enter(CoreId::new(0));
    let pin = percore::pin();
    refcache.online(&pin);
    let map = Map::new(&pin, refcache.clone())?;
    refcache.offline(&pin);
    drop(pin);
    drop(core); // A worker plays core 0 now.

    thread::scope(|scope| {
        (0..CORES).for_each(|core| {
            _ = scope.spawn({
                let (map, refcache) = (&map, &refcache);
                move || claim(map, refcache, core)
            })
        })
    });

    let _core = percore::threads::enter(CoreId::new(0));
    let pin = percore::pin();
    refcache.online(&pin);
    show(&map, &pin, "claimed")?;

    let guest = KEYS + 1000;
    if let Some(mut key) = map.lock_key(&pin, guest)? {
        key.for_each(|entry| entry.set(User(9)));
    }
    show(&map, &pin, "one key given away")?;

    map.lock_range(&pin, 0..CORES as u64 * KEYS, IfPresent)?.for_each(|entry| entry.clear());
    show(&map, &pin, "cleared")?;
    map.destroy(&pin);
    refcache.drain(&pin);
    Ok(())
}

/// Plays `core`, which claims the range with its number.
fn claim(map: &Map, refcache: &Refcache, core: usize) {
    let _core = percore::threads::enter(CoreId::new(core));
    let pin = percore::pin();
    refcache.online(&pin);
    let keys = core as u64 * KEYS..(core as u64 + 1) * KEYS;
    map.lock_range(&pin, keys, Always).expect("memory for a node").fill(User(core as u64 + 1));
    refcache.offline(&pin);
}

/// Prints the runs of keys that have one user.
fn show(map: &Map, pin: &percore::Pinned, what: &str) -> Result<(), radixmap::OutOfMemory> {
    let mut runs: Vec<(u64, u64, User)> = Vec::new();
    map.lock_range(pin, 0..CORES as u64 * KEYS, IfPresent)?.for_each(|entry| {
        let (keys, Some(user)) = (entry.keys(), entry.value()) else { return };
        match runs.last_mut() {
            Some((_, end, last)) if *end == keys.start && *last == user => *end = keys.end,
            _ => runs.push((keys.start, keys.end, user)),
        }
    });
    println!("{what}:");
    runs.iter().for_each(|(start, end, user)| println!("  {start:>7}..{end:<7} user {}", user.0));
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes in the interpreter")]
fn runs() {
    main().expect("memory for nodes");
}
