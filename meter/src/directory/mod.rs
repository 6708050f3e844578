//! A directory of cache lines over the virtual CPUs, whose caches never run full.
//!
//! A line of 64 bytes of guest-physical memory is in one of four states. An access of CPU `c` changes it as
//! follows:
//!
//! | the line is | load by c | store by c |
//! |---|---|---|
//! | unused | owned by c, clean; *cold* | owned by c, modified; *cold* |
//! | owned by c, clean | stays | owned by c, modified; no other CPU is asked |
//! | owned by c, modified | stays | stays |
//! | owned by d, clean | shared by c and d; *read clean* | owned by c, modified; *write clean*, 1 invalidation |
//! | owned by d, modified | shared by c and d; *read modified* | owned by c, modified; *write modified*, 1 invalidation |
//! | shared by n, one of them c | stays | owned by c, modified; *upgrade*, n - 1 invalidations |
//! | shared by n, none of them c | shared by n + 1; *read clean* | owned by c, modified; *write clean*, n invalidations |
//!
//! That is MESI with the first copy exclusive. A line also remembers, for blame only, the instruction of its
//! last store (or of the first load, while there was no store) and of the last load by another CPU than the
//! writer's. It remembers which of its bytes the writer's CPU wrote, which it read, and which other CPUs have
//! touched since.
//!
//! 1. State changes are made under the line's own lock bit. A hit (no change of state) takes no lock.
//! 2. A hit that runs while another CPU takes the line away counts as before that. Its record of instruction
//!    and bytes may land on the new holder's line. Such a record affects blame, never a count.

mod line;
mod pair;

pub use line::{Line, Seen};
pub use pair::{Origin, Transfer};

use crate::host::Sparse;

/// log2 of the size of a line in bytes.
pub const LINE_SHIFT: u32 = 6;
/// Bytes of a line.
pub const LINE_SIZE: u64 = 1 << LINE_SHIFT;
/// Number of CPUs that a directory can tell apart.
pub const MAX_CPUS: usize = 128;

/// One access to one line.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The CPU that accesses.
    pub cpu: usize,
    /// Set for a store.
    pub store: bool,
    /// The bytes of the line that are accessed, one bit each.
    pub bytes: u64,
    /// The address of the instruction.
    pub pc: u64,
}

/// The directory.
#[derive(Debug)]
pub struct Directory(Sparse<Line>);

impl Directory {
    /// Creates the directory of a guest with `memory` bytes, or returns `None` if the host has no addresses
    /// for it.
    pub fn new(memory: u64) -> Option<Self> {
        Sparse::new((memory >> LINE_SHIFT) as usize).map(Self)
    }

    /// Performs `access` to the line with that number and returns the outcome. Lines beyond the memory (ROM,
    /// video) are not tracked.
    #[inline]
    pub fn access(&self, line: u64, access: &Access) -> Seen {
        self.0.get(line as usize).map_or(Seen::Hit, |line| line.access(access))
    }
}

/// Splits an access of `size` bytes at `address` into its lines. Yields the offset from `address` and the
/// bytes of the line, one bit each.
pub fn parts(address: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
    let room = LINE_SIZE - address % LINE_SIZE;
    let first = (0, mask(address % LINE_SIZE, size.min(room)));
    let second = (size > room).then(|| (room, mask(0, size - room)));
    std::iter::once(first).chain(second)
}

/// Returns the bits of `size` bytes from `offset`.
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
