//! Messages as IP packets: the head of IP, the head of UDP, the bytes.

use alloc::vec::Vec;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr};

use super::OWN;
use crate::bytes::copy_prefix;

/// The bytes of both heads.
pub const HEADS: usize = 28;
const IP_HEAD: usize = 20;
const HOPS: u8 = 64;

/// One side of a message: an address and a port.
pub type End = ([u8; 4], u16);

/// Writes a message from a port of the guest into `packet`, which is as long as the message and the heads.
pub fn write(packet: &mut [u8], from_port: u16, (to, to_port): End, pages: &[Vec<u8>]) {
    let (own, peer) = (Ipv4Address::from(OWN), Ipv4Address::from(to));
    let udp = UdpRepr { src_port: from_port, dst_port: to_port };
    let len = packet.len().saturating_sub(HEADS);
    let ip = Ipv4Repr {
        src_addr: own,
        dst_addr: peer,
        next_header: IpProtocol::Udp,
        payload_len: len + HEADS - IP_HEAD,
        hop_limit: HOPS,
    };
    if packet.len() < HEADS {
        return;
    }
    let checksums = ChecksumCapabilities::default();
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut *packet), &checksums);
    let fill = |payload: &mut [u8]| {
        let mut rest = payload;
        for page in pages {
            let done = copy_prefix(rest, page);
            rest = rest.split_at_mut(done).1;
        }
    };
    let mut datagram = UdpPacket::new_unchecked(packet.get_mut(IP_HEAD..).unwrap_or_default());
    udp.emit(&mut datagram, &own.into(), &peer.into(), len, fill, &checksums);
}

/// Returns the sender, the guest's port and the bytes of a message, if it is whole.
pub fn parse(packet: &[u8]) -> Option<(End, u16, &[u8])> {
    let checksums = ChecksumCapabilities::default();
    let packet = Ipv4Packet::new_checked(packet).ok()?;
    let ip = Ipv4Repr::parse(&packet, &checksums).ok()?;
    let datagram = UdpPacket::new_checked(packet.payload()).ok()?;
    let udp = UdpRepr::parse(&datagram, &ip.src_addr.into(), &ip.dst_addr.into(), &checksums).ok()?;
    Some(((ip.src_addr.octets(), udp.src_port), udp.dst_port, datagram.payload()))
}
