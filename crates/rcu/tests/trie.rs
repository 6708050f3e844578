//! The trie of values by hash: one writer's changes against a naive map, and readers beside a writer.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use percore::{Pinned, threads};
use rcu::{Config, Domain, NotInserted, Spare, Trie};

const READERS: usize = 3;
const CORES: usize = 2 * (READERS + 1);
const ROUNDS: u64 = if cfg!(miri) { 40 } else { 20_000 };

/// A value with a name, which counts those that live.
struct Value {
    name: u64,
    version: u64,
    live: Arc<AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.name = u64::MAX;
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

struct World {
    domain: Domain,
    trie: Trie<Value>,
    live: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Self {
        let domain = Domain::new(Config { cores: CORES, batch: 64, bound: 1000 });
        Self { domain, trie: Trie::try_new(3).unwrap(), live: Arc::default() }
    }

    fn spare(&self, hash: u64, name: u64, version: u64) -> Spare<Value> {
        self.live.fetch_add(1, Ordering::Relaxed);
        Spare::new(hash, Value { name, version, live: Arc::clone(&self.live) }).unwrap()
    }

    fn change<'a>(&'a self, pin: &'a Pinned, hash: u64) -> rcu::Change<'a, Value> {
        // SAFETY: the world has one domain, and its threads are online.
        unsafe { self.trie.change(&self.domain, pin, [hash, hash]) }.unwrap()
    }

    /// Moves a value from one hash to the other.
    fn moves(&self, pin: &Pinned, name: u64, [from, to]: [u64; 2], version: u64) {
        // SAFETY: as above.
        let mut change = unsafe { self.trie.change(&self.domain, pin, [from, to]) }.unwrap();
        let moving = change.begin_move(from);
        change.insert(self.spare(to, name, version)).unwrap();
        assert!(change.remove(from, |value| value.name == name));
        drop(moving);
    }

    /// Returns the version of a name.
    fn find(&self, pin: &Pinned, hash: u64, name: u64) -> Option<u64> {
        // SAFETY: the core is online, and not quiescent in this function.
        unsafe { self.trie.find(pin, hash, |value| value.name == name) }.map(|value| {
            assert_eq!(value.name, name, "a value was used after its end");
            value.version
        })
    }

    fn listed(&self, after: u64) -> Vec<(u64, u64)> {
        let mut listed = Vec::new();
        self.trie.look().after(after, &mut |key, value| {
            listed.push((key, value.name));
            true
        });
        listed
    }

