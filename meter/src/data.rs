//! The word that QEMU hands back with a callback. It points to no memory.
//!
//! Bit 0 is the privilege, except for a repeated string instruction. Above it:
//!
//! | callback | bits |
//! |---|---|
//! | block | 1: starts with a repeated string instruction; from 2: its instructions |
//! | event | from 1: the kind |
//! | repeated string instruction | 0: two accesses for each iteration, not one; from 1: its address |
//! | marker | 8 to 15: operand; 16 to 23: operation; from 24: instructions that follow it in its block |

use crate::counts::{KINDS, Kind};
use crate::cpu::Privilege;
use crate::decode::Marker;

fn privilege_bit(pc: u64) -> u64 {
    u64::from(Privilege::of(pc) == Privilege::Kernel)
}

fn privilege(word: u64) -> Privilege {
    if word & 1 == 0 { Privilege::User } else { Privilege::Kernel }
}

/// Returns the word of a block at `pc`.
pub fn pack_block(pc: u64, instructions: usize, repeats: bool) -> u64 {
    (instructions as u64) << 2 | u64::from(repeats) << 1 | privilege_bit(pc)
}

/// Returns privilege, number of instructions, and whether the block starts with a repeated instruction.
#[inline]
pub fn block(word: u64) -> (Privilege, u64, bool) {
    (privilege(word), word >> 2, word & 2 != 0)
}

/// Returns the word of an instruction at `pc` that counts as `kind`.
pub fn pack_event(kind: Kind, pc: u64) -> u64 {
    (kind as u64) << 1 | privilege_bit(pc)
}

/// Returns privilege and kind.
#[inline]
pub fn event(word: u64) -> (Privilege, Kind) {
    (privilege(word), KINDS[(word >> 1) as usize])
}

/// Returns the word of a repeated string instruction at `pc`, which makes one or two `accesses` in each
/// iteration. The uppermost bit of an address is the same as the one below it, so it need not be kept.
pub fn pack_repeat(pc: u64, accesses: u8) -> u64 {
    pc << 1 | u64::from(accesses == 2)
}

/// Returns its address and the number of accesses.
#[inline]
pub fn repeat(word: u64) -> (u64, u64) {
    (((word as i64) >> 1) as u64, 1 + (word & 1))
}

/// Returns the word of a marker at `pc`.
pub fn pack_marker(marker: Marker, pc: u64, ahead: usize) -> u64 {
    let (op, arg) = marker.parts();
    (ahead as u64) << 24 | u64::from(op) << 16 | u64::from(arg) << 8 | privilege_bit(pc)
}

/// Returns privilege, marker, and the number of instructions that follow.
pub fn marker(word: u64) -> (Privilege, Marker, u64) {
    let marker = Marker::from_parts((word >> 16) as u8, (word >> 8) as u8).expect("packed from one");
    (privilege(word), marker, word >> 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_data_comes_back() {
        let (user, kernel) = (0x40_0000, 0xffff_8000_0000_0000);
        assert_eq!(block(pack_block(kernel, 512, true)), (Privilege::Kernel, 512, true));
        assert_eq!(block(pack_block(user, 1, false)), (Privilege::User, 1, false));
        assert!(KINDS.iter().all(|kind| event(pack_event(*kind, kernel)) == (Privilege::Kernel, *kind)));
        assert_eq!(repeat(pack_repeat(kernel, 2)), (kernel, 2));
        assert_eq!(repeat(pack_repeat(user, 1)), (user, 1));
        let begin = Marker::Begin(255);
        assert_eq!(marker(pack_marker(begin, user, 511)), (Privilege::User, begin, 511));
    }
}
