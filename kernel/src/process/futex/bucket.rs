//! The buckets of sleeping tasks, each with a lock on its own cache lines.

use alloc::sync::Arc;

use sync::{CachePadded, SpinGuard, SpinLock};

use super::Key;
use crate::sched::{Task, TaskList, WaitChain};

const BUCKETS: usize = 256;

/// The sleepers of one bucket, in the order in which they came.
pub struct Sleepers {
    list: TaskList<WaitChain>,
    /// The number of tasks that came so far.
    arrivals: u64,
}

impl Sleepers {
    const fn new() -> Self {
        Self { list: TaskList::new(), arrivals: 0 }
    }

    /// Adds a task, which is in no bucket, asleep on the word `key`.
    pub fn push(&mut self, task: Arc<Task>, key: Key) {
        self.arrivals += 1;
        task.thread.futex.enter(key, self.arrivals);
        self.list.push(task);
    }

    /// Removes a task that stops waiting.
    pub fn remove(&mut self, task: &Arc<Task>) {
        self.list.remove(task);
        task.thread.futex.leave();
    }
}

static TABLE: Table = Table([const { CachePadded::new(SpinLock::new(Sleepers::new())) }; BUCKETS]);

struct Table([CachePadded<SpinLock<Sleepers>>; BUCKETS]);

/// The number of a bucket. It is in range whatever word a program chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Index(usize);

impl Index {
    fn of(key: Key) -> Self {
        Self(key.hash() % BUCKETS)
    }
}

impl Table {
    #[expect(clippy::indexing_slicing, reason = "an index is in range")]
    fn lock(&'static self, at: Index) -> SpinGuard<'static, Sleepers> {
        self.0[at.0].lock()
    }
}

/// Returns the bucket of the word `key`, locked.
pub fn bucket(key: Key) -> SpinGuard<'static, Sleepers> {
    TABLE.lock(Index::of(key))
}

/// The sleepers that one call concerns: those that sleep at its first look. Tasks that come later are left
/// out. They may have been woken by this call and be asleep again, and the call might never end.
pub struct Wanted {
    key: Key,
    bits: u32,
    /// The number of tasks that had come to the bucket at the first look.
    arrivals: Option<u64>,
}

impl Wanted {
    /// Selects the sleepers on the word `key` whose bits intersect `bits`.
    pub fn new(key: Key, bits: u32) -> Self {
        Self { key, bits, arrivals: None }
    }

    fn take(&mut self, sleepers: &mut Sleepers) -> Option<Arc<Task>> {
        let arrivals = *self.arrivals.get_or_insert(sleepers.arrivals);
        let matches = |task: &Arc<Task>| task.thread.futex.matches(self.key, self.bits, arrivals);
        let task = sleepers.list.remove_first(matches)?;
        task.thread.futex.leave();
        Some(task)
    }
}

/// Tasks that were removed from their bucket. They are woken when this is dropped, after the bucket is
/// unlocked, because waking may interrupt other cores and takes long.
#[derive(Default)]
pub struct Batch([Option<Arc<Task>>; Batch::MOST]);

impl Batch {
    const MOST: usize = 8;

    /// Removes up to `count` tasks, as far as they fit.
    pub fn take(sleepers: &mut Sleepers, wanted: &mut Wanted, count: usize) -> Self {
        let mut batch = Self::default();
        for place in batch.0.iter_mut().take(count) {
            *place = wanted.take(sleepers);
            if place.is_none() {
                break;
            }
        }
        batch
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Returns whether there may be more tasks.
    pub fn is_full(&self) -> bool {
        self.len() == Self::MOST
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for task in self.0.iter().flatten() {
            Task::wake(task);
        }
    }
}

/// Two buckets, which may be the same one, locked in the order of the table.
pub enum Pair {
    One(SpinGuard<'static, Sleepers>),
    Two(SpinGuard<'static, Sleepers>, SpinGuard<'static, Sleepers>),
}

impl Pair {
    /// Locks the buckets of two words.
    pub fn lock(first: Key, second: Key) -> Self {
        let (a, b) = (Index::of(first), Index::of(second));
        if a == b {
            return Self::One(bucket(first));
        }
        let (low, high) = (TABLE.lock(a.min(b)), TABLE.lock(a.max(b)));
        if a < b { Self::Two(low, high) } else { Self::Two(high, low) }
    }

    /// Returns the bucket of the first word.
    pub fn first(&mut self) -> &mut Sleepers {
        match self {
            Self::One(sleepers) | Self::Two(sleepers, _) => sleepers,
        }
    }

    fn second(&mut self) -> &mut Sleepers {
        match self {
            Self::One(sleepers) | Self::Two(_, sleepers) => sleepers,
        }
    }

    /// Moves up to `count` sleepers to the word `to`, and returns how many.
    pub fn transfer(&mut self, wanted: &mut Wanted, to: Key, count: usize) -> usize {
        let count = if wanted.key == to { 0 } else { count };
        let mut moved = 0;
        while moved < count
            && let Some(task) = wanted.take(self.first())
        {
            self.second().push(task, to);
            moved += 1;
        }
        moved
    }
}
