//! Reads the part of ACPI that the kernel needs from the MADT: the list of CPUs, and the address of the I/O
//! APIC.
//!
//! A table that is missing, unreadable or senseless counts as absent. The machine then has only the CPU that
//! runs.

use crate::cpus::{Cpus, Reach};

/// Access to physical memory, wherever it lies.
pub trait Physical {
    /// Fills `into` with the bytes at `at`. Returns false if they cannot be read.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
}

/// Bytes before a table's own contents, and before the MADT's entries.
const HEADER: u64 = 36;
const ENTRIES: u64 = HEADER + 8;
/// Maximum length of a table. A greater length is garbage.
const LONGEST: u64 = 16 << 20;
/// Addresses where a PC's firmware leaves the root pointer, on a multiple of 16, and where it names another
/// such place.
const FIRMWARE: core::ops::Range<u64> = 0xe_0000..0x10_0000;
const EXTENDED_AREA: u64 = 0x40e;
const EXTENDED_BYTES: u64 = 1024;
const POINTER_BYTES: usize = 20;

const LOCAL_APIC: u8 = 0;
const IO_APIC: u8 = 1;
const OVERRIDE: u8 = 2;
const X2APIC: u8 = 9;
/// Maximum number of bytes of an entry that are read.
const ENTRY_BYTES: usize = 16;
/// Number of an entry without a processor.
const NO_APIC: u8 = 0xff;

/// The contents of the MADT.
#[derive(Clone, Debug)]
pub struct Madt<const MAX: usize> {
    /// The CPUs, the boot CPU first.
    pub cpus: Cpus<MAX>,
    /// Physical address of the I/O APIC, if there is one.
    pub io_apic: Option<u64>,
    /// The I/O APIC's line for the requested legacy interrupt.
    pub line: u32,
}

impl<const MAX: usize> Madt<MAX> {
    /// Reads the tables that start at `rsdp`, or, if that is 0, where the firmware left them. `boot` is the
    /// APIC number of the CPU that runs, `irq` the legacy interrupt whose line is wanted.
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

/// Searches the root pointer where the firmware may have left it.
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

/// Returns address and length of the table with this signature.
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

/// Returns a table's length, if it is plausible.
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
