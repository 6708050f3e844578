//! What to do when memory is short: look for some a few times, and never with a lock held.
//!
//! Looking for memory forces epochs, and those turn only when every core ticks. A core that spins on a lock does not
//! tick, so whoever holds one must not look for memory: user memory is reached under a lock with [`under_lock`].

use core::ops::Range;

use abi::Errno;
use vm::{Access, FaultError, PAGE_SIZE, VirtAddr, VmError};

use super::fault;
use super::page_out::page_out;
use super::starve::outlast;
use crate::arch;
use crate::mm::{epoch, frames};

/// How often memory is looked for before a call fails, or a program dies of the lack of it. What is found may be of no
/// use, frames that lie apart where two side by side are wanted.
const TRIES: usize = 8;
/// How often, in each, without the tables of programs that run.
const MODEST: usize = 2;

/// The tries of one call.
pub struct Patience(usize);

impl Patience {
    /// None used up.
    pub const fn new() -> Self {
        Self(TRIES)
    }

    /// Looks for memory: whether to try again. Not for a process that ends. The caller holds no lock.
    #[cold]
    pub fn found_memory(&mut self) -> bool {
        let ends = arch::with_current(|task| task.process().ending.is_set());
        if self.0 == 0 || ends == Some(true) {
            // Better than nothing is what pages leave to the kernel.
            return frames::reserve(false);
        }
        let tried = TRIES - self.0;
        self.0 -= 1;
        let found = (0..MODEST).any(|_| epoch::reclaim(false));
        // A few frames that other cores kept ready are soon with another core again, and what the last try gave back was not
        // enough for it: pages make room even so.
        let enough = found && tried == 0 && !frames::is_low();
        enough || page_out(tried) || found || epoch::reclaim(true)
    }
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
pub fn retry<R, E: Shortage>(mut operation: impl FnMut() -> Result<R, E>) -> Result<R, E> {
    let mut patience = Patience::new();
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
        match retry(&allocate) {
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
