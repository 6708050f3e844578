//! The throttle keeps virtual CPUs in step, however few host CPUs they have.
//!
//! Time is divided into quanta of `slack` instructions. A CPU that has done its quantum *arrives* and waits.
//! When the last CPU inside has arrived, the next quantum starts for all. So no two CPUs inside are further
//! apart than the slack and one translation block. A CPU that is about to idle *leaves*, and no CPU waits for
//! it. The CPU that wakes it *calls* it into the current quantum, and from then on the others wait for it.
//! Otherwise it would sleep as long as the host takes to run its thread, and the busier the host is, the more
//! the others would do meanwhile. Its thread first lets a few quanta pass, since waking takes a real CPU time
//! too. A CPU that was not called *enters* with its first block. The whole gate is one word,
//! `quantum | inside | missing`, changed only by compare-and-swap:
//!
//! | event | inside | missing | its phase |
//! |---|---|---|---|
//! | is called | +1 | +1 | out → called |
//! | enters | +1; 0 if called | +1; 0 if called | out, called → running |
//! | arrives | | -1 | running → arrived |
//! | arrives, and had escaped | | -1, if a new quantum started meanwhile | arrived |
//! | leaves | -1 | -1, unless it has arrived in this quantum | → out |
//! | then, if `missing` is 0 and `inside` is not | | := inside | and `quantum` += 1 |
//!
//! 1. `missing` is the number of CPUs inside that have not arrived in this quantum.
//! 2. Only a CPU's own thread changes its state, except for the step from out to called. A call and an entry
//!    both count first and then change the phase by compare-and-swap. The call that loses takes its count
//!    back.
//! 3. The missing CPU may itself wait for the waiter: QEMU stops all CPUs for a few rare instructions, and a
//!    waiter does not see that. So a waiter that sees no CPU progress for a while, though no CPU's thread is
//!    ready to run, *escapes*: it runs another quantum, still counted as arrived. Escapes are counted, and
//!    results with many of them are worthless.
//! 4. The check in the common case is one comparison with the CPU's own limit.

mod cpu_state;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::host;
use cpu_state::{ARRIVED, CALLED, OUT, RUNNING};
pub use cpu_state::{CpuState, CpuStates};

/// Time without progress of any CPU after which a waiter checks whether it should escape.
const STALLED_AFTER: Duration = Duration::from_millis(20);

/// Time that a CPU takes to wake, in instructions or nanoseconds: Linux's table gives two microseconds for
/// the lightest idle state of Intel's CPUs.
const WAKING: u64 = 2_000;

/// The gate.
#[derive(Debug)]
pub struct Gate {
    word: AtomicU64,
    /// Changes with every quantum. Waiters sleep on it.
    turn: AtomicU32,
    open: AtomicBool,
    slack: u64,
    waits: AtomicU64,
    escapes: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    quantum: u64,
    inside: u64,
    missing: u64,
}

const FIELD: u32 = 10;
const FIELD_MASK: u64 = (1 << FIELD) - 1;

impl State {
    fn unpack(word: u64) -> Self {
        Self { quantum: word >> (2 * FIELD), inside: word >> FIELD & FIELD_MASK, missing: word & FIELD_MASK }
    }

    fn pack(self) -> u64 {
        self.quantum << (2 * FIELD) | self.inside << FIELD | self.missing
    }

    fn turn_if_complete(&mut self) {
        if self.missing == 0 && self.inside > 0 {
            self.quantum += 1;
            self.missing = self.inside;
        }
    }
}

impl Gate {
    /// Creates a gate that lets all CPUs through until it is opened.
    pub fn new(slack: u64) -> Self {
        Self {
            word: AtomicU64::new(0),
            turn: AtomicU32::new(0),
            open: AtomicBool::new(false),
            slack,
            waits: AtomicU64::new(0),
            escapes: AtomicU64::new(0),
        }
    }

    /// Begins to keep CPUs in step.
    pub fn open(&self) {
        self.open.store(true, Relaxed);
    }

    /// Lets all CPUs run freely from now on.
    pub fn close(&self) {
        // Relaxed: a waiter that does not see it yet sleeps for `STALLED_AFTER` once more at most.
        self.open.store(false, Relaxed);
        self.wake();
    }

    /// Returns the quanta so far, in instructions.
    pub fn elapsed(&self) -> u64 {
        self.state().quantum * self.slack
    }

    /// Returns whether no CPU is inside.
    pub fn is_empty(&self) -> bool {
        self.state().inside == 0
    }

    /// Returns how often a CPU waited, and how often it gave up waiting.
    pub fn waits_and_escapes(&self) -> (u64, u64) {
        (self.waits.load(Relaxed), self.escapes.load(Relaxed))
    }

