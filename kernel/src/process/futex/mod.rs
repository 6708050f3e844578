//! Futexes: sleeping on a word of the program's memory.
//!
//! Sleepers are in buckets, chosen by a hash of the word's key, each with a lock on its own cache lines. A
//! sleeper checks the word and enters the bucket under its lock. A waker has changed the word before, and
//! searches the bucket under the same lock. So the sleeper sees the new word, or the waker sees the sleeper.
//!
//! 1. `Waiter::object` and `Waiter::at` are the [`Key`] of the word that a task sleeps on. An `at` of 0 says
//!    that it is in no bucket. They change only under the lock of the bucket that they name (a requeue holds
//!    both locks).
//! 2. A task is removed from its bucket by a waker, or by itself when it stops waiting. Both set `at` to 0. A
//!    sleeper whose `at` is 0 was woken, even if its time ran out at the same moment. So no wake-up is lost.
//! 3. A call wakes or moves only tasks that slept when it first had the bucket's lock, known by
//!    `Waiter::arrival`. It releases the lock while it wakes a batch, and a woken task may be back before the
//!    next batch.
//!
//! The word is read under the bucket's lock. That may fault and take the address space's locks, and no holder
//! of those takes a bucket's lock. The fault does not reclaim memory, though: see `process::reclaim`.

mod bucket;
mod key;
mod word;

use alloc::sync::Arc;

use abi::Errno;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vm::Access;

use super::reclaim::under_lock;
use crate::mm::user;
use crate::sched::{self, Task};

pub use key::{Key, Word};

use bucket::{Batch, Pair, Wanted, bucket};

/// The entry of a task in a bucket.
#[derive(Debug)]
pub struct Waiter {
    object: AtomicU64,
    at: AtomicU64,
    bits: AtomicU32,
    /// Its number among all tasks that came to the bucket.
    arrival: AtomicU64,
}

impl Waiter {
    /// Creates an entry in no bucket.
    pub const fn new() -> Self {
        Self {
            object: AtomicU64::new(0),
            at: AtomicU64::new(0),
            bits: AtomicU32::new(0),
            arrival: AtomicU64::new(0),
        }
    }

    /// Returns the word it sleeps on. Exact under the lock of its bucket. Otherwise the halves may belong to
    /// two words.
    fn key(&self) -> Option<Key> {
        // Acquire pairs with the Release in `leave`: a task that sees 0 sees the waker's earlier writes.
        let at = self.at.load(Ordering::Acquire);
        (at != 0).then(|| Key { object: self.object.load(Ordering::Relaxed), at })
    }

    /// Notes that it is in the bucket of `key` as the `arrival`th. Relaxed, like the two below, because the
    /// bucket is locked.
    fn enter(&self, key: Key, arrival: u64) {
        self.arrival.store(arrival, Ordering::Relaxed);
        self.object.store(key.object, Ordering::Relaxed);
        self.at.store(key.at, Ordering::Relaxed);
    }

    /// Notes that it is in no bucket.
    fn leave(&self) {
        // Release pairs with the Acquire in `key`.
        self.at.store(0, Ordering::Release);
    }

    /// Returns whether it is among the first `arrivals`, sleeps on the word `key`, and has bits that
    /// intersect `bits`.
    fn matches(&self, key: Key, bits: u32, arrivals: u64) -> bool {
        self.key() == Some(key)
            && self.bits.load(Ordering::Relaxed) & bits != 0
            && self.arrival.load(Ordering::Relaxed) <= arrivals
    }
}

/// Sleeps on `word` if it is `expected`, until woken or until `deadline` (nanoseconds since boot).
///
/// # Errors
/// EAGAIN (another value), ETIMEDOUT, EINTR, EINVAL, EFAULT, ENOMEM.
pub fn wait(word: Word, expected: u32, bits: u32, deadline: Option<u64>) -> Result<(), Errno> {
    let task = sched::current();
    let key = Key::of(&task, word);
    under_lock(word.at(), Access::Read, || enter(&task, (key, word.at()), expected, bits))?;
    let slept = sleep(&task, deadline);
    // If the task is still in a bucket, no thread woke it. Otherwise one did, whatever else happened.
    if dequeue(&task) { slept } else { Ok(()) }
}

