//! The resources that processes have used: CPU time and page faults.

use sync::atomic::{AtomicU64, Ordering};
use vm::Event;

use super::Process;
use crate::mm::space::SpaceHandle;

/// An amount of resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// Page faults without input.
    pub faults: u64,
}

/// A sum that grows. Relaxed: it is a statistic, and callers that need an exact value read it under a lock
/// that orders it.
#[derive(Debug, Default)]
pub struct Total {
    cpu_ns: AtomicU64,
    faults: AtomicU64,
}

impl Total {
    /// Adds `usage`.
    pub fn add(&self, usage: &Usage) {
        self.cpu_ns.fetch_add(usage.cpu_ns, Ordering::Relaxed);
        self.faults.fetch_add(usage.faults, Ordering::Relaxed);
    }

    /// Returns the sum so far.
    pub fn get(&self) -> Usage {
        Usage { cpu_ns: self.cpu_ns.load(Ordering::Relaxed), faults: self.faults.load(Ordering::Relaxed) }
    }
}

/// Returns the number of page faults in a space.
pub fn faults(space: &SpaceHandle) -> u64 {
    let counters = space.counters();
    counters[Event::AllocFault] + counters[Event::HugeFault] + counters[Event::FillFault]
}

impl Process {
    /// Returns the CPU time of all its threads, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        let mut sum = self.past.get().cpu_ns;
        self.for_each_thread(|task| sum += task.cpu_ns());
        sum
    }

    /// Returns the resources that it used.
    pub fn usage(&self) -> Usage {
        let space_faults = self.memory().map_or(0, |memory| faults(&memory.space));
        Usage { cpu_ns: self.cpu_ns(), faults: self.past.get().faults + space_faults }
    }

    /// Returns the resources that it and the children that it waited for used.
    pub fn whole_usage(&self) -> Usage {
        let (own, children) = (self.usage(), self.children_usage.get());
        Usage { cpu_ns: own.cpu_ns + children.cpu_ns, faults: own.faults + children.faults }
    }
}
