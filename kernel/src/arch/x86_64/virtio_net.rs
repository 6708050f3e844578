//! The network card (virtio 1.2, section 5.1; QEMU's `virtio-net-pci`): one queue of packets that come in,
//! one of packets that go out.
//!
//! The device reads and writes the buffers of its [`Card`] and the pages of its queues only, which are never
//! freed. A buffer belongs to the device from the call that adds it to a queue to the one that takes it back.
//! An arrived packet interrupts the boot core. Packets that have left cause no interrupt: their buffers are
//! taken back when the next ones are needed.

use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::{
    Command, ConfigurationAccess, DeviceFunction, PCI_CAP_ID_VNDR, PciRoot,
};
use virtio_drivers::transport::pci::{PciTransport, VIRTIO_PCI_CAP_COMMON_CFG, virtio_device_type};
use virtio_drivers::transport::{DeviceType, Transport};

use super::pci::Ports;
use super::virtio::{Host, agree};
use super::{BOOT_CORE, idt, msix};

/// The bytes of the longest packet: 1,500, and the head of an Ethernet frame.
pub const PACKET_BYTES: usize = 1514;
/// The buffers of each queue.
pub const BUFFERS: usize = 64;
const BUFFER_BYTES: usize = 2048;
/// The bytes before each packet: all zero, since no feature is agreed on that uses them.
const HEADER: usize = 12;
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
/// The feature by which the device has an address.
const HAS_MAC: u64 = 1 << 5;
/// The common registers that choose a queue, and the message that it sends (section 4.1.4.3).
const QUEUE_SELECT: usize = 22;
const QUEUE_MESSAGE: usize = 26;

type Buffer = [u8; BUFFER_BYTES];
type Queue = VirtQueue<Host, BUFFERS>;

/// The network card.
pub struct Card {
    transport: PciTransport,
    /// The address of the card.
    pub mac: [u8; 6],
    /// The packets that come in.
    pub incoming: Incoming,
    /// The packets that go out.
    pub outgoing: Outgoing,
}

/// The packets that come in. Buffer `n` has descriptor `n` of the queue for good.
pub struct Incoming {
    queue: Queue,
    buffers: Vec<Buffer>,
    /// The buffer and the length of the packet that was taken last, until it is dropped.
    taken: Option<(u16, usize)>,
    /// Set if buffers were given back to the device since it was told.
    has_changed: bool,
    /// Set once the device has broken its rules: it may still use the buffers.
    is_broken: bool,
}

/// The packets that go out.
pub struct Outgoing {
    queue: Queue,
    buffers: Vec<Buffer>,
    /// The buffers that the device does not have.
    free: Vec<u16>,
    /// The buffer of each descriptor that the device has.
    used_by: [u16; BUFFERS],
    has_changed: bool,
    is_broken: bool,
}

impl Card {
    /// Sets the card up. Called on the boot core, while no other core runs. Returns `None` if the machine has
    /// none, or one that does not work.
    pub fn open() -> Option<Self> {
        let mut root = PciRoot::new(Ports);
        let is_network = |info| virtio_device_type(&info) == Some(DeviceType::Network);
        let (device, _) = root.enumerate_bus(0).find(|(_, info)| is_network(info.clone()))?;
        root.set_command(device, Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE);
        let mut transport = PciTransport::new::<Host, _>(&mut root, device).ok()?;
        agree(&mut transport, HAS_MAC)?;
        let mac = transport.read_config_space(0).ok()?;
        let mut incoming = Incoming::new(Queue::new(&mut transport, RECEIVE, false, false).ok()?)?;
        let outgoing = Outgoing::new(Queue::new(&mut transport, TRANSMIT, false, false).ok()?)?;
        msix::route(&mut root, device, idt::NETWORK, BOOT_CORE.apic_id())?;
        interrupt_on_receive(&mut root, device)?;
        transport.finish_init();
        (0..BUFFERS as u16).for_each(|buffer| incoming.give(buffer));
        let mut card = Self { transport, mac, incoming, outgoing };
        card.tell();
        Some(card)
    }

    /// Tells the device of the buffers that it got since the last call.
    pub fn tell(&mut self) {
        // The device sees the buffers, or the look at its flag here comes after its look for buffers.
        fence(Ordering::SeqCst);
        if core::mem::take(&mut self.incoming.has_changed) && self.incoming.queue.should_notify() {
            self.transport.notify(RECEIVE);
        }
        if core::mem::take(&mut self.outgoing.has_changed) && self.outgoing.queue.should_notify() {
            self.transport.notify(TRANSMIT);
        }
    }
}

/// Lets packets that come in send message 0.
fn interrupt_on_receive(root: &mut PciRoot<Ports>, device: DeviceFunction) -> Option<()> {
    let mut places = root.capabilities(device).filter(|found| found.id == PCI_CAP_ID_VNDR);
    let common = places.find(|found| (found.private_header >> 8) as u8 == VIRTIO_PCI_CAP_COMMON_CFG)?;
    let word = |at| Ports.read_word(device, common.offset + at);
    let (bar, offset) = (word(4) as u8, word(8));
    let registers = msix::registers(root, device, bar, offset)?;
    // SAFETY: registers of the device. The library, which uses them too, chooses the queue anew each time.
    unsafe {
        registers.add(QUEUE_SELECT).cast::<u16>().write_volatile(RECEIVE);
        let message = registers.add(QUEUE_MESSAGE).cast::<u16>();
        message.write_volatile(0);
        (message.read_volatile() == 0).then_some(())
    }
}

