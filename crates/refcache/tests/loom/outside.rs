//! References dropped by threads that play no core.

use crate::machine::{Core, Kind, explore};

/// Does the part of a thread without a core. Its number belongs to no core, and is not used.
fn drop_reference(thread: Core) {
    thread.read();
    thread.drop_reference();
}

/// A core and a thread without one drop their references.
#[test]
fn the_last_of_two_references_is_outside() {
    explore(2, 1, Kind::Plain, 2, |core| {
        let outside = core.spawn(1, drop_reference);
        core.read();
        core.add(-1);
        core.ticks(3);
        outside.join().unwrap();
        core.expect_release();
    });
}

/// The core's increment is in its cache when the outside thread drops that reference: the global count is
/// zero, and false.
#[test]
fn a_zero_made_outside_is_not_believed() {
    explore(2, 1, Kind::Plain, 1, |core| {
        core.add(1);
        let outside = core.spawn(1, drop_reference);
        core.ticks(3);
        core.read();
        outside.join().unwrap();
        core.expect_release_after(1);
    });
}

/// A reader finds the object by its weak word and keeps it, while an outside thread drops the last other
/// reference. The entry that this thread queues must not be older than the core's last flush.
#[test]
fn a_reader_keeps_what_is_given_up_outside() {
    explore(2, 1, Kind::Named, 1, |core| {
        let outside = core.spawn(1, drop_reference);
        core.ticks(3);
        let loan = core.refcache().loan(&core.pin);
        let found = core.find();
        if found {
            core.add(1);
        }
        drop(loan);
        core.ticks(3);
        if found {
            core.read();
        }
        outside.join().unwrap();
        if found {
            core.expect_release_after(1);
        } else {
            core.expect_release();
        }
    });
}

/// Two outside threads play the same extra core.
#[test]
fn two_references_dropped_outside() {
    explore(1, 1, Kind::Plain, 2, |core| {
        let threads = [core.spawn(1, drop_reference), core.spawn(2, drop_reference)];
        core.ticks(2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        core.expect_release();
    });
}
