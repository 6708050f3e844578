//! The holder of the last reference, and the answer that it gets.

use crate::machine::{Core, Kind, explore};

/// Drops one of two references, as core 0, so that its next tick reviews the one that is left.
fn until_the_review_is_due(core: &Core) {
    core.add(-1);
    for _ in 0..2 {
        core.ticks(1);
        core.as_core_1(|core1| core1.ticks(1));
    }
}

/// Core 0's review makes the object sole, while core 1, which holds it, makes a reference for core 0 that no
/// flush has told yet. A holder that does not look at the header, or considers only one of the two states,
/// fails here.
#[test]
fn a_reference_added_during_the_review() {
    explore(3, 2, Kind::Watched, 2, |core| {
        until_the_review_is_due(&core);
        let other = core.spawn(1, |core| core.share());
        core.ticks(1);
        other.join().unwrap();
        assert!(!core.is_sole(), "core 1 has a reference, too");
        core.expect_release_after(2);
    });
}

/// The global count leaves one and comes back within the epoch. A reference was added while it was away,
/// which did not change the header. A review that ignores DIRTY fails here.
#[test]
fn a_dirty_one() {
    explore(3, 2, Kind::Watched, 2, |core| {
        core.as_core_1(Core::share);
        core.add(-1);
        core.ticks(1);
        core.as_core_1(|core1| core1.ticks(1));
        core.ticks(1);
        core.share();
        let other = core.spawn(1, |core| {
            core.add(-1);
            core.ticks(1);
            assert!(!core.is_sole(), "core 0 has a reference, too");
        });
        core.ticks(1);
        other.join().unwrap();
        core.expect_release_after(2);
    });
}

/// The holder is offline, and learns from the header alone that the other core's use is over.
#[test]
fn a_sole_holder_comes_after_all_others() {
    explore(3, 2, Kind::Watched, 2, |core| {
        core.refcache().offline(&core.pin);
        let other = core.spawn(1, |core| {
            core.read();
            core.add(-1);
            core.ticks(3);
        });
        let taken = core.take_if_sole();
        other.join().unwrap();
        if !taken {
            core.expect_sole();
        }
    });
}

/// The one is found while the holder is offline. The holder comes back, and makes a second reference at once.
#[test]
fn a_holder_just_come_online() {
    explore(2, 2, Kind::Watched, 2, |core| {
        core.as_core_1(|core1| core1.refcache().offline(&core1.pin));
        core.add(-1);
        let other = core.spawn(1, |core| {
            core.refcache().online(&core.pin);
            core.share();
        });
        core.ticks(4);
        other.join().unwrap();
        assert!(!core.is_sole(), "core 1 has a reference, too");
        core.expect_release_after(2);
    });
}

/// Core 0 reviews the one and takes the object off its queue, while core 1 drops the reference. The object
/// moves from one queue to the other, or stays on the first, and is released.
#[test]
fn from_sole_to_dying() {
    explore(2, 2, Kind::Watched, 2, |core| {
        until_the_review_is_due(&core);
        let other = core.spawn(1, |core| {
            core.read();
            core.add(-1);
            core.ticks(2);
        });
        core.ticks(2);
        other.join().unwrap();
        core.expect_release();
    });
}

/// Core 0 hands its reference to core 1, and the decrement is flushed first, or not. A zero that is false
/// becomes a one that is true, and core 1 takes the object when it may. The object is not released.
#[test]
fn from_dying_to_sole() {
    explore(2, 2, Kind::Watched, 1, |core| {
        core.as_core_1(Core::share);
        let other = core.spawn(1, |core| {
            core.ticks(3);
            core.take_if_sole()
        });
        core.read();
        core.add(-1);
        core.ticks(3);
        if !other.join().unwrap() {
            core.expect_sole();
        }
    });
}
