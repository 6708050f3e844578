//! The heap of a program: `brk` moves its end.

use percore::pin;
use sync::SpinLock;
use sync::atomic::{AtomicBool, Ordering};
use vm::{Mapping, PAGE_SIZE, PageNum, PageRange, Placement, VirtAddr, VmError};

use super::pieces::in_pieces;
use super::{Growth, within_limits};
use crate::sched::{self, Task};

/// The range from the end of the program's image to the break.
///
/// Its lock is also the lock of the memory as a whole: a task that copies the memory, or moves a mapping
/// piece by piece, holds it and may pause.
pub struct Heap {
    bounds: SpinLock<Bounds>,
    /// Set if a mapping was ever moved piece by piece. Relaxed: it is set before a page is held for the move,
    /// and a task that finds such a page sees it.
    has_moved: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    start: u64,
    end: u64,
}

/// Returns the first page that begins at or after `address`.
fn page_up(address: u64) -> PageNum {
    VirtAddr::new(address.next_multiple_of(PAGE_SIZE)).page()
}

impl Heap {
    /// Creates an empty heap at `start`.
    pub fn new(start: u64) -> Self {
        Self::with(Bounds { start, end: start })
    }

    fn with(bounds: Bounds) -> Self {
        Self { bounds: SpinLock::new(bounds), has_moved: AtomicBool::new(false) }
    }

    /// Returns its start and its end.
    pub fn bounds(&self) -> (u64, u64) {
        let bounds = sched::lock(&self.bounds);
        (bounds.start, bounds.end)
    }

    /// Returns a heap with the same bounds, and the result of `copied`, which copies the memory while the
    /// break does not move.
    pub fn copy_with<R>(&self, copied: impl FnOnce() -> R) -> (Self, R) {
        let bounds = sched::lock(&self.bounds);
        let memory = copied();
        (Self::with(*bounds), memory)
    }

    /// Calls `what` while no task copies the memory.
    pub fn while_not_copied<R>(&self, what: impl FnOnce() -> R) -> R {
        let _bounds = sched::lock(&self.bounds);
        what()
    }

    /// Calls `what`, which moves a mapping, while no other task copies the memory or moves a mapping.
    pub fn move_alone<R>(&self, what: impl FnOnce() -> R) -> R {
        let _bounds = sched::lock(&self.bounds);
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
        let mut bounds = sched::lock(&self.bounds);
        let reachable = wanted >= bounds.start && wanted <= crate::mm::user::USER_END;
        if reachable && resize(task, page_up(bounds.end), page_up(wanted), what).is_ok() {
            bounds.end = wanted;
        }
        bounds.end
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
