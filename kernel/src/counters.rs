//! Per-core counters. Counting is a plain add to a cache line of the core's own, and readers do not disturb
//! it.

use core::sync::atomic::{AtomicI64, Ordering};

use percore::{AllCores, CoreId, MAX_CORES, Pinned};
use sync::{CachePadded, SpinLock};
use vm::Counters as Events;

use crate::mm::space::SpaceHandle;

/// The events that the kernel counts. The address space counts its own events (`vm::Event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// System calls of programs.
    Syscalls,
    /// Switches from one task to another.
    ContextSwitches,
    /// Loads of a space's table that kept its TLB entries.
    KeptTlbs,
    /// Timer interrupts.
    Ticks,
    /// Timers that rang more than a millisecond before this core handled them, because some code ran for too
    /// long.
    LateTimers,
    /// Interrupts sent to other cores.
    Ipis,
    /// Times this core flushed its reference counts.
    Epochs,
    /// Frames of programs: allocated minus freed here, so one core's number may be negative.
    FramesUsed,
    /// Pages of files, in frames: made minus dropped.
    FilePages,
    /// Clean pages of files, which can be made again: those of the boot image.
    CleanPages,
    /// Clean pages of files that were dropped to reclaim memory.
    PagesReclaimed,
    /// Frames zeroed.
    FramesZeroed,
    /// Frames of page tables: allocated minus freed.
    TablePages,
    /// Radix nodes: allocated minus freed.
    LiveNodes,
    /// Compressed pages: compressed minus restored or freed.
    CompressedPages,
    /// Frames that hold compressed pages: taken minus freed.
    CompressedFrames,
    /// Tasks: made minus freed.
    Tasks,
    /// Address spaces: made minus freed.
    Spaces,
}

const COUNTERS: usize = Counter::Spaces as usize + 1;

/// The counters that are reported, and their names.
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

/// Adds to this core's count. Relaxed, and no read-modify-write, because only this core writes the cell.
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

/// Returns the count of one core.
pub fn of(core: CoreId, counter: Counter) -> i64 {
    CELLS[core.index()][counter as usize].load(Ordering::Relaxed)
}

/// Returns the count of all cores.
pub fn sum(counter: Counter) -> i64 {
    (0..crate::arch::cores()).map(|core| of(CoreId::new(core), counter)).sum()
}

/// Takes a counter's name and its count by core.
type Visit<'a> = dyn FnMut(&'static str, &dyn Fn(CoreId) -> u64) + 'a;

/// Calls `f(name, count by core)` for every counter, those of `space` included, in the order of
/// `/proc/radixvm/counters`. A count that is negative on one core is passed as its two's complement.
pub fn for_each(space: &SpaceHandle, f: &mut Visit<'_>) {
    let nodes = |core| (space.nodes().of(core).created, space.nodes().of(core).collapsed);
    each(&|core| space.core_counters(core), &nodes, f);
}

/// Does the same, and adds the counts of ended spaces, by the core on which they ended. All their nodes are
/// freed.
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

/// The counts of ended spaces.
#[derive(Clone, Copy, Default)]
struct Ended {
    events: Events,
    /// The radix nodes that they made.
    nodes: u64,
}

/// The counts by the core on which spaces ended. Only that core takes the lock before the machine ends.
static ENDED: AllCores<SpinLock<Option<Ended>>> =
    AllCores::new([const { CachePadded::new(SpinLock::new(None)) }; MAX_CORES]);

/// Keeps the counts of a space that has ended.
pub fn keep(pin: &Pinned, events: Events, nodes: u64) {
    let mut kept = ENDED.mine(pin).lock();
    let kept = kept.get_or_insert_default();
    kept.events += events;
    kept.nodes += nodes;
}
