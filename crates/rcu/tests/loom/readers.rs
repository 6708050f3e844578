//! Readers against frees.

use crate::machine::explore;

/// A reader on another core, which is quiescent between its sections.
#[test]
fn a_reader_is_waited_for() {
    explore(3, 2, |core| {
        let other = core.spawn(1, |core| {
            for _ in 0..3 {
                core.read();
                core.quiesces(1);
            }
        });
        core.unlink();
        core.defer();
        core.quiesces(4);
        other.join().unwrap();
        core.expect_one_free();
    });
}

/// The other core waits for a grace period too. It has turned the epoch, and announced the new one, before
/// the object is unlinked.
#[test]
fn an_epoch_that_others_have_seen_already() {
    explore(3, 2, |core| {
        core.as_core_1(|core1| {
            core1.bystander();
            core1.quiesces(1);
        });
        let other = core.spawn(1, |core| {
            core.read();
            core.quiesces(2);
        });
        core.unlink();
        core.defer();
        core.quiesces(2);
        other.join().unwrap();
        core.expect_one_free();
    });
}

/// As above, but the reader goes offline after its section, and is back before another core looks.
#[test]
fn a_reader_that_was_away_for_a_moment() {
    explore(3, 2, |core| {
        core.as_core_1(|core1| {
            core1.bystander();
            core1.quiesces(1);
        });
        let other = core.spawn(1, |core| {
            core.read();
            core.domain().offline(&core.pin);
            core.domain().online(&core.pin);
        });
        core.unlink();
        core.defer();
        core.quiesces(2);
        other.join().unwrap();
        core.expect_one_free();
    });
}

/// A third core does the last turn, and it alone has looked at the reader's word.
#[test]
fn a_turn_by_another_core() {
    explore(2, 3, |core| {
        core.as_core_1(|core1| {
            core1.bystander();
            core1.quiesces(1);
        });
        core.quiesces(1);
        let turner = core.spawn(1, |core| core.quiesces(1));
        let writer = core.spawn(2, |core| {
            core.unlink();
            core.defer();
            core.quiesces(2);
        });
        core.read();
        core.quiesces(1);
        turner.join().unwrap();
        writer.join().unwrap();
        core.expect_one_free();
    });
}

/// Objects may be deferred a little before they are unlinked.
#[test]
fn deferred_then_unlinked() {
    explore(2, 2, |core| {
        let other = core.spawn(1, |core| {
            for _ in 0..3 {
                core.quiesces(1);
                core.read();
            }
        });
        core.defer();
        core.unlink();
        core.quiesces(4);
        other.join().unwrap();
        core.expect_one_free();
    });
}

/// A reader comes online. No core waited for it until then.
#[test]
fn a_reader_just_come_online() {
    explore(2, 2, |core| {
        core.as_core_1(|core1| core1.domain().offline(&core1.pin));
        let other = core.spawn(1, |core| {
            core.come_and_go(|core| core.read());
            core.come_and_go(|core| core.read());
        });
        core.unlink();
        core.defer();
        core.quiesces(4);
        other.join().unwrap();
        core.expect_one_free();
    });
}

/// The reader goes offline, and the writer does not wait for it any more.
#[test]
fn a_reader_goes_offline() {
    explore(3, 2, |core| {
        let other = core.spawn(1, |core| {
            core.read();
            core.domain().offline(&core.pin);
        });
        core.unlink();
        core.defer();
        core.quiesces(3);
        other.join().unwrap();
        core.expect_one_free();
    });
}

/// A third core turns epochs, and reads, while a reader comes and goes.
#[test]
fn three_cores() {
    explore(2, 3, |core| {
        core.as_core_1(|core1| core1.domain().offline(&core1.pin));
        let comer = core.spawn(1, |core| core.come_and_go(|core| core.read()));
        let reader = core.spawn(2, |core| {
            core.read();
            core.domain().offline(&core.pin);
        });
        core.unlink();
        core.defer();
        core.quiesces(2);
        comer.join().unwrap();
        reader.join().unwrap();
        core.expect_one_free();
    });
}

/// A writer waits by itself.
#[test]
fn synchronize_waits_for_readers() {
    explore(2, 2, |core| {
        let other = core.spawn(1, |core| {
            core.read();
            core.quiesces(1);
            core.read();
            core.domain().offline(&core.pin);
        });
        core.unlink();
        core.domain().synchronize(&core.pin);
        core.free_now();
        other.join().unwrap();
    });
}
