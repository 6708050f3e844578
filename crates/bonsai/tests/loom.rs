//! Lookups against the writer, model-checked. A key that is there all the time is always found; one that comes or goes is found or
//! not; what is found is alive.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radixvm-bonsai --test loom --release`
#![cfg(loom)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;

use bonsai::{Bonsai, Reader, Update, Writer};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use percore::{CoreId, Pinned};
use rcu::{Config, Domain};

/// Overwrites the nodes that are freed, and never gives them out again: a model that touches one goes astray at once.
struct Poison;

// SAFETY: the system's allocator, but for blocks that it never gets back.
unsafe impl GlobalAlloc for Poison {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller gives up the block; only nodes are aligned like this.
        unsafe {
            match layout.align() {
                64 => memory.write_bytes(0x5a, layout.size()),
                _ => System.dealloc(memory, layout),
            }
        }
    }
}

#[global_allocator]
static ALLOCATOR: Poison = Poison;

/// Loom sees a use that is not ordered before the end.
struct Value {
    key: u32,
    ended: UnsafeCell<bool>,
}

// SAFETY: loom checks every access.
unsafe impl Sync for Value {}

impl Value {
    fn new(key: u32) -> Self {
        Self { key, ended: UnsafeCell::new(false) }
    }

    fn check(&self, key: u32) {
        assert_eq!(self.key, key, "the value of another key");
        // SAFETY: loom checks that nobody writes meanwhile.
        self.ended.with(|ended| unsafe { assert!(!*ended, "a value was used after its end") });
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: loom checks that nobody uses it.
        self.ended.with_mut(|ended| unsafe { *ended = true });
    }
}

type Tree = Bonsai<u32, Value, Arc<Domain>>;

/// A core, its domain and the tree.
struct Core {
    domain: Arc<Domain>,
    tree: Arc<Tree>,
    pin: Pinned,
}

impl Core {
    fn insert(&self, key: u32) {
        self.change(|writer| writer.insert(key, Value::new(key)).map(drop).unwrap());
    }

    fn remove(&self, key: u32) {
        self.change(|writer| assert_eq!(writer.remove(key), Ok(true)));
    }

