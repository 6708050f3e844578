//! Reclaim: a task that is short of memory frees some, a few times, and never with a lock held.
//!
//! Reclaim forces epochs, and those turn only when every core ticks. A core that spins on a lock does not
//! tick, so a task that holds a lock must not reclaim. It accesses user memory with [`under_lock`].

use core::ops::Range;

use abi::Errno;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vm::{Access, FaultError, PAGE_SIZE, VirtAddr, VmError};

use super::fault;
use super::oom::{is_kill_pending, wait_for_oom};
use super::page_out::page_out;
use super::rounds::{Answer, Outcome, Rounds};
use crate::above::Above;
use crate::mm::{Watcher, epoch, frames};
use crate::{arch, sched};

/// The tries to reclaim before a call fails, or a program is killed. The memory that one try finds may be of
/// no use, such as frames that are not adjacent if two adjacent ones are wanted.
const TRIES: usize = 8;
/// A round of another task that found memory costs one of these parts of a try, because others may have taken
/// the memory first.
const PARTS: usize = 8;
/// The rounds in each try that leave the tables of running programs alone.
const MODEST: usize = 2;

/// The shortest time without reclaim after a task has reclaimed in vain.
const BACKOFF_NS: u64 = 10_000_000;

/// The end of the time without reclaim, in nanoseconds since boot. Relaxed: a hint.
static BACKOFF_UNTIL: AtomicU64 = AtomicU64::new(0);

static ROUNDS: Rounds = Rounds::new();
/// The rounds in a row that were too early. Relaxed: only the task that runs a round accesses it, and the
/// lock of the rounds orders them.
static EARLY: AtomicUsize = AtomicUsize::new(0);

/// Returns whether a task has just reclaimed in vain, no memory has been freed since, and not much is about
/// to be.
fn is_backing_off() -> bool {
    arch::now_ns() < BACKOFF_UNTIL.load(Ordering::Relaxed) && !frames::has_plenty() && !epoch::is_much_dead()
}

/// Ends the time without reclaim: memory was found, or a program was killed and its memory will be freed.
pub fn note_progress() {
    BACKOFF_UNTIL.store(0, Ordering::Relaxed);
}

/// The tries to reclaim that one call has.
pub struct Reclaim {
    /// The part of [`TRIES`] that is left, in [`PARTS`] of one.
    left: usize,
    /// Set if the call fails at once when another task has just reclaimed in vain.
    may_fail: bool,
}

impl Reclaim {
    /// Returns the tries of a fault. If the last one is in vain a program is killed.
    pub const fn new() -> Self {
        Self { left: TRIES * PARTS, may_fail: false }
    }

    /// Returns the tries of a call that fails with ENOMEM afterwards.
    const fn of_call() -> Self {
        Self { may_fail: true, ..Self::new() }
    }

    /// Reclaims memory and returns whether to try again. A process that ends does not reclaim. Returns false
    /// if the caller holds a lock and has said so (`epoch::without_reclaim`). It tries again without the lock
    /// then. If it holds none, other tasks may run meanwhile.
    ///
    /// Where many tasks are short of memory, reclaim must not be all that the machine does. One task reclaims
    /// at a time, for all that wait (`rounds.rs`). After a task has reclaimed in vain, calls of others do not
    /// try for as long as that took, except those of the first process.
    #[cold]
    pub fn try_reclaim(&mut self) -> bool {
        if !epoch::may_reclaim() {
            return false;
        }
        if self.left == 0 {
            back_off(arch::now_ns());
        }
        // Here, because it pauses, and `epoch::reclaim` does not.
        epoch::free_remains();
        let found = if self.may_try() { self.join_round() } else { None };
        // The reserve that pages left to the kernel is better than nothing.
        found.unwrap_or_else(|| frames::reserve(false))
    }

    fn may_try(&self) -> bool {
        let is_refused = || self.may_fail && is_backing_off() && !is_first();
        self.left > 0 && is_wanted() && !is_refused()
    }

    /// Returns whether a round of reclaim found memory, or `None` if the running task is not to go on.
    fn join_round(&mut self) -> Option<bool> {
        let tried = TRIES - self.left.div_ceil(PARTS);
        let answer = ROUNDS.join(tried, self.may_fail && !is_first(), run_round)?;
        let cost = if matches!(answer, Answer::FoundByAnother) { 1 } else { PARTS };
        self.left = self.left.saturating_sub(cost);
        // A round of another task finds nothing if the frames are for the first process only. With fewer it
        // would try for ever, since each round takes its tables and each try makes them again.
        let has_own = || is_first() && frames::stats().pooled >= epoch::WORTH_A_RETRY;
        Some(!matches!(answer, Answer::Nothing) || has_own())
    }
}

/// Returns whether the first process runs here.
fn is_first() -> bool {
    Above::is_watcher() == Some(true)
}

