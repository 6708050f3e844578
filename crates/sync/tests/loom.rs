//! The locks, model-checked: `RUSTFLAGS="--cfg loom" cargo test -p radixvm-sync --test loom --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use sync::atomic::{AtomicU8, AtomicU64, Ordering};
use sync::{FreezeLock, Look, Parking, Sequence, SpinLock, UnsafeCell, lock_bit, spin_loop, unlock_bit};

const BIT: u64 = 1;

#[test]
fn a_spin_lock_excludes_and_publishes() {
    loom::model(|| {
        let lock = Arc::new(SpinLock::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || *other.lock() += 1);
        *lock.lock() += 1;
        thread.join().unwrap();
        assert_eq!(*lock.lock(), 2);
    });
}

/// Loom finds a look without the lock that nothing puts behind the change.
#[test]
fn a_value_seen_frozen_is_the_last() {
    loom::model(|| {
        let lock = Arc::new(FreezeLock::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || {
            *other.change().unwrap() += 1;
            other.freeze();
        });
        if let Look::Frozen(value) = lock.look() {
            assert_eq!(*value, 1);
        }
        thread.join().unwrap();
    });
}

#[test]
fn nothing_changes_behind_the_frost() {
    loom::model(|| {
        let lock = Arc::new(FreezeLock::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || other.change().map(|mut value| *value += 1).is_some());
        lock.freeze();
        let seen = *lock.look();
        assert_eq!(seen, i32::from(thread.join().unwrap()));
    });
}

/// Without one of the two fences, or with an even version that is stored early, a reader finds a mixture.
#[test]
fn a_reader_of_a_sequence_finds_what_one_writer_left() {
    loom::model(|| {
        let sequence = Arc::new(Sequence::<2>::new());
        let other = Arc::clone(&sequence);
        let thread = thread::spawn(move || other.replace(1, [1, 1]));
        let (number, words) = sequence.read();
        assert_eq!(words, [number.into(); 2]);
        thread.join().unwrap();
        assert_eq!(sequence.read(), (1, [1, 1]));
    });
}

#[test]
fn one_of_two_replaces_the_words_that_both_expect() {
    loom::model(|| {
        let sequence = Arc::new(Sequence::<1>::new());
        let other = Arc::clone(&sequence);
        let thread = thread::spawn(move || other.replace_if((0, [0]), (1, [1])));
        let mine = sequence.replace_if((0, [0]), (2, [2]));
        assert_ne!(mine, thread.join().unwrap());
        assert_eq!(sequence.read(), if mine { (2, [2]) } else { (1, [1]) });
    });
}

#[test]
fn two_writers_of_a_sequence_take_turns() {
    loom::model(|| {
        let sequence = Arc::new(Sequence::<1>::new());
        let other = Arc::clone(&sequence);
        let thread = thread::spawn(move || other.replace(1, [1]));
        let (mine, theirs) = (sequence.replace(2, [2]), thread.join().unwrap());
        let all = [mine.0, theirs.0, sequence.read().0];
        assert!([[0, 2, 1], [1, 0, 2]].contains(&all), "{all:?}");
    });
}

struct Slot {
    word: AtomicU64,
    data: UnsafeCell<u64>,
}

// SAFETY: `data` is accessed only while bit 0 of `word` is held. Loom checks that.
unsafe impl Sync for Slot {}

impl Slot {
    fn add_one(&self) {
        lock_bit(&self.word, BIT, spin_loop);
        // SAFETY: the bit is held.
        self.data.with_mut(|data| unsafe { *data += 1 });
        unlock_bit(&self.word, BIT);
    }
}

#[test]
fn a_bit_lock_excludes_and_publishes_while_other_bits_change() {
    loom::model(|| {
        let slot = Arc::new(Slot { word: AtomicU64::new(0), data: UnsafeCell::new(0) });
        let other = Arc::clone(&slot);
        let thread = thread::spawn(move || other.add_one());
        slot.word.fetch_or(8, Ordering::Relaxed);
        slot.add_one();
        thread.join().unwrap();
        assert_eq!(slot.word.load(Ordering::Relaxed), 8);
        // SAFETY: the other thread has ended.
        assert_eq!(slot.data.with(|data| unsafe { *data }), 2);
    });
}

