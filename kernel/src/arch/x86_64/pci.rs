//! The configuration space of PCI devices, by the two I/O ports that every PC has (PCI Local Bus 3.0,
//! section 3.2.2.3.2).

use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};

use super::cpu::{in32, out32};

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;

/// The two ports. Only the boot core uses them, before the other cores run.
pub struct Ports;

impl Ports {
    fn select(&self, device: DeviceFunction, register: u8) {
        let DeviceFunction { bus, device, function } = device;
        let place = u32::from(bus) << 16 | u32::from(device) << 11 | u32::from(function) << 8;
        // SAFETY: the port only chooses what the next access to the data port means.
        unsafe { out32(ADDRESS, 1 << 31 | place | u32::from(register & !3)) };
    }
}

impl ConfigurationAccess for Ports {
    fn read_word(&self, device: DeviceFunction, register: u8) -> u32 {
        self.select(device, register);
        // SAFETY: reading the configuration space changes nothing.
        unsafe { in32(DATA) }
    }

    fn write_word(&mut self, device: DeviceFunction, register: u8, data: u32) {
        self.select(device, register);
        // SAFETY: the driver of the device chooses the value. It lets no device write to memory except to
        // the queues and buffers of `virtio_9p` and `virtio_net`.
        unsafe { out32(DATA, data) };
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}
