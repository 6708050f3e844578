//! ACPI's tables, at any address that the firmware chose, and their description of this machine.

use firmware::Reach;
use firmware::acpi::{Madt, Physical};
use percore::MAX_CORES;

use super::physmap::read_phys;
use super::{apic, kernel_map};

/// The legacy interrupt of the control port.
const CONTROL_IRQ: u8 = 3;

/// Reads the tables from `rsdp` on. Called on the boot core.
pub fn read(rsdp: u64) -> Madt<MAX_CORES> {
    let reach = if apic::is_x2apic() { Reach::X2Apic } else { Reach::XApic };
    Madt::read(&Tables, rsdp, apic::id(), reach, CONTROL_IRQ)
}

/// Physical memory, in which the physmap maps what it does not show yet.
struct Tables;

impl Physical for Tables {
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let pin = percore::pin();
        into.iter_mut().enumerate().all(|(offset, byte)| {
            let at = at.checked_add(offset as u64).filter(|at| kernel_map::show(&pin, *at));
            at.map(|at| *byte = read_phys(at)).is_some()
        })
    }
}