/// Runs a round.
fn run_round(tried: usize) -> Outcome {
    // Here, because it pauses, and `epoch::reclaim`, which frees the rest in one piece, does not.
    epoch::free_dead();
    let since = arch::now_ns();
    let mut found = is_kill_pending() && epoch::reclaim(false);
    found = found || !is_kill_pending() && reclaim_once(tried);
    // Bounded, because a killed program cannot end while a task that waits here has a lock that it needs.
    let is_early = !found && (is_kill_pending() || epoch::is_memory_coming());
    if is_early && EARLY.fetch_add(1, Ordering::Relaxed) < TRIES {
        return Outcome::TooEarly;
    }
    EARLY.store(0, Ordering::Relaxed);
    if found {
        note_progress();
        return Outcome::Found;
    }
    back_off(since);
    Outcome::Nothing
}

/// Begins the time without reclaim, as long as the time `since` then, in nanoseconds since boot.
fn back_off(since: u64) {
    if !frames::has_plenty() {
        let now = arch::now_ns();
        BACKOFF_UNTIL.store(now + (now - since).max(BACKOFF_NS), Ordering::Relaxed);
    }
}

/// Reclaims once, after `tried` tries.
fn reclaim_once(tried: usize) -> bool {
    let found = (0..MODEST).any(|_| epoch::reclaim(false));
    // Frames from other cores' magazines are soon in a magazine again, and if this is not the first try, the
    // memory of the last one was not enough. So pages are compressed as well.
    let enough = found && tried == 0 && !frames::is_low();
    enough || page_out(tried) || found || epoch::reclaim(true)
}

/// Returns whether the running task is to go on. Lets other tasks run first, if that is due.
fn is_wanted() -> bool {
    let ends = arch::with_current(|task| task.process().ending.is_set());
    ends != Some(true) && sched::pause()
}

/// An error type with a value for a lack of memory.
pub trait Shortage {
    /// Returns whether this is that value.
    fn is_shortage(&self) -> bool;
}

impl Shortage for Errno {
    fn is_shortage(&self) -> bool {
        *self == Self::ENOMEM
    }
}

impl Shortage for VmError {
    fn is_shortage(&self) -> bool {
        *self == Self::OutOfMemory
    }
}

impl Shortage for FaultError {
    fn is_shortage(&self) -> bool {
        *self == Self::OutOfMemory
    }
}

/// Calls `operation`, and again whenever it fails for lack of memory and reclaim finds some. The caller holds
/// no lock.
///
/// # Errors
/// Returns the errors of `operation`.
#[inline]
pub fn retry<R, E: Shortage>(operation: impl FnMut() -> Result<R, E>) -> Result<R, E> {
    retry_with(Reclaim::of_call(), operation)
}

#[inline]
fn retry_with<R, E: Shortage>(
    mut reclaim: Reclaim,
    mut operation: impl FnMut() -> Result<R, E>,
) -> Result<R, E> {
    loop {
        match operation() {
            Err(error) if error.is_shortage() && reclaim.try_reclaim() => {}
            done => return done,
        }
    }
}

/// Calls `allocate`, and again while it fails with ENOMEM, as a fault at `at` would, unless the caller holds
/// a lock or is killed.
///
/// # Errors
/// Returns the errors of `allocate`.
pub fn retry_on_enomem<R>(at: u64, allocate: impl Fn() -> Result<R, Errno>) -> Result<R, Errno> {
    loop {
        match retry_with(Reclaim::new(), &allocate) {
            Err(Errno::ENOMEM) if arch::with_current(|task| wait_for_oom(task, at)) == Some(true) => {}
            done => return done,
        }
    }
}

/// Calls `locked`, which takes spin locks and accesses the user memory at `at` under them, without reclaim.
/// If it fails with EFAULT, faults the page in without the locks and calls `locked` again.
///
/// # Errors
/// Returns the errors of `locked`, and EAGAIN if the page is lost again each time.
pub fn under_lock<R>(
    at: u64,
    access: Access,
    mut locked: impl FnMut() -> Result<R, Errno>,
) -> Result<R, Errno> {
    under_lock_over(&mut (), access, |()| at..at.saturating_add(1), |()| locked())
}

/// Does the same if the pages are known only when `locked` has failed. Those of `span` are faulted in.
///
/// # Errors
/// See [`under_lock`].
pub fn under_lock_over<S, R>(
    state: &mut S,
    access: Access,
    span: impl Fn(&S) -> Range<u64>,
    mut locked: impl FnMut(&mut S) -> Result<R, Errno>,
) -> Result<R, Errno> {
    for _ in 0..TRIES {
        match epoch::without_reclaim(|| locked(state)) {
            Err(Errno::EFAULT) if fault_in(span(state), access) => {}
            done => return done,
        }
    }
    Err(Errno::EAGAIN)
}

/// Faults in all pages of `span`, and returns whether they may be accessed.
fn fault_in(span: Range<u64>, access: Access) -> bool {
    let first = span.start - span.start % PAGE_SIZE;
    (first..span.end).step_by(PAGE_SIZE as usize).all(|page| fault::from_kernel(VirtAddr::new(page), access))
}
