//! Where sleepers hang: buckets, each with a lock on its own cache lines.

use alloc::sync::Arc;

use sync::{CachePadded, SpinGuard, SpinLock};

use crate::process::Process;
use crate::sched::{Task, TaskList, WaitChain};

const BUCKETS: usize = 256;

/// Sleepers of one bucket, first come, first woken.
pub type Sleepers = TaskList<WaitChain>;

static TABLE: [CachePadded<SpinLock<Sleepers>>; BUCKETS] =
    [const { CachePadded::new(SpinLock::new(TaskList::new())) }; BUCKETS];

fn index(at: u64) -> usize {
    // Fibonacci hashing: the high bits of the product depend on all of the address.
    ((at >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % BUCKETS
}

/// The bucket of the word at `at`, locked.
pub fn bucket(at: u64) -> SpinGuard<'static, Sleepers> {
    TABLE[index(at)].lock()
}

fn take(sleepers: &mut Sleepers, process: &Process, at: u64, bits: u32) -> Option<Arc<Task>> {
    sleepers.remove_first(|task| {
        task.thread.futex.matches(at, bits) && core::ptr::eq(&raw const **task.process(), process)
    })
}

/// Tasks taken out of their bucket, and woken when this is dropped: after the bucket is unlocked, since
/// waking may interrupt other cores, and that takes its time.
#[derive(Default)]
pub struct Batch([Option<Arc<Task>>; Batch::MOST]);

impl Batch {
    const MOST: usize = 8;

    /// Takes up to `count` tasks, as far as they fit.
    pub fn take(sleepers: &mut Sleepers, process: &Process, at: u64, count: usize, bits: u32) -> Self {
        let mut batch = Self::default();
        for place in batch.0.iter_mut().take(count) {
            *place = take(sleepers, process, at, bits);
            match place {
                Some(task) => task.thread.futex.set_key(0),
                None => break,
            }
        }
        batch
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Whether there may be more.
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
    /// The buckets of two words.
    pub fn lock(first: u64, second: u64) -> Self {
        let (a, b) = (index(first), index(second));
        if a == b {
            return Self::One(bucket(first));
        }
        let (low, high) = (TABLE[a.min(b)].lock(), TABLE[a.max(b)].lock());
        if a < b { Self::Two(low, high) } else { Self::Two(high, low) }
    }

    /// That of the first word.
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

    /// Moves up to `count` sleepers from one word to the other; how many.
    pub fn transfer(&mut self, process: &Process, from: u64, to: u64, count: usize) -> usize {
        let count = if from == to { 0 } else { count };
        let mut moved = 0;
        while moved < count
            && let Some(task) = take(self.first(), process, from, u32::MAX)
        {
            task.thread.futex.set_key(to);
            self.second().push(task);
            moved += 1;
        }
        moved
    }
}
