//! Parts that the drivers of virtio devices share: the kernel as the driver library sees it, and the choice
//! of a device's features (virtio 1.2, sections 3.1.1 and 4.1).

use alloc::alloc::{Layout, alloc_zeroed};
use core::ptr::NonNull;

use percore::pin;
use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::transport::{DeviceStatus, Transport};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

use super::kernel_map::{place_of, show_device};
use super::physmap::{phys_to_virt, virt_to_phys};

/// The feature that every device of the current version has.
pub const VERSION_1: u64 = 1 << 32;

/// The kernel as the driver library sees it.
pub struct Host;

// SAFETY: pages of queues are blocks of the heap of their own, which are zeroed, contiguous in the physmap
// and never freed. Registers are shown at their place in the physmap. Buffers are parts of blocks of the
// heap.
unsafe impl Hal for Host {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // Two at least: the heap counts blocks of one page as nodes of radix maps.
        let layout = Layout::from_size_align(pages.max(2) * PAGE_SIZE, PAGE_SIZE).ok();
        // SAFETY: the size is not 0.
        let block = layout.map(|layout| unsafe { alloc_zeroed(layout) });
        // Address 0 tells the library that there is no memory.
        block.and_then(NonNull::new).map_or((0, NonNull::dangling()), |at| (virt_to_phys(at.as_ptr()), at))
    }

    unsafe fn dma_dealloc(_paddr: PhysAddr, _vaddr: NonNull<u8>, _pages: usize) -> i32 {
        0
    }

    unsafe fn mmio_phys_to_virt(phys: PhysAddr, _size: usize) -> NonNull<u8> {
        assert!(show_device(&pin(), phys), "the registers of a virtio device cannot be mapped");
        NonNull::new(phys_to_virt(phys)).unwrap_or(NonNull::dangling())
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        // SAFETY: the library promises that the buffer is valid.
        place_of(unsafe { buffer.as_ref() }).0
    }

    unsafe fn unshare(_phys: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}

/// Resets the device and agrees on its features: the current version, and of `wanted` those that it has.
pub fn agree(transport: &mut PciTransport, wanted: u64) -> Option<()> {
    let known = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(DeviceStatus::empty());
    transport.set_status(known);
    let offered = transport.read_device_features();
    if offered & VERSION_1 == 0 {
        return None;
    }
    transport.write_driver_features(VERSION_1 | offered & wanted);
    transport.set_status(known | DeviceStatus::FEATURES_OK);
    transport.get_status().contains(DeviceStatus::FEATURES_OK).then_some(())
}