    fn change(&self, change: impl FnOnce(&mut Writer<'_, u32, Value>)) {
        change(&mut self.tree.write(&self.pin));
        self.quiesce();
    }

    fn quiesce(&self) {
        self.domain.quiesce(&self.pin);
    }
}

/// What a reader looks for.
#[derive(Clone, Copy)]
enum Look {
    /// A key that is always there.
    Always(u32),
    /// A key that may be there.
    Maybe(u32),
    /// The floor of the first key is one of the others.
    Floor(u32, &'static [u32]),
    /// The same for the ceiling.
    Ceiling(u32, &'static [u32]),
}

fn nearest(found: Option<(u32, &Value)>, allowed: &[u32]) {
    let (key, value) = found.expect("something is always there");
    value.check(key);
    assert!(allowed.contains(&key), "{key} was never the nearest");
}

fn look(reader: &Reader<'_, u32, Value>, what: Look) {
    match what {
        Look::Always(key) => reader.get(key).expect("a key was missed that is always there").check(key),
        Look::Maybe(key) => reader.get(key).iter().for_each(|value| value.check(key)),
        Look::Floor(key, allowed) => nearest(reader.floor(key), allowed),
        Look::Ceiling(key, allowed) => nearest(reader.ceiling(key), allowed),
    }
}

/// A change by one core, against a lookup by another.
struct Model {
    update: Update,
    /// What is there at first, in the order of insertion.
    keys: &'static [u32],
    change: fn(&Core),
    /// How many nodes the change retires: that it does what the model is about.
    retires: u64,
}

impl Model {
    /// Explores the change against one lookup after the other.
    fn explore(&'static self, looks: &[Look]) {
        for &what in looks {
            let mut builder = Builder::new();
            builder.preemption_bound = Some(3);
            builder.max_branches = 10_000;
            builder.check(move || self.run(what));
        }
    }

    fn run(&self, what: Look) {
        let domain = Arc::new(Domain::new(Config { cores: 2, batch: 8, bound: 100 }));
        let tree = Arc::new(Bonsai::with_update(Arc::clone(&domain), self.update));
        let core = |core| {
            // SAFETY: each is played by one thread.
            let pin = unsafe { Pinned::assume(CoreId::new(core)) };
            domain.online(&pin);
            Core { domain: Arc::clone(&domain), tree: Arc::clone(&tree), pin }
        };
        let writer = core(0);
        self.keys.iter().for_each(|&key| writer.insert(key));
        let before = tree.stats().retired;
        let reader = core(1);
        let reading = thread::spawn(move || {
            look(&reader.tree.read(&reader.pin), what);
            reader.domain.offline(&reader.pin);
        });
        (self.change)(&writer);
        writer.quiesce();
        reading.join().unwrap();
        assert_eq!(tree.stats().retired - before, self.retires);
        assert_eq!(tree.write(&writer.pin).check(), Ok(()));
    }
}

const IN_PLACE: Model = Model { update: Update::InPlace, keys: &[], change: |_| {}, retires: 0 };

#[test]
fn a_new_leaf() {
    static MODEL: Model = Model { keys: &[2, 1], change: |core| core.insert(3), ..IN_PLACE };
    MODEL.explore(&[Look::Always(1), Look::Maybe(3), Look::Floor(4, &[2, 3])]);
}

#[test]
fn a_new_value() {
    static MODEL: Model = Model { keys: &[2, 1, 3], change: |core| core.insert(3), ..IN_PLACE };
    MODEL.explore(&[Look::Always(3), Look::Ceiling(3, &[3])]);
}

/// 1, 2, 3 lean to the right, and 4 is too much at 1.
#[test]
fn a_single_rotation() {
    static MODEL: Model = Model { keys: &[1, 2, 3], change: |core| core.insert(4), retires: 2, ..IN_PLACE };
    MODEL.explore(&[
        Look::Always(1),
        Look::Always(2),
        Look::Always(3),
        Look::Maybe(4),
        Look::Floor(9, &[3, 4]),
    ]);
}

/// The same from the inner side.
#[test]
fn a_double_rotation() {
    static MODEL: Model = Model { keys: &[1, 4, 3], change: |core| core.insert(2), retires: 3, ..IN_PLACE };
    MODEL.explore(&[
        Look::Always(1),
        Look::Always(3),
        Look::Always(4),
        Look::Maybe(2),
        Look::Ceiling(2, &[2, 3]),
    ]);
}

/// A rotation at the root, and one below it: the node that the first has retired is taken apart by the second.
#[test]
fn one_rotation_after_the_other() {
    static MODEL: Model = Model {
        keys: &[1, 2, 3],
        change: |core| (4..7).for_each(|key| core.insert(key)),
        retires: 4,
        ..IN_PLACE
    };
    MODEL.explore(&[Look::Always(3), Look::Maybe(6)]);
}

#[test]
fn removal_of_a_leaf() {
    static MODEL: Model = Model { keys: &[2, 1, 3], change: |core| core.remove(3), retires: 1, ..IN_PLACE };
    MODEL.explore(&[Look::Always(2), Look::Maybe(3), Look::Floor(3, &[2, 3])]);
}

#[test]
fn removal_of_a_node_with_one_child() {
    static MODEL: Model =
        Model { keys: &[2, 1, 3, 4], change: |core| core.remove(3), retires: 1, ..IN_PLACE };
    MODEL.explore(&[Look::Always(4), Look::Maybe(3), Look::Ceiling(3, &[3, 4])]);
}

/// 2 over 1 and 4 over 3 and 5: 3 takes the place of 2.
#[test]
fn removal_of_a_node_with_two_children() {
    static MODEL: Model =
        Model { keys: &[2, 1, 4, 3, 5], change: |core| core.remove(2), retires: 3, ..IN_PLACE };
    MODEL.explore(&[
        Look::Always(1),
        Look::Always(3),
        Look::Always(4),
        Look::Always(5),
        Look::Maybe(2),
        Look::Floor(2, &[1, 2]),
        Look::Ceiling(2, &[2, 3]),
    ]);
}

/// The same tree: without 1 it leans to the right too much.
#[test]
fn removal_with_a_rotation() {
    static MODEL: Model =
        Model { keys: &[2, 1, 4, 3, 5], change: |core| core.remove(1), retires: 3, ..IN_PLACE };
    MODEL.explore(&[Look::Always(2), Look::Always(3), Look::Always(5), Look::Maybe(1)]);
}

/// The way to 3 is copied up to the root.
#[test]
fn copies() {
    static MODEL: Model =
        Model { update: Update::Copying, keys: &[2, 1], change: |core| core.insert(3), retires: 1 };
    MODEL.explore(&[Look::Always(1), Look::Maybe(3)]);
}

/// Two writers: one after the other.
#[test]
fn writers_take_turns() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(|| {
        let domain = Arc::new(Domain::new(Config { cores: 2, batch: 8, bound: 100 }));
        let tree: Arc<Tree> = Arc::new(Bonsai::new(Arc::clone(&domain)));
        let play = |number, key| {
            // SAFETY: each core is played by one thread.
            let pin = unsafe { Pinned::assume(CoreId::new(number)) };
            domain.online(&pin);
            let core = Core { domain: Arc::clone(&domain), tree: Arc::clone(&tree), pin };
            move || {
                core.insert(key);
                core.domain.offline(&core.pin);
            }
        };
        let other = thread::spawn(play(1, 1));
        play(0, 2)();
        other.join().unwrap();
        // SAFETY: the other players are done.
        let pin = unsafe { Pinned::assume(CoreId::new(0)) };
        domain.online(&pin);
        let writer = tree.write(&pin);
        assert_eq!((writer.len(), writer.check()), (2, Ok(())));
    });
}
