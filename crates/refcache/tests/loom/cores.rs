//! Cores that come and go.

use crate::machine::{Core, Kind, explore};

/// A core takes a reference, goes offline with it, comes back and drops it, while the other turns epochs.
#[test]
fn a_reference_is_kept_through_an_absence() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.add(-1);
        core.as_core_1(|core1| core1.refcache().offline(&core1.pin));
        let other = core.spawn(1, |core| {
            core.refcache().online(&core.pin);
            let loan = core.refcache().loan(&core.pin);
            let found = core.find();
            if found {
                core.add(1);
            }
            drop(loan);
            core.refcache().offline(&core.pin);
            if found {
                core.read();
                core.refcache().online(&core.pin);
                core.add(-1);
            }
        });
        core.ticks(3);
        other.join().unwrap();
        core.expect_release();
    });
}

/// A core that was away, and flushed nothing, reads the weak word as soon as it is back.
#[test]
fn a_reader_just_come_online() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.add(-1);
        core.as_core_1(|core1| core1.refcache().offline(&core1.pin));
        let other = core.spawn(1, |core| {
            for _ in 0..2 {
                core.refcache().online(&core.pin);
                let loan = core.refcache().loan(&core.pin);
                if core.find() {
                    core.read();
                }
                drop(loan);
                core.refcache().offline(&core.pin);
            }
        });
        core.ticks(4);
        other.join().unwrap();
        core.expect_release();
    });
}

/// An increment flushed by going offline against a decrement flushed by a tick.
#[test]
fn going_offline_is_a_flush() {
    explore(2, 2, Kind::Plain, 1, |core| {
        core.add(1);
        let other = core.spawn(1, |core| {
            core.add(-1);
            core.ticks(2);
        });
        core.refcache().offline(&core.pin);
        core.read();
        core.refcache().online(&core.pin);
        core.ticks(2);
        other.join().unwrap();
        core.expect_release_after(1);
    });
}

/// The core that found the zero goes offline, and the next core that ticks adopts the object. It is released
/// once.
#[test]
fn orphans_are_adopted() {
    explore(2, 2, Kind::Plain, 2, |core| {
        core.add(-1);
        let other = core.spawn(1, |core| {
            core.read();
            core.add(-1);
            core.refcache().offline(&core.pin);
        });
        core.ticks(4);
        other.join().unwrap();
        core.expect_release();
    });
}

/// Two cores adopt while a third leaves an object behind.
#[test]
fn one_of_two_adopts() {
    explore(1, 3, Kind::Plain, 1, |core| {
        let adopter = core.spawn(1, |core| core.ticks(2));
        let leaver = core.spawn(2, |core| {
            core.add(-1);
            core.refcache().offline(&core.pin);
        });
        core.ticks(2);
        adopter.join().unwrap();
        leaver.join().unwrap();
        core.expect_release();
    });
}

/// All cores go, in any order, and the next core to come finds the objects that they leave.
#[test]
fn the_last_one_out() {
    explore(3, 2, Kind::Plain, 2, |core| {
        let go = |core: &Core| {
            core.read();
            core.add(-1);
            core.refcache().offline(&core.pin);
        };
        let other = core.spawn(1, move |core| go(&core));
        go(&core);
        other.join().unwrap();
        core.expect_release();
    });
}

/// A budget that covers every object.
const MANY: usize = 8;

/// A core dozes while another needs the epochs. It reads as soon as it is back, with its old place or a new
/// one.
#[test]
fn a_reader_that_dozed() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.add(-1);
        let other = core.spawn(1, |core| {
            for _ in 0..2 {
                core.refcache().doze(&core.pin, MANY);
                core.refcache().online(&core.pin);
                let loan = core.refcache().loan(&core.pin);
                if core.find() {
                    core.read();
                }
                drop(loan);
            }
            core.refcache().offline(&core.pin);
        });
        core.ticks(4);
        other.join().unwrap();
        core.expect_release();
    });
}

/// A core takes a reference, dozes with it, comes back and drops it, while the other turns epochs.
#[test]
fn a_reference_is_kept_through_a_doze() {
    explore(2, 2, Kind::Plain, 2, |core| {
        core.add(-1);
        let other = core.spawn(1, |core| {
            core.refcache().doze(&core.pin, MANY);
            core.read();
            core.refcache().online(&core.pin);
            core.add(1);
            core.refcache().doze(&core.pin, MANY);
            core.read();
            core.refcache().online(&core.pin);
            core.add(-2);
            core.refcache().doze(&core.pin, MANY);
        });
        core.ticks(4);
        other.join().unwrap();
        core.expect_release();
    });
}

/// The core that found the zero dozes. One of two cores that tick takes it offline, and some core adopts the
/// object.
#[test]
fn the_queue_of_a_dozing_core_is_adopted() {
    explore(1, 3, Kind::Plain, 2, |core| {
        core.add(-1);
        let ticker = core.spawn(1, |core| core.ticks(3));
        let dozer = core.spawn(2, |core| {
            core.read();
            core.add(-1);
            core.refcache().doze(&core.pin, MANY);
        });
        core.ticks(3);
        ticker.join().unwrap();
        dozer.join().unwrap();
        core.expect_release();
    });
}

/// A core comes back for its queue at the moment at which the other takes it offline.
#[test]
fn a_queue_is_taken_up_again_or_adopted() {
    explore(3, 2, Kind::Plain, 1, |core| {
        core.as_core_1(|core1| {
            core1.add(-1);
            assert!(core1.refcache().doze(&core1.pin, MANY));
            assert_eq!(core1.refcache().garbage(), 1, "it is seen where it lies");
        });
        let other = core.spawn(1, |core| {
            core.refcache().online(&core.pin);
            core.ticks(1);
            core.refcache().doze(&core.pin, MANY);
        });
        core.ticks(2);
        other.join().unwrap();
        core.expect_release();
    });
}

/// A dozing core is taken offline, which hands its queue on. A core that counts the waiting objects finds the
/// object in the doze slot, or among the orphans.
#[test]
fn a_queue_that_is_handed_on_is_counted() {
    explore(3, 2, Kind::Plain, 1, |core| {
        core.as_core_1(|core1| {
            core1.add(-1);
            assert!(core1.refcache().doze(&core1.pin, MANY));
        });
        let other = core.spawn(1, |core| core.refcache().offline(&core.pin));
        assert!(core.refcache().garbage() > 0, "the object waits somewhere");
        other.join().unwrap();
        core.expect_release();
    });
}

/// A core dozes with an object on its queue. A core that counts the waiting objects finds it on the core's
/// queue, or in its doze slot.
#[test]
fn a_queue_that_is_left_is_counted() {
    explore(3, 2, Kind::Plain, 1, |core| {
        core.as_core_1(|core1| {
            core1.add(-1);
            core1.ticks(1);
        });
        let other = core.spawn(1, |core| assert!(core.refcache().doze(&core.pin, MANY)));
        assert!(core.refcache().garbage() > 0, "the object waits somewhere");
        other.join().unwrap();
        core.expect_release();
    });
}
