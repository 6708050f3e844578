//! Random calls of the public functions, those of `rcu` included: threads that read and write one tree,
//! values and waits that call back, misuse. The entries that a reader found are used until its section ends.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread;

use bonsai::{Bonsai, Reader, Update, Writer};
use fuzzing::{Dice, attempt, rounds};
use percore::Pinned;
use percore::threads;
use rcu::{Config, Domain, Owned};

/// More than the tests of this file use at a time.
const CORES: usize = 16;
const KEYS: usize = 24;

/// Messages that name a misuse, and the values' own.
const EXPECTED: [&str; 7] = [
    "a core is not quiescent inside a read section",
    "a core that is offline cannot wait for a grace period",
    "something was deferred on a core that is offline",
    "a read section on a core that is offline",
    "a value's Drop, or a callback, must neither be quiescent nor go offline",
    "a core with a Writer of a tree asked for another one",
    "a value that panics",
];

type Tree = Bonsai<u64, Value, Arc<Domain>>;

/// Runs calls that may be misuse. A panic must name it.
fn dare<R>(act: impl FnOnce() -> R) -> Option<R> {
    attempt(act)
        .inspect_err(|message| assert!(EXPECTED.contains(&message.as_str()), "unexpected: {message}"))
        .ok()
}

/// The action of a value when it is dropped.
#[derive(Clone, Copy)]
enum Will {
    Nothing,
    Panic,
    Quiesce,
    Synchronize,
    Leave,
    Read,
    Retire,
}

/// A value that knows whether it is still there.
struct Value {
    key: Box<u64>,
    alive: Arc<AtomicIsize>,
    will: Will,
}

impl Value {
    fn new(key: u64, alive: &Arc<AtomicIsize>, will: Will) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { key: Box::new(key), alive: alive.clone(), will }
    }

    fn check(&self, key: u64) {
        assert_eq!(*self.key, key, "a value was used after its end");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        assert!(*self.key < KEYS as u64, "a value was dropped twice");
        *self.key = u64::MAX;
        self.alive.fetch_sub(1, Ordering::Relaxed);
        // Only on a thread that plays a core in a round, and not while a panic is under way: two abort.
        let Some(tree) = TREE.with_borrow(Clone::clone) else { return };
        if thread::panicking() {
            return;
        }
        let (domain, pin) = (&*tree.domain, percore::pin());
        match self.will {
            Will::Nothing => (),
            Will::Panic => panic!("a value that panics"),
            Will::Quiesce => _ = domain.quiesce(&pin),
            Will::Synchronize => domain.synchronize(&pin),
            Will::Leave => domain.offline(&pin),
            Will::Read => read_all(&tree.tree.read(&pin)),
            Will::Retire => {
                let value = Value::new(0, &self.alive, Will::Nothing);
                domain.retire(&pin, Owned::try_new(value).unwrap());
            }
        }
    }
}

/// The state that the threads of a round share.
struct Shared {
    domain: Arc<Domain>,
    tree: Tree,
    alive: Arc<AtomicIsize>,
}

thread_local! {
    /// The round in which this thread plays a core.
    static TREE: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    static DICE: RefCell<Dice> = RefCell::new(Dice::new(0));
}

fn read_all(reader: &Reader<'_, u64, Value>) {
    for key in 0..KEYS as u64 {
        reader.get(key).inspect(|value| value.check(key));
        let [below, above] = reader.around(key);
        [below, above, reader.ceiling(key), reader.floor(key)]
            .into_iter()
            .flatten()
            .for_each(|(key, value)| value.check(key));
    }
}

fn roll(end: usize) -> usize {
    DICE.with_borrow_mut(|dice| dice.below(end))
}

fn will() -> Will {
    match roll(24) {
        0 => Will::Panic,
        1 => Will::Quiesce,
        2 => Will::Synchronize,
        3 => Will::Leave,
        4..8 => Will::Read,
        8 => Will::Retire,
        _ => Will::Nothing,
    }
}

