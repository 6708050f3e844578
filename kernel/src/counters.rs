//! Per-core counters: counting is one plain add to a line of the core's own; reading disturbs nobody's count.

use core::sync::atomic::{AtomicI64, Ordering};

use percore::{AllCores, CoreId, MAX_CORES, Pinned};
use sync::{CachePadded, SpinLock};
use vm::Counters as Events;

use crate::mm::space::SpaceHandle;

/// What is counted here; the address space counts its own events (`vm::Event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Calls of programs.
    Syscalls,
    /// Switches from one task to another.
    ContextSwitches,
    /// Loads of a space's table with what the TLB still had of it.
    KeptTlbs,
    /// Timer interrupts.
    Ticks,
    /// Timers that rang more than a millisecond before this core looked up: somebody kept it too long.
    LateTimers,
    /// Interrupts sent to other cores.
    Ipis,
    /// Times this core flushed its reference counts.
    Epochs,
    /// Frames of programs: allocated less freed here, so one core's number may be negative.
    FramesUsed,
    /// Pages of files, in frames: made less dropped.
    FilePages,
    /// Those of them that can be made again: the boot image's.
    CleanPages,
    /// Clean pages of files that were dropped for their memory.
    PagesReclaimed,
    /// Frames zeroed.
    FramesZeroed,
    /// Frames of page tables: allocated less freed.
    TablePages,
    /// Radix nodes: allocated less freed.
    LiveNodes,
    /// Pages whose contents are compressed: gone less brought back or forgotten.
    CompressedPages,
    /// Frames that these are in: taken less freed.
    CompressedFrames,
    /// Tasks: made less freed.
    Tasks,
    /// Address spaces: made less freed.
    Spaces,
}

const COUNTERS: usize = Counter::Spaces as usize + 1;

/// The counters that are shown, and as what.
const NAMES: [(Counter, &str); 14] = [
    (Counter::Ipis, "ipis"),
    (Counter::Epochs, "epochs"),
    (Counter::FramesUsed, "frames_used"),
    (Counter::FilePages, "file_pages"),
    (Counter::PagesReclaimed, "pages_reclaimed"),
    (Counter::CompressedPages, "compressed_pages"),
    (Counter::CompressedFrames, "compressed_frames"),
    (Counter::FramesZeroed, "frames_zeroed"),
    (Counter::TablePages, "table_pages"),
    (Counter::ContextSwitches, "context_switches"),
    (Counter::KeptTlbs, "kept_tlbs"),
    (Counter::Ticks, "ticks"),
    (Counter::LateTimers, "late_timers"),
    (Counter::Syscalls, "syscalls"),
];

static CELLS: [CachePadded<[AtomicI64; COUNTERS]>; MAX_CORES] =
    [const { CachePadded::new([const { AtomicI64::new(0) }; COUNTERS]) }; MAX_CORES];

/// Adds to this core's count. Relaxed, and no read-modify-write: nobody else writes the cell.
#[inline(always)]
pub fn add(pin: &Pinned, counter: Counter, amount: i64) {
    let cell = &CELLS[pin.core().index()][counter as usize];
    cell.store(cell.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

/// Counts one event on this core.
#[inline(always)]
pub fn bump(counter: Counter) {
    add(&percore::pin(), counter, 1);
}

/// The count of one core.
pub fn of(core: CoreId, counter: Counter) -> i64 {
    CELLS[core.index()][counter as usize].load(Ordering::Relaxed)
}

/// The count of all cores.
pub fn sum(counter: Counter) -> i64 {
    (0..crate::arch::cores()).map(|core| of(CoreId::new(core), counter)).sum()
}

/// Takes a counter's name and its count by core.
type Visit<'a> = dyn FnMut(&'static str, &dyn Fn(CoreId) -> u64) + 'a;

/// Calls `f(name, count by core)` for every counter there is, those of `space` included, in the order of
/// `/proc/radixvm/counters`. A count that went below zero on one core shows as its two's complement.
pub fn for_each(space: &SpaceHandle, f: &mut Visit<'_>) {
    let nodes = |core| (space.nodes().of(core).created, space.nodes().of(core).collapsed);
    each(&|core| space.core_counters(core), &nodes, f);
}

/// The same with what spaces counted that are gone: by the core on which they ended. All their nodes are gone, too.
pub fn for_each_of_all(space: &SpaceHandle, f: &mut Visit<'_>) {
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

/// What spaces counted that are gone.
#[derive(Clone, Copy, Default)]
struct Ended {
    events: Events,
    /// Radix nodes that they made.
    nodes: u64,
}

/// By the core on which they ended; only that takes the lock, before the machine ends.
static ENDED: AllCores<SpinLock<Option<Ended>>> =
    AllCores::new([const { CachePadded::new(SpinLock::new(None)) }; MAX_CORES]);

/// A space is gone: what it counted is kept.
pub fn keep(pin: &Pinned, events: Events, nodes: u64) {
    let mut kept = ENDED.mine(pin).lock();
    let kept = kept.get_or_insert_default();
    kept.events += events;
    kept.nodes += nodes;
}
