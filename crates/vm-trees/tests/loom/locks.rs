//! The locks of the designs by themselves, with a value that they protect: loom reports an access without
//! them.

use std::sync::Arc;

use loom::thread;
use test_memory::Watched;

use self::locking::{Locking, Locks, VmaLock};
use self::rwlock::RwLock;
use crate::check;

#[path = "../../src/locking.rs"]
#[allow(dead_code)]
mod locking;
#[path = "../../src/rwlock.rs"]
mod rwlock;

#[derive(Default)]
struct Shared {
    lock: RwLock,
    value: Watched<u64>,
}

impl Shared {
    fn read(&self) -> u64 {
        let _guard = self.lock.read();
        self.value.get()
    }

    fn write(&self) {
        let _guard = self.lock.write();
        self.value.set(self.value.get() + 1);
    }
}

/// Runs `others` in threads of their own, and one more writer.
fn readers_and_writers(preemptions: usize, others: &'static [fn(&Shared)], writers: u64) {
    check(preemptions, move || {
        let shared = Arc::new(Shared::default());
        let run = |other: &fn(&Shared)| {
            let (shared, other) = (shared.clone(), *other);
            thread::spawn(move || other(&shared))
        };
        let threads: Vec<_> = others.iter().map(run).collect();
        shared.write();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.read(), writers);
    });
}

#[test]
fn a_writer_excludes_a_reader() {
    readers_and_writers(3, &[|shared| assert!(shared.read() <= 1)], 1);
}

#[test]
fn a_writer_excludes_a_writer() {
    readers_and_writers(3, &[Shared::write], 2);
}

#[test]
fn a_writer_waits_for_two_readers() {
    readers_and_writers(1, &[|shared| _ = shared.read(), |shared| _ = shared.read()], 1);
}

#[test]
fn readers_come_between_writers() {
    readers_and_writers(1, &[Shared::write, |shared| assert!(shared.read() <= 2)], 2);
}

/// A region, and the locks of its space.
struct Region {
    locks: Locks,
    lock: VmaLock,
    value: Watched<u64>,
}

impl Region {
    fn new() -> Arc<Self> {
        let locks = Locks::new(Locking::PerVma);
        Arc::new(Self { locks, lock: VmaLock::default(), value: Watched::default() })
    }

    fn change(&self) {
        let _space = self.locks.write();
        self.locks.lock_vma(&self.lock);
        self.value.set(self.value.get() + 1);
        self.locks.unlock_vmas();
    }

    /// Returns what a fault sees, or none if it finds the region changing.
    fn look(&self) -> Option<u64> {
        let _region = self.locks.enter(&self.lock)?;
        Some(self.value.get())
    }
}

/// A region changes twice, while a fault looks at it: it is not looked at while it changes, and it does not
/// stay locked.
#[test]
fn a_region_that_changes_is_not_looked_at() {
    check(3, || {
        let region = Region::new();
        let theirs = region.clone();
        let fault = thread::spawn(move || theirs.look());
        (0..2).for_each(|_| region.change());
        assert!(fault.join().unwrap().is_none_or(|seen| seen <= 2));
        assert_eq!(region.look(), Some(2), "the region stays locked");
    });
}

/// A fault that looks twice goes forward.
#[test]
fn a_fault_that_looks_twice_sees_no_older_state() {
    check(3, || {
        let region = Region::new();
        let theirs = region.clone();
        let fault = thread::spawn(move || [theirs.look(), theirs.look()]);
        region.change();
        if let [Some(first), Some(second)] = fault.join().unwrap() {
            assert!(first <= second);
        }
    });
}
