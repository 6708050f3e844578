//! A word, or a set of words, that two objects claim, one after the other, while readers count and one asks
//! about the first object at the end. Loom reports an end that is not ordered after every read.

use std::sync::Arc;

use baselines::{ClaimedCount, ClaimedSet};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The object that ends, and the one that takes its place in the word.
const FIRST: u64 = 1;
const SECOND: u64 = 2;

struct Object<W> {
    word: W,
    /// References to the first object that found no room.
    shared: AtomicU64,
    /// Readers of the first object that are not pinned any more.
    unpinned: AtomicUsize,
    ends: UnsafeCell<u32>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl<W: Sync> Sync for Object<W> {}
// SAFETY: as for `Sync`.
unsafe impl<W: Send> Send for Object<W> {}

/// A place where objects have local counters.
trait Words: Default + Send + Sync + 'static {
    fn take(&self, object: u64) -> Option<&ClaimedCount>;
    fn claim(&self, object: u64);
    fn has(&self, object: u64) -> bool;
    fn is_used(&self) -> bool;
}

impl Words for ClaimedCount {
    fn take(&self, object: u64) -> Option<&ClaimedCount> {
        ClaimedCount::take(self, object, 0).map(|_| self)
    }

    fn claim(&self, object: u64) {
        ClaimedCount::claim(self, object, 0);
    }

    fn has(&self, object: u64) -> bool {
        ClaimedCount::has(self, object)
    }

    fn is_used(&self) -> bool {
        ClaimedCount::is_used(self)
    }
}

/// A word whose readers first try to take the only reference.
#[derive(Default)]
struct Alone(ClaimedCount);

impl Words for Alone {
    fn take(&self, object: u64) -> Option<&ClaimedCount> {
        if self.0.take_first(object, 0) { Some(&self.0) } else { Words::take(&self.0, object) }
    }

    fn claim(&self, object: u64) {
        self.0.claim(object, 0);
    }

    fn has(&self, object: u64) -> bool {
        self.0.has(object)
    }

    fn is_used(&self) -> bool {
        self.0.is_used()
    }
}

impl Words for ClaimedSet {
    fn take(&self, object: u64) -> Option<&ClaimedCount> {
        Some(ClaimedSet::take(self, object, 0)?.0)
    }

    fn claim(&self, object: u64) {
        ClaimedSet::claim(self, 1, object, 0);
    }

    fn has(&self, object: u64) -> bool {
        ClaimedSet::has(self, object)
    }

    fn is_used(&self) -> bool {
        ClaimedSet::is_used(self)
    }
}

impl<W: Words> Object<W> {
    fn take(&self, object: u64) -> Option<&ClaimedCount> {
        self.word.take(object).or_else(|| {
            self.word.claim(object);
            self.word.take(object)
        })
    }

    fn read(&self) {
        let local = self.take(FIRST);
        if local.is_none() {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
        self.unpinned.fetch_add(1, Ordering::Release);
        // SAFETY: loom checks that no thread ends it meanwhile.
        self.ends.with(|ends| unsafe { assert_eq!(*ends, 0, "read after its end") });
        match local {
            Some(word) => word.leave(),
            None => _ = self.shared.fetch_sub(1, Ordering::Release),
        }
    }

    fn read_another(&self) {
        if let Some(word) = self.take(SECOND) {
            assert!(self.word.is_used());
            word.leave();
        }
    }

    /// Ends the first object if no reader holds it.
    fn ask(&self, readers: usize) -> bool {
        let is_last = self.unpinned.load(Ordering::Acquire) == readers;
        let ended = is_last && self.shared.load(Ordering::Acquire) == 0 && !self.word.has(FIRST);
        if ended {
            // SAFETY: loom checks that no thread uses it.
            self.ends.with_mut(|ends| unsafe { *ends += 1 });
            assert!(self.word.take(FIRST).is_none(), "a word names an object that has ended");
        }
        ended
    }
}

fn explore<W: Words>(readers: usize, others: usize) {
    let mut builder = Builder::new();
    // With three threads beside the one that asks, one more takes minutes.
    builder.preemption_bound = Some(if readers + others > 2 { 2 } else { 3 });
    builder.check(move || {
        let object = Arc::new(Object {
            word: W::default(),
            shared: AtomicU64::new(0),
            unpinned: AtomicUsize::new(0),
            ends: UnsafeCell::new(0),
        });
        let start = |read: fn(&Object<W>)| {
            let object = Arc::clone(&object);
            thread::spawn(move || read(&object))
        };
        let threads: Vec<_> = (0..readers)
            .map(|_| start(Object::read))
            .chain((0..others).map(|_| start(Object::read_another)))
            .collect();
        let ended = object.ask(readers);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(ended || object.ask(readers), "a reference is left, or one too many was dropped");
    });
}

#[test]
fn two_readers_of_one_object() {
    explore::<ClaimedCount>(2, 0);
}

/// The word may be claimed away between a reference and the question.
#[test]
fn a_reader_and_one_of_another_object() {
    explore::<ClaimedCount>(1, 1);
}

#[test]
fn two_readers_of_one_object_that_try_to_be_alone() {
    explore::<Alone>(2, 0);
}

#[test]
fn a_reader_that_tries_to_be_alone_and_one_of_another_object() {
    explore::<Alone>(1, 1);
}

#[test]
fn two_readers_and_one_of_another_object() {
    explore::<ClaimedCount>(2, 1);
}

/// Both may claim a word for the object.
#[test]
fn two_readers_of_one_object_in_a_set() {
    explore::<ClaimedSet>(2, 0);
}

#[test]
fn a_reader_and_one_of_another_object_in_a_set() {
    explore::<ClaimedSet>(1, 1);
}

/// A claim that finds a full set clears the bit of each word, also of one that the question frees.
#[test]
fn a_word_is_freed_while_another_claim_clears_its_bit() {
    loom::model(|| {
        let set = Arc::new(ClaimedSet::default());
        assert!(set.claim(0, FIRST, 0) && set.claim(0, SECOND, 0));
        let other = Arc::clone(&set);
        let claimer = thread::spawn(move || other.claim(0, 3, 0));
        assert!(!set.has(FIRST));
        claimer.join().unwrap();
        assert!(set.take(FIRST, 0).is_none(), "a word names an object that has ended");
    });
}
