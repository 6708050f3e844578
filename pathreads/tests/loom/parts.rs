//! Members change their parts of memory side by side, as `runtime/isolate/own.rs` does, while another takes
//! the lock of all memory. Parts and the table are loom's cells, so two changes at once are reported.

use std::sync::Arc;

use pathreads::parts;
use pathreads::requests::{self, Kernel};
use sync::atomic::{AtomicU32, Ordering};
use sync::loom::cell::Cell;
use sync::loom::sync::{Condvar, Mutex};
use sync::loom::thread;

use crate::explore;

const MEMBERS: usize = 3;

struct World {
    lock: AtomicU32,
    table_lock: AtomicU32,
    inside: [AtomicU32; MEMBERS],
    /// Changes of each member's part, and of the table.
    parts: [Cell<u32>; MEMBERS],
    table: Cell<u32>,
    sleep: (Mutex<()>, Condvar),
}

impl Kernel for World {
    fn wait(&self, word: &AtomicU32, value: u32, _: u64) {
        let (mutex, condition) = &self.sleep;
        let sleep = mutex.lock().unwrap();
        if word.load(Ordering::Relaxed) == value {
            drop(condition.wait(sleep).unwrap());
        }
    }

    fn wake(&self, _: &AtomicU32) {
        let (mutex, condition) = &self.sleep;
        let _sleep = mutex.lock().unwrap();
        condition.notify_all();
    }

    fn interrupt(&self, _: u32) {}
}

struct NoSleep;

impl Kernel for NoSleep {
    fn wait(&self, _: &AtomicU32, _: u32, _: u64) {}
    fn wake(&self, _: &AtomicU32) {}
    fn interrupt(&self, _: u32) {}
}

fn add(cell: &Cell<u32>) {
    cell.set(cell.get() + 1);
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(World {
            lock: AtomicU32::new(0),
            table_lock: AtomicU32::new(0),
            inside: std::array::from_fn(|_| AtomicU32::new(0)),
            parts: std::array::from_fn(|_| Cell::new(0)),
            table: Cell::new(0),
            sleep: (Mutex::new(()), Condvar::new()),
        })
    }

    /// Changes a member's part, without the lock if that is free.
    fn change_own(&self, me: usize) {
        if !parts::enter(&self.inside[me], &self.lock, self) {
            self.change_all(me, &[me]);
            return;
        }
        parts::take_table(&self.table_lock, self);
        add(&self.table);
        parts::release_table(&self.table_lock, self);
        // A call of Linux, for which the lock of the table is not held.
        add(&self.parts[me]);
        parts::leave(&self.inside[me], self);
    }

    /// Changes some parts under the lock.
    fn change_all(&self, me: usize, changed: &[usize]) {
        requests::take_lock(&self.lock, self, || {});
        let others = self.inside.iter().enumerate().filter(|(member, _)| *member != me);
        assert!(parts::await_others(others.map(|(_, inside)| inside), u32::MAX, self));
        add(&self.table);
        changed.iter().for_each(|part| add(&self.parts[*part]));
        requests::release_lock(&self.lock, self);
    }
}

/// Runs `first` and `second` beside a member that changes its own part, and counts all changes.
fn check(
    preemptions: usize,
    first: impl Fn(&World) + Copy + Send + Sync + 'static,
    second: impl Fn(&World) + Copy + Send + Sync + 'static,
    sums: [u32; 4],
) {
    explore(preemptions, move || {
        let world = World::new();
        let threads = [
            thread::spawn({
                let world = Arc::clone(&world);
                move || first(&world)
            }),
            thread::spawn({
                let world = Arc::clone(&world);
                move || second(&world)
            }),
        ];
        world.change_own(0);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let [a, b, c] = world.parts.each_ref().map(Cell::get);
        assert_eq!([a, b, c, world.table.get()], sums);
    });
}

/// Two change their parts, and a third one all.
#[test]
fn one_that_has_the_lock_meets_no_part_that_changes() {
    check(3, |world| world.change_own(1), |world| world.change_all(2, &[0, 1, 2]), [2, 2, 1, 3]);
}

/// Two want the lock, one of them after it has changed its own part.
#[test]
fn members_that_want_the_lock_wait_for_those_that_are_in() {
    let both = |world: &World| {
        world.change_own(1);
        world.change_all(1, &[0, 1]);
    };
    check(2, both, |world| world.change_all(2, &[0, 1]), [3, 3, 0, 4]);
}

/// All change their parts only, and meet at the table.
#[test]
fn members_change_their_parts_side_by_side() {
    check(3, |world| world.change_own(1), |world| world.change_own(2), [1, 1, 1, 3]);
}

/// One that waits for it goes on after some tries.
#[test]
fn a_member_that_is_killed_while_it_is_in_is_given_up() {
    explore(3, || {
        let world = World::new();
        assert!(parts::enter(&world.inside[0], &world.lock, &*world));
        let killed = [&world.inside[0]];
        requests::take_lock(&world.lock, &*world, || {});
        assert!(!parts::await_others(killed.into_iter(), 2, &NoSleep));
    });
}

/// One that has the lock copies the words, as `fork` does, while another is about to see that it is taken.
#[test]
fn a_copy_of_the_words_begins_with_all_out() {
    explore(3, || {
        let world = World::new();
        let other = thread::spawn({
            let world = Arc::clone(&world);
            move || world.change_own(0)
        });
        requests::take_lock(&world.lock, &*world, || {});
        assert!(parts::await_others(world.inside.iter(), u32::MAX, &*world));
        let copy = World::new();
        for (copied, inside) in copy.inside.iter().zip(&world.inside) {
            copied.store(inside.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        requests::release_lock(&world.lock, &*world);
        parts::forget(copy.inside.iter(), &copy.table_lock);
        assert!(parts::await_others(copy.inside.iter(), 1, &NoSleep));
        other.join().unwrap();
    });
}
