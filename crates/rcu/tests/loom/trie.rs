//! The trie: searches against changes of one slot, a leaf that moves into a fork, and values that move.

use std::sync::Arc;

use loom::thread::{self, JoinHandle};
use percore::{CoreId, Pinned};
use rcu::{Config, Domain, NotLocked, Spare, Trie};
use sync::UnsafeCell;

/// Hashes that differ in the second digit, so that a fork leads to them.
const ONE: u64 = 0x100 << 48;
const TWO: u64 = 0x110 << 48;
/// A hash that differs in the first digit, so that another slot of the root leads to it.
const FAR: u64 = 0x200 << 48;

/// A value whose payload detects late accesses: loom reports a drop that is not ordered after every read.
struct Value {
    name: u64,
    dropped: UnsafeCell<bool>,
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: loom checks that no thread reads it.
        self.dropped.with_mut(|dropped| unsafe { *dropped = true });
    }
}

impl Value {
    fn read(&self) {
        // SAFETY: loom checks that no thread writes meanwhile.
        assert!(!self.dropped.with(|dropped| unsafe { *dropped }), "a dropped value was used");
    }
}

// SAFETY: loom checks the accesses.
unsafe impl Sync for Value {}

struct Shared {
    domain: Domain,
    trie: Trie<Value>,
}

/// The machine, as one core sees it.
struct Core {
    shared: Arc<Shared>,
    pin: Pinned,
}

/// Explores `model` on a machine of two cores, with a value called `ONE`. `model` gets core 0.
fn explore(preemptions: usize, model: impl Fn(Core) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let domain = Domain::new(Config { cores: 2, batch: 4, bound: 100 });
        let shared = Arc::new(Shared { domain, trie: Trie::try_new(0).unwrap() });
        let first = Core::new(&shared, 0);
        (0..2).for_each(|core| {
            let core = Core::new(&shared, core);
            core.shared.domain.online(&core.pin);
        });
        first.change(ONE).insert(spare(ONE)).unwrap();
        model(first);
    });
}

fn spare(name: u64) -> Spare<Value> {
    Spare::new(name, Value { name, dropped: UnsafeCell::new(false) }).unwrap()
}

impl Core {
    fn new(shared: &Arc<Shared>, core: usize) -> Self {
        // SAFETY: one thread plays a core: `spawn` starts one thread for each.
        Self { shared: Arc::clone(shared), pin: unsafe { Pinned::assume(CoreId::new(core)) } }
    }

    fn spawn(&self, run: impl FnOnce(Core) + 'static) -> JoinHandle<()> {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            let core = Core::new(&shared, 1);
            run(Core::new(&shared, 1));
            core.shared.domain.offline(&core.pin);
        })
    }

    fn change(&self, hash: u64) -> rcu::Change<'_, Value> {
        self.change_two([hash, hash])
    }

    fn change_two(&self, hashes: [u64; 2]) -> rcu::Change<'_, Value> {
        // SAFETY: the machine has one domain, and its cores are online.
        unsafe { self.shared.trie.change(&self.shared.domain, &self.pin, hashes) }.unwrap()
    }

    fn finds(&self, name: u64) -> bool {
        // SAFETY: the core is online, and not quiescent in this function.
        let found = unsafe { self.shared.trie.find(&self.pin, name, |value| value.name == name) };
        found.inspect(|value| value.read()).is_some()
    }

    fn removes(&self, name: u64) {
        assert!(self.change(name).remove(name, |value| value.name == name));
    }

    /// Moves the value at `ONE` to `to`, where it is called so.
    fn moves_one(&self, to: u64) {
        let mut change = self.change_two([ONE, to]);
        let moving = change.begin_move(ONE);
        change.insert(spare(to)).unwrap();
        assert!(change.remove(ONE, |value| value.name == ONE));
        drop(moving);
    }

    fn quiesces(&self, times: usize) {
        (0..times).for_each(|_| _ = self.shared.domain.quiesce(&self.pin));
    }
}

