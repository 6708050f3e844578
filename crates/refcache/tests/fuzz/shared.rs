//! Values that threads share, and the actions of a thread on them.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex};

use fuzzing::{Dice, attempt, forever};
use percore::{Pinned, threads};
use refcache::{Loan, Ref, Refcache, Weak};

use crate::CORES;

const PLACES: usize = 6;
const CANARY: u64 = 0x00c0_ffee_0dd5_eed5;

/// The messages that name a misuse, and the values' own.
const EXPECTED: [&str; 8] = [
    "this thread plays no core: call percore::threads::enter first",
    "a core with a Loan must not flush: it may use objects that it has not counted",
    "a value's Drop, or a release, must neither tick nor drain nor go offline",
    "a count was adjusted on a core that is offline",
    "objects were used on a core that is offline",
    "a core that is offline cannot force epochs",
    "a value that panics",
    "a visit that panics",
];

/// Runs an action that may be misuse. A panic must name the misuse.
pub fn dare<R>(act: impl FnOnce() -> R) -> Option<R> {
    attempt(act)
        .inspect_err(|message| assert!(EXPECTED.contains(&message.as_str()), "unexpected: {message}"))
        .ok()
}

thread_local! {
    static DICE: RefCell<Dice> = RefCell::new(Dice::new(0));
    /// The shelf that this thread uses in a round.
    static SHELF: RefCell<Option<Arc<Shelf>>> = const { RefCell::new(None) };
    /// The token of a thread that keeps its core for ever, and so may keep loans.
    static PIN: Cell<Option<&'static Pinned>> = const { Cell::new(None) };
    static LOANS: RefCell<Vec<Loan<'static>>> = const { RefCell::new(Vec::new()) };
}

fn roll(end: usize) -> usize {
    DICE.with_borrow_mut(|dice| dice.below(end))
}

/// The action of a value's drop.
#[derive(Clone, Copy)]
enum Will {
    Nothing,
    Panic,
    Tick,
    Drain,
    Leave,
    KeepLoan,
    /// Any step, which may take, make and drop other values.
    Step,
}

fn will() -> Will {
    match roll(20) {
        0 => Will::Panic,
        1 => Will::Tick,
        2 => Will::Drain,
        3 => Will::Leave,
        4 => Will::KeepLoan,
        5..8 => Will::Step,
        _ => Will::Nothing,
    }
}

/// A value that can tell whether it is still there.
pub struct Value {
    canary: Box<u64>,
    alive: Arc<AtomicIsize>,
    /// Dropped with the value.
    _child: Option<Ref<Value>>,
    will: Will,
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
        // A value that is dropped while a round closes does nothing more.
        let Some(shelf) = SHELF.with_borrow(Clone::clone) else { return };
        let pin = percore::pin();
        match self.will {
            Will::Nothing => (),
            Will::Panic => panic!("a value that panics"),
            Will::Tick => _ = shelf.domain.tick(&pin),
            Will::Drain => _ = shelf.domain.drain(&pin),
            Will::Leave => shelf.domain.offline(&pin),
            Will::KeepLoan => shelf.keep_loan(),
            Will::Step => shelf.step(&mut Vec::new()),
        }
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

    /// Uses the values for a while, on a core most of the time. The references held at the end are dropped
    /// there, or later, without a core.
    pub fn visit(self: &Arc<Self>, dice: Dice) {
        DICE.set(dice);
        SHELF.set(Some(self.clone()));
        let mut bag = Vec::new();
        if roll(8) > 0 {
            let core = threads::enter_any(CORES);
            core.on_relax(in_a_wait);
            self.steps(&mut bag);
            self.leave(&percore::pin());
        }
        (0..5).for_each(|_| _ = dare(|| self.step(&mut bag)));
        SHELF.set(None);
    }

