//! A CPU's place at the gate, and all places as a waiter sees them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::host;

/// The CPU idles.
pub(super) const OUT: u32 = 0;
/// The CPU was woken, and the host has not run its thread yet.
pub(super) const CALLED: u32 = 1;
/// The CPU runs in its quantum.
pub(super) const RUNNING: u32 = 2;
/// The CPU has done its quantum.
pub(super) const ARRIVED: u32 = 3;

/// A CPU's place at the gate. Only its own thread writes it, except for a call.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Seat {
    clock: AtomicU64,
    pub(super) limit: AtomicU64,
    pub(super) quantum: AtomicU64,
    pub(super) place: AtomicU32,
    /// The host's thread ID of its thread.
    pub(super) thread: AtomicU32,
}

/// All CPUs, as a waiter sees them.
pub trait Crowd {
    /// Returns their seats.
    fn seats(&self) -> impl Iterator<Item = &Seat>;

    /// Returns a number that changes whenever a CPU makes progress.
    fn progress(&self) -> u64 {
        self.seats().map(Seat::clock).fold(0, u64::wrapping_add)
    }

    /// Returns whether a CPU that is missing in this `quantum` only waits for a host CPU.
    fn any_starved(&self, quantum: u64) -> bool {
        self.seats().any(|seat| seat.is_starved(quantum))
    }
}

impl Seat {
    /// Returns the number of instructions that this CPU has done.
    pub fn clock(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// Returns whether the CPU is missing in this `quantum` and its thread would run if the host had a CPU
    /// for it.
    fn is_starved(&self, quantum: u64) -> bool {
        self.is_missing(quantum) && host::is_ready(self.thread.load(Relaxed))
    }

    /// Returns whether the others wait for this CPU in `quantum`. A CPU that slept while the quantum began
    /// still holds the place where it arrived, in the quantum before.
    pub(super) fn is_missing(&self, quantum: u64) -> bool {
        match self.place.load(Relaxed) {
            OUT => false,
            ARRIVED => self.quantum.load(Relaxed) != quantum,
            _ => true,
        }
    }

    /// Adds to the clock and returns whether the CPU must pass the gate.
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

    /// Moves from out to `place`, unless another thread was faster. Relaxed: the gate's word orders
    /// everything that depends on it.
    pub(super) fn admit(&self, place: u32) -> bool {
        self.place.compare_exchange(OUT, place, Relaxed, Relaxed).is_ok()
    }

    /// Starts the quantum of the CPU, whose thread runs now.
    pub(super) fn take(&self, slack: u64) {
        self.place.store(RUNNING, Relaxed);
        self.thread.store(host::thread(), Relaxed);
        self.limit.store(self.clock() + slack, Relaxed);
    }
}
