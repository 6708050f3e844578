//! A tree, a writer and a reader, whose nodes and values tell when they are reached too late.

use std::sync::Arc;

use bonsai::{Bonsai, Reader, Update, Writer};
use loom::model::Builder;
use loom::thread;
use percore::{CoreId, Pinned};
use rcu::{Config, Domain};
use test_memory::{Mortal, Poison};

#[global_allocator]
static ALLOCATOR: Poison = Poison;

type Tree = Bonsai<u32, Mortal, Arc<Domain>>;

/// A core, its domain and the tree.
pub struct Core {
    domain: Arc<Domain>,
    tree: Arc<Tree>,
    pin: Pinned,
}

impl Core {
    /// A core that is online. It is played by one thread at a time.
    fn new(domain: &Arc<Domain>, tree: &Arc<Tree>, core: usize) -> Self {
        // SAFETY: as said.
        let pin = unsafe { Pinned::assume(CoreId::new(core)) };
        domain.online(&pin);
        Self { domain: Arc::clone(domain), tree: Arc::clone(tree), pin }
    }

    pub fn insert(&self, key: u32) {
        self.change(|writer| writer.insert(key, Mortal::new(key)).map(drop).unwrap());
    }

    pub fn remove(&self, key: u32) {
        self.change(|writer| assert_eq!(writer.remove(key), Ok(true)));
    }

    fn change(&self, change: impl FnOnce(&mut Writer<'_, u32, Mortal>)) {
        change(&mut self.tree.write(&self.pin));
        self.quiesce();
    }

    fn leave(&self) {
        self.domain.offline(&self.pin);
    }

    fn quiesce(&self) {
        self.domain.quiesce(&self.pin);
    }
}

/// The lookup of a reader.
#[derive(Clone, Copy)]
pub enum Look {
    /// A key that is always there.
    Always(u32),
    /// A key that may be there.
    Maybe(u32),
    /// The floor of the first key is one of the others.
    Floor(u32, &'static [u32]),
    /// The same for the ceiling.
    Ceiling(u32, &'static [u32]),
}

fn nearest(found: Option<(u32, &Mortal)>, allowed: &[u32]) {
    let (key, value) = found.expect("something is always there");
    value.check(key);
    assert!(allowed.contains(&key), "{key} was never the nearest");
}

fn look(reader: &Reader<'_, u32, Mortal>, what: Look) {
    match what {
        Look::Always(key) => reader.get(key).expect("a key was missed that is always there").check(key),
        Look::Maybe(key) => reader.get(key).iter().for_each(|value| value.check(key)),
        Look::Floor(key, allowed) => nearest(reader.floor(key), allowed),
        Look::Ceiling(key, allowed) => nearest(reader.ceiling(key), allowed),
    }
}

/// A change by one core, against a lookup by another.
pub struct Model {
    pub update: Update,
    /// The initial keys, in the order of insertion.
    pub keys: &'static [u32],
    pub change: fn(&Core),
    /// How many nodes the change retires: that it does what the model is about.
    pub retires: u64,
}

impl Model {
    /// Explores the change against one lookup after the other.
    pub fn explore(&'static self, looks: &[Look]) {
        for &what in looks {
            let mut builder = Builder::new();
            builder.preemption_bound = Some(3);
            builder.max_branches = 10_000;
            builder.check(move || self.run(what));
        }
    }

    fn run(&self, what: Look) {
        let (domain, tree) = new_tree(self.update);
        let writer = Core::new(&domain, &tree, 0);
        self.keys.iter().for_each(|&key| writer.insert(key));
        let before = tree.stats().retired;
        let reader = Core::new(&domain, &tree, 1);
        let reading = thread::spawn(move || {
            look(&reader.tree.read(&reader.pin), what);
            reader.leave();
        });
        (self.change)(&writer);
        writer.quiesce();
        reading.join().unwrap();
        assert_eq!(tree.stats().retired - before, self.retires);
        assert_eq!(tree.write(&writer.pin).check(), Ok(()));
    }
}

fn new_tree(update: Update) -> (Arc<Domain>, Arc<Tree>) {
    let domain = Arc::new(Domain::new(Config { cores: 2, batch: 8, bound: 100 }));
    let tree = Arc::new(Bonsai::with_update(Arc::clone(&domain), update));
    (domain, tree)
}

/// Explores two cores that insert a key each, into an empty tree.
pub fn explore_two_writers() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (domain, tree) = new_tree(Update::InPlace);
        let [first, second] = [0, 1].map(|core| Core::new(&domain, &tree, core));
        let other = thread::spawn(move || {
            second.insert(1);
            second.leave();
        });
        first.insert(2);
        other.join().unwrap();
        let writer = tree.write(&first.pin);
        assert_eq!((writer.len(), writer.check()), (2, Ok(())));
    });
}
