//! The n-th allocation fails, for every n: the operation says so, and the map is as it was.
// Miri has seen this memory come and go in the other tests.
#![cfg(not(any(loom, miri)))]

use bonsai::{Bonsai, OutOfMemory, Update, Writer};
use percore::{CoreId, Pinned};
use rcu::{Config, Domain};
use test_memory::{Failing, owned, with_allocations};

#[global_allocator]
static ALLOCATOR: Failing = Failing;

type Change = fn(&mut Writer<'_, u32, u32>) -> Result<bool, OutOfMemory>;

fn contents(writer: &Writer<'_, u32, u32>) -> Vec<(u32, u32)> {
    assert_eq!(writer.check(), Ok(()));
    writer.iter().map(|(key, &value)| (key, value)).collect()
}

/// Fails `change` of the map of `keys` at its first, second, ... allocation, each time on a new map, until it
/// succeeds. Returns how many allocations it needs.
fn fails_cleanly(update: Update, keys: impl Iterator<Item = u32> + Clone, change: Change) -> usize {
    let domain = Domain::new(Config { cores: 1, batch: 1000, bound: 1000 });
    // SAFETY: the domain is this thread's alone.
    let pin = unsafe { Pinned::assume(CoreId::new(0)) };
    domain.online(&pin);
    let before = owned();
    let succeeds = |&left: &usize| {
        let tree = Bonsai::with_update(&domain, update);
        keys.clone().for_each(|key| assert_eq!(tree.write(&pin).insert(key, key), Ok(false)));
        let mut writer = tree.write(&pin);
        let whole = contents(&writer);
        let result = with_allocations(left, || change(&mut writer));
        if result == Err(OutOfMemory) {
            assert_eq!(contents(&writer), whole, "allocation {left} failed and the map changed");
        }
        drop((writer, whole));
        drop(tree);
        domain.quiesce(&pin);
        assert_eq!(owned(), before, "allocation {left} failed and others were leaked");
        result.is_ok()
    };
    (0..).find(succeeds).unwrap()
}

#[test]
fn a_new_value_for_a_key() {
    assert_eq!(fails_cleanly(Update::InPlace, 0..50, |writer| writer.insert(7, 1)), 1);
}

#[test]
fn a_new_leaf() {
    assert_eq!(fails_cleanly(Update::InPlace, (0..50).step_by(2), |writer| writer.insert(13, 1)), 2);
}

#[test]
fn a_path_of_copies() {
    let needed = fails_cleanly(Update::Copying, (0..64).step_by(2), |writer| writer.insert(13, 1));
    assert!((6..20).contains(&needed), "{needed} allocations for a value, a leaf and its path");
}

/// Ascending keys: the last one rotates.
#[test]
fn rotations() {
    let rotates = |keys: u32| fails_cleanly(Update::InPlace, 0..keys, |writer| writer.insert(1000, 1)) > 2;
    assert!((1..40).filter(|&keys| rotates(keys)).count() > 10, "too few rotations to fail");
}

#[test]
fn removal_of_a_node_with_two_children() {
    for gone in 0..31 {
        let remove: [Change; 2] = [|writer| writer.remove(15), |writer| writer.remove(7)];
        for change in remove {
            fails_cleanly(Update::InPlace, (0..31).filter(|&key| key != gone), change);
        }
    }
}
