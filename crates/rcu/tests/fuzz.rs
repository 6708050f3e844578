//! Random calls of the public functions: threads that publish, read and retire values, and that come and go,
//! values and waits that call back, and misuse.
//!
//! Safe code cannot publish a pointer. So a place is a lock with the value in it, and a reader takes the
//! value's mark from there. The mark says whether the value has been dropped, which must not happen before
//! the reader's section ends.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, thread};

use fuzzing::{Dice, attempt, rounds};
use percore::{Pinned, threads};
use rcu::{Config, Domain, Owned};

/// More cores than the tests of this file use at a time.
const CORES: usize = 16;
const PLACES: usize = 4;

/// The messages that name a misuse, and the values' own.
const EXPECTED: [&str; 5] = [
    "a core is not quiescent inside a read section",
    "a core that is offline cannot wait for a grace period",
    "a read section on a core that is offline",
    "a value's Drop, or a callback, must neither be quiescent nor go offline",
    "a value that panics",
];

/// Runs an action that may be misuse. A panic must name the misuse.
fn dare<R>(act: impl FnOnce() -> R) -> Option<R> {
    attempt(act)
        .inspect_err(|message| assert!(EXPECTED.contains(&message.as_str()), "unexpected: {message}"))
        .ok()
}

thread_local! {
    static DICE: RefCell<Dice> = RefCell::new(Dice::new(0));
    /// The round in which this thread plays a core.
    static SHARED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

fn roll(end: usize) -> usize {
    DICE.with_borrow_mut(|dice| dice.below(end))
}

/// The action of a value's drop.
#[derive(Clone, Copy)]
enum Will {
    Nothing,
    Panic,
    Quiesce,
    Synchronize,
    Drain,
    Leave,
    Read,
    Replace,
}

fn will() -> Will {
    match roll(24) {
        0 => Will::Panic,
        1 => Will::Quiesce,
        2 => Will::Synchronize,
        3 => Will::Drain,
        4 => Will::Leave,
        5..8 => Will::Read,
        8 => Will::Replace,
        _ => Will::Nothing,
    }
}

/// A value that tells when it is dropped.
struct Value {
    /// Lets AddressSanitizer see a second drop.
    _block: Box<u64>,
    ended: Arc<AtomicBool>,
    alive: Arc<AtomicIsize>,
    will: Will,
}

impl Drop for Value {
    fn drop(&mut self) {
        assert!(!self.ended.swap(true, Ordering::AcqRel), "a value was dropped twice");
        self.alive.fetch_sub(1, Ordering::Relaxed);
        // The action runs only on a thread that plays a core in a round, and not during a panic, since a
        // second panic aborts.
        let Some(shared) = SHARED.with_borrow(Clone::clone) else { return };
        if thread::panicking() {
            return;
        }
        let (domain, pin) = (&shared.domain, percore::pin());
        match self.will {
            Will::Nothing => (),
            Will::Panic => panic!("a value that panics"),
            Will::Quiesce => _ = domain.quiesce(&pin),
            Will::Synchronize => domain.synchronize(&pin),
            Will::Drain => _ = domain.drain_while(&pin, || true),
            Will::Leave => domain.offline(&pin),
            Will::Read => shared.look(&pin),
            Will::Replace => shared.replace(&pin, None),
        }
    }
}

/// The state that the threads of a round share.
struct Shared {
    domain: Domain,
    places: [Mutex<Option<Owned<Value>>>; PLACES],
    /// Values made and not dropped yet.
    alive: Arc<AtomicIsize>,
}

impl Shared {
    fn new(dice: &mut Dice) -> Self {
        let config = Config { cores: CORES, batch: 1 + dice.below(4), bound: dice.below(10) };
        Self { domain: Domain::new(config), places: Default::default(), alive: Arc::default() }
    }

    /// Plays a core for a while.
    fn play(self: &Arc<Self>, dice: Dice) {
        let core = threads::enter_any(CORES);
        DICE.set(dice);
        SHARED.set(Some(self.clone()));
        core.on_relax(|| {
            if let Some(shared) = SHARED.with_borrow(Clone::clone) {
                shared.in_a_wait();
            }
        });
        self.domain.online(&percore::pin());
        for _ in 0..if cfg!(miri) { 15 } else { 60 } {
            dare(|| self.step());
        }
        SHARED.set(None);
        self.domain.offline(&percore::pin());
    }

    fn step(&self) {
        let pin = percore::pin();
        match roll(20) {
            0..5 => self.replace(&pin, Some(self.make())),
            5 => self.replace(&pin, None),
            6..10 => self.look(&pin),
            10..15 => _ = self.domain.quiesce(&pin),
            15 => self.domain.synchronize(&pin),
            16 => {
                let rounds = Cell::new(roll(20));
                self.domain.drain_while(&pin, || rounds.replace(rounds.get().saturating_sub(1)) > 0);
            }
            17 => self.domain.offline(&pin),
            _ => self.domain.online(&pin),
        }
    }

    fn make(&self) -> Owned<Value> {
        self.alive.fetch_add(1, Ordering::Relaxed);
        let value =
            Value { _block: Box::new(0), ended: Arc::default(), alive: self.alive.clone(), will: will() };
        Owned::try_new(value).expect("there is memory")
    }

    /// Puts another value into a place and retires the one before. Does nothing on a core that is offline,
    /// where retiring would leak it.
    fn replace(&self, pin: &Pinned, new: Option<Owned<Value>>) {
        if !self.domain.is_online(pin) {
            return;
        }
        let old = mem::replace(&mut *lock(&self.places[roll(PLACES)]), new);
        if let Some(old) = old {
            self.domain.retire(pin, old);
        }
    }

    /// Finds a value in a read section, and does something else before the section ends.
    fn look(&self, pin: &Pinned) {
        let _guard = self.domain.read(pin);
        let found = lock(&self.places[roll(PLACES)]).as_ref().map(|value| value.ended.clone());
        match roll(8) {
            0 => _ = dare(|| self.domain.quiesce(pin)),
            1 => _ = dare(|| self.domain.synchronize(pin)),
            2 => _ = dare(|| self.domain.offline(pin)),
            3 => _ = dare(|| self.domain.drain_while(pin, || true)),
            4 => self.replace(pin, Some(self.make())),
            5 => self.look(pin),
            _ => thread::yield_now(),
        }
        if let Some(ended) = found {
            assert!(!ended.load(Ordering::Acquire), "a value was dropped under a reader");
        }
    }

    /// Does an action that a host may run in a wait.
    fn in_a_wait(&self) {
        let pin = percore::pin();
        match roll(12) {
            0 => self.look(&pin),
            1 => self.replace(&pin, Some(self.make())),
            2 => _ = self.domain.quiesce(&pin),
            3 if roll(8) == 0 => self.domain.offline(&pin),
            _ => (),
        }
    }

    /// Checks that no value stays when all threads have ended. A domain that is dropped runs the callbacks
    /// that still wait.
    fn close(self, drains: bool) {
        let Self { domain, places, alive } = self;
        drop(places);
        if drains {
            let _core = threads::enter_any(CORES);
            let pin = percore::pin();
            domain.online(&pin);
            domain.drain_while(&pin, || true);
            assert_eq!((alive.load(Ordering::Relaxed), domain.backlog()), (0, 0), "values that stay");
            domain.offline(&pin);
        }
        drop(domain);
        assert_eq!(alive.load(Ordering::Relaxed), 0, "values that outlive their domain");
    }
}

/// Locks a place. A step that panics leaves the place as it was, so a poisoned lock is usable.
fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn threads_share_places() {
    rounds(40, |dice| {
        let shared = Arc::new(Shared::new(dice));
        thread::scope(|scope| {
            for _ in 0..3 {
                let (shared, dice) = (&shared, dice.split());
                scope.spawn(move || shared.play(dice));
            }
        });
        Arc::into_inner(shared).expect("all threads are over").close(dice.one_in(2));
    });
}
