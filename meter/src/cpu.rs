//! The state of one virtual CPU.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::blame::{Blame, Fight, Key};
use crate::calls::Listing;
use crate::counts::{Counts, Kind, PHASES, Reading};
use crate::directory::Transfer;
use crate::gate::CpuState;
use crate::sites::Entry;

/// Start of the kernel's half of the address space.
const KERNEL: u64 = 1 << 47;

/// User or kernel, decided by the address of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// A program.
    User,
    /// The kernel.
    Kernel,
}

impl Privilege {
    /// Returns the privilege of the instruction at `pc`.
    #[inline]
    pub fn of(pc: u64) -> Self {
        if pc < KERNEL { Self::User } else { Self::Kernel }
    }
}

/// All counts of a CPU at one moment, by privilege and phase.
pub type Snapshot = [[Reading; PHASES]; 2];

/// A finished round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The phase at its end.
    pub phase: usize,
    /// Counts of user and of kernel.
    pub counts: [Reading; 2],
}

/// One virtual CPU. Every access is Relaxed: its own thread writes, and others read only at the ends of a
/// window.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Cpu {
    /// Its state at the gate.
    pub gate_state: CpuState,
    /// The condition at which its thread sleeps while it idles: an address, or 0 while it is not known.
    idle_condition: AtomicU64,
    counts: [[Counts; PHASES]; 2],
    phase: AtomicU64,
    /// The repeated string instruction that it executes, or 0.
    repeating: AtomicU64,
    /// The number of accesses that this instruction makes in one iteration.
    iteration_accesses: AtomicU64,
    /// The number of accesses that it has made.
    accesses: AtomicU64,
    /// The iterations that the clock has not counted yet.
    iterations: AtomicU64,
    /// The instruction whose loads have just fetched lines, or 0.
    fetching: AtomicU64,
    /// The lines, as [`Fetched`] words. An access may lie on two.
    fetched: [AtomicU64; 2],
    log: Mutex<Log>,
    /// The lines of a call of a test.
    pub listing: Listing,
    /// The entry into the kernel in which it is.
    pub entry: Entry,
}

/// The part of a CPU's state that grows.
#[derive(Debug, Default)]
pub struct Log {
    /// Rounds in the window.
    pub rounds: Vec<Round>,
    /// The instructions that conflicted.
    pub blame: Blame,
    round_start: [Reading; 2],
    /// The last two transfers, those of an access that lies on two lines.
    last: [Option<(Key, Fight)>; 2],
}

/// A line that a load fetched, and whether it was modified. 0 means none.
struct Fetched;

impl Fetched {
    fn word(line: u64, kind: Kind) -> u64 {
        line << 2 | u64::from(kind == Kind::ReadModified) << 1 | 1
    }

    fn kind(word: u64, line: u64) -> Option<Kind> {
        let kind = if word & 2 == 0 { Kind::ReadClean } else { Kind::ReadModified };
        (word == Self::word(line, kind)).then_some(kind)
    }
}

impl Cpu {
    /// Returns the present counters for an instruction of `privilege`.
    #[inline]
    pub fn counts(&self, privilege: Privilege) -> &Counts {
        &self.counts[privilege as usize][self.phase()]
    }

    #[inline]
    fn phase(&self) -> usize {
        self.phase.load(Relaxed) as usize % PHASES
    }

    /// Locks the log. It ignores poison, since a panic elsewhere must not lose the results.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all present counts.
    pub fn snapshot(&self) -> Snapshot {
        std::array::from_fn(|privilege| std::array::from_fn(|phase| self.counts[privilege][phase].read()))
    }

    /// Records that its thread sleeps at this condition.
    pub fn set_bed(&self, condition: u64) {
        self.idle_condition.store(condition, Relaxed);
    }

    /// Returns whether its thread sleeps at this condition.
    pub fn sleeps_at(&self, condition: u64) -> bool {
        self.idle_condition.load(Relaxed) == condition
    }

    /// Changes the phase. The last `ahead` instructions that are already counted belong to the new phase.
    pub fn set_phase(&self, phase: u8, privilege: Privilege, ahead: u64) {
        self.counts(privilege).subtract(Kind::Instructions, ahead);
        self.phase.store(u64::from(phase) % PHASES as u64, Relaxed);
        self.counts(privilege).add(Kind::Instructions, ahead);
    }

    /// Returns the count of a kind over all phases and privileges.
    pub fn total(&self, kind: Kind) -> u64 {
        self.snapshot().iter().flatten().map(|counts| counts.get(kind)).sum()
    }

