//! Counters of all cores: sums, and the report of every counter, those of address spaces included.

use percore::{CoreId, Pinned};
use sync::SpinLock;
use vm::Counters as Events;

use super::space::SpaceHandle;
use crate::arch;
use crate::arch::per_core::all_cores;
use crate::counters::{Counter, of};

/// The counters that are reported, and their names.
const NAMES: [(Counter, &str); 18] = [
    (Counter::Ipis, "ipis"),
    (Counter::Epochs, "epochs"),
    (Counter::FramesUsed, "frames_used"),
    (Counter::FilePages, "file_pages"),
    (Counter::PagesReclaimed, "pages_reclaimed"),
    (Counter::CompressedPages, "compressed_pages"),
    (Counter::CompressedFrames, "compressed_frames"),
    (Counter::FramesZeroed, "frames_zeroed"),
    (Counter::TablePages, "table_pages"),
    (Counter::ReadCounters, "read_counters"),
    (Counter::ReadCounterPages, "read_counter_pages"),
    (Counter::ReadQueries, "read_queries"),
    (Counter::ReadQueryLines, "read_query_lines"),
    (Counter::ContextSwitches, "context_switches"),
    (Counter::KeptTlbs, "kept_tlbs"),
    (Counter::Ticks, "ticks"),
    (Counter::LateTimers, "late_timers"),
    (Counter::Syscalls, "syscalls"),
];

/// Returns the count of all cores.
pub fn sum(counter: Counter) -> i64 {
    (0..arch::cores()).map(|core| of(CoreId::new(core), counter)).sum()
}

/// A function that takes a counter's name and its count by core.
type Visit<'a> = dyn FnMut(&'static str, &dyn Fn(CoreId) -> u64) + 'a;

/// Calls `f(name, count by core)` for every counter, those of `space` included, in the order of
/// `/proc/radixvm/counters`. A count that is negative on one core is passed as its two's complement.
pub fn visit(space: &SpaceHandle, f: &mut Visit<'_>) {
    let nodes = |core| (space.nodes().of(core).created, space.nodes().of(core).collapsed);
    each(&|core| space.core_counters(core), &nodes, f);
}

/// Does the same, and adds the counts of ended spaces, by the core on which they ended. All their nodes are
/// freed.
pub fn visit_all(space: &SpaceHandle, f: &mut Visit<'_>) {
    let ended = |core: CoreId| ENDED.of(core).lock().unwrap_or_default();
    let events = |core| {
        let mut events = space.core_counters(core);
        events += ended(core).events;
        events
    };
    let nodes = |core| {
        let (of, ended) = (space.nodes().of(core), ended(core).nodes);
        (of.created + ended, of.collapsed + ended)
    };
    each(&events, &nodes, f);
}

fn each(events: &dyn Fn(CoreId) -> Events, nodes: &dyn Fn(CoreId) -> (u64, u64), f: &mut Visit<'_>) {
    for (at, (name, _)) in Events::default().iter().enumerate() {
        f(name, &|core| events(core).iter().nth(at).map_or(0, |(_, count)| count));
    }
    for (counter, name) in NAMES {
        f(name, &|core| of(core, counter) as u64);
    }
    f("radix_nodes_created", &|core| nodes(core).0);
    f("radix_nodes_collapsed", &|core| nodes(core).1);
}

/// The counts of ended spaces.
#[derive(Clone, Copy, Default)]
struct Ended {
    events: Events,
    /// The radix nodes that they made.
    nodes: u64,
}

all_cores! {
    /// The counts by the core on which spaces ended. Only that core takes the lock before the machine ends.
    static ENDED: SpinLock<Option<Ended>> = SpinLock::new(None);
}

/// Keeps the counts of a space that has ended.
pub fn keep(pin: &Pinned, events: Events, nodes: u64) {
    let mut kept = ENDED.mine(pin).lock();
    let kept = kept.get_or_insert_default();
    kept.events += events;
    kept.nodes += nodes;
}
