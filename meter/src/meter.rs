//! Connects all parts: each method handles one callback.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::args::Options;
use crate::blame::{Fight, Key};
use crate::calls::{Calls, Interrupts};
use crate::clock::Clock;
use crate::counts::Kind;
use crate::cpu::{Cpu, Privilege, as_store};
use crate::decode::Marker;
use crate::directory::{Access, Directory, LINE_SHIFT, Seen, Transfer};
use crate::gate::{CpuState, CpuStates, Gate};
use crate::host;
use crate::sites::{KernelAccess, Sites};
use crate::window::Window;

/// The low half of the interrupt command register of the local APIC. A store to it sends an interrupt.
const INTERRUPT_COMMAND: u64 = 0xfee0_0300;

/// A meter for one machine.
#[derive(Debug)]
pub struct Meter {
    /// The plugin's arguments.
    pub options: Options,
    /// The virtual CPUs.
    pub cpus: Vec<Cpu>,
    /// The window in which counts matter.
    pub window: Window,
    /// The throttle.
    pub gate: Gate,
    /// Virtual time.
    pub clock: Clock,
    /// The conflicts of tests of two calls.
    pub calls: Calls,
    /// The places in the program that make the kernel work, if they are wanted.
    pub sites: Option<Sites>,
    directory: Directory,
    live: AtomicBool,
    started: AtomicU64,
    stopped: AtomicU64,
    clock_was_read: AtomicBool,
    /// The virtual nanoseconds that the slowest running CPU had done when the window opened and when it
    /// closed.
    opened: AtomicU64,
    closed: AtomicU64,
    /// The address of the program's first BEGIN, or 0 before.
    begin: AtomicU64,
}

/// The part of an access that lies on one line.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// Guest-physical address.
    pub physical: u64,
    /// Guest-virtual address.
    pub address: u64,
    /// The bytes of the line that are accessed, one bit each.
    pub bytes: u64,
    /// Set for a store.
    pub store: bool,
    /// The address of the instruction.
    pub pc: u64,
}

impl CpuStates for Vec<Cpu> {
    fn states(&self) -> impl Iterator<Item = &CpuState> {
        self.iter().map(|cpu| &cpu.gate_state)
    }
}

impl Meter {
    /// Creates a meter without counts, or returns `None` if the host has no addresses for the directory.
    pub fn new(options: Options) -> Option<Self> {
        Some(Self {
            cpus: (0..options.cpus).map(|_| Cpu::default()).collect(),
            window: Window::default(),
            gate: Gate::new(options.slack),
            clock: Clock::default(),
            calls: Calls::default(),
            sites: options.sites.map(Sites::new),
            directory: Directory::new(options.memory)?,
            live: AtomicBool::new(false),
            started: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            clock_was_read: AtomicBool::new(false),
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            begin: AtomicU64::new(0),
            options,
        })
    }

    /// Starts the program's run: all state is fresh, and CPUs are kept in step from now on. Returns whether
    /// it is the first run.
    pub fn run(&self) -> bool {
        let first = self.window.run(&self.cpus);
        if first {
            self.started.store(host::now(), Relaxed);
            self.clock.start(host::now());
            self.gate.open();
            self.sites.iter().for_each(Sites::start);
            self.live.store(true, Relaxed);
        }
        first
    }

    /// Ends the window: counts are complete. The CPUs stay in step, since a guest that waits for locks would
    /// otherwise take for ever. Returns whether the counts were incomplete before.
    fn complete(&self) -> bool {
        let now = self.window.stop(&self.cpus);
        if now {
            self.closed.store(self.done(), Relaxed);
            self.live.store(false, Relaxed);
            self.sites.iter().for_each(|sites| sites.finish(self.cpus.iter().map(|cpu| &cpu.entry)));
        }
        now
    }

    /// Ends the program, or the machine: CPUs run freely, and time is real. Returns whether counts are
    /// complete only now.
    pub fn stop(&self) -> bool {
        let completed = self.complete();
        if self.stopped.load(Relaxed) == 0 && self.started.load(Relaxed) != 0 {
            self.stopped.store(host::now(), Relaxed);
            self.clock.stop(host::now(), self.done());
            self.gate.close();
        }
        completed
    }