    /// Returns the instructions of the kernel so far.
    pub fn kernel_instructions(&self) -> u64 {
        let phases = self.counts[Privilege::Kernel as usize].iter();
        phases.map(|counts| counts.get(Kind::Instructions)).fold(0, u64::wrapping_add)
    }

    /// Returns the counts by privilege, without `ahead` instructions that are counted already but come later.
    fn reading(&self, privilege: Privilege, ahead: u64) -> [Reading; 2] {
        let mut reading =
            self.snapshot().map(|phases| phases.iter().fold(Reading::default(), |a, b| a.plus(b)));
        *reading[privilege as usize].get_mut(Kind::Instructions) -= ahead;
        reading
    }

    /// Starts the first round.
    pub fn start_rounds(&self) {
        let mut log = self.log();
        log.round_start = self.reading(Privilege::User, 0);
        log.rounds.clear();
        log.blame.clear();
    }

    /// Ends a round and starts the next one.
    pub fn end_round(&self, privilege: Privilege, ahead: u64) {
        let now = self.reading(privilege, ahead);
        let mut log = self.log();
        let counts = std::array::from_fn(|privilege| now[privilege].since(&log.round_start[privilege]));
        log.rounds.push(Round { phase: self.phase(), counts });
        log.round_start = now;
    }

    /// Counts a block of instructions. `repeats` says that it starts with a repeated string instruction.
    /// Returns whether the CPU must pass the throttle.
    #[inline]
    pub fn block(&self, privilege: Privilege, instructions: u64, repeats: bool) -> bool {
        let mut time = if repeats { 0 } else { instructions };
        if self.repeating.load(Relaxed) != 0 {
            time += self.iteration_time();
            if !repeats {
                self.repeating.store(0, Relaxed);
            }
        }
        self.counts(privilege).add(Kind::Instructions, instructions);
        self.gate_state.advance(time)
    }

    /// Returns the number of instructions whose time the iterations since the last call took. Eight take the
    /// time of one, as on a machine that moves whole lines.
    fn iteration_time(&self) -> u64 {
        let iterations = self.iterations.load(Relaxed);
        self.iterations.store(iterations % 8, Relaxed);
        iterations / 8
    }

    /// Handles the start of the repeated string instruction at `pc`, which makes `accesses` in one iteration.
    /// QEMU starts it again for each iteration before version 9.2, and after every 256 since then. So the
    /// accesses tell how many iterations there were.
    pub fn repeat(&self, pc: u64, accesses: u64) {
        if self.repeating.load(Relaxed) == pc {
            self.counts(Privilege::of(pc)).subtract(Kind::Instructions, 1);
        } else {
            self.repeating.store(pc, Relaxed);
            self.iteration_accesses.store(accesses, Relaxed);
            self.accesses.store(0, Relaxed);
        }
    }

    /// Counts an access of the repeated string instruction.
    #[inline]
    pub fn iteration_access(&self, privilege: Privilege) {
        let accesses = self.accesses.load(Relaxed) + 1;
        self.accesses.store(accesses, Relaxed);
        let in_iteration = self.iteration_accesses.load(Relaxed).max(1);
        if accesses.is_multiple_of(in_iteration) {
            self.iterations.store(self.iterations.load(Relaxed) + 1, Relaxed);
            self.counts(privilege).add(Kind::RepIterations, 1);
        }
    }

    /// Returns the kind of load by which `pc` has just fetched `line`, if it did. The load is forgotten: a
    /// store follows a load once.
    pub fn take_fetched(&self, line: u64, pc: u64) -> Option<Kind> {
        if pc == 0 || self.fetching.load(Relaxed) != pc {
            return None;
        }
        self.fetched.iter().find_map(|word| {
            let kind = Fetched::kind(word.load(Relaxed), line)?;
            word.store(0, Relaxed);
            Some(kind)
        })
    }

    /// Records that a load of `pc` fetched `line`.
    pub fn set_fetched(&self, line: u64, kind: Kind, pc: u64) {
        let before = if self.fetching.load(Relaxed) == pc { self.fetched[0].load(Relaxed) } else { 0 };
        self.fetched[1].store(before, Relaxed);
        self.fetched[0].store(Fetched::word(line, kind), Relaxed);
        self.fetching.store(pc, Relaxed);
    }

    /// Forgets the lines that instructions other than `pc` fetched.
    #[inline]
    pub fn access_of(&self, pc: u64) {
        let fetching = self.fetching.load(Relaxed);
        if fetching != 0 && fetching != pc {
            self.fetching.store(0, Relaxed);
        }
    }
}

