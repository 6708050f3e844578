//! The resource limits of a process. `clone` enforces the limit of processes, `fs` that of open files,
//! `signal` that of signals that wait, `mqueue` that of message queues, `cpu_timers` that of CPU time, and
//! this module those of memory (RLIMIT_AS, RLIMIT_DATA). The others are only stored and reported.
//!
//! A process without limits of memory reads one flag. In a process with such a limit, calls that add memory
//! take turns, and each counts the mapped pages before it adds some. It may still count memory that is
//! unmapped meanwhile. It never misses any, so a limit is never exceeded.

use core::array;

use abi::ipc::MQ_BYTES_MAX;
use abi::process::{
    RLIM_INFINITY, RLIMIT_AS, RLIMIT_CORE, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_MSGQUEUE, RLIMIT_NICE,
    RLIMIT_NLIMITS, RLIMIT_NOFILE, RLIMIT_RTPRIO, RLIMIT_SIGPENDING, RLIMIT_STACK, Rlimit,
};
use sync::atomic::{AtomicBool, Ordering};
use sync::{Sequence, SpinLock};
use vm::{Detail, Flags, Mapping, PAGE_SIZE, Prot, VmError};

use super::{Pages, STACK_BYTES};
use crate::mm::frames;
use crate::sched::{self, Task};

/// The frames of memory for each real-time signal that may wait, as on Linux.
const FRAMES_OF_SIGNAL: u64 = 64;

/// The limits of a process. They are read without a lock: senders of signals look at one of them.
pub struct Limits {
    all: [Limit; RLIMIT_NLIMITS as usize],
    /// Held by calls that set a limit.
    setting: SpinLock<()>,
    /// Set if memory is limited. Written with `setting` held. Relaxed: a limit applies to calls that begin
    /// after it was set.
    memory: AtomicBool,
}

/// A limit: its current value and its maximum, which are read together.
struct Limit(Sequence<2>);

impl Limit {
    const fn new(limit: Rlimit) -> Self {
        Self(Sequence::of(0, [limit.current, limit.maximum]))
    }

    fn get(&self) -> Rlimit {
        let (_, [current, maximum]) = self.0.read();
        Rlimit { current, maximum }
    }

    fn current(&self) -> u64 {
        self.0.word(0)
    }

    /// The caller holds `Limits::setting`.
    fn set(&self, limit: Rlimit) {
        self.0.replace(0, [limit.current, limit.maximum]);
    }
}

impl Limits {
    /// Returns the limits of the first process.
    pub fn new() -> Self {
        let same = |bytes| Rlimit { current: bytes, maximum: bytes };
        let limit_of = |resource| match resource {
            RLIMIT_STACK => Rlimit { current: STACK_BYTES, ..same(RLIM_INFINITY) },
            RLIMIT_CORE => Rlimit { current: 0, ..same(RLIM_INFINITY) },
            RLIMIT_MSGQUEUE => same(MQ_BYTES_MAX),
            RLIMIT_NOFILE => same(crate::fs::MAX_FILES),
            RLIMIT_SIGPENDING => same(frames::total() / FRAMES_OF_SIGNAL),
            RLIMIT_NICE | RLIMIT_RTPRIO => same(0),
            _ => same(RLIM_INFINITY),
        };
        let all = array::from_fn(|resource| Limit::new(limit_of(resource as u64)));
        Self { all, setting: SpinLock::new(()), memory: AtomicBool::new(false) }
    }

    /// Returns the same limits for a child.
    pub fn copy(&self) -> Self {
        let _alone = self.setting.lock();
        let memory = AtomicBool::new(self.memory.load(Ordering::Relaxed));
        let all = self.all.each_ref().map(|limit| Limit::new(limit.get()));
        Self { all, setting: SpinLock::new(()), memory }
    }

    /// Returns the limit of a resource, if that exists.
    pub fn get(&self, resource: u64) -> Option<Rlimit> {
        self.all.get(resource as usize).map(Limit::get)
    }

    /// Sets the limit of a resource, if that exists.
    pub fn set(&self, resource: u64, limit: Rlimit) {
        let _alone = self.setting.lock();
        if let Some(place) = self.all.get(resource as usize) {
            place.set(limit);
        }
        let is_limited = |resource| self.current(resource) != RLIM_INFINITY;
        self.memory.store(is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA), Ordering::Relaxed);
    }

    /// Returns the limit that is in force, or RLIM_INFINITY.
    pub fn current(&self, resource: u64) -> u64 {
        self.all.get(resource as usize).map_or(RLIM_INFINITY, Limit::current)
    }

    /// Returns the limit of CPU time, in seconds.
    pub fn cpu(&self) -> Rlimit {
        self.get(RLIMIT_CPU).unwrap_or(Rlimit { current: RLIM_INFINITY, maximum: RLIM_INFINITY })
    }

    /// Raises the limit of CPU time, up to its maximum.
    pub fn raise_cpu(&self, seconds: u64) {
        let _alone = self.setting.lock();
        if let Some(limit) = self.all.get(RLIMIT_CPU as usize) {
            let maximum = limit.get().maximum;
            limit.set(Rlimit { current: seconds.min(maximum), maximum });
        }
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
