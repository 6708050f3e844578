//! The skip list against `BTreeMap`, and under threads that insert, remove and look at once.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

use baselines::{Reader, SkipList};
use percore::{CoreId, Pinned, threads};
use proptest::prelude::*;
use rcu::{Config, Domain};

const THREADS: u64 = 4;
const CORES: usize = 16;
const ROUNDS: u64 = if cfg!(miri) { 25 } else { 100_000 };
/// The number of keys, which is small so that threads collide. Every eighth key is never removed.
const KEYS: u64 = 64;

/// A value that knows its key, is overwritten when dropped, and counts the live ones.
struct Value {
    key: u64,
    check: u64,
    live: Arc<AtomicIsize>,
}

impl Value {
    fn new(key: u64, live: &Arc<AtomicIsize>) -> Self {
        live.fetch_add(1, Relaxed);
        Self { key, check: !key, live: Arc::clone(live) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        assert_eq!(self.key, !self.check, "dropped twice");
        self.check = self.key;
        self.live.fetch_sub(1, Relaxed);
    }
}

type List<'d> = SkipList<Value, &'d Domain>;

/// Returns the key of an entry that was found, after checking that the value is intact.
fn key(found: Option<(u64, &Value)>) -> Option<u64> {
    found.map(|(at, value)| {
        assert_eq!((at, !at), (value.key, value.check), "another key's value, or one after its end");
        at
    })
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Remove(u64),
    Look(u64),
    Quiesce,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = prop_oneof![0..40_u64, Just(u64::MAX), Just(u64::MAX - 1)];
    let step = prop_oneof![
        4 => key.clone().prop_map(Step::Insert),
        4 => key.clone().prop_map(Step::Remove),
        4 => key.prop_map(Step::Look),
        1 => Just(Step::Quiesce),
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 40 } else { 200 })
}

fn run(steps: &[Step]) {
    let domain = Domain::new(Config { cores: 1, batch: 7, bound: 50 });
    // SAFETY: the domain is this thread's alone.
    let pin = unsafe { Pinned::assume(CoreId::new(0)) };
    domain.online(&pin);
    let (list, live) = (List::new(&domain), Arc::new(AtomicIsize::new(0)));
    let mut model = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Insert(key) => {
                let new = list.insert(&pin, key, Value::new(key, &live)).unwrap();
                assert_eq!(new, model.insert(key, ()).is_none());
            }
            Step::Remove(key) => assert_eq!(list.remove(&pin, key), model.remove(&key).is_some()),
            Step::Look(at) => look(&list.read(&pin), at, &model),
            Step::Quiesce => _ = domain.quiesce(&pin),
        }
    }
    domain.drain_while(&pin, || true);
    assert_eq!(live.load(Relaxed), model.len() as isize, "a value was lost, or is still there");
    (0..40).for_each(|at| look(&list.read(&pin), at, &model));
    drop(list);
    assert_eq!(live.load(Relaxed), 0);
}

fn look(reader: &Reader<'_, Value>, at: u64, model: &BTreeMap<u64, ()>) {
    assert_eq!(reader.get(at).is_some(), model.contains_key(&at));
    assert_eq!(key(reader.floor(at)), model.range(..=at).next_back().map(|(&key, _)| key));
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 2 } else { 500 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn it_is_a_map(steps in steps()) {
        run(&steps);
    }
}

/// A list, and for each key the number of insertions minus removals, by the answers of the calls.
struct World<'d> {
    domain: &'d Domain,
    list: List<'d>,
    balance: Vec<AtomicIsize>,
    live: Arc<AtomicIsize>,
}

fn is_permanent(key: u64) -> bool {
    key.is_multiple_of(8)
}

impl World<'_> {
    fn insert(&self, pin: &Pinned, key: u64) {
        let new = self.list.insert(pin, key, Value::new(key, &self.live)).unwrap();
        self.balance[key as usize].fetch_add(new.into(), Relaxed);
    }

    fn remove(&self, pin: &Pinned, key: u64) {
        let was_there = self.list.remove(pin, key);
        self.balance[key as usize].fetch_sub(was_there.into(), Relaxed);
    }

    fn look(&self, pin: &Pinned, at: u64) {
        let reader = self.list.read(pin);
        let found = key(reader.get(at).map(|value| (at, value)));
        assert!(found.is_some() || !is_permanent(at), "a key was missed that is always there");
        let floor = key(reader.floor(at)).expect("key 0 is always there");
        assert!(floor <= at && floor >= at - at % 8, "the floor of {at} is not {floor}");
    }

    fn play(&self, seed: u64) {
        let _core = threads::enter_any(CORES);
        let pin = percore::pin();
        self.domain.online(&pin);
        for round in 0..ROUNDS {
            let dice = (round * THREADS + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let at = dice % KEYS;
            match dice / KEYS % 4 {
                0 => self.insert(&pin, at),
                1 if !is_permanent(at) => self.remove(&pin, at),
                2 if round % 8 == 0 => _ = self.domain.quiesce(&pin),
                _ => self.look(&pin, at),
            }
        }
        self.domain.offline(&pin);
    }
}

#[test]
fn threads_insert_remove_and_look() {
    let domain = Domain::new(Config { cores: CORES, batch: 16, bound: 200 });
    let balance = (0..KEYS).map(|_| AtomicIsize::new(0)).collect();
    let world = World { domain: &domain, list: List::new(&domain), balance, live: Arc::default() };
    let enter = || {
        let core = threads::enter_any(CORES);
        domain.online(&percore::pin());
        core
    };
    let core = enter();
    (0..KEYS).step_by(8).for_each(|key| world.insert(&percore::pin(), key));
    domain.offline(&percore::pin());
    drop(core);
    std::thread::scope(|scope| {
        let world = &world;
        (0..THREADS).for_each(|seed| drop(scope.spawn(move || world.play(seed))));
    });
    let _core = enter();
    let pin = percore::pin();
    domain.drain_while(&pin, || true);
    let held = world.balance.iter().map(|balance| balance.load(Relaxed)).collect::<Vec<_>>();
    assert!(held.iter().all(|balance| (0..=1).contains(balance)), "a key was there twice: {held:?}");
    assert_eq!(world.live.load(Relaxed), held.iter().sum::<isize>(), "a value was lost, or is still there");
    let reader = world.list.read(&pin);
    (0..KEYS).for_each(|at| assert_eq!(reader.get(at).is_some(), held[at as usize] == 1));
}
