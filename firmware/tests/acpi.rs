//! ACPI tables in odd places and odd shapes.

use std::collections::BTreeMap;

use firmware::acpi::{Madt, Physical};
use firmware::{LeftOut, Reach};

const RSDP: u64 = 0xf_5a40;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Memory with bytes at a few addresses.
#[derive(Default)]
struct Sparse(BTreeMap<u64, Vec<u8>>);

impl Physical for Sparse {
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let byte = |at: u64| {
            let (start, bytes) = self.0.range(..=at).next_back()?;
            bytes.get((at - start) as usize).copied()
        };
        into.iter_mut()
            .enumerate()
            .all(|(n, to)| at.checked_add(n as u64).and_then(byte).map(|byte| *to = byte).is_some())
    }
}

fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = signature.to_vec();
    bytes.extend((36 + body.len() as u32).to_le_bytes());
    bytes.resize(36, 0);
    bytes.extend(body);
    bytes
}

fn root(revision: u8, rsdt: u32, xsdt: u64) -> Vec<u8> {
    let mut bytes = b"RSD PTR \0maker \0".to_vec();
    bytes[15] = revision;
    bytes.extend(rsdt.to_le_bytes());
    bytes[8] = bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_sub(*byte));
    bytes.extend(36u32.to_le_bytes());
    bytes.extend(xsdt.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn madt(entries: &[Vec<u8>]) -> Vec<u8> {
    table(b"APIC", &[vec![0; 8], entries.concat()].concat())
}

fn xapic(id: u8, flags: u32) -> Vec<u8> {
    [&[0, 8, id, id][..], &flags.to_le_bytes()].concat()
}

fn x2apic(id: u32, flags: u32) -> Vec<u8> {
    [&[9, 16, 0, 0][..], &id.to_le_bytes(), &flags.to_le_bytes(), &id.to_le_bytes()].concat()
}

fn io_apic(at: u32) -> Vec<u8> {
    [&[1, 12, 0, 0][..], &at.to_le_bytes(), &[0; 4]].concat()
}

fn line_of(irq: u8, line: u32) -> Vec<u8> {
    [&[2, 10, 0, irq][..], &line.to_le_bytes(), &[0; 2]].concat()
}

/// Returns memory with the tables, the MADT behind another one.
fn memory(rsdp: u64, revision: u8, xsdt: u64, at: u64, madt: Vec<u8>) -> Sparse {
    let other = at + 0x10000;
    let pointers = |width: usize| {
        [other, at].iter().flat_map(|at| at.to_le_bytes()[..width].to_vec()).collect::<Vec<u8>>()
    };
    let (rsdt, width) = if revision >= 2 { (0, 8) } else { (xsdt as u32, 4) };
    let kind = if revision >= 2 { b"XSDT" } else { b"RSDT" };
    Sparse(BTreeMap::from([
        (rsdp, root(revision, rsdt, xsdt)),
        (xsdt, table(kind, &pointers(width))),
        (at, madt),
        (other, table(b"FACP", &[0; 8])),
    ]))
}

fn read<const MAX: usize>(memory: &Sparse, rsdp: u64, reach: Reach) -> Madt<MAX> {
    Madt::read(memory, rsdp, 0, reach, 3)
}

/// Returns the parsed MADT of a machine with these entries.
fn listed(entries: &[Vec<u8>], reach: Reach) -> Madt<256> {
    read(&memory(RSDP, 2, GIB, 2 * GIB, madt(entries)), RSDP, reach)
}

#[test]
fn tables_may_lie_anywhere() {
    let entries = [xapic(0, 1), xapic(1, 1)];
    let end = |bytes: &[u8]| 3 * GIB - bytes.len() as u64;
    let last = end(&madt(&entries));
    for (rsdp, xsdt, at) in [
        (RSDP, 0x7ff_e123, 0x7ff_f001),
        (5 * GIB + 16, 6 * GIB + 3, 7 * GIB + 1),
        (RSDP, TIB - 4096, TIB),
        (2 * GIB, 2 * GIB + 64, last),
    ] {
        let found: Madt<256> = read(&memory(rsdp, 2, xsdt, at, madt(&entries)), rsdp, Reach::XApic);
        assert_eq!(found.cpus.ids(), [0, 1], "{rsdp:#x} {xsdt:#x} {at:#x}");
    }
    let old: Madt<256> = read(&memory(RSDP, 0, 0x7ff_0000, 0x7ff_1000, madt(&entries)), 0, Reach::XApic);
    assert_eq!(old.cpus.ids(), [0, 1]);
}

#[test]
fn the_root_pointer_is_searched_where_firmware_leaves_it() {
    let mut memory = memory(0x9_fc40, 2, GIB, 2 * GIB, madt(&[xapic(4, 1)]));
    memory.0.insert(0x40e, vec![0xc0, 0x9f]);
    // It looks like a root pointer, and is none.
    memory.0.insert(0x9_fc00, b"RSD PTR 0123456789ab".to_vec());
    assert_eq!(read::<256>(&memory, 0, Reach::XApic).cpus.ids(), [0, 4]);
}

#[test]
fn tables_that_are_not_there_leave_one_cpu() {
    let tables = || memory(RSDP, 2, GIB, 2 * GIB, madt(&[xapic(1, 1)]));
    let (mut no_root, mut no_list, mut long) = (tables(), tables(), tables());
    no_root.0.remove(&RSDP);
    no_list.0.remove(&GIB);
    long.0.get_mut(&GIB).unwrap()[4..8].copy_from_slice(&[0xff; 4]);
    let away = memory(RSDP, 2, u64::MAX - 20, 2 * GIB, Vec::new());
    for memory in [Sparse::default(), no_root, no_list, long, away] {
        for rsdp in [0, RSDP, u64::MAX - 3] {
            assert_eq!(read::<256>(&memory, rsdp, Reach::XApic).cpus.ids(), [0]);
        }
    }
}

#[test]
fn a_damaged_list_ends_where_the_damage_begins() {
    for bad in [vec![0, 0, 0, 0], vec![0, 200, 9, 9, 1, 0, 0, 0], vec![0, 4, 7, 7], vec![0]] {
        let found = listed(&[xapic(0, 1), xapic(3, 1), bad.clone()], Reach::XApic);
        assert_eq!(found.cpus.ids(), [0, 3], "{bad:?}");
    }
}

#[test]
fn sparse_numbers_in_any_order_and_the_boot_cpu_first() {
    let found = listed(&[xapic(9, 1), xapic(0, 1), xapic(4, 1), x2apic(9, 1), xapic(254, 1)], Reach::XApic);
    assert_eq!(found.cpus.ids(), [0, 9, 4, 254]);
    assert!(!found.cpus.left_out().any());
}

#[test]
fn disabled_and_merely_possible_cpus_are_left_out() {
    let found = listed(&[xapic(0, 1), xapic(1, 0), xapic(2, 2), xapic(3, 3), xapic(255, 1)], Reach::XApic);
    assert_eq!(found.cpus.ids(), [0, 3]);
    assert_eq!(found.cpus.left_out(), LeftOut { disabled: 2, ..LeftOut::default() });
    assert_eq!(found.cpus.left_out().to_string(), "CPUs left out: 2 that the firmware disabled");
}

#[test]
fn numbers_that_an_apic_cannot_send_to_are_left_out() {
    let entries = [xapic(0, 1), x2apic(255, 1), x2apic(300, 1), x2apic(0x1_0000, 1), x2apic(u32::MAX, 1)];
    let small = listed(&entries, Reach::XApic);
    assert_eq!((small.cpus.ids(), small.cpus.left_out().unreachable), (&[0][..], 4));
    let large = listed(&entries, Reach::X2Apic);
    assert_eq!((large.cpus.ids(), large.cpus.left_out().unreachable), (&[0, 255, 300, 0x1_0000][..], 1));
}

#[test]
fn more_cpus_than_there_is_room_for() {
    let entries: Vec<_> = (0..700).map(|id| x2apic(2 * id, 1)).collect();
    let found = listed(&entries, Reach::X2Apic);
    assert_eq!((found.cpus.ids().len(), found.cpus.left_out().too_many), (256, 444));
    assert_eq!(found.cpus.ids().last(), Some(&510));
    assert_eq!(found.cpus.left_out().to_string(), "CPUs left out: 444 that there is no room for");
}

#[test]
fn the_first_io_apic_and_the_line_of_an_interrupt() {
    let found =
        listed(&[io_apic(0xfec0_0000), io_apic(0xfec0_1000), line_of(4, 9), line_of(3, 11)], Reach::XApic);
    assert_eq!((found.io_apic, found.line), (Some(0xfec0_0000), 11));
    let none = listed(&[], Reach::XApic);
    assert_eq!((none.io_apic, none.line), (None, 3));
}
