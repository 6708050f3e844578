//! Sleeping on a word of the program's memory.
//!
//! Sleepers hang in buckets, chosen by a hash of the address, each with a lock on its own cache lines. A
//! sleeper checks the word and enters the bucket under its lock; a waker, who changed the word before,
//! searches the bucket under the same lock: the sleeper sees the new word, or the waker sees the sleeper.
//!
//! 1. `Waiter::key` names the address that a task sleeps on; 0 says that it is in no bucket. It changes
//!    only under the lock of the bucket it names (a requeue holds both locks).
//! 2. Whoever takes a task out of its bucket sets its key to 0: a waker, or the sleeper itself when it
//!    gives up. A sleeper whose key is 0 was woken, even if its time ran out at the same moment: no wake-up
//!    is swallowed.
//! 3. A call wakes or moves only who slept when it first had the bucket's lock, known by `Waiter::came`: it lets go of
//!    the lock while it wakes a batch, and who is woken may be back before the next.
//!
//! The word is read under the bucket's lock. That may fault, which takes the address space's locks: nobody
//! who holds those comes here. It does not look for memory, though: see `process::patience`.

mod bucket;
mod word;

use alloc::sync::Arc;

use abi::Errno;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vm::Access;

use super::Process;
use super::patience::under_lock;
use crate::mm::user;
use crate::sched::{self, Task};

use bucket::{Batch, Pair, Wanted, bucket};

/// A task's place in a bucket.
#[derive(Debug)]
pub struct Waiter {
    key: AtomicU64,
    bits: AtomicU32,
    /// Its number among all that ever came to the bucket.
    came: AtomicU64,
}

impl Waiter {
    /// In no bucket.
    pub const fn new() -> Self {
        Self { key: AtomicU64::new(0), bits: AtomicU32::new(0), came: AtomicU64::new(0) }
    }

    fn key(&self) -> u64 {
        // Acquire pairs with the Release in `set_key`: who sees 0 sees what the waker did before.
        self.key.load(Ordering::Acquire)
    }

    fn set_key(&self, key: u64) {
        self.key.store(key, Ordering::Release);
    }

    /// Into a bucket, as the `came`th. Under its lock, like the two below, so Relaxed.
    fn enter(&self, at: u64, came: u64) {
        self.came.store(came, Ordering::Relaxed);
        self.set_key(at);
    }

    /// Out of it.
    fn leave(&self) {
        self.set_key(0);
    }

    /// Whether it is among the first `came`, on the word at `at`, and its bits meet `bits`.
    fn matches(&self, at: u64, bits: u32, came: u64) -> bool {
        self.key() == at
            && self.bits.load(Ordering::Relaxed) & bits != 0
            && self.came.load(Ordering::Relaxed) <= came
    }
}

/// A futex word is aligned and in user space: that is also what keeps its key from being 0.
fn check_address(at: u64) -> Result<(), Errno> {
    match (at % 4, at) {
        (0, 1..user::USER_END) => Ok(()),
        (0, _) => Err(Errno::EFAULT),
        _ => Err(Errno::EINVAL),
    }
}

/// Sleeps until woken on the word at `at`, if it is `expected`; until `deadline` (nanoseconds since boot)
/// at most.
///
/// # Errors
/// EAGAIN (another value), ETIMEDOUT, EINTR, EINVAL, EFAULT, ENOMEM.
pub fn wait(at: u64, expected: u32, bits: u32, deadline: Option<u64>) -> Result<(), Errno> {
    check_address(at)?;
    let task = sched::current();
    under_lock(at, Access::Read, || enter(&task, at, expected, bits))?;
    let slept = sleep(&task, deadline);
    // Still in a bucket: we gave up. Else somebody woke us, whatever else happened.
    if give_up(&task) { slept } else { Ok(()) }
}

fn enter(task: &Arc<Task>, at: u64, expected: u32, bits: u32) -> Result<(), Errno> {
    let mut sleepers = bucket(at);
    if user::load_u32(at)? != expected {
        return Err(Errno::EAGAIN);
    }
    task.thread.futex.bits.store(bits, Ordering::Relaxed);
    sleepers.push(task.clone(), at);
    Ok(())
}

/// Until the key is 0, or an error.
fn sleep(task: &Task, deadline: Option<u64>) -> Result<(), Errno> {
    while task.thread.futex.key() != 0 {
        task.check_interrupted()?;
        if deadline.is_some_and(sched::passed) {
            return Err(Errno::ETIMEDOUT);
        }
        sched::park_until(deadline)?;
    }
    Ok(())
}

/// Takes the task out of whatever bucket it is in by now; whether it was in one.
fn give_up(task: &Arc<Task>) -> bool {
    loop {
        let key = task.thread.futex.key();
        if key == 0 {
            return false;
        }
        let mut sleepers = bucket(key);
        // It may have been woken or requeued before we had the lock.
        if task.thread.futex.key() == key {
            sleepers.remove(task);
            return true;
        }
    }
}

/// Wakes up to `count` sleepers of `process` on the word at `at` whose bits meet `bits`; how many.
///
/// # Errors
/// EINVAL, EFAULT for an address that cannot be a futex.
pub fn wake(process: &Process, at: u64, count: usize, bits: u32) -> Result<usize, Errno> {
    check_address(at)?;
    let mut wanted = Wanted::new(process, at, bits);
    let mut woken = 0;
    loop {
        let batch = Batch::take(&mut bucket(at), &mut wanted, count - woken);
        woken += batch.len();
        if !batch.is_full() {
            return Ok(woken);
        }
    }
}

/// Wakes up to `wake` sleepers on the word at `from` and moves up to `moved` others to the word at `to`;
/// how many in all. With `expected`, only if the word at `from` has that value.
///
/// # Errors
/// EAGAIN (another value), EINVAL, EFAULT.
pub fn requeue(
    process: &Process,
    (from, to): (u64, u64),
    counts: (usize, usize),
    expected: Option<u32>,
) -> Result<usize, Errno> {
    check_address(from)?;
    check_address(to)?;
    under_lock(from, Access::Read, || wake_and_move(process, (from, to), counts, expected))
}

/// EFAULT comes before anything is changed.
fn wake_and_move(
    process: &Process,
    (from, to): (u64, u64),
    (wake, moved): (usize, usize),
    expected: Option<u32>,
) -> Result<usize, Errno> {
    let mut wanted = Wanted::new(process, from, u32::MAX);
    let mut woken = 0;
    loop {
        let mut pair = Pair::lock(from, to);
        if let Some(expected) = expected.filter(|_| woken == 0)
            && user::load_u32(from)? != expected
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

/// Changes the word at `second` as `operation` says and wakes up to `counts.0` sleepers on `first`; if the
/// old value satisfies the operation's comparison, also up to `counts.1` on `second`. How many in all.
///
/// # Errors
/// ENOSYS (unknown operation), EINVAL, EFAULT.
pub fn wake_op(
    process: &Process,
    (first, second): (u64, u64),
    counts: (usize, usize),
    operation: u32,
) -> Result<usize, Errno> {
    check_address(first)?;
    check_address(second)?;
    let old = word::update(second, operation)?;
    let compared = word::compare(old as i32, operation)?;
    let woken = wake(process, first, counts.0, u32::MAX)?;
    match compared {
        true => Ok(woken + wake(process, second, counts.1, u32::MAX)?),
        false => Ok(woken),
    }
}