/// A leaf moves into a fork, the other leaf there goes, and a search finds the first all the time.
#[test]
fn a_leaf_that_moves_down_is_found() {
    explore(3, |core| {
        let reader = core.spawn(|core| assert!(core.finds(ONE), "a value that stays was missed"));
        core.change(TWO).insert(spare(TWO)).unwrap();
        core.removes(TWO);
        core.quiesces(2);
        reader.join().unwrap();
    });
}

/// A value and the fork above it go, and a search that finds the value may use it.
#[test]
fn a_fork_that_goes_against_a_search() {
    explore(2, |core| {
        core.change(TWO).insert(spare(TWO)).unwrap();
        let reader = core.spawn(|core| _ = core.finds(ONE));
        core.removes(TWO);
        core.removes(ONE);
        core.quiesces(3);
        reader.join().unwrap();
    });
}

/// A value that is replaced is found, the old one or the new one.
#[test]
fn a_replaced_value_is_found() {
    explore(3, |core| {
        let reader = core.spawn(|core| assert!(core.finds(ONE), "a value that is replaced was missed"));
        let unused = core.change(ONE).replace(spare(ONE), |value| value.name == ONE);
        assert!(unused.is_none());
        core.quiesces(3);
        reader.join().unwrap();
    });
}

/// A value moves from one hash to `to`. Two searches find it once.
fn moves_to_one_place(to: u64) {
    explore(2, move |core| {
        let reader = core.spawn(move |core| {
            let (is_new, is_old) = (core.finds(to), core.finds(ONE));
            assert!(!(is_new && is_old), "a value was found at two places");
        });
        core.moves_one(to);
        reader.join().unwrap();
    });
}

#[test]
fn a_value_that_moves_nearby_is_at_one_place() {
    moves_to_one_place(TWO);
}

#[test]
fn a_value_that_moves_far_is_at_one_place() {
    moves_to_one_place(FAR);
}

/// A value moves, and a search of its old place that misses it is followed by one that finds it.
fn moves_without_loss(to: u64) {
    explore(2, move |core| {
        let reader = core.spawn(move |core| {
            if !core.finds(ONE) {
                assert!(core.finds(to), "a value that moves was at no place");
            }
        });
        core.moves_one(to);
        reader.join().unwrap();
    });
}

#[test]
fn a_value_that_moves_nearby_is_not_lost() {
    moves_without_loss(TWO);
}

#[test]
fn a_value_that_moves_far_is_not_lost() {
    moves_without_loss(FAR);
}

/// Two writers of different digits change the trie at once, and a listing keeps both out.
#[test]
fn a_listing_keeps_all_writers_out() {
    explore(2, |core| {
        let writer = core.spawn(|core| {
            core.change(FAR).insert(spare(FAR)).unwrap();
            core.removes(FAR);
        });
        core.removes(ONE);
        let values = core.shared.trie.look();
        let mut shown = 0;
        values.after(0, &mut |_, value| {
            value.read();
            shown += 1;
            true
        });
        assert_eq!(shown == 0, values.is_empty(), "a listing changed while it was locked");
        drop(values);
        core.quiesces(1);
        writer.join().unwrap();
    });
}

/// A writer that does not wait gets the lock, or another writer has it.
#[test]
fn a_writer_that_does_not_wait_excludes_others() {
    explore(3, |core| {
        let take = |mut change: rcu::Change<'_, Value>| {
            let is_there = change.get(ONE, |value| value.name == ONE).is_some();
            assert_eq!(change.remove(ONE, |value| value.name == ONE), is_there, "two writers at once");
            is_there
        };
        let writer = core.spawn(move |core| _ = take(core.change(ONE)));
        // SAFETY: the machine has one domain, and its cores are online.
        let change = unsafe { core.shared.trie.try_change(&core.shared.domain, &core.pin, ONE) };
        let is_busy = matches!(change, Err(NotLocked::Busy));
        let took = change.is_ok_and(take);
        assert!(took || is_busy || !core.finds(ONE), "the lock was refused without a reason");
        core.quiesces(1);
        writer.join().unwrap();
        assert!(!core.finds(ONE));
    });
}
