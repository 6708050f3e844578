//! Keys and values that misbehave: memory stays safe, no lock is held for ever, and nothing is lost.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

use bonsai::{Bonsai, Update};
use fuzzing::{Dice, attempt, forever};
use percore::Pinned;
use percore::threads::{self, ThreadCore};
use rcu::{Config, Domain};

const CORES: usize = 16;

type Tree = Bonsai<Rude, Arc<()>, &'static Domain>;

/// A domain of one core, which is online.
fn alone() -> (&'static Domain, ThreadCore) {
    let domain = forever(Domain::new(Config { cores: CORES, batch: 64, bound: 1000 }));
    let core = threads::enter_any(CORES);
    domain.online(&percore::pin());
    (domain, core)
}

/// The behaviour of key comparisons on this thread.
#[derive(Clone, Copy)]
enum Order {
    Right,
    /// By chance.
    Wrong(u64),
    /// After this number of right comparisons.
    Panics(u32),
    Writes(&'static Tree),
    Quiesces(&'static Domain),
    Leaves(&'static Domain),
}

thread_local! {
    static ORDER: Cell<Order> = const { Cell::new(Order::Right) };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rude(u32);

impl PartialOrd for Rude {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rude {
    fn cmp(&self, other: &Self) -> Ordering {
        match ORDER.get() {
            Order::Right => (),
            Order::Wrong(seed) => {
                let next = Dice::new(seed).next_u64();
                ORDER.set(Order::Wrong(next));
                return [Ordering::Less, Ordering::Equal, Ordering::Greater][(next >> 32) as usize % 3];
            }
            Order::Panics(0) => panic!("no order"),
            Order::Panics(left) => ORDER.set(Order::Panics(left - 1)),
            Order::Writes(tree) => drop(tree.write(&percore::pin())),
            Order::Quiesces(domain) => _ = domain.quiesce(&percore::pin()),
            Order::Leaves(domain) => domain.offline(&percore::pin()),
        }
        self.0.cmp(&other.0)
    }
}

fn filled(domain: &'static Domain, pin: &Pinned, witness: &Arc<()>) -> Tree {
    let tree = Bonsai::new(domain);
    let mut writer = tree.write(pin);
    (0..50).for_each(|key| assert_eq!(writer.insert(Rude(key), witness.clone()), Ok(false)));
    drop(writer);
    tree
}

/// An order without sense makes a tree without sense, of which every value is dropped once.
#[test]
fn keys_in_no_order() {
    let (domain, _core) = alone();
    let pin = percore::pin();
    for update in [Update::InPlace, Update::Copying] {
        let witness = Arc::new(());
        let tree: Tree = Bonsai::with_update(domain, update);
        ORDER.set(Order::Wrong(7));
        for key in 0..if cfg!(miri) { 100 } else { 20_000 } {
            let mut writer = tree.write(&pin);
            if key % 3 == 0 {
                writer.remove(Rude(key)).unwrap();
            } else {
                writer.insert(Rude(key), witness.clone()).unwrap();
            }
            let held = writer.len() + domain.backlog();
            assert!(Arc::strong_count(&witness) - 1 <= held, "more values than there are places for them");
            drop(writer);
            domain.quiesce(&pin);
        }
        ORDER.set(Order::Right);
        drop(tree);
        domain.drain_while(&pin, || true);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
    domain.offline(&pin);
}

#[test]
fn comparisons_that_panic_change_nothing() {
    let (domain, _core) = alone();
    let pin = percore::pin();
    let witness = Arc::new(());
    let tree = filled(domain, &pin, &witness);
    for panics_after in 0..4 {
        let act = |act: fn(&Tree, &Pinned, Arc<()>)| {
            ORDER.set(Order::Panics(panics_after));
            assert_eq!(attempt(|| act(&tree, &pin, witness.clone())), Err("no order".to_owned()));
            ORDER.set(Order::Right);
            assert_eq!((tree.write(&pin).len(), Arc::strong_count(&witness)), (50, 51));
            tree.write(&pin).check().unwrap();
        };
        act(|tree, pin, value| _ = tree.write(pin).insert(Rude(99), value));
        act(|tree, pin, value| _ = tree.write(pin).insert_new(Rude(99), value));
        act(|tree, pin, _| _ = tree.write(pin).remove(Rude(49)));
        act(|tree, pin, _| _ = tree.read(pin).floor(Rude(99)).is_some());
        act(|tree, pin, _| _ = tree.read(pin).around(Rude(49)));
    }
    assert!(tree.read(&pin).get(Rude(49)).is_some());
    domain.quiesce(&pin);
    domain.offline(&pin);
}

#[test]
fn comparisons_that_come_back() {
    let (domain, _core) = alone();
    let pin = percore::pin();
    let witness = Arc::new(());
    let tree = forever(filled(domain, &pin, &witness));
    let cases = [
        (Order::Writes(tree), "a core with a Writer of a tree asked for another one"),
        (Order::Quiesces(domain), "a core is not quiescent inside a read section"),
        (Order::Leaves(domain), "a core is not quiescent inside a read section"),
    ];
    for (order, expected) in cases {
        ORDER.set(order);
        let message = attempt(|| tree.write(&pin).insert(Rude(99), witness.clone())).unwrap_err();
        assert_eq!(message, expected);
        ORDER.set(Order::Right);
        assert_eq!((tree.write(&pin).len(), Arc::strong_count(&witness)), (50, 51));
    }
    domain.offline(&pin);
}

/// Panics when it is dropped, if it is bad.
struct Value {
    _held: Arc<()>,
    bad: bool,
}

impl Drop for Value {
    fn drop(&mut self) {
        assert!(!self.bad, "a bad end");
    }
}

#[test]
fn a_tree_with_a_value_that_panics_is_freed() {
    let (domain, _core) = alone();
    let pin = percore::pin();
    let witness = Arc::new(());
    for bad in (0..20).step_by(if cfg!(miri) { 7 } else { 1 }) {
        let tree = Bonsai::new(domain);
        for key in 0..20 {
            tree.write(&pin).insert(key, Value { _held: witness.clone(), bad: key == bad }).unwrap();
        }
        assert_eq!(attempt(|| drop(tree)), Err("a bad end".to_owned()));
        domain.drain_while(&pin, || true);
        assert_eq!(Arc::strong_count(&witness), 1, "values were leaked");
    }
    domain.offline(&pin);
}
