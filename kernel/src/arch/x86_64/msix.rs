//! Interrupts of a PCI device by message (MSI-X: PCI Local Bus 3.0, section 6.8.2), of which the kernel uses
//! one for each device.

use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction, PciRoot};

use super::kernel_map::show_device;
use super::pci::Ports;
use super::physmap::phys_to_virt;

const CAPABILITY: u8 = 0x11;
/// The bit of a capability's first word that enables it, and the one that masks all of its interrupts.
const ENABLE: u32 = 1 << 31;
const MASK_ALL: u32 = 1 << 30;
/// The address to which interrupts are written.
const LOCAL_APICS: u64 = 0xfee0_0000;

/// Lets message 0 of `device` interrupt the core whose APIC is `apic_id`, as `vector`. Called on the boot
/// core, while no other core runs. Returns `None` if the device sends no messages.
pub fn route(root: &mut PciRoot<Ports>, device: DeviceFunction, vector: u8, apic_id: u32) -> Option<()> {
    let apic_id = u8::try_from(apic_id).ok()?;
    let capability = root.capabilities(device).find(|found| found.id == CAPABILITY)?.offset;
    let word = Ports.read_word(device, capability + 4);
    let table = registers(root, device, (word & 7) as u8, word & !7)?.cast::<u32>();
    let message = [(LOCAL_APICS as u32) | u32::from(apic_id) << 12, 0, u32::from(vector), 0];
    for (at, word) in message.into_iter().enumerate() {
        // SAFETY: the first entry of the table, which no other code writes: an address, at which the APICs
        // take interrupts, the interrupt, and whether it is masked.
        unsafe { table.add(at).write_volatile(word) };
    }
    let control = Ports.read_word(device, capability);
    Ports.write_word(device, capability, control & !MASK_ALL | ENABLE);
    Some(())
}

/// Returns the place in the physmap of the registers at `offset` in a device's region `bar`.
pub fn registers(root: &mut PciRoot<Ports>, device: DeviceFunction, bar: u8, offset: u32) -> Option<*mut u8> {
    let (address, size) = root.bar_info(device, bar).ok()??.memory_address_size()?;
    let is_inside = u64::from(offset) + 64 <= size && address != 0;
    let at = address.checked_add(offset.into()).filter(|_| is_inside)?;
    show_device(&percore::pin(), at).then(|| phys_to_virt(at))
}
