//! Who has which line: a directory over the virtual CPUs, with caches that never run full.
//!
//! A line of 64 bytes of guest-physical memory is in one of four states. What an access of CPU `c` does to it:
//!
//! | the line is | load by c | store by c |
//! |---|---|---|
//! | unused | owned by c, clean; *cold* | owned by c, modified; *cold* |
//! | owned by c, clean | stays | owned by c, modified; nobody is asked |
//! | owned by c, modified | stays | stays |
//! | owned by d, clean | shared by c and d; *read clean* | owned by c, modified; *write clean*, 1 invalidation |
//! | owned by d, modified | shared by c and d; *read modified* | owned by c, modified; *write modified*, 1 invalidation |
//! | shared by n, one of them c | stays | owned by c, modified; *upgrade*, n - 1 invalidations |
//! | shared by n, none of them c | shared by n + 1; *read clean* | owned by c, modified; *write clean*, n invalidations |
//!
//! That is MESI with the first copy exclusive. Besides the state a line remembers, for blame only: the instruction of its
//! last store (or of the first load, while nobody has stored), of the last load by another CPU than that one's, and which
//! of its bytes were written by that CPU, read by it, and touched by others since.
//!
//! 1. State changes are made under the line's own lock bit. A hit (no change of state) takes no lock.
//! 2. A hit that runs while another CPU takes the line away counts as before that; its note of instruction and bytes may
//!    land on the new holder's line. Such a note is blame, never a count.

mod line;
mod pair;

pub use line::{Line, Seen};
pub use pair::{Origin, Transfer};

use crate::host::Sparse;

/// log2 of a line's size.
pub const LINE_SHIFT: u32 = 6;
/// Bytes of a line.
pub const LINE_SIZE: u64 = 1 << LINE_SHIFT;
/// CPUs that a directory can tell apart.
pub const MAX_CPUS: usize = 128;

/// One access to one line.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Who.
    pub cpu: usize,
    /// Whether it stores.
    pub store: bool,
    /// Which bytes of the line.
    pub bytes: u64,
    /// The instruction.
    pub pc: u64,
}

/// The directory.
#[derive(Debug)]
pub struct Directory(Sparse<Line>);

impl Directory {
    /// For a guest with `memory` bytes; nothing if the host has no addresses for it.
    pub fn new(memory: u64) -> Option<Self> {
        Sparse::new((memory >> LINE_SHIFT) as usize).map(Self)
    }

    /// What `access` to the line with that number did. Lines beyond the memory (ROM, video) are not kept.
    #[inline]
    pub fn access(&self, line: u64, access: &Access) -> Seen {
        self.0.get(line as usize).map_or(Seen::Hit, |line| line.access(access))
    }
}

/// The parts of an access of `size` bytes at `address` on its lines: offset from `address`, and which bytes of the line.
pub fn parts(address: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
    let room = LINE_SIZE - address % LINE_SIZE;
    let first = (0, mask(address % LINE_SIZE, size.min(room)));
    let second = (size > room).then(|| (room, mask(0, size - room)));
    std::iter::once(first).chain(second)
}

/// Bits of `size` bytes from `offset`.
fn mask(offset: u64, size: u64) -> u64 {
    let ones = if size >= 64 { u64::MAX } else { (1 << size) - 1 };
    ones << offset
}

#[cfg(test)]
mod model_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_that_crosses_a_line_has_two_parts() {
        let of = |address, size| parts(address, size).collect::<Vec<_>>();
        assert_eq!(of(0x1000, 8), [(0, 0xff)]);
        assert_eq!(of(0x1038, 8), [(0, 0xff << 56)]);
        assert_eq!(of(0x103e, 8), [(0, 0b11 << 62), (2, 0x3f)]);
        assert_eq!(of(0x1000, 64), [(0, u64::MAX)]);
    }

    #[test]
    fn beyond_the_memory_nothing_is_kept() {
        let directory = Directory::new(128).unwrap();
        let access = Access { cpu: 0, store: true, bytes: 1, pc: 1 };
        assert_eq!(directory.access(1, &access), Seen::Cold);
        assert_eq!(directory.access(2, &access), Seen::Hit);
    }
}
