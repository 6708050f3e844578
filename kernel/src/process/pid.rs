//! Pids, the numbers of processes and threads: one space for both, and the table from a number to its
//! process.
//!
//! A core takes numbers a batch at a time, so that cores that make and end processes write no cache line in
//! common. All numbers of a batch are in one shard of the table, and neighbouring batches in different ones.
//! Numbers rise until they wrap. From then on a core that takes a batch checks which of its numbers are still
//! used by threads, processes, zombies, groups and sessions.
//!
//! Locks: a core's batch, then a shard. Nothing is locked under a shard. No reference to a process is dropped
//! there either: if it is the last one, the process is freed and retires its number.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use abi::Errno;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::{CachePadded, SpinGuard, SpinLock};

use super::Process;
use crate::arch::per_core::all_cores;
use crate::mm::fallible;
use crate::sched::Task;

/// All numbers are below this, as on a large Linux machine.
pub const LIMIT: u32 = 1 << 22;
/// The numbers of a batch, one for each bit of a word.
const BATCH: u32 = u64::BITS;
const SHARDS: usize = 512;

struct Entry {
    number: u32,
    /// Set if it is the number of the process, and not of another thread.
    leads: bool,
    process: Weak<Process>,
}

/// The entries by rising number.
type Shard = Vec<Entry>;

static TABLE: [CachePadded<SpinLock<Shard>>; SHARDS] =
    [const { CachePadded::new(SpinLock::new(Vec::new())) }; SHARDS];

#[expect(clippy::indexing_slicing, reason = "in range whatever the number")]
fn shard(number: u32) -> SpinGuard<'static, Shard> {
    TABLE[(number / BATCH) as usize % SHARDS].lock()
}

fn find(shard: &Shard, number: u32) -> Result<usize, usize> {
    shard.binary_search_by_key(&number, |entry| entry.number)
}

/// The rest of a core's batch: bit `i` stands for the number `base + i`.
struct Batch {
    base: u32,
    left: u64,
}

all_cores! {
    static BATCHES: SpinLock<Batch> = SpinLock::new(Batch { base: 0, left: 0 });
}
/// The next batch. Relaxed: only uniqueness matters.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Batch {
    fn refill(&mut self) -> Result<(), Errno> {
        for _ in 0..LIMIT / BATCH {
            let batch = NEXT.fetch_add(1, Ordering::Relaxed);
            self.base = batch.wrapping_mul(BATCH) % LIMIT;
            let used = if batch < LIMIT / BATCH { 0 } else { used(self.base) };
            // Number 0 is never used.
            self.left = !used & !u64::from(self.base == 0);
            if self.left != 0 {
                return Ok(());
            }
        }
        Err(Errno::EAGAIN)
    }

    fn take(&mut self) -> Result<u32, Errno> {
        if self.left == 0 {
            self.refill()?;
        }
        let number = self.base + self.left.trailing_zeros();
        self.left &= self.left - 1;
        Ok(number)
    }
}

/// Returns the numbers of the batch from `base` on that are used, as bits.
fn used(base: u32) -> u64 {
    let bit = |number: u32| number.checked_sub(base).and_then(|bit| 1u64.checked_shl(bit)).unwrap_or(0);
    let mut used = shard(base).iter().map(|entry| bit(entry.number)).fold(0, |all, bit| all | bit);
    for_each(|process| used |= bit(process.group()) | bit(process.session()));
    used
}

/// A number in use. It becomes free when this is retired or dropped.
pub struct Pid {
    number: u32,
    live: AtomicBool,
}

impl Pid {
    /// Returns a number that is not in use. No process is found by it yet.
    ///
    /// # Errors
    /// EAGAIN when all are used, ENOMEM.
    pub fn new() -> Result<Self, Errno> {
        loop {
            let number = BATCHES.of(crate::arch::core()).lock().take()?;
            let mut shard = shard(number);
            // In use: numbers have wrapped since this core took the batch, and another core has taken the
            // rest of it too.
            let Err(at) = find(&shard, number) else { continue };
            let entry = Entry { number, leads: false, process: Weak::new() };
            fallible::insert(&mut shard, at, entry)?;
            return Ok(Self { number, live: AtomicBool::new(true) });
        }
    }

    /// Returns the number.
    pub fn get(&self) -> u32 {
        self.number
    }

    /// Publishes `process` under the number: as the process with this number if it `leads`, and otherwise as
    /// the process of the thread with this number.
    pub fn publish(&self, process: &Arc<Process>, leads: bool) {
        let mut shard = shard(self.number);
        if let Some(entry) = find(&shard, self.number).ok().and_then(|at| shard.get_mut(at)) {
            *entry = Entry { number: self.number, leads, process: Arc::downgrade(process) };
        }
    }

    /// Returns whether nothing is found by it any more.
    pub fn is_retired(&self) -> bool {
        !self.live.load(Ordering::Relaxed)
    }

    /// Removes it from the table, so that nothing is found by it any more.
    pub fn retire(&self) {
        // Relaxed: the shard's lock orders the rest.
        if self.live.swap(false, Ordering::Relaxed) {
            let mut shard = shard(self.number);
            if let Ok(at) = find(&shard, self.number) {
                shard.remove(at);
            }
        }
    }
}

impl Drop for Pid {
    fn drop(&mut self) {
        self.retire();
    }
}

/// Returns the process that has the thread with this number.
pub fn owner(number: u32) -> Option<Arc<Process>> {
    let shard = shard(number);
    shard.get(find(&shard, number).ok()?)?.process.upgrade()
}

/// Returns the thread with this number.
pub fn thread(number: u32) -> Option<Arc<Task>> {
    owner(number)?.thread(number)
}

/// Returns the process with this number, which may be a zombie.
pub fn process(number: u32) -> Option<Arc<Process>> {
    let shard = shard(number);
    let entry = shard.get(find(&shard, number).ok()?)?;
    if entry.leads { entry.process.upgrade() } else { None }
}

/// Returns the first process of `shard` with a number from `from` on.
fn first_from(shard: &SpinLock<Shard>, from: u32) -> Option<Arc<Process>> {
    let shard = shard.lock();
    let at = find(&shard, from).unwrap_or_else(|at| at);
    shard.iter().skip(at).filter(|entry| entry.leads).find_map(|entry| entry.process.upgrade())
}

/// Returns the process with the lowest number from `from` on.
pub fn next_process(from: u32) -> Option<Arc<Process>> {
    TABLE.iter().filter_map(|shard| first_from(shard, from)).min_by_key(|process| process.pid())
}

/// Calls `f` with every process that exists all the time. One that is made or ends meanwhile may be left out.
pub fn for_each(mut f: impl FnMut(&Arc<Process>)) {
    for shard in &TABLE {
        let mut from = 0;
        while let Some(process) = first_from(shard, from) {
            f(&process);
            from = process.pid() + 1;
        }
    }
}