impl Log {
    /// Blames a transfer on two instructions.
    pub fn record(&mut self, key: Key, fight: Fight) {
        self.blame.add(key, &fight);
        self.last = [Some((key, fight)), self.last[0].take()];
    }

    /// Merges the load by which `pc` fetched `line` and the upgrade that followed into one access, a store.
    pub fn merge_with_load(&mut self, line: u64, pc: u64, upgrade: &Transfer) {
        let is_load =
            |last: &&mut Option<(Key, Fight)>| last.is_some_and(|(key, _)| (key.line, key.to) == (line, pc));
        let Some((key, mut fight)) = self.last.iter_mut().find(is_load).and_then(Option::take) else {
            return;
        };
        self.blame.subtract(&key, &fight);
        fight.invalidations = upgrade.invalidations;
        self.blame.add(Key { kind: as_store(key.kind), ..key }, &fight);
    }
}

/// Returns the kind of a store that fetched what a load of kind `load` would have fetched.
pub fn as_store(load: Kind) -> Kind {
    if load == Kind::ReadModified { Kind::WriteModified } else { Kind::WriteClean }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(cpu: &Cpu, privilege: Privilege, kind: Kind) -> u64 {
        cpu.snapshot()[privilege as usize].iter().map(|counts| counts.get(kind)).sum()
    }

    /// Executes an instruction of `iterations`, which QEMU starts again after each `loops` of them.
    fn repeat(cpu: &Cpu, iterations: u64, accesses: u64, loops: u64) {
        for iteration in 0..iterations {
            if iteration % loops == 0 {
                cpu.block(Privilege::Kernel, 1, true);
                cpu.repeat(KERNEL, accesses);
            }
            (0..accesses).for_each(|_| cpu.iteration_access(Privilege::Kernel));
        }
        cpu.block(Privilege::Kernel, 3, false);
    }

    #[test]
    fn a_repeated_instruction_is_one_and_its_iterations_are_apart() {
        for (accesses, loops) in [(1, 1), (2, 1), (1, 256), (2, 256), (1, 5)] {
            let cpu = Cpu::default();
            repeat(&cpu, 17, accesses, loops);
            repeat(&cpu, 17, accesses, loops);
            let counts =
                [Kind::Instructions, Kind::RepIterations].map(|kind| total(&cpu, Privilege::Kernel, kind));
            assert_eq!(
                counts,
                [2 + 6, 34],
                "{accesses} accesses in an iteration, {loops} iterations in a block"
            );
            assert_eq!(cpu.gate_state.clock(), 4 + 6, "eight iterations take the time of one instruction");
        }
    }

    #[test]
    fn rounds_end_at_the_marker_inside_a_block() {
        let cpu = Cpu::default();
        cpu.start_rounds();
        cpu.block(Privilege::User, 10, false);
        cpu.end_round(Privilege::User, 4);
        cpu.block(Privilege::Kernel, 5, false);
        cpu.block(Privilege::User, 3, false);
        cpu.end_round(Privilege::User, 0);
        let rounds = &cpu.log().rounds;
        let instructions = |round: &Round| round.counts.map(|counts| counts.get(Kind::Instructions));
        assert_eq!(rounds.iter().map(instructions).collect::<Vec<_>>(), [[6, 0], [7, 5]]);
    }

    #[test]
    fn a_phase_starts_at_its_marker() {
        let cpu = Cpu::default();
        cpu.block(Privilege::User, 10, false);
        cpu.set_phase(3, Privilege::User, 4);
        cpu.block(Privilege::User, 1, false);
        let user = cpu.snapshot()[Privilege::User as usize];
        assert_eq!((user[0].get(Kind::Instructions), user[3].get(Kind::Instructions)), (6, 5));
    }

    #[test]
    fn a_fetch_is_known_by_line_and_instruction_once() {
        let cpu = Cpu::default();
        cpu.set_fetched(5, Kind::ReadModified, 0x10);
        cpu.set_fetched(6, Kind::ReadClean, 0x10);
        cpu.access_of(0x10);
        assert_eq!((cpu.take_fetched(5, 0x11), cpu.take_fetched(7, 0x10)), (None, None));
        assert_eq!(cpu.take_fetched(5, 0x10), Some(Kind::ReadModified));
        assert_eq!(cpu.take_fetched(5, 0x10), None);
        assert_eq!(cpu.take_fetched(6, 0x10), Some(Kind::ReadClean));
        cpu.set_fetched(0, Kind::ReadClean, 0x10);
        cpu.access_of(0x14);
        assert_eq!((cpu.take_fetched(0, 0x10), cpu.take_fetched(0, 0)), (None, None));
    }
}