    /// Returns whether accesses matter. Relaxed: a few more or less after the end change nothing.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.live.load(Relaxed)
    }

    /// Handles a block of instructions that is about to run.
    #[inline]
    pub fn block(&self, cpu: usize, privilege: Privilege, instructions: u64, repeats: bool) {
        let cpu = &self.cpus[cpu];
        if privilege == Privilege::User && cpu.entry.is_inside() {
            self.sites.iter().for_each(|sites| cpu.entry.leave(sites, cpu.kernel_instructions()));
        }
        if cpu.block(privilege, instructions, repeats) {
            self.pass(&cpu.gate_state);
        }
    }

    #[cold]
    fn pass(&self, cpu: &CpuState) {
        if self.gate.pass(cpu, &self.cpus) {
            self.turn_clock();
        }
    }

    fn turn_clock(&self) {
        self.clock.turn(host::now(), || self.gate.is_empty());
    }

    /// Handles a CPU that is about to idle.
    pub fn idle(&self, cpu: usize) {
        if self.gate.leave(&self.cpus[cpu].gate_state) {
            self.turn_clock();
        }
    }

    /// Handles a thread of QEMU that is about to sleep at this `condition`. An idle CPU may have been woken
    /// for nothing.
    pub fn sleep(&self, condition: u64) {
        self.sleepers(condition).for_each(|cpu| self.idle(cpu));
    }

    /// Handles the wake-up of the thread that sleeps at this `condition`.
    pub fn wake(&self, condition: u64) {
        for cpu in self.sleepers(condition) {
            if self.gate.call(&self.cpus[cpu].gate_state) {
                self.turn_clock();
            }
        }
    }

    fn sleepers(&self, condition: u64) -> impl Iterator<Item = usize> {
        (0..self.cpus.len()).filter(move |cpu| self.cpus[*cpu].sleeps_at(condition))
    }

    /// Handles a marker of any kind but RUN, with `ahead` instructions after it in its block. Returns whether
    /// it completed the counts.
    pub fn marker(&self, cpu: usize, marker: Marker, privilege: Privilege, ahead: u64) -> bool {
        let cpu = &self.cpus[cpu];
        match marker {
            Marker::Run => return false,
            Marker::Begin(threads) => {
                if self.window.begin(threads, &self.cpus) {
                    self.opened.store(self.done(), Relaxed);
                    self.sites.iter().for_each(Sites::start);
                }
            }
            Marker::Phase(phase) => cpu.set_phase(phase, privilege, ahead),
            Marker::Iter => {
                return self.window.iter(cpu, privilege, ahead, self.options.rounds) && self.complete();
            }
            Marker::End => return self.window.is_open() && self.complete(),
            Marker::Stop => return self.stop(),
            Marker::Call => cpu.listing.begin(interrupts(cpu)),
            Marker::Return => cpu.listing.end(interrupts(cpu)),
            Marker::Pair => self.calls.pair(self.cpus.iter().map(|cpu| &cpu.listing)),
        }
        false
    }

    /// Records the address of a BEGIN marker. The first one in a program tells where the program was loaded.
    pub fn begins_at(&self, pc: u64) {
        if Privilege::of(pc) == Privilege::User {
            // Relaxed: it is one number, read at the end. A CPU that loses the race ran another place of the
            // same program.
            let _ = self.begin.compare_exchange(0, pc, Relaxed, Relaxed);
        }
    }

    /// Returns that address, if there was one.
    pub fn begin(&self) -> Option<u64> {
        Some(self.begin.load(Relaxed)).filter(|begin| *begin != 0)
    }

    /// Returns the length of the window for CPUs that never idle, in virtual nanoseconds.
    pub fn window_elapsed(&self) -> u64 {
        self.closed.load(Relaxed).saturating_sub(self.opened.load(Relaxed))
    }

    /// Counts an access to a device.
    pub fn device(&self, cpu: usize, physical: u64, store: bool, pc: u64) {
        let kind = if store && physical == INTERRUPT_COMMAND { Kind::IpisSent } else { Kind::Io };
        self.cpus[cpu].counts(Privilege::of(pc)).add(kind, 1);
        if kind == Kind::IpisSent {
            self.sites.iter().for_each(|_| self.cpus[cpu].entry.sent());
        }
    }

    /// Handles the kernel's entry point at `pc`.
    pub fn enters(&self, cpu: usize, kind: Kind, pc: u64) {
        let cpu = &self.cpus[cpu];
        self.sites.iter().for_each(|sites| cpu.entry.enter(sites, kind, pc, cpu.kernel_instructions()));
    }

    /// Handles the end of an interrupt or a fault.
    pub fn interrupt_returns(&self, cpu: usize) {
        let cpu = &self.cpus[cpu];
        self.sites.iter().for_each(|sites| cpu.entry.interrupt_returns(sites, cpu.kernel_instructions()));
    }

    /// Counts a load, a store, or both in one.
    #[inline]
    pub fn count_access(&self, cpu: usize, store: bool, pc: u64) {
        let kind = if store { Kind::Stores } else { Kind::Loads };
        self.cpus[cpu].counts(Privilege::of(pc)).add(kind, 1);
    }

    /// Counts the effect of an access on one line.
    #[inline]
    pub fn touch(&self, number: usize, touch: &Touch) {
        let line = touch.physical >> LINE_SHIFT;
        let access = Access { cpu: number, store: touch.store, bytes: touch.bytes, pc: touch.pc };
        let cpu = &self.cpus[number];
        cpu.access_of(touch.pc);
        cpu.listing.access(line, touch);
        self.sites.iter().for_each(|sites| watch(sites, cpu, touch));
        match self.directory.access(line, &access) {
            Seen::Hit => {}
            Seen::Cold => cpu.counts(Privilege::of(touch.pc)).add(Kind::Cold, 1),
            Seen::Moved(transfer) => self.moved(number, line, touch, &transfer),
        }
    }

    #[cold]
    fn moved(&self, number: usize, line: u64, touch: &Touch, transfer: &Transfer) {
        let cpu = &self.cpus[number];
        let counts = cpu.counts(Privilege::of(touch.pc));
        counts.add(Kind::Invalidations, transfer.invalidations);
        let load = if touch.store { cpu.take_fetched(line, touch.pc) } else { None };
        match load.filter(|_| transfer.kind == Kind::Upgrades) {
            Some(load) => {
                counts.subtract(load, 1);
                counts.add(as_store(load), 1);
                self.record(|| cpu.log().merge_with_load(line, touch.pc, transfer));
            }
            None => {
                counts.add(transfer.kind, 1);
                if self.sites.is_some() && Privilege::of(touch.pc) == Privilege::Kernel {
                    cpu.entry.moved(transfer, touch.pc);
                }
                let key = Key { line, from: transfer.from.pc(), to: touch.pc, kind: transfer.kind };
                let fight = Fight::one(transfer, number, touch.bytes, touch.address);
                self.record(|| cpu.log().record(key, fight));
            }
        }
        if !touch.store {
            cpu.set_fetched(line, transfer.kind, touch.pc);
        }
    }

    fn record(&self, what: impl FnOnce()) {
        if self.window.is_recording() {
            what();
        }
    }

    /// Returns the time that `CLOCK_MONOTONIC` tells the machine, or `None` for real time.
    pub fn time(&self) -> Option<u64> {
        let time = self.clock.read(host::now, || self.done());
        if time.is_some() && !self.clock_was_read.load(Relaxed) {
            self.clock_was_read.store(true, Relaxed);
        }
        time
    }

    /// Returns the nanoseconds of virtual time that the CPUs have run.
    fn done(&self) -> u64 {
        self.gate.elapsed() * self.options.quantum_ns
    }

    /// Returns whether QEMU's time was virtual, which means that the library was preloaded.
    pub fn had_virtual_time(&self) -> bool {
        self.clock_was_read.load(Relaxed)
    }

    /// Returns the real seconds from RUN to STOP.
    pub fn host_seconds(&self) -> f64 {
        self.stopped.load(Relaxed).saturating_sub(self.started.load(Relaxed)) as f64 / 1e9
    }
}

/// Shows an access to the sites.
#[inline]
fn watch(sites: &Sites, cpu: &Cpu, touch: &Touch) {
    let Touch { address, physical, store, pc, .. } = *touch;
    match Privilege::of(pc) {
        Privilege::User => cpu.entry.user_access(address, physical),
        Privilege::Kernel if cpu.entry.is_watching() => {
            cpu.entry.kernel_access(sites, &KernelAccess { address, physical, store, pc });
        }
        Privilege::Kernel => {}
    }
}

fn interrupts(cpu: &Cpu) -> Interrupts {
    Interrupts { sent: cpu.total(Kind::IpisSent), ticks: cpu.total(Kind::Ticks) }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
