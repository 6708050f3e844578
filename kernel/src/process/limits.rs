//! Limits of a process: kept and told. Those of processes are enforced by `clone`, of open files by `fs`, and of memory
//! (RLIMIT_AS, RLIMIT_DATA) here.
//!
//! A process without limits of memory looks at a flag, and nothing else is touched. In one that has some, calls that add
//! memory take turns, and each counts what is mapped before it adds. Memory that goes meanwhile may be counted still; none
//! is ever missed, so a limit is never exceeded.

use abi::process::{
    RLIM_INFINITY, RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_NLIMITS, RLIMIT_NOFILE, RLIMIT_STACK, Rlimit,
};
use sync::SpinLock;
use sync::atomic::{AtomicBool, Ordering};
use vm::{Detail, Flags, Mapping, PAGE_SIZE, Prot, VmError};

use super::{Pages, STACK_BYTES};
use crate::sched::{self, Task};

/// See the module.
pub struct Limits {
    all: SpinLock<[Rlimit; RLIMIT_NLIMITS as usize]>,
    /// Whether memory is limited. Relaxed: a limit binds calls that begin after it was set.
    memory: AtomicBool,
}

impl Limits {
    /// Those of the first process.
    pub fn new() -> Self {
        let same = |bytes| Rlimit { current: bytes, maximum: bytes };
        let mut all = [same(RLIM_INFINITY); RLIMIT_NLIMITS as usize];
        for (resource, limit) in (0..).zip(&mut all) {
            match resource {
                RLIMIT_STACK => limit.current = STACK_BYTES,
                RLIMIT_CORE => limit.current = 0,
                RLIMIT_NOFILE => *limit = same(crate::fs::MAX_FILES),
                _ => {}
            }
        }
        Self { all: SpinLock::new(all), memory: AtomicBool::new(false) }
    }

    /// The same for a child.
    pub fn copy(&self) -> Self {
        let memory = AtomicBool::new(self.memory.load(Ordering::Relaxed));
        Self { all: SpinLock::new(*self.all.lock()), memory }
    }

    /// The limit of a resource, if there is such a one.
    pub fn get(&self, resource: u64) -> Option<Rlimit> {
        self.all.lock().get(resource as usize).copied()
    }

    /// Sets the limit of a resource that there is.
    pub fn set(&self, resource: u64, limit: Rlimit) {
        if let Some(place) = self.all.lock().get_mut(resource as usize) {
            *place = limit;
        }
        let is_limited = |resource| self.current(resource) != RLIM_INFINITY;
        self.memory.store(is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA), Ordering::Relaxed);
    }

    fn current(&self, resource: u64) -> u64 {
        self.get(resource).map_or(RLIM_INFINITY, |limit| limit.current)
    }

    /// Whether a process that uses `used` may have `more`.
    fn allow(&self, used: &Pages, more: Growth) -> bool {
        let fits = |resource, pages: u64| pages <= self.current(resource) / PAGE_SIZE;
        (more.pages == 0 || fits(RLIMIT_AS, used.mapped + more.pages))
            && (more.data == 0 || fits(RLIMIT_DATA, used.data + more.data))
    }
}

/// Pages that a call adds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Growth {
    /// All.
    pub pages: u64,
    /// Private ones that may be written.
    pub data: u64,
}

impl Growth {
    /// `pages` more of a mapping.
    pub fn of(mapping: Mapping, pages: u64) -> Self {
        let is_data = mapping.prot().contains(Prot::WRITE) && !mapping.flags().contains(Flags::SHARED);
        Self { pages, data: if is_data { pages } else { 0 } }
    }
}

/// Calls `add`, which adds as much to the memory of `task` as `more` says, if that is within its limits.
///
/// # Errors
/// `NoSpace` if it is not; what `add` says.
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
    // Who has it may pause: others give way meanwhile.
    let _turn = sched::lock(&memory.growing);
    match task.process().limits.allow(&memory.pages(Detail::Mappings), more()) {
        true => add(),
        false => Err(VmError::NoSpace),
    }
}