    /// Handles a CPU of the `cpus` that has reached its limit. Returns whether it is the first CPU inside.
    #[cold]
    pub fn pass(&self, cpu: &CpuState, cpus: &(impl CpuStates + ?Sized)) -> bool {
        match cpu.phase.load(Relaxed) {
            OUT if self.open.load(Relaxed) => return self.enter(cpu),
            CALLED => self.wake_up(cpu, cpus),
            _ => {}
        }
        while cpu.is_at_limit() {
            if !self.open.load(Relaxed) {
                cpu.limit.store(u64::MAX, Relaxed);
                break;
            }
            self.arrive(cpu);
            self.wait(cpu, cpus);
            cpu.limit.fetch_add(self.slack, Relaxed);
        }
        false
    }

    /// Starts the quantum of a CPU that was called, on its own thread. It waits as long as a CPU takes to
    /// wake.
    fn wake_up(&self, cpu: &CpuState, cpus: &(impl CpuStates + ?Sized)) {
        cpu.take(self.slack);
        for _ in 0..WAKING.div_ceil(self.slack) {
            self.arrive(cpu);
            self.wait(cpu, cpus);
        }
    }

    fn enter(&self, cpu: &CpuState) -> bool {
        let first = self.admit(cpu, RUNNING);
        cpu.take(self.slack);
        first
    }

    /// Calls a CPU that is being woken. Returns whether it is the first CPU inside.
    pub fn call(&self, cpu: &CpuState) -> bool {
        let idles = cpu.phase.load(Relaxed) == OUT;
        idles && self.open.load(Relaxed) && self.admit(cpu, CALLED)
    }

    fn admit(&self, cpu: &CpuState, phase: u32) -> bool {
        let before = self.update(|state| {
            state.inside += 1;
            state.missing += 1;
        });
        let admitted = cpu.admit(phase);
        if !admitted {
            self.update(|state| {
                state.inside -= 1;
                state.missing -= 1;
            });
        }
        admitted && before.inside == 0
    }

    /// Removes a CPU that is about to idle, or that was called for nothing. Returns whether no CPU is inside
    /// any more.
    pub fn leave(&self, cpu: &CpuState) -> bool {
        let phase = cpu.phase.load(Relaxed);
        if phase == OUT {
            return false;
        }
        let quantum = cpu.quantum.load(Relaxed);
        let before = self.update(|state| {
            state.inside -= 1;
            state.missing -= u64::from(phase != ARRIVED || state.quantum != quantum);
        });
        cpu.set_phase(OUT, 0);
        cpu.limit.store(0, Relaxed);
        before.inside == 1
    }

    fn arrive(&self, cpu: &CpuState) {
        let escaped = cpu.phase.load(Relaxed) == ARRIVED;
        let quantum = cpu.quantum.load(Relaxed);
        let before = self.update(|state| state.missing -= u64::from(!escaped || state.quantum != quantum));
        cpu.set_phase(ARRIVED, before.quantum);
    }

    /// Waits until the next quantum, the end, or an escape.
    fn wait(&self, cpu: &CpuState, cpus: &(impl CpuStates + ?Sized)) {
        let quantum = cpu.quantum.load(Relaxed);
        let mut seen = None;
        let mut waited = false;
        while self.open.load(Relaxed) {
            // Acquire pairs with the Release in `wake`: a waiter that sees the new turn sees the new quantum.
            let turn = self.turn.load(Acquire);
            let now = self.state().quantum;
            if now != quantum {
                cpu.set_phase(RUNNING, now);
                break;
            }
            let got_on = Some(cpus.progress());
            if waited && got_on == seen && !cpus.any_starved(quantum) {
                add(&self.escapes);
                return;
            }
            seen = got_on;
            waited = !self.sleep(turn);
        }
    }

    /// Sleeps for at most `STALLED_AFTER` and returns whether it was woken.
    fn sleep(&self, turn: u32) -> bool {
        add(&self.waits);
        let before = host::now();
        host::sleep(&self.turn, turn, STALLED_AFTER);
        host::now() - before < STALLED_AFTER.as_nanos() as u64
    }

    fn wake(&self) {
        // Release pairs with the Acquire in `wait`.
        self.turn.fetch_add(1, Release);
        host::wake(&self.turn);
    }

    fn state(&self) -> State {
        // Acquire pairs with `update`: everything that CPUs did before the quantum began has happened.
        State::unpack(self.word.load(Acquire))
    }

    /// Changes the state, and starts the next quantum if no CPU is missing then. Returns the state before.
    fn update(&self, change: impl Fn(&mut State)) -> State {
        let mut seen = self.word.load(Relaxed);
        loop {
            let before = State::unpack(seen);
            let mut after = before;
            change(&mut after);
            after.turn_if_complete();
            // AcqRel pairs with itself and with `state`.
            match self.word.compare_exchange_weak(seen, after.pack(), AcqRel, Relaxed) {
                Ok(_) => {
                    if after.quantum != before.quantum {
                        self.wake();
                    }
                    return before;
                }
                Err(now) => seen = now,
            }
        }
    }
}

/// Increments a statistic. No other access depends on its order.
fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests;
