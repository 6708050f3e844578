//! The little of ACPI that the kernel needs: which CPUs there are, and where the I/O APIC is. Read from the MADT.
//!
//! A table that is not there, cannot be read or makes no sense counts as absent: the machine then has the CPU that runs.

use crate::cpus::{Cpus, Reach};

/// Physical memory, wherever it lies.
pub trait Physical {
    /// Fills `into` with the bytes at `at`. False if they cannot be read.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
}

/// Bytes before a table's own contents, and before the MADT's entries.
const HEADER: u64 = 36;
const ENTRIES: u64 = HEADER + 8;
/// No table is longer: a length beyond is garbage.
const LONGEST: u64 = 16 << 20;
/// Where a PC's firmware leaves the root pointer, on a multiple of 16, and where it says of another such place.
const FIRMWARE: core::ops::Range<u64> = 0xe_0000..0x10_0000;
const EXTENDED_AREA: u64 = 0x40e;
const EXTENDED_BYTES: u64 = 1024;
const POINTER_BYTES: usize = 20;

const LOCAL_APIC: u8 = 0;
const IO_APIC: u8 = 1;
const OVERRIDE: u8 = 2;
const X2APIC: u8 = 9;
/// The most bytes of an entry that are looked at.
const ENTRY_BYTES: usize = 16;
/// The number of a processor that is none.
const NO_APIC: u8 = 0xff;

/// What the MADT says.
#[derive(Clone, Debug)]
pub struct Madt<const MAX: usize> {
    /// The CPUs, the boot CPU first.
    pub cpus: Cpus<MAX>,
    /// Physical address of the I/O APIC, if there is one.
    pub io_apic: Option<u64>,
    /// The I/O APIC's line for the legacy interrupt that was asked for.
    pub line: u32,
}

impl<const MAX: usize> Madt<MAX> {
    /// Reads the tables that start at `rsdp`, or, if that is 0, where the firmware left them. `boot` is the APIC number of the
    /// CPU that runs, `irq` the legacy interrupt whose line is wanted.
    pub fn read(memory: &impl Physical, rsdp: u64, boot: u32, reach: Reach, irq: u8) -> Self {
        let mut madt = Self { cpus: Cpus::new(boot, reach), io_apic: None, line: u32::from(irq) };
        let rsdp = if rsdp == 0 { search(memory) } else { Some(rsdp) };
        if let Some((table, bytes)) = rsdp.and_then(|rsdp| find(memory, rsdp, *b"APIC")) {
            each_entry(memory, table, bytes, |entry| madt.entry(entry, irq));
        }
        madt
    }

    fn entry(&mut self, entry: &[u8], irq: u8) {
        match (entry[0], entry.len()) {
            (LOCAL_APIC, 8..) if entry[3] != NO_APIC => self.cpus.add(entry[3].into(), word(entry, 4)),
            (X2APIC, 16..) => self.cpus.add(word(entry, 4), word(entry, 8)),
            (IO_APIC, 12..) => _ = self.io_apic.get_or_insert(word(entry, 4).into()),
            (OVERRIDE, 10..) if entry[3] == irq => self.line = word(entry, 4),
            _ => {}
        }
    }
}

/// Calls `f` with the first bytes of each entry, at least two.
fn each_entry(memory: &impl Physical, table: u64, bytes: u64, mut f: impl FnMut(&[u8])) {
    let mut at = ENTRIES;
    while let Some([_, length]) = read::<2>(memory, table + at)
        && length >= 2
        && at + u64::from(length) <= bytes
    {
        let mut entry = [0; ENTRY_BYTES];
        let entry = &mut entry[..ENTRY_BYTES.min(length.into())];
        if memory.read(table + at, entry) {
            f(entry);
        }
        at += u64::from(length);
    }
}

/// The root pointer, where the firmware may have left it.
fn search(memory: &impl Physical) -> Option<u64> {
    let area = read(memory, EXTENDED_AREA).map_or(0, |segment| u64::from(u16::from_le_bytes(segment)) << 4);
    let extended = area..if area == 0 { 0 } else { area + EXTENDED_BYTES };
    extended.step_by(16).chain(FIRMWARE.step_by(16)).find(|&at| is_root(memory, at))
}

fn is_root(memory: &impl Physical, at: u64) -> bool {
    read::<POINTER_BYTES>(memory, at).is_some_and(|root| {
        root.starts_with(b"RSD PTR ") && root.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) == 0
    })
}

/// Address and length of the table with this signature.
fn find(memory: &impl Physical, rsdp: u64, signature: [u8; 4]) -> Option<(u64, u64)> {
    if !is_root(memory, rsdp) {
        return None;
    }
    let [revision] = read(memory, rsdp.checked_add(15)?)?;
    let xsdt = if revision >= 2 { u64::from_le_bytes(read(memory, rsdp + 24)?) } else { 0 };
    let rsdt = u64::from(u32::from_le_bytes(read(memory, rsdp + 16)?));
    let (root, width) = if xsdt != 0 { (xsdt, 8) } else { (rsdt, 4) };
    let places = (root.checked_add(HEADER)?..root + length(memory, root)?).step_by(width);
    let table = |at| {
        let mut address = [0; 8];
        memory.read(at, &mut address[..width]).then_some(u64::from_le_bytes(address))
    };
    let found = places.filter_map(table).find(|&table| read(memory, table) == Some(signature))?;
    Some((found, length(memory, found)?))
}

/// A table's length, if it can be one.
fn length(memory: &impl Physical, table: u64) -> Option<u64> {
    let length = u64::from(u32::from_le_bytes(read(memory, table.checked_add(4)?)?));
    let last = table.checked_add(LONGEST)?;
    ((HEADER..=LONGEST).contains(&length) && last > table).then_some(length)
}

fn read<const N: usize>(memory: &impl Physical, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    memory.read(at, &mut bytes).then_some(bytes)
}

fn word(entry: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
}