/// A task with its condition and its run queue, where it is at most once.
struct Sleeper {
    parking: Parking,
    ready: AtomicU64,
    queued: AtomicU8,
    /// The data that a waker writes before it wakes.
    gift: UnsafeCell<u64>,
}

// SAFETY: `gift` is written before `ready` is set and read after `ready` was seen. Loom checks that.
unsafe impl Sync for Sleeper {}

impl Sleeper {
    fn new() -> Arc<Self> {
        let (ready, queued) = (AtomicU64::new(0), AtomicU8::new(0));
        Arc::new(Self { parking: Parking::new(), ready, queued, gift: UnsafeCell::new(0) })
    }

    fn enqueue(&self) {
        assert_eq!(self.queued.fetch_add(1, Ordering::Release), 0, "in two queues: two cores on one stack");
    }

    fn wake(&self) {
        if self.parking.wake() {
            self.enqueue();
        }
    }

    /// The task's flow, and between `begin` and its return from the queue the flow that took its core.
    fn park(&self) {
        if !self.parking.begin() {
            return;
        }
        if !self.parking.settle() {
            self.enqueue();
        }
        while self.queued.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
    }

    fn sleep_until(&self, wanted: u64) {
        // Relaxed: the parking word makes the writes of a waker visible.
        while self.ready.load(Ordering::Relaxed) < wanted {
            self.park();
        }
    }
}

#[test]
fn no_wake_up_is_lost_between_the_check_and_the_sleep() {
    loom::model(|| {
        let task = Sleeper::new();
        let waker = Arc::clone(&task);
        let thread = thread::spawn(move || {
            waker.ready.fetch_add(1, Ordering::Relaxed);
            waker.wake();
        });
        task.sleep_until(1);
        thread.join().unwrap();
    });
}

#[test]
fn two_wakers_enqueue_a_task_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let task = Sleeper::new();
        let wakers = [(); 2].map(|()| {
            let task = Arc::clone(&task);
            thread::spawn(move || {
                task.ready.fetch_add(1, Ordering::Relaxed);
                task.wake();
            })
        });
        task.sleep_until(2);
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
    });
}

#[test]
fn a_park_that_a_wake_ends_sees_what_the_waker_wrote() {
    loom::model(|| {
        let task = Sleeper::new();
        let waker = Arc::clone(&task);
        let thread = thread::spawn(move || {
            // SAFETY: the sleeper reads only after this thread's wake.
            waker.gift.with_mut(|gift| unsafe { *gift = 7 });
            waker.wake();
        });
        // This is the only wake-up, however this call returns.
        task.park();
        // SAFETY: the waker has written and will not write again.
        assert_eq!(task.gift.with(|gift| unsafe { *gift }), 7);
        thread.join().unwrap();
    });
}

/// Loom must try both orders of a load and another thread's load and swap, or it proves little about either.
#[test]
fn loom_sees_past_a_load() {
    static SEEN: [std::sync::atomic::AtomicBool; 2] =
        [const { std::sync::atomic::AtomicBool::new(false) }; 2];
    loom::model(|| {
        let word = Arc::new(AtomicU64::new(0));
        let other = Arc::clone(&word);
        let thread = thread::spawn(move || {
            let seen = other.load(Ordering::Relaxed);
            assert!(other.compare_exchange(seen, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok());
        });
        let seen = word.load(Ordering::Relaxed) as usize;
        SEEN[seen].store(true, std::sync::atomic::Ordering::Relaxed);
        thread.join().unwrap();
    });
    assert!(SEEN.iter().all(|seen| seen.load(std::sync::atomic::Ordering::Relaxed)));
}
