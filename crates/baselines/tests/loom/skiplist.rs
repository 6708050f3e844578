//! Insertions, removals and lookups of few keys by two or three cores. Nodes that are freed are overwritten,
//! and values detect a use after their end.

use std::sync::Arc;

use baselines::SkipList;
use loom::model::Builder;
use loom::thread::{self, JoinHandle};
use percore::{CoreId, Pinned};
use rcu::{Config, Domain};
use test_memory::{Mortal, Poison};

#[global_allocator]
static ALLOCATOR: Poison = Poison;

type List = SkipList<Mortal, Arc<Domain>>;

/// A core, its domain and the list.
struct Core {
    domain: Arc<Domain>,
    list: Arc<List>,
    pin: Pinned,
}

impl Core {
    /// Makes a core that is online. One thread at a time plays it.
    fn new(domain: &Arc<Domain>, list: &Arc<List>, core: usize) -> Self {
        // SAFETY: one thread at a time plays the core, as said above.
        let pin = unsafe { Pinned::assume(CoreId::new(core)) };
        domain.online(&pin);
        Self { domain: Arc::clone(domain), list: Arc::clone(list), pin }
    }

    fn insert(&self, key: u64) -> bool {
        let value = Mortal::new(key);
        let new = self.list.insert(&self.pin, key, value).unwrap();
        self.domain.quiesce(&self.pin);
        new
    }

    fn remove(&self, key: u64) -> bool {
        let was_there = self.list.remove(&self.pin, key);
        self.domain.quiesce(&self.pin);
        was_there
    }

    fn has(&self, key: u64) -> bool {
        let reader = self.list.read(&self.pin);
        reader.get(key).inspect(|value| value.check(key)).is_some()
    }

    fn floor(&self, key: u64) -> Option<u64> {
        let reader = self.list.read(&self.pin);
        reader.floor(key).map(|(at, value)| {
            value.check(at);
            at
        })
    }

    /// Starts the core's thread. Its domain does not wait for it afterwards.
    fn spawn(self, run: impl FnOnce(&Core) -> bool + 'static) -> JoinHandle<bool> {
        thread::spawn(move || {
            let answer = run(&self);
            self.domain.offline(&self.pin);
            answer
        })
    }
}

/// A key whose tower has two levels in a model, greater than every other key there.
const TALL: u64 = tall(10);
/// Another such key, greater than `TALL`.
const TALLER: u64 = tall(TALL + 1);

/// Returns the first key from `from` on that is on the second level, by the list's own rule.
const fn tall(from: u64) -> u64 {
    let mut key = from;
    loop {
        let mut bits = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        if (bits ^ bits >> 31) & 3 == 0 {
            return key;
        }
        key += 1;
    }
}

/// Explores `model` on three cores, with these keys in the list.
fn explore(preemptions: usize, keys: &'static [u64], model: fn([Core; 3])) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        let domain = Arc::new(Domain::new(Config { cores: 3, batch: 8, bound: 100 }));
        let list = Arc::new(List::new(Arc::clone(&domain)));
        let cores = [0, 1, 2].map(|core| Core::new(&domain, &list, core));
        keys.iter().for_each(|&key| assert!(cores[0].insert(key)));
        model(cores);
    });
}

/// A node is removed while it is still being linked upwards: it is retired by the later one of the two.
#[test]
fn insertion_against_removal_of_a_tall_node() {
    explore(3, &[], |[first, second, third]| {
        third.domain.offline(&third.pin);
        let other = second.spawn(|core| core.remove(TALL));
        assert!(first.insert(TALL));
        let removed = other.join().unwrap();
        assert_eq!(first.has(TALL), !removed);
        assert_eq!(first.remove(TALL), !removed);
    });
}

/// The same key is inserted again while the old node is being removed.
#[test]
fn the_same_key_again() {
    explore(3, &[TALL], |[first, second, third]| {
        third.domain.offline(&third.pin);
        let other = second.spawn(|core| core.insert(TALL));
        assert!(first.remove(TALL));
        let again = other.join().unwrap();
        // The old node is freed, if it is retired. A lookup that passes it fails.
        (0..4).for_each(|_| _ = first.domain.quiesce(&first.pin));
        assert_eq!(first.floor(u64::MAX), again.then_some(TALL));
    });
}

/// A new node is linked before one that is being removed.
#[test]
fn insertion_before_a_removal() {
    explore(3, &[TALLER], |[first, second, third]| {
        third.domain.offline(&third.pin);
        let other = second.spawn(|core| core.insert(TALL));
        assert!(first.remove(TALLER));
        assert!(other.join().unwrap());
        assert_eq!(first.floor(u64::MAX), Some(TALL));
        assert!(!first.has(TALLER));
    });
}

/// Neighbours are removed at once.
#[test]
fn removal_against_removal() {
    explore(2, &[TALL, TALLER], |[first, second, third]| {
        third.domain.offline(&third.pin);
        let other = second.spawn(|core| core.remove(TALLER));
        assert!(first.remove(TALL));
        assert!(other.join().unwrap());
        assert_eq!(first.floor(u64::MAX), None);
    });
}

/// Two cores remove the same key, and one succeeds.
#[test]
fn one_removes() {
    explore(3, &[TALL], |[first, second, third]| {
        third.domain.offline(&third.pin);
        let other = second.spawn(|core| core.remove(TALL));
        let mine = first.remove(TALL);
        assert_ne!(mine, other.join().unwrap());
    });
}

/// A key that is there all the time is found, and a node that is found is alive.
#[test]
fn a_lookup_against_a_removal() {
    explore(3, &[5, TALL, TALLER], |[first, second, third]| {
        second.domain.offline(&second.pin);
        let reader = third.spawn(|core| {
            core.has(TALL);
            [Some(5), Some(TALL)].contains(&core.floor(TALLER - 1)) && core.has(TALLER)
        });
        assert!(first.remove(TALL));
        assert!(reader.join().unwrap(), "a key was missed that is always there");
    });
}

/// As above, beside an insertion.
#[test]
fn a_lookup_against_an_insertion() {
    explore(3, &[5, TALLER], |[first, second, third]| {
        second.domain.offline(&second.pin);
        let reader = third.spawn(|core| {
            core.has(TALL);
            [Some(5), Some(TALL)].contains(&core.floor(TALLER - 1)) && core.has(TALLER)
        });
        assert!(first.insert(TALL));
        assert!(reader.join().unwrap(), "a key was missed that is always there");
    });
}
