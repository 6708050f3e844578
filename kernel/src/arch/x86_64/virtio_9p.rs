//! The devices by which the guest uses its host's files: channels for messages of the protocol 9P (virtio
//! 1.2, sections 2.7 and 4.1; QEMU's `virtio-9p-pci`).
//!
//! A device reads and writes memory of this module only: its own [`Memory`], which is never freed. Its
//! [`Channel`] owns that, and waits for the answer to each request.

use alloc::alloc::{Layout, alloc_zeroed};
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use percore::pin;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::{Command, DeviceFunction, PciRoot};
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

use super::kernel_map::{place_of, show_device};
use super::pci::Ports;
use super::physmap::phys_to_virt;

/// The most devices.
pub const CHANNELS: usize = 4;
/// The longest request: four pages of data, and what comes before. Names have at most 255 bytes each, and
/// targets of links less than a page.
pub const REQUEST_BYTES: usize = 5 * PAGE_SIZE;
/// The longest answer.
pub const ANSWER_BYTES: usize = 17 * PAGE_SIZE;
/// Pages for the queue: one that the device reads, one that it writes.
const QUEUE_PAGES: usize = 2;
/// The descriptors of the queue. A request and its answer take one each.
const DESCRIPTORS: usize = 4;
/// The feature that every device of the current version has.
const VERSION_1: u64 = 1 << 32;

/// The memory that the device uses.
#[repr(C, align(4096))]
struct Memory {
    queue: UnsafeCell<[[u8; PAGE_SIZE]; QUEUE_PAGES]>,
    request: UnsafeCell<[u8; REQUEST_BYTES]>,
    answer: UnsafeCell<[u8; ANSWER_BYTES]>,
}

// SAFETY: only its one `Channel` uses it, see `TAKEN`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates the memory of a channel, which is never freed. A guest without the host's files has none.
    fn allocate() -> Option<&'static Self> {
        // SAFETY: the size is not 0.
        let at = unsafe { alloc_zeroed(Layout::new::<Self>()) }.cast::<Self>();
        // SAFETY: zeroes are valid, and nothing frees them.
        NonNull::new(at).map(|memory| unsafe { memory.as_ref() })
    }
}

/// The memory of each channel.
static MEMORIES: [AtomicPtr<Memory>; CHANNELS] = [const { AtomicPtr::new(null_mut()) }; CHANNELS];

/// The number of channels that were made.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// The pages of queues that were handed out. Each channel takes as many.
static QUEUE_PAGES_USED: AtomicUsize = AtomicUsize::new(0);

/// The kernel as the driver sees it.
struct Host;

// SAFETY: pages of the queue are handed out once each and never come back, and they are zeroed. Registers
// are shown at their place in the physmap. Buffers are parts of a `Memory`, one block of the heap, which is
// contiguous there.
unsafe impl Hal for Host {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let used = QUEUE_PAGES_USED.fetch_add(pages, Ordering::Relaxed);
        let first = used % QUEUE_PAGES;
        // Address 0 tells the driver that there is no memory.
        let memory = MEMORIES.get(used / QUEUE_PAGES).filter(|_| first + pages <= QUEUE_PAGES);
        // SAFETY: it is null, or memory that is never freed.
        let memory = memory.and_then(|memory| unsafe { memory.load(Ordering::Relaxed).as_ref() });
        let Some(memory) = memory else { return (0, NonNull::dangling()) };
        let phys = place_of(&memory.queue).0 + (first * PAGE_SIZE) as u64;
        let at = memory.queue.get().cast::<u8>().wrapping_add(first * PAGE_SIZE);
        (phys, NonNull::new(at).unwrap_or(NonNull::dangling()))
    }

    unsafe fn dma_dealloc(_paddr: PhysAddr, _vaddr: NonNull<u8>, _pages: usize) -> i32 {
        0
    }

    unsafe fn mmio_phys_to_virt(phys: PhysAddr, _size: usize) -> NonNull<u8> {
        assert!(show_device(&pin(), phys), "the registers of the device for files cannot be mapped");
        NonNull::new(phys_to_virt(phys)).unwrap_or(NonNull::dangling())
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        // SAFETY: the driver promises that the buffer is valid.
        place_of(unsafe { buffer.as_ref() }).0
    }

    unsafe fn unshare(_phys: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}

/// A channel to the host.
pub struct Channel {
    memory: &'static Memory,
    transport: PciTransport,
    queue: VirtQueue<Host, DESCRIPTORS>,
    /// Set once the device has broken its rules: it may still use the buffers.
    is_broken: bool,
}

impl Channel {
    /// Sets the next device up, in the order of their places on the bus. Called on the boot core, while no
    /// other core runs. Returns `None` if the machine has no more such devices, or one that does not work.
    pub fn open() -> Option<Self> {
        let mut root = PciRoot::new(Ports);
        let is_files = |info| virtio_device_type(&info) == Some(DeviceType::_9P);
        let number = TAKEN.fetch_add(1, Ordering::Relaxed);
        let place = MEMORIES.get(number)?;
        let (device, _) = root.enumerate_bus(0).filter(|(_, info)| is_files(info.clone())).nth(number)?;
        let memory = Memory::allocate()?;
        place.store(ptr::from_ref(memory).cast_mut(), Ordering::Relaxed);
        Self::set_up(&mut root, device, memory)
    }

    fn set_up(root: &mut PciRoot<Ports>, device: DeviceFunction, memory: &'static Memory) -> Option<Self> {
        // The kernel waits for answers without interrupts.
        let command = Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE;
        root.set_command(device, command);
        let mut transport = PciTransport::new::<Host, _>(root, device).ok()?;
        agree(&mut transport)?;
        let mut queue = VirtQueue::new(&mut transport, 0, false, false).ok()?;
        queue.set_dev_notify(false);
        transport.finish_init();
        Some(Self { memory, transport, queue, is_broken: false })
    }

    /// Sends the request that `make` writes and whose length it returns, and waits for the answer. Returns
    /// `None` if the request is too long or the device breaks its rules.
    pub fn call(&mut self, make: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<&[u8]> {
        if self.is_broken {
            return None;
        }
        // SAFETY: `&mut self` is the only channel with this memory, and between calls the device uses neither
        // buffer, since it is not broken.
        let (request, answer) = unsafe { (&mut *self.memory.request.get(), &mut *self.memory.answer.get()) };
        let len = make(request)?;
        let requests: [&[u8]; 1] = [request.get(..len).filter(|request| !request.is_empty())?];
        // SAFETY: both live for ever, and nothing uses them before `pop_used` below.
        let token = unsafe { self.queue.add(&requests, &mut [answer]) }.ok()?;
        self.transport.notify(0);
        while !self.queue.can_pop() {
            percore::relax();
        }
        // SAFETY: the buffers that were added.
        let used = unsafe { self.queue.pop_used(token, &requests, &mut [answer]) };
        self.is_broken = used.is_err();
        answer.get(..used.ok()? as usize)
    }
}

/// Resets the device and agrees on its features: none but the current version (section 3.1.1).
fn agree(transport: &mut PciTransport) -> Option<()> {
    let known = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(DeviceStatus::empty());
    transport.set_status(known);
    if transport.read_device_features() & VERSION_1 == 0 {
        return None;
    }
    transport.write_driver_features(VERSION_1);
    transport.set_status(known | DeviceStatus::FEATURES_OK);
    transport.get_status().contains(DeviceStatus::FEATURES_OK).then_some(())
}
