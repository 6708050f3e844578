//! The little of ACPI that we need: which cores there are, and where the I/O APIC is. Read from the MADT.

use super::physmap::read_phys;

const MAX_CORES: usize = percore::MAX_CORES;
const HEADER: u64 = 36;
const LOCAL_APIC: u8 = 0;
const IO_APIC: u8 = 1;
const OVERRIDE: u8 = 2;
const X2APIC: u8 = 9;
/// Flags of a core's entry: enabled, or at least able to be.
const ENABLED: u32 = 1;
const CONTROL_IRQ: u8 = 3;
/// Where a PC's firmware leaves the root pointer, on a multiple of 16.
const FIRMWARE: core::ops::Range<u64> = 0xe_0000..0x10_0000;

/// What the MADT says.
pub struct Madt {
    apic_ids: [u32; MAX_CORES],
    cores: usize,
    /// Physical address of the I/O APIC; 0 if there is none.
    pub io_apic: u64,
    /// The I/O APIC's line for the control port's interrupt.
    pub control_line: u32,
}

impl Madt {
    /// Reads the tables that start at `rsdp`, or, if that is 0, where the firmware left them; without tables, one core.
    pub fn read(rsdp: u64, boot_apic_id: u32) -> Self {
        let mut madt = Self {
            apic_ids: [boot_apic_id; MAX_CORES],
            cores: 1,
            io_apic: 0,
            control_line: u32::from(CONTROL_IRQ),
        };
        let rsdp = if rsdp == 0 { FIRMWARE.step_by(16).find(|&at| is_rsdp(at)) } else { Some(rsdp) };
        if let Some(table) = rsdp.and_then(|rsdp| find(rsdp, *b"APIC")) {
            entries(table).for_each(|(kind, at)| madt.entry(kind, at));
        }
        madt
    }

    /// The APIC numbers of the cores, the boot core first.
    pub fn cores(&self) -> &[u32] {
        &self.apic_ids[..self.cores]
    }

    fn entry(&mut self, kind: u8, at: u64) {
        match kind {
            LOCAL_APIC => self.core(u32::from(read_phys::<u8>(at + 3)), read_phys(at + 4)),
            X2APIC => self.core(read_phys(at + 4), read_phys(at + 8)),
            IO_APIC if self.io_apic == 0 => self.io_apic = u64::from(read_phys::<u32>(at + 4)),
            OVERRIDE if read_phys::<u8>(at + 3) == CONTROL_IRQ => self.control_line = read_phys(at + 4),
            _ => {}
        }
    }

    fn core(&mut self, apic_id: u32, flags: u32) {
        let is_boot_core = apic_id == self.apic_ids[0];
        if flags & ENABLED != 0 && !is_boot_core && self.cores < MAX_CORES {
            self.apic_ids[self.cores] = apic_id;
            self.cores += 1;
        }
    }
}

/// The MADT's entries: kind and address.
fn entries(madt: u64) -> impl Iterator<Item = (u8, u64)> {
    let end = madt + length(madt);
    let mut at = madt + HEADER + 8;
    core::iter::from_fn(move || {
        let (entry, bytes) = (at, read_phys::<u8>(at + 1));
        at += u64::from(bytes);
        (entry + 2 <= end && bytes >= 2).then(|| (read_phys(entry), entry))
    })
}

fn length(table: u64) -> u64 {
    u64::from(read_phys::<u32>(table + 4))
}

fn is_rsdp(at: u64) -> bool {
    read_phys::<[u8; 8]>(at) == *b"RSD PTR "
}

/// The table with this signature.
fn find(rsdp: u64, signature: [u8; 4]) -> Option<u64> {
    if !is_rsdp(rsdp) {
        return None;
    }
    let revision: u8 = read_phys(rsdp + 15);
    let xsdt = if revision >= 2 { read_phys(rsdp + 24) } else { 0 };
    let (root, width) = if xsdt != 0 { (xsdt, 8) } else { (u64::from(read_phys::<u32>(rsdp + 16)), 4) };
    let tables = (root + HEADER..root + length(root)).step_by(width);
    let address = |at| if width == 8 { read_phys(at) } else { u64::from(read_phys::<u32>(at)) };
    tables.map(address).find(|&table| read_phys::<[u8; 4]>(table) == signature)
}
