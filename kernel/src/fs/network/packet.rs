//! The look at a packet before smoltcp gets it.
//!
//! Packets that no host should send are dropped. In particular smoltcp must not answer an address that is
//! none: it panics there. The first packet of a connection is told from the others, because smoltcp has no
//! sockets that only listen.

use super::OWN;
use crate::arch::PACKET_BYTES;

const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const TCP: u8 = 6;
/// TCP's flags: FIN, SYN, RST and ACK.
const FLAGS: u8 = 0x17;
const SYN: u8 = 0x02;
/// Bits of the word with a fragment's place: more follow, and the place.
const FRAGMENT: u16 = 0x3fff;

/// The use of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is dropped.
    Drop,
    /// smoltcp gets it.
    Pass,
    /// smoltcp gets it, and a socket for it first.
    Connects(Ends),
}

/// The ends of a connection: the port of the guest, and the address and the port of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub port: u16,
    pub peer: [u8; 4],
    pub peer_port: u16,
}

/// Judges a packet.
pub fn judge(packet: &[u8]) -> Judgement {
    let kind = packet.get(12..14).and_then(<[u8]>::first_chunk);
    let ip = packet.get(14..).unwrap_or_default();
    match kind {
        _ if packet.len() > PACKET_BYTES => Judgement::Drop,
        Some(&ARP) => Judgement::Pass,
        Some(&IPV4) => judge_ip(ip).unwrap_or(Judgement::Drop),
        _ => Judgement::Drop,
    }
}

fn judge_ip(ip: &[u8]) -> Option<Judgement> {
    let head = ip.first_chunk::<20>()?;
    let [version, _, _, _, _, _, place, more, _, protocol, _, _, a, b, c, d, to @ ..] = *head;
    let (peer, head_len) = ([a, b, c, d], usize::from(version & 0xf) * 4);
    let is_whole = u16::from_be_bytes([place, more]) & FRAGMENT == 0;
    if !is_whole || to != OWN || !is_single(peer) || peer == OWN || head_len < 20 {
        return None;
    }
    if protocol != TCP {
        return Some(Judgement::Pass);
    }
    let segment = ip.get(head_len..)?.first_chunk::<20>()?;
    let [from_high, from_low, to_high, to_low, _, _, _, _, _, _, _, _, _, flags, ..] = *segment;
    let ends = Ends {
        port: u16::from_be_bytes([to_high, to_low]),
        peer,
        peer_port: u16::from_be_bytes([from_high, from_low]),
    };
    Some(if flags & FLAGS == SYN { Judgement::Connects(ends) } else { Judgement::Pass })
}

/// Returns whether an address is of one host: not any, not this host, not a group, not all.
pub fn is_single(ip: [u8; 4]) -> bool {
    let [first, _, _, last] = ip;
    first != 0 && first != 127 && first < 224 && !(ip.starts_with(&[10, 0, 2]) && matches!(last, 0 | 255))
}
