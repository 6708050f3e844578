//! Callbacks run once, on any core.

use crate::machine::explore;

/// Two cores adopt the callbacks that a third leaves behind.
#[test]
fn one_of_two_adopts() {
    explore(1, 3, |core| {
        let adopter = core.spawn(1, |core| core.quiesces(3));
        let leaver = core.spawn(2, |core| {
            core.unlink();
            core.defer();
            core.domain().offline(&core.pin);
        });
        core.quiesces(3);
        adopter.join().unwrap();
        leaver.join().unwrap();
        core.expect_one_free();
    });
}

/// Orphaned callbacks wait for readers like all others.
#[test]
fn orphans_wait_for_readers() {
    explore(2, 2, |core| {
        let leaver = core.spawn(1, |core| {
            core.unlink();
            core.defer();
            core.domain().offline(&core.pin);
            core.come_and_go(|core| core.quiesces(2));
        });
        core.read();
        core.quiesces(2);
        core.read();
        core.domain().offline(&core.pin);
        leaver.join().unwrap();
        core.expect_one_free();
    });
}

/// Both cores turn epochs at once.
#[test]
fn two_cores_wait() {
    explore(2, 2, |core| {
        let other = core.spawn(1, |core| {
            core.read();
            core.quiesces(3);
        });
        core.unlink();
        core.defer();
        core.quiesces(2);
        core.domain().offline(&core.pin);
        other.join().unwrap();
        core.expect_one_free();
    });
}

/// All cores go, in any order, and the next core to come finds the callbacks that they leave.
#[test]
fn the_last_one_out() {
    explore(3, 2, |core| {
        let other = core.spawn(1, |core| {
            core.read();
            core.domain().offline(&core.pin);
        });
        core.unlink();
        core.defer();
        core.domain().offline(&core.pin);
        other.join().unwrap();
        core.expect_one_free();
    });
}
