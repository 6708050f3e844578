//! Real threads, each playing a core: values travel, are lost and found, and cores come and go.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use percore::threads;
use refcache::{Config, Ref, Refcache, Weak};

const THREADS: usize = 4;
const PLACES: usize = 6;
const ROUNDS: u64 = if cfg!(miri) { 60 } else { 200_000 };
/// More values than a core frees in the epochs for which a drain waits without any release.
const MANY: usize = 400;
const ALIVE: u64 = 0x600d;

static DOMAIN: OnceLock<Refcache> = OnceLock::new();
static MADE: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A value that can tell whether it is alive, if its memory can be read at all.
struct Value(AtomicU64);

impl Value {
    fn new() -> Self {
        MADE.fetch_add(1, Ordering::Relaxed);
        Self(AtomicU64::new(ALIVE))
    }

    fn check(&self) {
        assert_eq!(self.0.load(Ordering::Relaxed), ALIVE, "a dropped value was reached");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        assert_eq!(self.0.swap(0xdead, Ordering::Relaxed), ALIVE, "dropped twice");
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The places where threads leave values for each other.
static VALUES: [Mutex<Option<Ref<Value>>>; PLACES] = [const { Mutex::new(None) }; PLACES];
/// Weak references to values that may be gone.
static NAMES: [Mutex<Option<Weak<Value>>>; PLACES] = [const { Mutex::new(None) }; PLACES];

fn domain() -> &'static Refcache {
    DOMAIN.get_or_init(|| Refcache::new(Config { cores: 2 * THREADS, cache_slots: 4, review_budget: 5 }))
}

fn one_round(round: u64, thread: usize) {
    let at = (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    let place = at % PLACES;
    match (at / PLACES + thread) % 8 {
        0 => drop(VALUES[place].lock().unwrap().replace(Ref::new(domain(), Value::new()))),
        1 => drop(VALUES[place].lock().unwrap().take()),
        2 | 3 => copy(place, (place + 1) % PLACES),
        4 => name(place),
        5 | 6 => find(place),
        _ if round.is_multiple_of(16) => rest(),
        _ => drop(domain().tick(&percore::pin())),
    }
}

fn copy(from: usize, to: usize) {
    let found = VALUES[from].lock().unwrap().clone();
    found.iter().for_each(|value| value.check());
    let old = std::mem::replace(&mut *VALUES[to].lock().unwrap(), found);
    old.iter().for_each(|value| value.check());
}

fn name(place: usize) {
    let name = VALUES[place].lock().unwrap().as_ref().map(Ref::downgrade);
    drop(std::mem::replace(&mut *NAMES[place].lock().unwrap(), name));
}

fn find(place: usize) {
    let found = NAMES[place].lock().unwrap().as_ref().and_then(Weak::try_get);
    if let Some(value) = found {
        value.check();
        VALUES[place].lock().unwrap().get_or_insert(value).check();
    }
}

fn rest() {
    domain().offline(&percore::pin());
    std::thread::yield_now();
    domain().online(&percore::pin());
}

/// One thread's whole part in the first test.
fn play(thread: usize) {
    let _core = threads::enter_any(2 * THREADS);
    domain().online(&percore::pin());
    for round in 0..ROUNDS {
        one_round(round + thread as u64 * 7919, thread);
    }
    domain().offline(&percore::pin());
}

#[test]
fn nothing_is_lost_and_nothing_dropped_twice() {
    std::thread::scope(|scope| (0..THREADS).for_each(|thread| drop(scope.spawn(move || play(thread)))));
    let _core = threads::enter_any(2 * THREADS);
    domain().online(&percore::pin());
    for place in 0..PLACES {
        drop(VALUES[place].lock().unwrap().take());
        drop(NAMES[place].lock().unwrap().take());
    }
    domain().drain(&percore::pin());
    assert_eq!(domain().garbage(), 0);
    let made = MADE.load(Ordering::Relaxed);
    assert!(made > THREADS, "{made} values are no test");
    assert_eq!(DROPPED.load(Ordering::Relaxed), made);
}

/// A core that ticks only when it is asked to, and once an epoch, follows a drain, and a drain waits for all
/// objects that such a core frees.
#[test]
fn a_drain_carries_the_others_along() {
    static DOMAIN: OnceLock<Refcache> = OnceLock::new();
    let domain =
        DOMAIN.get_or_init(|| Refcache::new(Config { cores: 2 * THREADS, cache_slots: 4, review_budget: 5 }));
    let drained = AtomicUsize::new(0);
    let ready = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _core = threads::enter_any(2 * THREADS);
            domain.online(&percore::pin());
            (0..MANY).for_each(|_| drop(Ref::new(domain, ())));
            ready.wait();
            let mut last = 0;
            while drained.load(Ordering::Acquire) == 0 {
                if domain.is_forced() && domain.epoch() != last {
                    last = domain.epoch();
                    domain.tick(&percore::pin());
                }
                std::thread::yield_now();
            }
            assert_eq!(domain.garbage(), 0, "the drain left something behind");
            domain.offline(&percore::pin());
        });
        let _core = threads::enter_any(2 * THREADS);
        domain.online(&percore::pin());
        drop(Ref::new(domain, ()));
        ready.wait();
        domain.drain(&percore::pin());
        drained.store(1, Ordering::Release);
    });
}
