//! The heap of a program: `brk` moves its end.

use abi::Errno;
use percore::pin;
use sync::SpinLock;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vm::{Mapping, PAGE_SIZE, PageNum, PageRange, Placement, VirtAddr, VmError};

use super::pieces::in_pieces;
use super::{Growth, within_limits};
use crate::mm::epoch;
use crate::sched::{self, Task};

/// The range from the end of the program's image to the break.
pub struct Heap {
    start: u64,
    /// The break. Written with the lock. Relaxed: it orders nothing.
    end: AtomicU64,
    /// The lock of the memory as a whole: a task that copies the memory, moves the break, or moves a mapping
    /// piece by piece, holds it and may pause.
    lock: SpinLock<()>,
    /// Set if a mapping was ever moved piece by piece. Relaxed: it is set before a page is held for the move,
    /// and a task that finds such a page sees it.
    has_moved: AtomicBool,
}

/// Returns the first page that begins at or after `address`.
fn page_up(address: u64) -> PageNum {
    VirtAddr::new(address.next_multiple_of(PAGE_SIZE)).page()
}

impl Heap {
    /// Creates an empty heap at `start`.
    pub fn new(start: u64) -> Self {
        Self::with(start, start)
    }

    fn with(start: u64, end: u64) -> Self {
        Self { start, end: AtomicU64::new(end), lock: SpinLock::new(()), has_moved: AtomicBool::new(false) }
    }

    /// Returns its start and its end. It waits for nothing, because a read of `/proc/PID/maps` holds a lock.
    pub fn bounds(&self) -> (u64, u64) {
        (self.start, self.end.load(Ordering::Relaxed))
    }

    /// Returns a heap with the same bounds, and the result of `copied`, which copies the memory while the
    /// break does not move.
    pub fn copy_with<R>(&self, copied: impl FnOnce() -> R) -> (Self, R) {
        let _lock = sched::lock(&self.lock);
        let memory = copied();
        let (start, end) = self.bounds();
        (Self::with(start, end), memory)
    }

    /// Calls `what` while no task copies the memory.
    ///
    /// # Errors
    /// EBUSY if one does and the caller holds a lock (`epoch::without_reclaim`), with which it may not wait.
    pub fn while_not_copied<R>(&self, what: impl FnOnce() -> R) -> Result<R, Errno> {
        let _lock = match epoch::may_reclaim() {
            true => sched::lock(&self.lock),
            false => self.lock.try_lock().ok_or(Errno::EBUSY)?,
        };
        Ok(what())
    }

    /// Calls `what`, which moves a mapping, while no other task copies the memory or moves a mapping.
    pub fn move_alone<R>(&self, what: impl FnOnce() -> R) -> R {
        let _lock = sched::lock(&self.lock);
        self.has_moved.store(true, Ordering::Relaxed);
        what()
    }

    /// Returns whether a page that may not be accessed may be one that is being moved.
    pub fn may_have_moved(&self) -> bool {
        self.has_moved.load(Ordering::Relaxed)
    }

    /// Moves the break to `wanted` if that is possible, and returns the break. Never moves it below the
    /// start, nor over a mapping. New pages are mapped as `what`.
    pub fn set_break(&self, task: &Task, wanted: u64, what: Mapping) -> u64 {
        let _lock = sched::lock(&self.lock);
        let (start, end) = self.bounds();
        let reachable = wanted >= start && wanted <= crate::mm::user::USER_END;
        if reachable && resize(task, page_up(end), page_up(wanted), what).is_ok() {
            self.end.store(wanted, Ordering::Relaxed);
            return wanted;
        }
        end
    }
}

fn resize(task: &Task, old: PageNum, new: PageNum, what: Mapping) -> Result<(), VmError> {
    let space = task.space();
    if new < old {
        return in_pieces(space, PageRange::between(new, old), |piece| space.unmap(&pin(), piece));
    }
    let more = new.get() - old.get();
    if more == 0 {
        return Ok(());
    }
    let map = || space.map(&pin(), Placement::FixedNoReplace(old), more, what).map(drop);
    within_limits(task, || Growth::of(what, more), map)
}
