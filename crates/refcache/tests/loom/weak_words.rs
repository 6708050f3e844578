//! Readers against the reviewer.

use crate::machine::{Kind, explore};

/// A reader counts what it finds, while the object's review is due.
#[test]
fn revive_during_review() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.add(-1);
        core.ticks(1);
        core.as_core_1(|core1| core1.ticks(2));
        core.ticks(1);
        let other = core.spawn(1, |core| {
            let loan = core.refcache().loan(&core.pin);
            let found = core.find();
            if found {
                core.read();
                core.add(1);
            }
            drop(loan);
            core.ticks(1);
            if found {
                core.read();
                core.add(-1);
            }
            core.ticks(1);
        });
        core.ticks(2);
        other.join().unwrap();
        core.expect_release();
    });
}

/// A reader never counts: what it finds stays while it does not flush. Its core has flushed in the epoch of the
/// mark already, so it may hold on until the end of the next one, when the review is due.
#[test]
fn a_pinned_reader_counts_nothing() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.as_core_1(|core1| core1.ticks(1));
        core.add(-1);
        let other = core.spawn(1, |core| {
            let loan = core.refcache().loan(&core.pin);
            if core.find() {
                core.read();
            }
            drop(loan);
            core.ticks(2);
        });
        loom::thread::yield_now();
        core.ticks(4);
        other.join().unwrap();
        core.expect_release();
    });
}

/// A reader that finds the object again and again, before and after the mark.
#[test]
fn a_reader_that_comes_back() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.add(-1);
        let other = core.spawn(1, |core| {
            for _ in 0..2 {
                let loan = core.refcache().loan(&core.pin);
                if core.find() {
                    core.read();
                }
                drop(loan);
                core.ticks(1);
            }
        });
        core.ticks(4);
        other.join().unwrap();
        core.expect_release();
    });
}
