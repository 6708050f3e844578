//! Values that threads share, and what a thread does with them.

use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex};

use fuzzing::Dice;
use percore::threads;
use refcache::{Ref, Refcache, Weak};

use crate::CORES;

const PLACES: usize = 6;
const CANARY: u64 = 0x00c0_ffee_0dd5_eed5;

/// A value that knows whether it is still there.
pub struct Value {
    canary: Box<u64>,
    alive: Arc<AtomicIsize>,
    /// Goes with the value.
    _child: Option<Ref<Value>>,
}

impl Value {
    fn check(&self) {
        assert_eq!(*self.canary, CANARY, "a value was used after its end");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.check();
        *self.canary = 0;
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Places for references, which all threads of a round reach.
pub struct Shelf {
    domain: &'static Refcache,
    strong: [Mutex<Option<Ref<Value>>>; PLACES],
    weak: [Mutex<Option<Weak<Value>>>; PLACES],
    /// Values made and not dropped yet.
    alive: Arc<AtomicIsize>,
}

impl Shelf {
    pub fn new(domain: &'static Refcache) -> Self {
        Self { domain, strong: Default::default(), weak: Default::default(), alive: Arc::default() }
    }

    /// Plays a core for a while.
    pub fn visit(&self, dice: &mut Dice) {
        let _core = threads::enter_any(CORES);
        let pin = percore::pin();
        self.domain.online(&pin);
        let mut bag = Vec::new();
        for _ in 0..30 {
            self.step(dice, &mut bag);
        }
        drop(bag);
        self.domain.offline(&pin);
    }

    fn step(&self, dice: &mut Dice, bag: &mut Vec<Ref<Value>>) {
        let at = dice.below(PLACES);
        match dice.below(8) {
            0 => {
                let child = if dice.one_in(2) { bag.pop() } else { None };
                self.put(at, Some(self.make(child)));
            }
            1 => bag.extend(self.strong[at].lock().unwrap().clone()),
            2 => drop(bag.pop()),
            3 => self.put(at, bag.pop()),
            4 => *self.weak[at].lock().unwrap() = bag.last().map(Ref::downgrade),
            5 => {
                let name = self.weak[at].lock().unwrap().clone();
                bag.extend(name.and_then(|name| name.try_get()));
            }
            6 => bag.iter().for_each(|held| held.check()),
            _ => drop(self.domain.tick(&percore::pin())),
        }
    }

    fn make(&self, child: Option<Ref<Value>>) -> Ref<Value> {
        self.alive.fetch_add(1, Ordering::Relaxed);
        let value = Value { canary: Box::new(CANARY), alive: self.alive.clone(), _child: child };
        Ref::new(self.domain, value)
    }

    fn put(&self, at: usize, held: Option<Ref<Value>>) {
        *self.strong[at].lock().unwrap() = held;
    }

    /// Empties all places: nothing stays.
    pub fn close(self) {
        let _core = threads::enter_any(CORES);
        let pin = percore::pin();
        self.domain.online(&pin);
        drop((self.strong, self.weak));
        self.domain.drain(&pin);
        assert_eq!((self.alive.load(Ordering::Relaxed), self.domain.garbage()), (0, 0), "values that stay");
        self.domain.offline(&pin);
    }
}
