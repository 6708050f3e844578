//! Readers against the reviewer.

use std::sync::Arc;

use loom::thread;
use percore::{CoreId, Pinned};
use refcache::{DYING, WeakWord};
use sync::atomic::{AtomicU64, Ordering};
use test_memory::Watched;

use crate::machine::{Core, Kind, explore};

/// A reader counts a reference that it finds, while the object's review is due.
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

/// A reader never counts: an object that it finds stays while its core does not flush. Its core has flushed
/// in the epoch of the mark already, so it may hold on until the end of the next one, when the review is due.
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

/// The word is used for something else while the object's review is due, by a core that has just found it.
/// That core may use the object as long as it has references, and Refcache does not change the word.
#[test]
fn renamed_during_review() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.add(-1);
        core.ticks(1);
        core.as_core_1(|core1| core1.ticks(2));
        core.ticks(1);
        let other = core.spawn(1, |core| {
            let loan = core.refcache().loan(&core.pin);
            let found = core.find();
            if found {
                core.add(1);
                core.rename();
                core.read();
                core.add(-1);
            }
            drop(loan);
            core.ticks(2);
            found
        });
        core.ticks(2);
        let renamed = other.join().unwrap();
        core.expect_release();
        assert_eq!(core.is_renamed(), renamed);
    });
}

/// The holder uses the word for something else and drops the object. A reader that still finds the object by
/// the word may read it.
#[test]
fn renamed_before_a_reader_comes() {
    explore(2, 2, Kind::Named, 1, |core| {
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
        let loan = core.refcache().loan(&core.pin);
        core.rename();
        core.add(-1);
        core.conflict();
        drop(loan);
        core.ticks(4);
        other.join().unwrap();
        core.expect_release();
        assert!(core.is_renamed());
    });
}

/// A false zero is marked while the word is used for something else.
#[test]
fn renamed_while_it_is_marked() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.add(1);
        let other = core.spawn(1, |core| {
            core.add(-1);
            core.ticks(3);
        });
        let loan = core.refcache().loan(&core.pin);
        core.rename();
        core.read();
        core.add(-1);
        drop(loan);
        core.ticks(3);
        other.join().unwrap();
        core.expect_release();
        assert!(core.is_renamed());
    });
}

/// The review is slow. By then the word names another object, which is marked: that word is not changed
/// either.
#[test]
fn renamed_for_another_that_is_marked() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.add(-1);
        core.ticks(1);
        core.as_core_1(|core1| core1.ticks(2));
        core.ticks(1);
        let other = core.spawn(1, |core| {
            let loan = core.refcache().loan(&core.pin);
            let found = core.find();
            if found {
                core.add(1);
                core.rename_and_mark();
                core.add(-1);
            }
            drop(loan);
            core.ticks(2);
            found
        });
        core.ticks(2);
        let renamed = other.join().unwrap();
        core.expect_release();
        assert_eq!(core.is_renamed_and_marked(), renamed);
    });
}

/// Core 1 takes the word away and evicts the references that it drops. Then core 0's tick makes the count
/// zero, or finds it zero once more. Core 2 flushes after that, and looks: either it does not find the object
/// by the word any more, or the object waits for it. The cores yield where that order is to be kept.
fn renamed_before_a_third_core_looks(core: &Core, drop_reference: fn(&Core)) {
    let owner = core.spawn(1, move |core| {
        drop_reference(&core);
        thread::yield_now();
        core.ticks(1);
    });
    let reader = core.spawn(2, |core| {
        core.ticks(1);
        let loan = core.refcache().loan(&core.pin);
        if core.find() {
            core.read();
        }
        drop(loan);
    });
    thread::yield_now();
    core.ticks(1);
    thread::yield_now();
    core.ticks(2);
    owner.join().unwrap();
    reader.join().unwrap();
    core.expect_release();
}

/// Core 0 has the last reference. An evict that does not release, or one that finds the zero and does not
/// acquire, fails here.
#[test]
fn renamed_before_another_finds_the_zero() {
    explore(1, 3, Kind::Named, 2, |core| {
        core.as_core(1, |core1| core1.ticks(1));
        core.as_core(2, |core2| core2.ticks(1));
        core.add(-1);
        renamed_before_a_third_core_looks(&core, |core| {
            let loan = core.refcache().loan(&core.pin);
            core.rename();
            core.add(-1);
            core.conflict();
            drop(loan);
        });
    });
}

/// The object is queued on core 0 and its review is due. A review that does not acquire fails here.
#[test]
fn renamed_before_another_reviews_the_zero() {
    explore(1, 3, Kind::Named, 1, |core| {
        core.add(-1);
        for _ in 0..2 {
            core.ticks(1);
            core.as_core(1, |core1| core1.ticks(1));
            core.as_core(2, |core2| core2.ticks(1));
        }
        core.as_core(1, |core1| core1.ticks(1));
        core.as_core(2, |core2| core2.ticks(1));
        renamed_before_a_third_core_looks(&core, |core| {
            let loan = core.refcache().loan(&core.pin);
            if core.find() {
                core.add(1);
                core.rename();
                core.add(-1);
                core.conflict();
            }
            drop(loan);
        });
    });
}

/// An owner that finds 0 uses the data of the word again: the readers of the old object are done with it.
#[test]
fn a_word_that_is_free_again() {
    explore(2, 2, Kind::Named, 1, |core| {
        core.add(-1);
        core.ticks(1);
        core.as_core_1(|core1| core1.ticks(1));
        core.ticks(1);
        let reader = core.spawn(1, |core| {
            let loan = core.refcache().loan(&core.pin);
            core.read_side();
            drop(loan);
            core.ticks(1);
        });
        // This thread plays no core.
        let owner = core.spawn(2, |core| {
            if core.is_gone() {
                core.write_side();
            }
        });
        core.ticks(2);
        reader.join().unwrap();
        owner.join().unwrap();
        core.expect_release();
    });
}

const NAME: u64 = 64;
const OTHER_NAME: u64 = 128;

/// Publishes an object in a word that contained `before`, which a reader may still have seen.
fn publish(before: u64, published: u64) {
    loom::model(move || {
        let shared = Arc::new((WeakWord(AtomicU64::new(before)), Watched::default()));
        let owner = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let (word, payload) = &*shared;
                if word.0.compare_exchange(before, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    payload.set(1);
                    word.0.store(published, Ordering::Release);
                }
            }
        });
        let (word, payload) = &*shared;
        // SAFETY: nothing here belongs to a core.
        let pin = unsafe { Pinned::assume(CoreId::new(0)) };
        match word.revive(&pin) {
            0 | OTHER_NAME => {}
            // No thread writes the payload of an object that the reader kept from being taken.
            NAME => assert!(payload.get() <= 1),
            word => panic!("a word that nobody wrote: {word:#x}"),
        }
        owner.join().unwrap();
    });
}

#[test]
fn a_reader_finds_an_object_that_is_complete() {
    publish(0, NAME);
}

/// The reader loses the word to the reviewer, and finds the object after that.
#[test]
fn a_reader_finds_the_next_object() {
    publish(OTHER_NAME | DYING, NAME);
}

/// The next object has the address of the last one, and is dying, too: the reader mistakes it for the last
/// one.
#[test]
fn a_reader_finds_the_next_object_at_the_same_address() {
    publish(NAME | DYING, NAME | DYING);
}
