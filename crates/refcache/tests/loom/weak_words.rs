//! Readers against the reviewer.

use crate::machine::{Named, explore};

/// A reader counts what it finds, while the object's review is due.
#[test]
fn revive_during_review() {
    explore(2, 2, Named::Yes, 1, |core| {
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

/// A reader never counts: what it finds stays while it does not flush.
#[test]
fn a_pinned_reader_counts_nothing() {
    explore(2, 2, Named::Yes, 1, |core| {
        core.add(-1);
        let other = core.spawn(1, |core| {
            for _ in 0..3 {
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