    /// Waits until no value waits for readers, and returns how many live.
    fn settled(&self, pin: &Pinned) -> usize {
        self.domain.drain_while(pin, || true);
        self.live.load(Ordering::Relaxed)
    }
}

/// Runs `play` as the only core.
fn alone(play: impl FnOnce(&World, &Pinned)) {
    let world = World::new();
    let _core = threads::enter_any(CORES);
    let pin = percore::pin();
    world.domain.online(&pin);
    play(&world, &pin);
    world.domain.offline(&pin);
    let live = Arc::clone(&world.live);
    drop(world);
    assert_eq!(live.load(Ordering::Relaxed), 0, "a value was lost");
}

fn dice(round: u64) -> u64 {
    let mixed = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Few hashes, some of which differ in their last digits only, and some that are equal.
fn hash(name: u64) -> u64 {
    match name % 4 {
        0 => dice(name / 8),
        1 => 0x123_4567_89ab_cde0 + ((name / 8 % 4) << 4),
        2 => ((name / 8 % 3) << 56) + 16,
        _ => dice(name) >> 4,
    }
}

#[test]
fn changes_are_those_of_a_map() {
    alone(|world, pin| {
        let mut model = BTreeMap::new();
        for round in 0..ROUNDS {
            let name = dice(round) % 64;
            let (hash, is) = (hash(name), |value: &Value| value.name == name);
            let mut change = world.change(pin, hash);
            match dice(round) >> 32 & 3 {
                0 => assert_eq!(change.remove(hash, is), model.remove(&name).is_some()),
                1 => {
                    let unused = change.replace(world.spare(hash, name, round), is);
                    assert_eq!(unused.is_none(), model.contains_key(&name));
                    model.entry(name).and_modify(|version| *version = round);
                }
                _ if change.get(hash, is).is_none() => {
                    change.insert(world.spare(hash, name, round)).unwrap();
                    model.insert(name, round);
                }
                _ => assert!(model.contains_key(&name)),
            }
            drop(change);
            assert_eq!(world.trie.look().is_empty(), model.is_empty());
            assert_eq!(world.find(pin, hash, name), model.get(&name).copied());
            let listed = world.listed(0);
            assert!(listed.is_sorted_by(|one, next| one.0 < next.0), "positions are unique and rise");
            let mut names: Vec<u64> = listed.iter().map(|listed| listed.1).collect();
            names.sort_unstable();
            assert!(names.iter().eq(model.keys()));
            if let Some(&(key, _)) = listed.get(listed.len() / 2) {
                assert_eq!(world.listed(key), listed[listed.len() / 2 + 1..]);
            }
            world.domain.quiesce(pin);
        }
        assert_eq!(world.settled(pin), model.len());
    });
}

/// Names keep their positions while others come, so a listing in parts shows each name that stays once.
#[test]
fn a_position_stays_valid() {
    alone(|world, pin| {
        let add = |names: std::ops::Range<u64>| {
            names.for_each(|name| {
                world.change(pin, hash(name)).insert(world.spare(hash(name), name, 0)).unwrap()
            })
        };
        add(0..20);
        let before = world.listed(0);
        let (key, _) = before[9];
        add(20..60);
        let rest = world.listed(key);
        assert!(before[10..].iter().all(|listed| rest.contains(listed)));
        assert!(!before[..10].iter().any(|listed| rest.contains(listed)));
    });
}

#[test]
fn sixteen_values_may_have_one_hash() {
    alone(|world, pin| {
        let mut change = world.change(pin, 1 << 20);
        (0..16).for_each(|name| change.insert(world.spare(1 << 20, name, 0)).unwrap());
        assert_eq!(change.insert(world.spare(1 << 20, 16, 0)), Err(NotInserted::Full));
        assert!(change.remove(1 << 20, |value| value.name == 7));
        assert_eq!(change.insert(world.spare(1 << 20, 16, 0)), Ok(()));
        assert!(change.get(1 << 20, |value| value.name == 16).is_some());
    });
}

#[test]
fn a_frozen_trie_takes_no_change() {
    alone(|world, pin| {
        world.change(pin, 1).insert(world.spare(1, 1, 1)).unwrap();
        world.trie.freeze();
        // SAFETY: as in `World::change`.
        assert!(unsafe { world.trie.change(&world.domain, pin, [1, 1]) }.is_none());
        assert_eq!(world.find(pin, 1, 1), Some(1));
    });
}

/// Readers find each of the names that stay, also while neighbours come and go, or while it is replaced. A
/// name that moves between two hashes is at one of the two.
#[test]
fn readers_never_miss_a_name_that_stays() {
    const STAY: u64 = 8;
    const MOVED: u64 = 1000;
    let places = [hash(MOVED), hash(1)];
    let (world, done) = (World::new(), AtomicBool::new(false));
    let reader = || {
        let _core = threads::enter_any(CORES);
        let pin = percore::pin();
        world.domain.online(&pin);
        while !done.load(Ordering::Relaxed) {
            for name in 0..STAY {
                world.find(&pin, hash(name), name).expect("a name that stays is found");
            }
            let seen = world.find(&pin, places[1], MOVED);
            let seen_later = world.find(&pin, places[0], MOVED);
            if let (Some(version), Some(later)) = (seen, seen_later) {
                assert!(later > version, "a name was at two places");
            }
            world.domain.quiesce(&pin);
        }
        world.domain.offline(&pin);
    };
    let _core = threads::enter_any(CORES);
    let pin = percore::pin();
    world.domain.online(&pin);
    (0..STAY)
        .for_each(|name| world.change(&pin, hash(name)).insert(world.spare(hash(name), name, 0)).unwrap());
    world.change(&pin, places[0]).insert(world.spare(places[0], MOVED, 0)).unwrap();
    std::thread::scope(|scope| {
        (0..READERS).for_each(|_| _ = scope.spawn(reader));
        for round in 0..ROUNDS {
            let name = STAY + dice(round) % 64;
            let is = |value: &Value| value.name == name;
            let mut change = world.change(&pin, hash(name));
            if !change.remove(hash(name), is) {
                // Sixteen names with one hash are enough.
                let _full = change.insert(world.spare(hash(name), name, round));
            }
            drop(change);
            let stays = round % STAY;
            let new = world.spare(hash(stays), stays, round);
            let unused = world.change(&pin, hash(stays)).replace(new, |value| value.name == stays);
            assert!(unused.is_none());
            let there_and_back = [0, 1].map(|step| places[(round as usize + step) % 2]);
            world.moves(&pin, MOVED, there_and_back, round);
            world.domain.quiesce(&pin);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(world.settled(&pin), world.listed(0).len());
    world.domain.offline(&pin);
}

/// Writers of many names at once, some of which share a digit, and listings beside them. Nothing is lost, and
/// a listing shows each name that stays.
#[test]
fn writers_of_different_names_take_turns_where_they_must() {
    const NAMES: u64 = 16;
    let world = World::new();
    let rounds = ROUNDS / 8;
    let writer = |first: u64| {
        let _core = threads::enter_any(CORES);
        let pin = percore::pin();
        world.domain.online(&pin);
        for round in 0..rounds {
            let name = first + dice(round ^ first) % NAMES;
            let (at, is) = (hash(name), |value: &Value| value.name == name);
            let mut change = world.change(&pin, at);
            if change.get(at, is).is_none() {
                change.insert(world.spare(at, name, round)).unwrap();
            } else if !dice(round).is_multiple_of(3) {
                assert!(change.remove(at, is));
            } else {
                drop(change);
                let to = hash(name + 1000);
                world.moves(&pin, name, [at, to], round);
                world.moves(&pin, name, [to, at], round);
            }
            world.domain.quiesce(&pin);
        }
        for name in first..first + NAMES {
            world.change(&pin, hash(name)).remove(hash(name), |value| value.name == name);
        }
        world.domain.offline(&pin);
    };
    let _core = threads::enter_any(CORES);
    let pin = percore::pin();
    world.domain.online(&pin);
    let stays = u64::MAX / 2;
    world.change(&pin, hash(stays)).insert(world.spare(hash(stays), stays, 0)).unwrap();
    std::thread::scope(|scope| {
        (0..READERS as u64).for_each(|writer_number| _ = scope.spawn(move || writer(writer_number * NAMES)));
        for _ in 0..rounds {
            let listed = world.listed(0);
            assert!(listed.is_sorted_by(|one, next| one.0 < next.0));
            assert_eq!(listed.iter().filter(|(_, name)| *name == stays).count(), 1);
            world.domain.quiesce(&pin);
        }
        world.domain.offline(&pin);
    });
    world.domain.online(&pin);
    assert_eq!(world.settled(&pin), 1);
    world.domain.offline(&pin);
}

#[test]
#[should_panic(expected = "the change is not for this hash")]
fn a_change_is_for_its_hash() {
    alone(|world, pin| {
        let _unused = world.change(pin, 0).remove(1 << 56, |_| true);
    });
}

#[test]
fn the_latest_stamp_is_told() {
    let change = |world: &World, pin: &Pinned, digit: u64, stamp| world.change(pin, digit << 56).stamp(stamp);
    alone(|world, pin| {
        assert_eq!(world.trie.stamp(), 3);
        change(world, pin, 1, 7);
        change(world, pin, 2, 5);
        assert_eq!(world.trie.stamp(), 7);
        world.trie.set_stamp(9);
        assert_eq!(world.trie.stamp(), 9);
        change(world, pin, 2, 6);
        assert_eq!(world.trie.stamp(), 6, "a change after a stamp from the future");
    });
}

/// Stamps rise, by changes and by setting. A core that asks meanwhile never gets an earlier one.
#[test]
fn a_stamp_is_set_in_one_step() {
    let (world, done) = (World::new(), AtomicBool::new(false));
    let _core = threads::enter_any(CORES);
    let pin = percore::pin();
    world.domain.online(&pin);
    let ask = || {
        let mut last = 0;
        while !done.load(Ordering::Relaxed) {
            let stamp = world.trie.stamp();
            assert!(stamp >= last, "{stamp} after {last}");
            last = stamp;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(ask);
        // The first one is above the world's, which is 3.
        for round in 1..=ROUNDS {
            world.change(&pin, 9 << 56).stamp(4 * round + 2);
            world.change(&pin, 2 << 56).stamp(4 * round + 3);
            world.trie.set_stamp(4 * round + 4);
        }
        done.store(true, Ordering::Relaxed);
    });
    world.domain.offline(&pin);
}