fn buffers() -> Option<Vec<Buffer>> {
    let mut buffers = Vec::new();
    buffers.try_reserve_exact(BUFFERS).ok()?;
    buffers.resize(BUFFERS, [0; BUFFER_BYTES]);
    Some(buffers)
}

impl Incoming {
    fn new(queue: Queue) -> Option<Self> {
        Some(Self { queue, buffers: buffers()?, taken: None, has_changed: false, is_broken: false })
    }

    /// Gives a buffer to the device.
    fn give(&mut self, buffer: u16) {
        let Some(bytes) = self.buffers.get_mut(usize::from(buffer)) else { return };
        // SAFETY: the buffers are never freed nor moved, and this one is not used before `take` gets it back.
        let descriptor = unsafe { self.queue.add(&[], &mut [bytes]) };
        // The descriptor that was freed last is used first, which is the one of this buffer.
        self.is_broken |= descriptor != Ok(buffer);
        self.has_changed = true;
    }

    /// Takes the next packet that has arrived, unless one is taken.
    fn take(&mut self) -> Option<()> {
        if self.taken.is_some() {
            return Some(());
        }
        let descriptor = self.queue.peek_used().filter(|_| !self.is_broken)?;
        let bytes = self.buffers.get_mut(usize::from(descriptor))?;
        // SAFETY: the buffer that `give` added with this descriptor.
        let len = unsafe { self.queue.pop_used(descriptor, &[], &mut [bytes]) };
        self.is_broken |= len.is_err();
        self.taken = Some((descriptor, (len.ok()? as usize).min(BUFFER_BYTES)));
        Some(())
    }

    /// Returns the next packet that has arrived. It stays until it is dropped.
    pub fn packet(&mut self) -> Option<&[u8]> {
        self.take()?;
        let (buffer, len) = self.taken?;
        self.buffers.get(usize::from(buffer)).map(|bytes| bytes.get(HEADER..len).unwrap_or_default())
    }

    /// Drops the packet that was taken.
    pub fn drop_packet(&mut self) {
        if let Some((buffer, _)) = self.taken.take() {
            self.give(buffer);
        }
    }
}

impl Outgoing {
    fn new(mut queue: Queue) -> Option<Self> {
        queue.set_dev_notify(false);
        let mut free = Vec::new();
        free.try_reserve_exact(BUFFERS).ok()?;
        free.extend(0..BUFFERS as u16);
        let buffers = buffers()?;
        Some(Self { queue, buffers, free, used_by: [0; BUFFERS], has_changed: false, is_broken: false })
    }

    /// Returns whether a packet can be sent now.
    pub fn has_room(&mut self) -> bool {
        while !self.is_broken
            && let Some(descriptor) = self.queue.peek_used()
        {
            self.is_broken |= self.recycle(descriptor).is_none();
        }
        !self.free.is_empty() && !self.is_broken
    }

    /// Takes a buffer back whose packet has left.
    fn recycle(&mut self, descriptor: u16) -> Option<()> {
        let buffer = *self.used_by.get(usize::from(descriptor))?;
        let bytes = self.buffers.get(usize::from(buffer))?;
        // SAFETY: the buffer that `send` added with this descriptor.
        unsafe { self.queue.pop_used(descriptor, &[bytes], &mut []) }.ok()?;
        // There is room: each buffer is in the list once at most.
        self.free.extend((self.free.len() < BUFFERS).then_some(buffer));
        Some(())
    }

    /// Sends a packet of `len` bytes, which `make` writes. It is lost if there is no room or it is too long.
    pub fn send<R>(&mut self, len: usize, make: impl FnOnce(&mut [u8]) -> R) -> R {
        let buffer = self.free.pop().filter(|_| len <= PACKET_BYTES && !self.is_broken);
        let Some(bytes) = buffer.and_then(|buffer| self.buffers.get_mut(usize::from(buffer))) else {
            return make(Buffer::from([0; BUFFER_BYTES]).get_mut(..len).unwrap_or_default());
        };
        let (header, rest) = bytes.split_at_mut(HEADER);
        header.fill(0);
        let made = make(rest.get_mut(..len).unwrap_or_default());
        let bytes = bytes.get(..HEADER + len).unwrap_or_default();
        // SAFETY: the buffers are never freed nor moved, and this one is not used before `recycle`.
        let descriptor = unsafe { self.queue.add(&[bytes], &mut []) };
        let place = descriptor.ok().and_then(|at| self.used_by.get_mut(usize::from(at)));
        match place.zip(buffer) {
            Some((place, buffer)) => *place = buffer,
            None => self.is_broken = true,
        }
        self.has_changed = true;
        made
    }
}
