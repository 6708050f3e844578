//! The kind of a transfer, and the access that it took the line from.

use crate::counts::Kind;

/// An instruction of a CPU in one word: 8 bits for the CPU, 48 for the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin(u64);

const ADDRESS_BITS: u32 = 48;

impl Origin {
    /// Packs the CPU and the instruction's address.
    pub fn new(cpu: usize, pc: u64) -> Self {
        Self((cpu as u64) << ADDRESS_BITS | pc & ((1 << ADDRESS_BITS) - 1))
    }

    /// Restores an origin from its word.
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the packed word.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Returns the CPU.
    pub fn cpu(self) -> usize {
        (self.0 >> ADDRESS_BITS) as usize
    }

    /// Returns the instruction's address, in canonical form again.
    pub fn pc(self) -> u64 {
        ((self.0 << (64 - ADDRESS_BITS)) as i64 >> (64 - ADDRESS_BITS)) as u64
    }
}

/// A transfer: a line came from another CPU, or its other copies were invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// One of the kinds that are transfers.
    pub kind: Kind,
    /// Number of copies of other CPUs that it removed.
    pub invalidations: u64,
    /// The last access by another CPU that made it necessary.
    pub from: Origin,
    /// Bytes that the other CPUs touched and that made this transfer necessary.
    pub bytes_from: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_keeps_cpu_and_address() {
        for pc in [0, 0x7fff_ffff_f000, 0xffff_8000_0000_1234, u64::MAX] {
            let origin = Origin::from_word(Origin::new(127, pc).word());
            assert_eq!((origin.cpu(), origin.pc()), (127, pc));
        }
    }
}
