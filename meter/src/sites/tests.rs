use std::sync::atomic::AtomicU64;

use super::*;
use crate::counts::Kind;
use crate::directory::Origin;

const SYSCALL_ENTRY: u64 = 0xffff_ffff_8100_0000;
const SWITCH: u64 = 0xffff_ffff_8200_0000;
const OTHER_CODE: u64 = 0xffff_ffff_8300_0000;
/// Where the kernel stacks and the program's stack lie in this machine's memory, and at which addresses.
const KERNEL_STACKS: u64 = 0xffff_c900_0000_0000;
const USER_STACK: u64 = 0x7fff_0000_0000;
const USER_FRAME: u64 = 0xf000;
/// The `syscall` instruction of the program.
const AT: u64 = 0x7000_1000;

struct Machine {
    sites: Sites,
    memory: &'static [AtomicU64],
}

impl Machine {
    fn new() -> Self {
        let memory: &[AtomicU64] = Vec::leak((0..0x2000).map(|_| AtomicU64::new(0)).collect());
        let sites = Sites::new(96);
        sites.set_ram(Ram::new(memory));
        sites.start();
        Self { sites, memory }
    }

    fn write(&self, physical: u64, word: u64) {
        self.memory[physical as usize / 8].store(word, Relaxed);
    }

    /// The kernel stores a word in the stack of a task.
    fn push(&self, entry: &Entry, physical: u64, word: u64, pc: u64) {
        self.write(physical, word);
        self.access(entry, physical, true, pc);
    }

    fn access(&self, entry: &Entry, physical: u64, store: bool, pc: u64) {
        if entry.is_watching() {
            entry.kernel_access(
                &self.sites,
                &KernelAccess { address: KERNEL_STACKS + physical, physical, store, pc },
            );
        }
    }

    /// The task whose kernel stack ends at `end` calls the kernel with this number. `caller` is a word on its
    /// stack.
    fn call(&self, entry: &Entry, end: u64, number: u64, caller: u64) {
        self.write(USER_FRAME + 0x110, caller);
        entry.user_access(USER_STACK + 0x100, USER_FRAME);
        entry.syscall(self.sites.syscall(AT, &[0xb8, 11, 0, 0, 0, 0x0f, 0x05]));
        entry.enter(&self.sites, Kind::Syscalls, SYSCALL_ENTRY, 0);
        let saved = [0x2b, USER_STACK + 0x100, 0x246, 0x33, AT + 2, number];
        saved.iter().zip(1..).for_each(|(word, place)| self.push(entry, end - 8 * place, *word, OTHER_CODE));
        (7..40).for_each(|place| self.push(entry, end - 8 * place, place, OTHER_CODE));
    }

    /// Switches between tasks by the ends of their kernel stacks.
    fn switch(&self, entry: &Entry, from: u64, to: u64) {
        entry.enter(&self.sites, Kind::Schedules, SWITCH, 0);
        self.push(entry, from - 0x200, 1, SWITCH + 1);
        self.access(entry, to - 0x200, false, SWITCH + 9);
        self.access(entry, to - 0x1f8, false, OTHER_CODE);
    }

    fn found(&self, cause: Cause) -> Vec<Tally> {
        self.sites
            .sorted(99)
            .into_iter()
            .filter(|(key, _)| key.cause == cause)
            .map(|(_, tally)| tally)
            .collect()
    }
}

fn transfer() -> Transfer {
    Transfer { kind: Kind::Upgrades, invalidations: 2, from: Origin::new(1, 0x10), bytes_from: 1 }
}

#[test]
fn a_call_has_its_number_and_its_counts() {
    let (machine, entry) = (Machine::new(), Entry::default());
    machine.call(&entry, 0x4000, 11, 0);
    entry.moved(&transfer(), OTHER_CODE);
    entry.sent();
    assert!(entry.is_inside());
    entry.leave(&machine.sites, 500);
    entry.moved(&transfer(), OTHER_CODE);
    machine.sites.finish([&entry].into_iter());
    let (key, _) = machine.sites.sorted(99).remove(0);
    assert_eq!((key.pc, machine.sites.ending(&key)), (AT, Some(vec![0xb8, 11, 0, 0, 0, 0x0f, 0x05])));
    let call = &machine.found(Cause::Call(11))[0];
    assert_eq!((call.entries, call.instructions, call.transfers, call.sent), (1, 500, 1, 1));
    assert_eq!((call.invalidations, &call.code), (2, &BTreeMap::from([(OTHER_CODE, 1)])));
    let stack = call.stack.as_ref().unwrap();
    // The twelfth register below the instruction pointer.
    assert_eq!((stack.rsp, stack.rbp, stack.words[2]), (USER_STACK + 0x100, 17, 0));
    assert_eq!(machine.found(Cause::Other)[0].transfers, 1, "after the call");
}

#[test]
fn callers_tell_sites_apart() {
    let (machine, entry) = (Machine::new(), Entry::default());
    machine.sites.code(0x5000_0000, &[0xe8, 0, 0, 0, 0], Some(0x5000_0005));
    for caller in [0x5000_0005, 0x5000_0005, 0x1234, 0x5678] {
        machine.call(&entry, 0x4000, 11, caller);
        entry.leave(&machine.sites, 0);
    }
    let mut entries: Vec<_> = machine.found(Cause::Call(11)).iter().map(|tally| tally.entries).collect();
    entries.sort_unstable();
    let with = |key: &Key| key.callers().eq([0x5000_0005]);
    assert_eq!(machine.sites.sorted(99).iter().filter(|(key, _)| with(key)).count(), 1);
    assert_eq!(entries, [2, 2], "words that are no return addresses are not callers");
}

