//! Readers on threads against a writer: what is there all the time is found all the time.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use bonsai::{Bonsai, Reader, Update};
use percore::threads;
use rcu::{Config, Domain};

const READERS: u64 = 3;
const CORES: usize = 8;
const CHANGES: u64 = if cfg!(miri) { 60 } else { 60_000 };
/// Every eighth key is never removed. The keys between come and go.
const KEYS: u64 = if cfg!(miri) { 48 } else { 512 };

/// A value that knows its key, and is spoilt when dropped.
struct Value {
    key: u64,
    check: u64,
    live: Arc<AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        assert_eq!(self.key, !self.check, "dropped twice");
        self.check = self.key;
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// xorshift
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

struct World {
    domain: Arc<Domain>,
    tree: Bonsai<u64, Value, Arc<Domain>>,
    live: Arc<AtomicUsize>,
    done: AtomicBool,
}

fn is_permanent(key: u64) -> bool {
    key.is_multiple_of(8)
}

impl World {
    fn value(&self, key: u64) -> Value {
        self.live.fetch_add(1, Ordering::Relaxed);
        Value { key, check: !key, live: Arc::clone(&self.live) }
    }

    fn look(reader: &Reader<'_, u64, Value>, key: u64) {
        let whole = |found: Option<(u64, &Value)>| {
            found.map(|(at, value)| {
                assert_eq!((at, !at), (value.key, value.check), "a value of another key, or after its end");
                at
            })
        };
        let found = whole(reader.get(key).map(|value| (key, value)));
        assert!(found.is_some() || !is_permanent(key), "a key was missed that is always there");
        let floor = whole(reader.floor(key)).expect("key 0 is always there");
        assert!(floor <= key && floor >= key - key % 8, "the floor of {key} is not {floor}");
        let next = key.next_multiple_of(8);
        let ceiling = whole(reader.ceiling(key));
        assert!(ceiling.is_some_and(|at| at >= key && at <= next), "the ceiling of {key}: {ceiling:?}");
    }

    fn play_reader(&self, seed: u64, everybody: &Barrier) {
        let _core = threads::enter_any(CORES);
        let pin = percore::pin();
        self.domain.online(&pin);
        let mut random = Random(seed);
        everybody.wait();
        while !self.done.load(Ordering::Acquire) {
            let reader = self.tree.read(&pin);
            (0..4).for_each(|_| Self::look(&reader, random.below(KEYS - 8)));
            drop(reader);
            self.domain.quiesce(&pin);
        }
        self.domain.offline(&pin);
    }

    fn play_writer(&self, everybody: &Barrier) {
        let _core = threads::enter_any(CORES);
        let pin = percore::pin();
        self.domain.online(&pin);
        let mut writer = self.tree.write(&pin);
        (0..KEYS).step_by(8).for_each(|key| assert_eq!(writer.insert(key, self.value(key)), Ok(false)));
        drop(writer);
        everybody.wait();
        let mut random = Random(7);
        for change in 0..CHANGES {
            let (key, mut writer) = (random.below(KEYS), self.tree.write(&pin));
            if is_permanent(key) || change / 2000 % 2 == 0 {
                writer.insert(key, self.value(key)).unwrap();
            } else {
                writer.remove(key).unwrap();
            }
            drop(writer);
            if change.is_multiple_of(16) {
                self.domain.quiesce(&pin);
            }
        }
        assert_eq!(self.tree.write(&pin).check(), Ok(()));
        self.done.store(true, Ordering::Release);
        self.domain.offline(&pin);
    }
}

fn stress(update: Update) {
    let domain = Arc::new(Domain::new(Config { cores: CORES, batch: 32, bound: 256 }));
    let tree = Bonsai::with_update(Arc::clone(&domain), update);
    let world = World { domain, tree, live: Arc::default(), done: AtomicBool::new(false) };
    let everybody = Barrier::new(1 + READERS as usize);
    std::thread::scope(|scope| {
        scope.spawn(|| world.play_writer(&everybody));
        for seed in 1..=READERS {
            let (world, everybody) = (&world, &everybody);
            scope.spawn(move || world.play_reader(seed * 77, everybody));
        }
    });
    let _core = threads::enter_any(CORES);
    let pin = percore::pin();
    world.domain.online(&pin);
    world.domain.drain_while(&pin, || true);
    assert_eq!(world.live.load(Ordering::Relaxed), world.tree.write(&pin).len());
    assert!(
        cfg!(miri) || world.tree.stats().retired > 10_000,
        "too little happened: {:?}",
        world.tree.stats()
    );
}

#[test]
fn readers_against_updates_in_place() {
    stress(Update::InPlace);
}

#[test]
fn readers_against_copies() {
    stress(Update::Copying);
}
