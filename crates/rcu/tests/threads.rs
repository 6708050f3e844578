//! Threads that read, replace, come and go.
#![cfg(not(loom))]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use percore::threads;
use rcu::{Config, Domain, Owned};

const THREADS: usize = 4;
const ROUNDS: u64 = if cfg!(miri) { 60 } else { 40_000 };
const PLACES: usize = 3;

/// A value whose words change when it is dropped.
struct Value {
    words: [u64; 2],
    live: Arc<AtomicUsize>,
}

impl Value {
    fn publish(word: u64, live: &Arc<AtomicUsize>) -> *mut Value {
        live.fetch_add(1, Ordering::Relaxed);
        let value = Value { words: [word, !word], live: Arc::clone(live) };
        Owned::try_new(value).unwrap().into_raw().as_ptr()
    }

    fn check(&self) {
        assert_eq!(self.words[0], !self.words[1], "a value was used after its end");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.check();
        self.words = [0; 2];
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

struct World {
    domain: Domain,
    places: [AtomicPtr<Value>; PLACES],
    live: Arc<AtomicUsize>,
}

impl World {
    fn read(&self, at: usize) {
        let pin = percore::pin();
        let _guard = self.domain.read(&pin);
        // SAFETY: the value was linked when it was loaded, inside the section.
        unsafe { &*self.places[at].load(Ordering::Acquire) }.check();
    }

    fn replace(&self, at: usize, word: u64) {
        let old = self.places[at].swap(Value::publish(word, &self.live), Ordering::AcqRel);
        // SAFETY: made by `publish`, and the swap has given it to this thread.
        let old = unsafe { Owned::from_raw(NonNull::new(old).unwrap()) };
        self.domain.retire(&percore::pin(), old);
    }

    fn round(&self, round: u64, thread: usize) {
        let dice = (round * THREADS as u64 + thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let at = dice as usize % PLACES;
        match dice / 7 % 16 {
            0..8 => self.read(at),
            8..11 => self.replace(at, round),
            11 if dice.is_multiple_of(32) => self.domain.synchronize(&percore::pin()),
            12 if dice.is_multiple_of(4) => self.rest(),
            _ => _ = self.domain.quiesce(&percore::pin()),
        }
    }

    fn rest(&self) {
        self.domain.offline(&percore::pin());
        std::thread::yield_now();
        self.domain.online(&percore::pin());
    }

    fn play(&self, thread: usize, everybody: &Barrier) {
        let _core = threads::enter_any(2 * THREADS);
        self.domain.online(&percore::pin());
        everybody.wait();
        (0..ROUNDS).for_each(|round| self.round(round, thread));
        self.domain.offline(&percore::pin());
    }
}

#[test]
fn nothing_is_used_after_its_end_and_nothing_is_lost() {
    let live = Arc::default();
    let world = World {
        domain: Domain::new(Config { cores: 2 * THREADS, batch: 8, bound: 64 }),
        places: std::array::from_fn(|at| AtomicPtr::new(Value::publish(at as u64, &live))),
        live,
    };
    let everybody = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, everybody) = (&world, &everybody);
            scope.spawn(move || world.play(thread, everybody));
        }
    });
    let _core = threads::enter_any(2 * THREADS);
    let pin = percore::pin();
    world.domain.online(&pin);
    world.domain.drain_while(&pin, || true);
    assert_eq!(world.live.load(Ordering::Relaxed), PLACES, "only what is still linked lives");
    for place in &world.places {
        let value = NonNull::new(place.load(Ordering::Relaxed)).unwrap();
        // SAFETY: no other thread is left.
        drop(unsafe { Owned::from_raw(value) });
    }
}
