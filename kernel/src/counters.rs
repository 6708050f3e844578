//! Per-core counters. Counting is a plain add to a cache line of the core's own, and readers do not disturb
//! it.

use core::sync::atomic::{AtomicI64, Ordering};

use percore::{CoreId, Pinned};

use crate::arch::per_core::all_cores;

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
    /// Files in memory that have lost their last name, or never had one: found minus freed.
    NamelessFiles,
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
    /// Counters of pages that were made because reads contended.
    ReadCounters,
    /// Pages of such counters: made minus freed.
    ReadCounterPages,
    /// Questions whether a read holds a page that its file has dropped.
    ReadQueries,
    /// Cache lines that these looked at.
    ReadQueryLines,
    /// Tasks: made minus freed.
    Tasks,
    /// Address spaces: made minus freed.
    Spaces,
}

const COUNTERS: usize = Counter::Spaces as usize + 1;

all_cores! {
    static CELLS: [AtomicI64; COUNTERS] = [const { AtomicI64::new(0) }; COUNTERS];
}

/// Adds to this core's count. Relaxed, and no read-modify-write, because only this core writes the cell.
#[inline(always)]
pub fn add(pin: &Pinned, counter: Counter, amount: i64) {
    let cell = &CELLS.mine(pin)[counter as usize];
    cell.store(cell.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

/// Counts one event on this core.
#[inline(always)]
pub fn bump(counter: Counter) {
    add(&percore::pin(), counter, 1);
}

/// Returns the count of one core.
pub fn of(core: CoreId, counter: Counter) -> i64 {
    CELLS.of(core)[counter as usize].load(Ordering::Relaxed)
}
