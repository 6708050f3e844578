//! The resource limits of a process. `clone` enforces the limit of processes, `fs` that of open files,
//! `signal` that of signals that wait, and this module those of memory (RLIMIT_AS, RLIMIT_DATA). The others
//! are only stored and reported.
//!
//! A process without limits of memory reads one flag. In a process with such a limit, calls that add memory
//! take turns, and each counts the mapped pages before it adds some. It may still count memory that is
//! unmapped meanwhile. It never misses any, so a limit is never exceeded.

use abi::process::{
    RLIM_INFINITY, RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_NLIMITS, RLIMIT_NOFILE, RLIMIT_SIGPENDING,
    RLIMIT_STACK, Rlimit,
};
use sync::SpinLock;
use sync::atomic::{AtomicBool, Ordering};
use vm::{Detail, Flags, Mapping, PAGE_SIZE, Prot, VmError};

use super::{Pages, STACK_BYTES};
use crate::mm::frames;
use crate::sched::{self, Task};

/// The frames of memory for each real-time signal that may wait, as on Linux.
const FRAMES_OF_SIGNAL: u64 = 64;

/// The limits of a process.
pub struct Limits {
    all: SpinLock<[Rlimit; RLIMIT_NLIMITS as usize]>,
    /// Set if memory is limited. Relaxed: a limit applies to calls that begin after it was set.
    memory: AtomicBool,
}

impl Limits {
    /// Returns the limits of the first process.
    pub fn new() -> Self {
        let same = |bytes| Rlimit { current: bytes, maximum: bytes };
        let mut all = [same(RLIM_INFINITY); RLIMIT_NLIMITS as usize];
        for (resource, limit) in (0..).zip(&mut all) {
            match resource {
                RLIMIT_STACK => limit.current = STACK_BYTES,
                RLIMIT_CORE => limit.current = 0,
                RLIMIT_NOFILE => *limit = same(crate::fs::MAX_FILES),
                RLIMIT_SIGPENDING => *limit = same(frames::total() / FRAMES_OF_SIGNAL),
                _ => {}
            }
        }
        Self { all: SpinLock::new(all), memory: AtomicBool::new(false) }
    }

    /// Returns the same limits for a child.
    pub fn copy(&self) -> Self {
        let memory = AtomicBool::new(self.memory.load(Ordering::Relaxed));
        Self { all: SpinLock::new(*self.all.lock()), memory }
    }

    /// Returns the limit of a resource, if that exists.
    pub fn get(&self, resource: u64) -> Option<Rlimit> {
        self.all.lock().get(resource as usize).copied()
    }

    /// Sets the limit of a resource, if that exists.
    pub fn set(&self, resource: u64, limit: Rlimit) {
        if let Some(place) = self.all.lock().get_mut(resource as usize) {
            *place = limit;
        }
        let is_limited = |resource| self.current(resource) != RLIM_INFINITY;
        self.memory.store(is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA), Ordering::Relaxed);
    }

    /// Returns the limit that is in force, or RLIM_INFINITY.
    pub fn current(&self, resource: u64) -> u64 {
        self.get(resource).map_or(RLIM_INFINITY, |limit| limit.current)
    }

    /// Returns whether a process that uses `used` may have `more`.
    fn allow(&self, used: &Pages, more: Growth) -> bool {
        let fits = |resource, pages: u64| pages <= self.current(resource) / PAGE_SIZE;
        (more.pages == 0 || fits(RLIMIT_AS, used.mapped + more.pages))
            && (more.data == 0 || fits(RLIMIT_DATA, used.data + more.data))
    }
}

/// The pages that a call adds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Growth {
    /// All pages.
    pub pages: u64,
    /// Private pages that may be written.
    pub data: u64,
}

impl Growth {
    /// Returns the growth by `pages` pages of `mapping`.
    pub fn of(mapping: Mapping, pages: u64) -> Self {
        let is_data = mapping.prot().contains(Prot::WRITE) && !mapping.flags().contains(Flags::SHARED);
        Self { pages, data: if is_data { pages } else { 0 } }
    }
}

/// Calls `add`, which adds `more` pages to the memory of `task`, if that is within its limits.
///
/// # Errors
/// `NoSpace` if it is not, and those of `add`.
#[inline]
pub fn within_limits<R>(
    task: &Task,
    more: impl FnOnce() -> Growth,
    add: impl FnOnce() -> Result<R, VmError>,
) -> Result<R, VmError> {
    if !task.process().limits.memory.load(Ordering::Relaxed) {
        return add();
    }
    let memory = &task.shared().memory;
    // The holder may pause, and other tasks run meanwhile.
    let _turn = sched::lock(&memory.growing);
    match task.process().limits.allow(&memory.pages(Detail::Mappings), more()) {
        true => add(),
        false => Err(VmError::NoSpace),
    }
}
