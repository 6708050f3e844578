//! Turns of tasks for which there was no room.
//!
//! A removed file keeps its room until all cores have passed some epochs. A task that needs the room forces
//! these epochs. If others took what comes free meanwhile, the task could do so again and again and never get
//! a page, although there is always room for all files that have a name or a user. So the task has a *turn*:
//! until it ends, the limit refuses pages to all other tasks, which then wait for turns of their own.
//!
//! ```text
//!   refused   wait in line   turn begins   files that were dead by now are freed   try again   turn ends
//! ```
//! 1. One task has the turn. It is the first in line. The others get it in the order in which they came, but
//!    for those that come while the line is full.
//! 2. While a task has the turn, no other task takes a page from the limit. A core that had looked before may
//!    take one batch, and each may use what it has in reserve. So if living files leave more room than that,
//!    the task finds it.
//! 3. A task with the turn waits for no task in the line: it holds no lock while it makes room, and a call
//!    that tries again takes locks only of tasks that hold none while they wait. A task that is refused
//!    within its own turn, by a fault, does not wait in line again.
//! 4. A task that waits can be killed, and leaves the line then.
//! 5. The task gives up when the files are free that were dead when its turn began. They wait, in this order,
//!    for grace periods (look-ups, descriptors), for reviews (mappings, nodes), and for the core that found
//!    them dead, which frees their pages in [rounds](crate::mm::remains). The task waits for each of these by
//!    a count of what has passed, and never by a time or by a number of tries.

use core::sync::atomic::{AtomicUsize, Ordering};

use sync::SpinLock;

use crate::arch;
use crate::sched::WaitQueue;

/// The most tasks in line. Others wait until there is a place.
const PLACES: usize = 64;

/// The task that has the turn, or 0. Relaxed: the lock of the line orders the turns. A task that does not see
/// the turn of another one in time takes one batch at most.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
static LINE: SpinLock<Line> = SpinLock::new(Line { tasks: [0; PLACES], len: 0 });
static WAITING: WaitQueue = WaitQueue::new();

/// Tasks in the order in which they came. The first has the turn.
struct Line {
    tasks: [usize; PLACES],
    len: usize,
}

impl Line {
    /// Returns whether `task` is the first, after it has joined if it was not there and there is a place.
    fn is_first(&mut self, task: usize) -> bool {
        let is_there = self.tasks.iter().take(self.len).any(|&other| other == task);
        if let Some(place) = self.tasks.get_mut(self.len).filter(|_| !is_there) {
            *place = task;
            self.len += 1;
        }
        self.show_first();
        self.first() == task
    }

    fn first(&self) -> usize {
        if self.len > 0 { self.tasks.first().copied().unwrap_or(0) } else { 0 }
    }

    fn leave(&mut self, task: usize) {
        let place = self.tasks.iter().take(self.len).position(|&other| other == task);
        if let Some(place) = place {
            self.tasks.copy_within(place + 1..self.len, place);
            self.len -= 1;
        }
        self.show_first();
    }

    fn show_first(&self) {
        HOLDER.store(self.first(), Ordering::Relaxed);
    }
}

/// Returns a number for the running task, which no other task has as long as it lives. It is 0 if the core
/// idles.
fn own() -> usize {
    arch::with_current(|task| core::ptr::from_ref(task).addr()).unwrap_or(0)
}

/// Returns whether the running task may take pages from the limit.
#[inline]
pub fn may_take() -> bool {
    match HOLDER.load(Ordering::Relaxed) {
        0 => true,
        holder => holder == own(),
    }
}

/// Returns whether the running task has the turn.
pub fn is_own() -> bool {
    HOLDER.load(Ordering::Relaxed) == own()
}

/// A place in line of the running task, and then its turn. It ends when this is dropped.
pub struct Turn(usize);

impl Turn {
    /// Waits for a turn. Returns whether the task had to wait, and `None` if it is killed. The caller is no
    /// idle core, holds no lock and is in no wait queue.
    pub fn begin() -> Option<(Self, bool)> {
        let turn = Self(own());
        let mut waited = false;
        let is_first = || {
            let is_first = LINE.lock().is_first(turn.0);
            waited |= !is_first;
            is_first.then_some(())
        };
        WAITING.wait_killable(is_first).ok()?;
        Some((turn, waited))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        LINE.lock().leave(self.0);
        WAITING.wake_all();
    }
}