    /// Uses the values for a while, on a core that this thread never gives back. Loans may be kept from one
    /// step to the next.
    pub fn visit_for_ever(self: &Arc<Self>, dice: Dice) {
        DICE.set(dice);
        SHELF.set(Some(self.clone()));
        if PIN.get().is_none() {
            let core = threads::enter_any(CORES);
            core.on_relax(in_a_wait);
            PIN.set(Some(forever(percore::pin())));
            std::mem::forget(core);
        }
        self.steps(&mut Vec::new());
        LOANS.take();
        self.leave(&percore::pin());
        SHELF.set(None);
    }

    fn steps(&self, bag: &mut Vec<Ref<Value>>) {
        self.domain.online(&percore::pin());
        (0..40).for_each(|_| _ = dare(|| self.step(bag)));
    }

    /// Takes the core out of the epochs, so that no core waits for it.
    fn leave(&self, pin: &Pinned) {
        SHELF.take();
        self.domain.offline(pin);
    }

    fn step(&self, bag: &mut Vec<Ref<Value>>) {
        let at = roll(PLACES);
        match roll(20) {
            0..3 => {
                let child = if roll(2) == 0 { bag.pop() } else { None };
                put(&self.strong[at], Some(self.make(child)));
            }
            3..5 => {
                let held = lock(&self.strong[at]);
                bag.extend(held.clone());
            }
            5 => drop(bag.pop()),
            6 => put(&self.strong[at], bag.pop()),
            7 => put(&self.weak[at], bag.last().map(Ref::downgrade)),
            8 => {
                let name = lock(&self.weak[at]).clone();
                bag.extend(name.and_then(|name| name.try_get()));
            }
            9..11 => bag.iter().for_each(|held| held.check()),
            11..15 => _ = self.domain.tick(&percore::pin()),
            _ => self.come_or_go(),
        }
    }

    fn come_or_go(&self) {
        let pin = percore::pin();
        match roll(16) {
            0 => {
                let rounds = Cell::new(roll(20));
                self.domain.drain_while(&pin, || {
                    in_a_wait();
                    rounds.replace(rounds.get().saturating_sub(1)) > 0
                });
            }
            1 => self.domain.offline(&pin),
            2 => {
                let _loan = self.domain.loan(&pin);
                self.step(&mut Vec::new());
            }
            3 => self.domain.while_online(&pin, || self.step(&mut Vec::new())),
            4 => self.domain.while_online(&pin, || panic!("a visit that panics")),
            5 => self.keep_loan(),
            6..9 => _ = LOANS.take(),
            9..11 => _ = self.domain.doze(&pin, roll(4)),
            _ => self.domain.online(&pin),
        }
    }

    fn keep_loan(&self) {
        if let Some(pin) = PIN.get() {
            let loan = self.domain.loan(pin);
            LOANS.with_borrow_mut(|loans| loans.push(loan));
        }
    }

    fn make(&self, child: Option<Ref<Value>>) -> Ref<Value> {
        self.alive.fetch_add(1, Ordering::Relaxed);
        let value =
            Value { canary: Box::new(CANARY), alive: self.alive.clone(), _child: child, will: will() };
        Ref::new(self.domain, value)
    }

    /// Empties all places, and checks that no value stays.
    pub fn close(self) {
        let _core = threads::enter_any(CORES);
        let pin = percore::pin();
        drop((self.strong, self.weak));
        self.domain.online(&pin);
        self.domain.drain(&pin);
        assert_eq!((self.alive.load(Ordering::Relaxed), self.domain.garbage()), (0, 0), "values that stay");
        self.domain.offline(&pin);
    }
}

/// Does an action that a host may run in a wait.
fn in_a_wait() {
    if let Some(shelf) = SHELF.with_borrow(Clone::clone)
        && roll(6) == 0
    {
        dare(|| shelf.step(&mut Vec::new()));
    }
}

/// Locks a place. A step that panics leaves the place as it was, or empty, so a poisoned lock is usable.
fn lock<T>(place: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    place.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn put<T>(place: &Mutex<T>, new: T) {
    *lock(place) = new;
}