fn enter(task: &Arc<Task>, (key, at): (Key, u64), expected: u32, bits: u32) -> Result<(), Errno> {
    let mut sleepers = bucket(key);
    if user::load_u32(at)? != expected {
        return Err(Errno::EAGAIN);
    }
    task.thread.futex.bits.store(bits, Ordering::Relaxed);
    sleepers.push(task.clone(), key);
    Ok(())
}

/// Sleeps until the task is in no bucket, or returns an error.
fn sleep(task: &Task, deadline: Option<u64>) -> Result<(), Errno> {
    while task.thread.futex.key().is_some() {
        task.check_interrupted()?;
        if deadline.is_some_and(sched::passed) {
            return Err(Errno::ETIMEDOUT);
        }
        sched::park_until(deadline)?;
    }
    Ok(())
}

/// Removes the task from the bucket it is in by now. Returns whether it was in one.
fn dequeue(task: &Arc<Task>) -> bool {
    loop {
        let Some(key) = task.thread.futex.key() else { return false };
        let mut sleepers = bucket(key);
        // It may have been woken or requeued before we had the lock.
        if task.thread.futex.key() == Some(key) {
            sleepers.remove(task);
            return true;
        }
    }
}

/// Wakes up to `count` sleepers on `word` in the memory of `task` whose bits intersect `bits`, and returns
/// how many.
pub fn wake(task: &Task, word: Word, count: usize, bits: u32) -> usize {
    let key = Key::of(task, word);
    let mut wanted = Wanted::new(key, bits);
    let mut woken = 0;
    loop {
        let batch = Batch::take(&mut bucket(key), &mut wanted, count - woken);
        woken += batch.len();
        if !batch.is_full() {
            return woken;
        }
    }
}

/// Wakes up to `counts.0` sleepers on the word `from` and moves up to `counts.1` others to the word `to`.
/// Returns how many in all. With `expected`, does so only if the word `from` has that value.
///
/// # Errors
/// EAGAIN (another value), EFAULT.
pub fn requeue(
    task: &Task,
    (from, to): (Word, Word),
    counts: (usize, usize),
    expected: Option<u32>,
) -> Result<usize, Errno> {
    let (keys, expected) =
        ((Key::of(task, from), Key::of(task, to)), expected.map(|value| (from.at(), value)));
    under_lock(from.at(), Access::Read, || wake_and_move(keys, counts, expected))
}

/// Does the work of [`requeue`]. If it fails with EFAULT, nothing has changed.
fn wake_and_move(
    (from, to): (Key, Key),
    (wake, moved): (usize, usize),
    expected: Option<(u64, u32)>,
) -> Result<usize, Errno> {
    let mut wanted = Wanted::new(from, u32::MAX);
    let mut woken = 0;
    loop {
        let mut pair = Pair::lock(from, to);
        if let Some((at, expected)) = expected.filter(|_| woken == 0)
            && user::load_u32(at)? != expected
        {
            return Err(Errno::EAGAIN);
        }
        let batch = Batch::take(pair.first(), &mut wanted, wake - woken);
        woken += batch.len();
        let more = batch.is_full();
        let moved = if more { 0 } else { pair.transfer(&mut wanted, to, moved) };
        // Before the batch is woken.
        drop(pair);
        if !more {
            return Ok(woken + moved);
        }
    }
}

/// Changes the word `second` by `operation` and wakes up to `counts.0` sleepers on `first`. If the old value
/// satisfies the operation's comparison, also wakes up to `counts.1` on `second`. Returns how many in all.
///
/// # Errors
/// ENOSYS (unknown operation), EFAULT.
pub fn wake_op(
    task: &Task,
    (first, second): (Word, Word),
    counts: (usize, usize),
    operation: u32,
) -> Result<usize, Errno> {
    let old = word::update(second.at(), operation)?;
    let compared = word::compare(old as i32, operation)?;
    let woken = wake(task, first, counts.0, u32::MAX);
    match compared {
        true => Ok(woken + wake(task, second, counts.1, u32::MAX)),
        false => Ok(woken),
    }
}
