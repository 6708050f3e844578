//! Random histories against `BTreeMap`, in both ways to update.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

use bonsai::{Bonsai, Reader, Update, Writer};
use percore::{CoreId, Pinned};
use proptest::prelude::*;
use rcu::{Config, Domain};

/// Counts those that live.
struct Value {
    number: u32,
    live: Arc<AtomicIsize>,
}

impl Value {
    fn new(number: u32, live: &Arc<AtomicIsize>) -> Self {
        live.fetch_add(1, Relaxed);
        Self { number, live: Arc::clone(live) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Relaxed);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u32),
    InsertNew(u16, u32),
    Remove(u16),
    /// The whole run of keys, upwards or downwards: what unbalances a tree most.
    InsertRun(u16, u8, bool),
    RemoveRun(u16, u8),
    Look(u16),
    Quiesce,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0_u16..400;
    let step = prop_oneof![
        2 => (key.clone(), any::<u32>()).prop_map(|(key, number)| Step::Insert(key, number)),
        2 => (key.clone(), any::<u32>()).prop_map(|(key, number)| Step::InsertNew(key, number)),
        4 => key.clone().prop_map(Step::Remove),
        1 => (key.clone(), 0_u8..60, any::<bool>()).prop_map(|(key, run, up)| Step::InsertRun(key, run, up)),
        1 => (key.clone(), 0_u8..60).prop_map(|(key, run)| Step::RemoveRun(key, run)),
        4 => key.prop_map(Step::Look),
        1 => Just(Step::Quiesce),
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 20 } else { 120 })
}

/// The expected contents of the tree.
#[derive(Default)]
struct Model {
    map: BTreeMap<u16, u32>,
    live: Arc<AtomicIsize>,
}

impl Model {
    fn insert(&mut self, writer: &mut Writer<'_, u16, Value>, key: u16, number: u32) {
        let had = writer.insert(key, Value::new(number, &self.live)).unwrap();
        assert_eq!(had, self.map.insert(key, number).is_some());
    }

    fn insert_new(&mut self, writer: &mut Writer<'_, u16, Value>, key: u16, number: u32) {
        let had = writer.insert_new(key, Value::new(number, &self.live)).unwrap();
        assert_eq!(had, self.map.contains_key(&key));
        self.map.entry(key).or_insert(number);
    }

    fn remove(&mut self, writer: &mut Writer<'_, u16, Value>, key: u16) {
        assert_eq!(writer.remove(key).unwrap(), self.map.remove(&key).is_some());
    }

    fn look(&self, reader: &Reader<'_, u16, Value>, key: u16) {
        let number = |entry: Option<(u16, &Value)>| entry.map(|(key, value)| (key, value.number));
        let expected = |entry: Option<(&u16, &u32)>| entry.map(|(&key, &number)| (key, number));
        assert_eq!(reader.get(key).map(|value| value.number), self.map.get(&key).copied());
        assert_eq!(number(reader.floor(key)), expected(self.map.range(..=key).next_back()));
        assert_eq!(number(reader.ceiling(key)), expected(self.map.range(key..).next()));
        let [below, above] = reader.around(key);
        assert_eq!(number(below), expected(self.map.range(..=key).next_back()));
        assert_eq!(number(above), expected(self.map.range(key + 1..).next()));
    }

    fn check(&self, writer: &Writer<'_, u16, Value>, from: u16) {
        let number = |(key, value): (u16, &Value)| (key, value.number);
        let expected = |(&key, &number): (&u16, &u32)| (key, number);
        assert_eq!((writer.check(), writer.len()), (Ok(()), self.map.len()));
        assert_eq!(writer.is_empty(), self.map.is_empty());
        assert!(writer.iter().map(number).eq(self.map.iter().map(expected)));
        assert!(writer.iter_from(from).map(number).eq(self.map.range(from..).map(expected)));
    }

    fn change(&mut self, writer: &mut Writer<'_, u16, Value>, step: &Step) {
        match *step {
            Step::Insert(key, number) => self.insert(writer, key, number),
            Step::InsertNew(key, number) => self.insert_new(writer, key, number),
            Step::Remove(key) => self.remove(writer, key),
            Step::InsertRun(key, run, true) => {
                (0..run.into()).for_each(|at| self.insert(writer, key + at, 1));
            }
            Step::InsertRun(key, run, false) => {
                (0..run.into()).rev().for_each(|at| self.insert(writer, key + at, 2));
            }
            Step::RemoveRun(key, run) => (0..run.into()).for_each(|at| self.remove(writer, key + at)),
            Step::Look(key) => self.check(writer, key),
            Step::Quiesce => {}
        }
    }
}

fn run(steps: &[Step], update: Update) {
    let domain = Domain::new(Config { cores: 1, batch: 7, bound: 50 });
    // SAFETY: the domain is this thread's alone.
    let pin = unsafe { Pinned::assume(CoreId::new(0)) };
    domain.online(&pin);
    let (tree, mut model) = (Bonsai::with_update(&domain, update), Model::default());
    for step in steps {
        model.change(&mut tree.write(&pin), step);
        assert_eq!(tree.write(&pin).check(), Ok(()), "after {step:?}");
        match *step {
            Step::Look(key) => model.look(&tree.read(&pin), key),
            Step::Quiesce => _ = domain.quiesce(&pin),
            _ => {}
        }
    }
    domain.drain_while(&pin, || true);
    let live = || model.live.load(Relaxed);
    assert_eq!(live(), model.map.len() as isize, "a value was lost, or is still there");
    let stats = tree.stats();
    assert_eq!(stats.made - stats.retired, model.map.len() as u64);
    assert!(update == Update::InPlace || stats.avoided == 0);
    drop(tree);
    assert_eq!(live(), 0);
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 3 } else { 300 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn updated_in_place_it_is_a_map(steps in steps()) {
        run(&steps, Update::InPlace);
    }

    #[test]
    fn copied_it_is_a_map(steps in steps()) {
        run(&steps, Update::Copying);
    }
}

/// Every tree of few keys, by every order of insertion, and every removal from it.
#[test]
fn all_small_trees() {
    let most = if cfg!(miri) { 3 } else { 7 };
    for keys in 0..=most {
        permutations(keys, &mut |order| {
            for gone in 0..keys {
                let inserts = order.iter().map(|&key| Step::Insert(key, 7));
                run(
                    &inserts.chain([Step::Remove(gone), Step::Look(gone)]).collect::<Vec<_>>(),
                    Update::InPlace,
                );
            }
        });
    }
}

/// Shows every order of the numbers below `count` to `visit`.
fn permutations(count: u16, visit: &mut impl FnMut(&[u16])) {
    fn permute(items: &mut Vec<u16>, first: usize, visit: &mut impl FnMut(&[u16])) {
        if first >= items.len() {
            return visit(items);
        }
        for other in first..items.len() {
            items.swap(first, other);
            permute(items, first + 1, visit);
            items.swap(first, other);
        }
    }
    permute(&mut (0..count).collect(), 0, visit);
}
