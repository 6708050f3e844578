//! Waiting for another core.
//!
//! A real core just pauses. A virtual core that spins may keep the very core it waits for off the host's
//! CPUs, so it naps when a wait takes longer than a running core needs to answer. Naps are expensive (they
//! end by a timer of the host): with too few turns, the handovers of `pipeline` on two idle host CPUs were
//! ten times slower.

use core::sync::atomic::{AtomicU32, Ordering};

use super::cpu::cpuid_if_known;
use super::{interrupts, percpu, time};
use crate::arch::per_core::all_cores;

/// Turns before a nap, or 0 on a real machine.
static SPINS: AtomicU32 = AtomicU32::new(0);
const TURNS: u32 = 1 << 12;
const NAP_NS: u64 = 50_000;

all_cores! {
    /// Turns that each core took since its last nap or shootdown. Relaxed: only the core itself accesses it.
    static TAKEN: AtomicU32 = AtomicU32::new(0);
}

/// Asks the CPU whether it is virtual. Called once, at boot.
pub(super) fn init() {
    let is_virtual = cpuid_if_known(1, 0).ecx & 1 << 31 != 0;
    SPINS.store(if is_virtual { TURNS } else { 0 }, Ordering::Relaxed);
}

/// Begins a wait, whose first turns spin.
pub(super) fn begin() {
    taken().store(0, Ordering::Relaxed);
}

/// Does one turn of a wait.
pub(super) fn turn() {
    let spins = SPINS.load(Ordering::Relaxed);
    if spins == 0 {
        return core::hint::spin_loop();
    }
    let taken = taken();
    let turns = taken.load(Ordering::Relaxed).wrapping_add(1);
    taken.store(turns, Ordering::Relaxed);
    if turns.is_multiple_of(spins) && interrupts::are_on() {
        nap();
    }
}

fn taken() -> &'static AtomicU32 {
    TAKEN.of(percpu::core())
}

/// Halts for a moment, or until an interrupt. The timer that ends it makes the scheduler set its own again.
fn nap() {
    let _off = interrupts::off();
    time::set_timer(Some(time::now_ns() + NAP_NS));
    interrupts::halt_until_interrupt();
}
