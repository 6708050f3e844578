//! The card as smoltcp sees it.

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

use crate::arch::{Card, Incoming, Outgoing, PACKET_BYTES};

/// The card, for smoltcp.
pub struct Port(pub Card);

/// The next packet that has arrived.
pub struct Arrived<'a>(&'a mut Incoming);

/// Room for a packet that leaves.
pub struct Leaving<'a>(&'a mut Outgoing);

impl Device for Port {
    type RxToken<'a> = Arrived<'a>;
    type TxToken<'a> = Leaving<'a>;

    /// Returns the next packet, if there is room for an answer.
    fn receive(&mut self, _timestamp: Instant) -> Option<(Arrived<'_>, Leaving<'_>)> {
        let Card { incoming, outgoing, .. } = &mut self.0;
        (incoming.packet().is_some() && outgoing.has_room()).then_some((Arrived(incoming), Leaving(outgoing)))
    }

    fn transmit(&mut self, _timestamp: Instant) -> Option<Leaving<'_>> {
        let outgoing = &mut self.0.outgoing;
        outgoing.has_room().then_some(Leaving(outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = PACKET_BYTES;
        capabilities
    }
}

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(self.0.packet().unwrap_or_default());
        self.0.drop_packet();
        result
    }
}

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.0.send(len, f)
    }
}