impl Shared {
    fn new(dice: &mut Dice) -> Self {
        let config = Config { cores: CORES, batch: 1 + dice.below(8), bound: dice.below(20) };
        let domain = Arc::new(Domain::new(config));
        let update = if dice.one_in(2) { Update::InPlace } else { Update::Copying };
        Self { tree: Bonsai::with_update(domain.clone(), update), domain, alive: Arc::default() }
    }

    /// Plays a core for a while.
    fn play(self: &Arc<Self>, dice: Dice) {
        let core = threads::enter_any(CORES);
        DICE.set(dice);
        TREE.set(Some(self.clone()));
        core.on_relax(|| {
            if let Some(shared) = TREE.with_borrow(Clone::clone) {
                shared.in_a_wait();
            }
        });
        for _ in 0..if cfg!(miri) { 10 } else { 40 } {
            dare(|| self.step());
        }
        TREE.set(None);
        self.domain.offline(&percore::pin());
    }

    fn step(&self) {
        let (pin, key) = (percore::pin(), roll(KEYS) as u64);
        match roll(16) {
            0..5 => self.change(&pin, key),
            5..8 => self.look(&pin, key),
            8..12 => _ = self.domain.quiesce(&pin),
            12 => self.domain.synchronize(&pin),
            13 => {
                let rounds = Cell::new(roll(20));
                self.domain.drain_while(&pin, || rounds.replace(rounds.get().saturating_sub(1)) > 0);
            }
            14 if roll(3) == 0 => self.domain.offline(&pin),
            _ => self.domain.online(&pin),
        }
    }

    fn change(&self, pin: &Pinned, key: u64) {
        let mut writer = self.tree.write(pin);
        for key in key..KEYS.min(key as usize + 1 + roll(4)) as u64 {
            let value = || Value::new(key, &self.alive, will());
            match roll(4) {
                0 => _ = writer.insert(key, value()),
                1 => _ = writer.insert_new(key, value()),
                _ => _ = writer.remove(key),
            }
        }
        match roll(8) {
            0 => writer.check().unwrap(),
            1 => writer.iter().for_each(|(key, value)| value.check(key)),
            2 => writer.iter_from(key).for_each(|(key, value)| value.check(key)),
            3 => _ = self.domain.quiesce(pin),
            4 => drop::<Writer<'_, _, _>>(self.tree.write(pin)),
            _ => read_all(&writer),
        }
    }

    fn look(&self, pin: &Pinned, key: u64) {
        let reader = self.tree.read(pin);
        let found = reader.get(key);
        match roll(8) {
            0 => _ = dare(|| self.domain.quiesce(pin)),
            1 => _ = dare(|| self.domain.synchronize(pin)),
            2 => _ = dare(|| self.domain.offline(pin)),
            3 => self.change(pin, roll(KEYS) as u64),
            _ => read_all(&reader),
        }
        found.inspect(|value| value.check(key));
    }

    /// Code that a host may run in a wait.
    fn in_a_wait(&self) {
        let pin = percore::pin();
        match roll(12) {
            0 => self.look(&pin, roll(KEYS) as u64),
            1 => self.change(&pin, roll(KEYS) as u64),
            2 => _ = self.domain.quiesce(&pin),
            3 if roll(8) == 0 => self.domain.offline(&pin),
            _ => (),
        }
    }

    /// Nothing stays, when all threads have gone.
    fn close(self) {
        let Self { domain, tree, alive } = self;
        let _core = threads::enter_any(CORES);
        let pin = percore::pin();
        domain.online(&pin);
        domain.drain_while(&pin, || true);
        let left = tree.write(&pin).len() as isize;
        assert_eq!((alive.load(Ordering::Relaxed), domain.backlog()), (left, 0), "values that stay");
        drop(tree);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
        domain.offline(&pin);
    }
}

#[test]
fn threads_share_a_tree() {
    rounds(20, |dice| {
        let shared = Arc::new(Shared::new(dice));
        thread::scope(|scope| {
            for _ in 0..3 {
                let (shared, dice) = (&shared, dice.split());
                scope.spawn(move || shared.play(dice));
            }
        });
        Arc::into_inner(shared).expect("all threads are over").close();
    });
}
