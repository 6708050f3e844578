//! The locks, model-checked: `RUSTFLAGS="--cfg loom" cargo test -p radixvm-sync --test loom --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use sync::atomic::{AtomicU64, Ordering};
use sync::{SpinLock, UnsafeCell, lock_bit, spin_loop, unlock_bit};

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

struct Slot {
    word: AtomicU64,
    data: UnsafeCell<u64>,
}

// SAFETY: `data` is touched only while bit 0 of `word` is held; loom checks exactly that.
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
