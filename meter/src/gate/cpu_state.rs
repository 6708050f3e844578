//! A CPU's state at the gate, and all states as a waiter sees them.

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

/// A CPU's state at the gate. Only its own thread writes it, except for a call.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CpuState {
    clock: AtomicU64,
    pub(super) limit: AtomicU64,
    pub(super) quantum: AtomicU64,
    pub(super) phase: AtomicU32,
    /// The host's thread ID of its thread.
    pub(super) thread: AtomicU32,
}

/// All CPUs, as a waiter sees them.
pub trait CpuStates {
    /// Returns their states.
    fn states(&self) -> impl Iterator<Item = &CpuState>;

    /// Returns a number that changes whenever a CPU makes progress.
    fn progress(&self) -> u64 {
        self.states().map(CpuState::clock).fold(0, u64::wrapping_add)
    }

    /// Returns whether a CPU that is missing in this `quantum` only waits for a host CPU.
    fn any_starved(&self, quantum: u64) -> bool {
        self.states().any(|cpu| cpu.is_starved(quantum))
    }
}

impl CpuState {
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
    /// is still in the phase ARRIVED of the quantum before.
    pub(super) fn is_missing(&self, quantum: u64) -> bool {
        match self.phase.load(Relaxed) {
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

    pub(super) fn set_phase(&self, phase: u32, quantum: u64) {
        self.phase.store(phase, Relaxed);
        self.quantum.store(quantum, Relaxed);
    }

    /// Moves from out to `phase`, unless another thread was faster. Relaxed: the gate's word orders
    /// everything that depends on it.
    pub(super) fn admit(&self, phase: u32) -> bool {
        self.phase.compare_exchange(OUT, phase, Relaxed, Relaxed).is_ok()
    }

    /// Starts the quantum of the CPU, whose thread runs now.
    pub(super) fn take(&self, slack: u64) {
        self.phase.store(RUNNING, Relaxed);
        self.thread.store(host::thread(), Relaxed);
        self.limit.store(self.clock() + slack, Relaxed);
    }
}
