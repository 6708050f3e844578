use super::*;
use crate::directory::parts;

fn meter() -> Meter {
    let options = Options {
        out: "unused".into(),
        memory: 1 << 20,
        cpus: 2,
        slack: 200,
        rounds: 0,
        quantum_ns: 1,
        events: Vec::new(),
        sites: None,
    };
    let meter = Meter::new(options).unwrap();
    assert!(meter.run() && !meter.run());
    meter
}

fn access(meter: &Meter, cpu: usize, store: bool, address: u64, size: u64, pc: u64) {
    meter.count_access(cpu, store, pc);
    for (offset, bytes) in parts(address, size) {
        let at = address + offset;
        meter.touch(cpu, &Touch { physical: at, address: at, bytes, store, pc });
    }
}

fn count(meter: &Meter, kind: Kind) -> u64 {
    let snapshots = meter.cpus.iter().map(Cpu::snapshot);
    snapshots.flat_map(|snapshot| snapshot.into_iter().flatten()).map(|counts| counts.get(kind)).sum()
}

fn transfers(meter: &Meter) -> u64 {
    crate::counts::KINDS.iter().filter(|kind| kind.is_transfer()).map(|kind| count(meter, *kind)).sum()
}

#[test]
fn load_and_store_of_one_instruction_are_one_transfer() {
    let meter = meter();
    for turn in 0..10 {
        access(&meter, turn % 2, false, 0x100, 8, 0x10);
        access(&meter, turn % 2, true, 0x100, 8, 0x10);
    }
    assert_eq!((count(&meter, Kind::WriteModified), transfers(&meter)), (9, 9));
    assert_eq!((count(&meter, Kind::Invalidations), count(&meter, Kind::Cold)), (9, 1));
    let logs: Vec<_> = meter
        .cpus
        .iter()
        .map(|cpu| cpu.log().blame.iter().map(|(k, f)| (k.kind, f.count)).collect::<Vec<_>>())
        .collect();
    assert_eq!(logs, [[(Kind::WriteModified, 4)], [(Kind::WriteModified, 5)]]);
}

#[test]
fn load_and_store_of_two_instructions_are_two() {
    let meter = meter();
    access(&meter, 0, true, 0x100, 8, 0x10);
    access(&meter, 1, false, 0x100, 8, 0x10);
    access(&meter, 1, true, 0x100, 8, 0x14);
    assert_eq!((count(&meter, Kind::ReadModified), count(&meter, Kind::Upgrades)), (1, 1));
}

#[test]
fn another_load_between_breaks_the_pair() {
    let meter = meter();
    access(&meter, 0, true, 0x100, 8, 0x10);
    access(&meter, 1, false, 0x100, 8, 0x10);
    access(&meter, 1, false, 0x900, 8, 0x14);
    access(&meter, 1, true, 0x100, 8, 0x10);
    assert_eq!((count(&meter, Kind::ReadModified), count(&meter, Kind::Upgrades)), (1, 1));
}

#[test]
fn an_access_across_a_boundary_is_one_access_to_two_lines() {
    let meter = meter();
    access(&meter, 0, true, 0x13c, 8, 0x10);
    access(&meter, 1, false, 0x13c, 8, 0x20);
    assert_eq!((count(&meter, Kind::Stores), count(&meter, Kind::Cold)), (1, 2));
    assert_eq!((count(&meter, Kind::Loads), count(&meter, Kind::ReadModified)), (1, 2));
}

/// An instruction loads and stores across a boundary, on two CPUs in turn. Each line moves once.
#[test]
fn load_and_store_of_two_lines_are_two_transfers() {
    let meter = meter();
    for turn in 0..10 {
        access(&meter, turn % 2, false, 0x13c, 8, 0x10);
        access(&meter, turn % 2, true, 0x13c, 8, 0x10);
    }
    assert_eq!((count(&meter, Kind::WriteModified), transfers(&meter)), (18, 18));
    assert_eq!(count(&meter, Kind::Invalidations), 18);
    let blamed = meter.cpus.iter().flat_map(|cpu| {
        cpu.log().blame.iter().map(|(key, fight)| (key.kind, fight.count)).collect::<Vec<_>>()
    });
    let mut blamed: Vec<_> = blamed.map(|(kind, count)| (kind.name(), count)).collect();
    blamed.sort_unstable();
    assert_eq!(blamed, [4, 4, 5, 5].map(|count| ("write_modified", count)));
}

/// An instruction loads and stores in two halves, each within one line.
#[test]
fn the_second_half_of_an_access_does_not_hide_the_first() {
    let meter = meter();
    access(&meter, 0, true, 0x100, 8, 0x10);
    for (store, address) in [(false, 0x100), (false, 0x108), (true, 0x100), (true, 0x108)] {
        access(&meter, 1, store, address, 8, 0x20);
    }
    assert_eq!((count(&meter, Kind::WriteModified), transfers(&meter)), (1, 1));
}

#[test]
fn an_interrupt_command_is_not_ordinary_io() {
    let meter = meter();
    meter.device(0, INTERRUPT_COMMAND, true, 0);
    meter.device(0, INTERRUPT_COMMAND, false, 0);
    meter.device(1, 0xfee0_00b0, true, 0);
    assert_eq!((count(&meter, Kind::IpisSent), count(&meter, Kind::Io)), (1, 2));
}

#[test]
fn counts_go_to_the_privilege_of_the_instruction() {
    let meter = meter();
    access(&meter, 0, false, 0x100, 8, 0xffff_8000_0000_0000);
    let [user, kernel] = meter.cpus[0].snapshot();
    assert_eq!((user[0].get(Kind::Loads), kernel[0].get(Kind::Loads)), (0, 1));
}

#[test]
fn a_cpu_that_is_woken_is_inside_until_it_sleeps_again() {
    let meter = meter();
    meter.cpus[1].set_bed(0xbed);
    meter.block(1, Privilege::User, 1, false);
    meter.sleep(0xbed);
    meter.wake(0xc0de);
    assert!(meter.gate.is_empty(), "that was for somebody else");
    meter.wake(0xbed);
    assert!(!meter.gate.is_empty());
    meter.sleep(0xbed);
    assert!(meter.gate.is_empty(), "it was woken for nothing");
}

#[test]
fn time_is_virtual_between_run_and_stop_and_continuous() {
    let meter = meter();
    meter.block(0, Privilege::User, 1, false);
    let first = meter.time().unwrap();
    (0..1_000).for_each(|_| meter.block(0, Privilege::User, 10, false));
    let passed = meter.time().unwrap() - first;
    assert!((9_800..=10_000).contains(&passed), "{passed} ns for 10,000 instructions");
    meter.stop();
    let stopped = meter.time().unwrap();
    assert!(stopped >= first + passed && stopped < first + passed + 60_000_000_000);
    assert!(meter.had_virtual_time());
}