#[test]
fn a_call_that_sleeps_is_found_by_its_stack() {
    let (machine, one, other) = (Machine::new(), Entry::default(), Entry::default());
    machine.call(&one, 0x4000, 11, 0);
    machine.switch(&one, 0x4000, 0x8000);
    one.moved(&transfer(), OTHER_CODE);
    machine.switch(&other, 0xc000, 0x4000);
    other.moved(&transfer(), OTHER_CODE);
    other.moved(&transfer(), OTHER_CODE);
    other.leave(&machine.sites, 0);
    machine.sites.finish([&one, &other].into_iter());
    let call = &machine.found(Cause::Call(11))[0];
    assert_eq!((call.entries, call.transfers), (1, 2));
    assert_eq!(machine.found(Cause::Other)[0].transfers, 1);
}

#[test]
fn an_interrupt_is_not_charged_to_the_call_that_it_meets() {
    let (machine, entry) = (Machine::new(), Entry::default());
    machine.call(&entry, 0x4000, 9, 0);
    entry.enter(&machine.sites, Kind::IpisReceived, OTHER_CODE, 100);
    entry.moved(&transfer(), OTHER_CODE);
    entry.interrupt_returns(&machine.sites, 130);
    entry.leave(&machine.sites, 140);
    let [call, interrupt] = [Cause::Call(9), Cause::Interrupt].map(|cause| machine.found(cause).remove(0));
    assert_eq!((call.transfers, call.instructions), (0, 110));
    assert_eq!((interrupt.entries, interrupt.transfers, interrupt.instructions), (1, 1, 30));
}

#[test]
fn a_fault_of_the_program_is_one_and_a_fault_of_the_kernel_is_its_calls() {
    let (machine, entry) = (Machine::new(), Entry::default());
    let fault = |segment: u64| {
        [0, 6, AT, segment, 0x246, USER_STACK]
            .iter()
            .zip(0..)
            .for_each(|(word, place)| machine.write(0x3f00 + 8 * place, *word));
        entry.enter(&machine.sites, Kind::Faults, OTHER_CODE, 0);
        machine.access(&entry, 0x3f00, true, OTHER_CODE);
        entry.moved(&transfer(), OTHER_CODE);
    };
    fault(0x33);
    entry.leave(&machine.sites, 0);
    machine.call(&entry, 0x8000, 0, 0);
    fault(0x10);
    entry.interrupt_returns(&machine.sites, 0);
    entry.leave(&machine.sites, 0);
    assert_eq!(machine.found(Cause::Fault).len(), 1);
    assert_eq!(
        (machine.found(Cause::Fault)[0].transfers, machine.found(Cause::Call(0))[0].transfers),
        (1, 1)
    );
    assert_eq!(machine.sites.sorted(99).iter().find(|(key, _)| key.cause == Cause::Fault).unwrap().0.pc, AT);
}

#[test]
fn nothing_counts_before_the_start_and_after_the_end() {
    let (machine, entry) = (Machine::new(), Entry::default());
    machine.call(&entry, 0x4000, 11, 0);
    entry.leave(&machine.sites, 0);
    machine.sites.start();
    assert!(machine.sites.sorted(99).is_empty());
    machine.sites.finish([&entry].into_iter());
    machine.call(&entry, 0x4000, 11, 0);
    entry.leave(&machine.sites, 0);
    assert!(machine.sites.sorted(99).is_empty());
}

#[test]
fn the_longest_piece_of_a_page_is_kept() {
    let sites = Sites::new(96);
    sites.code(0x1000, &[1], None);
    sites.code(0x1800, &[2; 100], None);
    sites.code(0x1900, &[3; 10], None);
    assert_eq!(sites.pieces(), [(0x1800, vec![2; SAMPLE])]);
}

#[test]
fn the_rest_of_the_sites_is_one_for_each_cause() {
    let (machine, entry) = (Machine::new(), Entry::default());
    (0..5).for_each(|turn| {
        machine.call(&entry, 0x4000, 11 + turn % 2, 0);
        (0..turn).for_each(|_| entry.moved(&transfer(), OTHER_CODE + turn));
        entry.leave(&machine.sites, 0);
    });
    machine.call(&entry, 0x4000, 13, 0);
    entry.leave(&machine.sites, 0);
    let sites = machine.sites.sorted(1);
    let told: Vec<_> =
        sites.iter().map(|(key, tally)| (key.cause, key.pc, tally.entries, tally.stack.is_some())).collect();
    let [first, second, third] = [11, 12, 13].map(Cause::Call);
    assert_eq!(told, [(first, AT, 3, true), (second, 0, 2, false), (third, 0, 1, false)]);
}

#[test]
fn two_programs_may_call_at_one_address() {
    let sites = Sites::new(96);
    let numbers = [[1, 0x0f, 0x05], [2, 0x0f, 0x05], [1, 0x0f, 0x05]].map(|bytes| sites.syscall(AT, &bytes));
    assert_eq!(numbers, [1, 2, 1]);
    assert_eq!(sites.numbered(0), None);
    assert_eq!(sites.numbered(sites.syscall(AT, &[9; 40])), Some((AT, vec![9; ENDING])));
}
