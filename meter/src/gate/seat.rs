//! A CPU's place at the gate, and all of them as a waiter sees them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::host;

/// The CPU idles.
pub(super) const OUT: u32 = 0;
/// Somebody has woken it, and the host has not run its thread yet.
pub(super) const CALLED: u32 = 1;
/// It is in its quantum.
pub(super) const RUNNING: u32 = 2;
/// It has done its quantum.
pub(super) const ARRIVED: u32 = 3;

/// A CPU's place at the gate. Written by its own thread, but for a call.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Seat {
    clock: AtomicU64,
    pub(super) limit: AtomicU64,
    pub(super) quantum: AtomicU64,
    pub(super) place: AtomicU32,
    /// The host's number of its thread.
    pub(super) thread: AtomicU32,
}

/// All CPUs, as a waiter looks at them.
pub trait Crowd {
    /// Their seats.
    fn seats(&self) -> impl Iterator<Item = &Seat>;

    /// Changes whenever one gets on.
    fn progress(&self) -> u64 {
        self.seats().map(Seat::clock).fold(0, u64::wrapping_add)
    }

    /// Whether one that is waited for in this `quantum` only waits for the host.
    fn any_starved(&self, quantum: u64) -> bool {
        self.seats().any(|seat| seat.is_starved(quantum))
    }
}

impl Seat {
    /// Instructions that this CPU has done.
    pub fn clock(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// Whether the CPU is waited for in this `quantum`, and its thread would run if the host had a CPU for it.
    fn is_starved(&self, quantum: u64) -> bool {
        self.is_missing(quantum) && host::is_ready(self.thread.load(Relaxed))
    }

    /// One that slept while the quantum began still sits where it arrived, in the one before.
    pub(super) fn is_missing(&self, quantum: u64) -> bool {
        match self.place.load(Relaxed) {
            OUT => false,
            ARRIVED => self.quantum.load(Relaxed) != quantum,
            _ => true,
        }
    }

    /// Adds to the clock; returns whether the gate must be asked.
    #[inline]
    pub fn advance(&self, instructions: u64) -> bool {
        let clock = self.clock.load(Relaxed) + instructions;
        self.clock.store(clock, Relaxed);
        clock >= self.limit.load(Relaxed)
    }

    pub(super) fn is_at_limit(&self) -> bool {
        self.clock.load(Relaxed) >= self.limit.load(Relaxed)
    }

    pub(super) fn sit(&self, place: u32, quantum: u64) {
        self.place.store(place, Relaxed);
        self.quantum.store(quantum, Relaxed);
    }

    /// From out to `place`, unless somebody else was faster. Relaxed: the gate's word orders what hangs on it.
    pub(super) fn admit(&self, place: u32) -> bool {
        self.place.compare_exchange(OUT, place, Relaxed, Relaxed).is_ok()
    }

    /// The CPU's thread runs: its quantum starts here.
    pub(super) fn take(&self, slack: u64) {
        self.place.store(RUNNING, Relaxed);
        self.thread.store(host::thread(), Relaxed);
        self.limit.store(self.clock() + slack, Relaxed);
    }
}
