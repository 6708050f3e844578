//! The devices by which the guest uses its host's files: channels for messages of the protocol 9P (virtio
//! 1.2, sections 2.7 and 4.1; QEMU's `virtio-9p-pci`).
//!
//! A device reads and writes its own [`Memory`] and the pages of its queue only, which are never freed. Its
//! [`Channel`] owns them, and waits for the answer to each request.

use alloc::alloc::{Layout, alloc_zeroed};
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use virtio_drivers::PAGE_SIZE;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::{Command, DeviceFunction, PciRoot};
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};
use virtio_drivers::transport::{DeviceType, Transport};

use super::pci::Ports;
use super::virtio::{Host, agree};

/// The most devices.
pub const CHANNELS: usize = 4;
/// The longest request: four pages of data, and what comes before. Names have at most 255 bytes each, and
/// targets of links less than a page.
pub const REQUEST_BYTES: usize = 5 * PAGE_SIZE;
/// The longest answer.
pub const ANSWER_BYTES: usize = 17 * PAGE_SIZE;
/// The descriptors of the queue. A request and its answer take one each.
const DESCRIPTORS: usize = 4;

/// The memory that the device uses.
#[repr(C, align(4096))]
struct Memory {
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

/// The number of channels that were made.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

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
        let (device, _) = root.enumerate_bus(0).filter(|(_, info)| is_files(info.clone())).nth(number)?;
        let memory = Memory::allocate()?;
        Self::set_up(&mut root, device, memory)
    }

    fn set_up(root: &mut PciRoot<Ports>, device: DeviceFunction, memory: &'static Memory) -> Option<Self> {
        // The kernel waits for answers without interrupts.
        let command = Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE;
        root.set_command(device, command);
        let mut transport = PciTransport::new::<Host, _>(root, device).ok()?;
        agree(&mut transport, 0)?;
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
