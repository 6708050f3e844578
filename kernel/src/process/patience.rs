//! What to do when memory is short: look for some a few times, and never with a lock held.
//!
//! Looking for memory forces epochs, and those turn only when every core ticks. A core that spins on a lock does not
//! tick, so whoever holds one must not look for memory: user memory is reached under a lock with [`under_lock`].

use core::ops::Range;

use abi::Errno;
use sync::atomic::{AtomicU64, Ordering};
use sync::{SpinGuard, SpinLock};
use vm::{Access, FaultError, PAGE_SIZE, VirtAddr, VmError};

use super::fault;
use super::page_out::page_out;
use super::starve::{is_awaited, outlast};
use crate::mm::{epoch, frames};
use crate::{arch, sched};

/// How often memory is looked for before a call fails, or a program dies of the lack of it. What is found may be of no
/// use, frames that lie apart where two side by side are wanted.
const TRIES: usize = 8;
/// How often, in each, without the tables of programs that run.
const MODEST: usize = 2;

/// How long nobody looks for memory, at least, after somebody has looked in vain.
const VAIN_NS: u64 = 10_000_000;

/// Until when nobody looks, in nanoseconds since boot. Relaxed: a hint.
static VAIN_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Held by the task that looks, which stays on its core meanwhile.
static LOOKING: SpinLock<()> = SpinLock::new(());

/// Whether somebody has just looked for memory in vain, none has come since, and not much is on its way.
fn is_vain() -> bool {
    arch::now_ns() < VAIN_UNTIL.load(Ordering::Relaxed) && !frames::has_plenty() && !epoch::is_much_dead()
}

/// Memory was found, or somebody is killed, whose memory will come back: it is worth looking again.
pub fn hope() {
    VAIN_UNTIL.store(0, Ordering::Relaxed);
}

/// The tries of one call.
pub struct Patience {
    left: usize,
    /// Whether the call fails at once if somebody else has just looked in vain.
    may_fail: bool,
    /// When memory was first looked for, in nanoseconds since boot.
    since: Option<u64>,
}

impl Patience {
    /// None used up. If the last one is in vain somebody is killed.
    pub const fn new() -> Self {
        Self { left: TRIES, may_fail: false, since: None }
    }

    /// None used up, for a call that then says that there is no memory.
    const fn of_call() -> Self {
        Self { may_fail: true, ..Self::new() }
    }

    /// Looks for memory and returns whether to try again. Not for a process that ends. The caller holds no lock, or has said
    /// so (`epoch::without_reclaim`): if not, other tasks may run meanwhile.
    ///
    /// Where many tasks are short of memory, looking for it must not be all that the machine does. One task looks at a time: the
    /// epochs of two that look wait for one another. While somebody who was killed still has memory, everybody looks once and
    /// no more. A task that has looked in vain spares calls of others the same, for as long as that took.
    #[cold]
    pub fn found_memory(&mut self) -> bool {
        if self.left == 0 {
            self.note_vain();
        }
        let turn = if self.left > 0 && epoch::may_reclaim() { wait_for_turn() } else { None };
        if turn.is_none() || self.may_fail && is_vain() {
            // Better than nothing is what pages leave to the kernel.
            return frames::reserve(false);
        }
        if is_awaited() {
            (self.left, self.since) = (0, None);
            return epoch::reclaim(false);
        }
        self.since.get_or_insert_with(arch::now_ns);
        self.left -= 1;
        let found = look(TRIES - 1 - self.left);
        match found {
            true => hope(),
            false => self.note_vain(),
        }
        found
    }

    fn note_vain(&self) {
        let Some(since) = self.since else { return };
        if !frames::has_plenty() {
            let now = arch::now_ns();
            VAIN_UNTIL.store(now + (now - since).max(VAIN_NS), Ordering::Relaxed);
        }
    }
}

/// Looks for memory after `tried` tries.
fn look(tried: usize) -> bool {
    let found = (0..MODEST).any(|_| epoch::reclaim(false));
    // A few frames that other cores kept ready are soon with another core again, and what the last try gave back was not
    // enough for it: pages make room even so.
    let enough = found && tried == 0 && !frames::is_low();
    enough || page_out(tried) || found || epoch::reclaim(true)
}

/// Lets others run until nobody else looks for memory, and keeps others from it; none if the running task is not to go on. The
/// caller holds no lock.
fn wait_for_turn() -> Option<SpinGuard<'static, ()>> {
    while is_wanted() {
        if let Some(turn) = LOOKING.try_lock() {
            return Some(turn);
        }
        sched::give_way();
        percore::relax();
    }
    None
}

/// Whether the running task is to go on. Lets others run first, if that is due.
fn is_wanted() -> bool {
    let ends = arch::with_current(|task| task.process().ending.is_set());
    ends != Some(true) && sched::pause()
}

/// Errors of which some say that there is no memory.
pub trait Shortage {
    /// Whether this one does.
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

/// Does `operation`, again if memory was found after it ran out. The caller holds no lock.
///
/// # Errors
/// What `operation` says.
#[inline]
pub fn retry<R, E: Shortage>(operation: impl FnMut() -> Result<R, E>) -> Result<R, E> {
    retry_with(Patience::of_call(), operation)
}

#[inline]
fn retry_with<R, E: Shortage>(
    mut patience: Patience,
    mut operation: impl FnMut() -> Result<R, E>,
) -> Result<R, E> {
    loop {
        match operation() {
            Err(error) if error.is_shortage() && patience.found_memory() => {}
            done => return done,
        }
    }
}

/// Does `allocate`, and waits for memory as long as it says ENOMEM, as a fault at `at` would: unless the caller holds a lock,
/// or is killed.
///
/// # Errors
/// What `allocate` says.
pub fn patiently<R>(at: u64, allocate: impl Fn() -> Result<R, Errno>) -> Result<R, Errno> {
    loop {
        match retry_with(Patience::new(), &allocate) {
            Err(Errno::ENOMEM) if arch::with_current(|task| outlast(task, at)) == Some(true) => {}
            done => return done,
        }
    }
}

/// Does `locked`, which takes spin locks and reaches the user memory at `at` under them. No memory is looked for
/// meanwhile; if that makes it fail (EFAULT), the page is brought in without the locks, and `locked` is done again.
///
/// # Errors
/// What `locked` says; EAGAIN if the page is lost again each time.
pub fn under_lock<R>(
    at: u64,
    access: Access,
    mut locked: impl FnMut() -> Result<R, Errno>,
) -> Result<R, Errno> {
    under_lock_over(&mut (), access, |()| at..at.saturating_add(1), |()| locked())
}

/// The same for what is known only when `locked` has failed: the pages of `span` are brought in.
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
            Err(Errno::EFAULT) if bring_in(span(state), access) => {}
            done => return done,
        }
    }
    Err(Errno::EAGAIN)
}

/// Whether all pages of `span` may be accessed, and are there.
fn bring_in(span: Range<u64>, access: Access) -> bool {
    let first = span.start - span.start % PAGE_SIZE;
    (first..span.end).step_by(PAGE_SIZE as usize).all(|page| fault::from_kernel(VirtAddr::new(page), access))
}
