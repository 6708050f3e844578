//! Sizes of what the kernel counts reads of files with. The papers' figures that are sizes are computed from
//! them, and the kernel's structures have them.

/// Bytes of the descriptor of a frame, which has the words below and Refcache's header.
pub const DESCRIPTOR: usize = 64;
/// Bytes in it that count the reads of all processes.
pub const WORD: usize = 8;
/// Bytes in it by which contention is seen.
pub const MARK: usize = 8;
/// Entries of a core's table that counts reads (`read_refs=paygo`).
pub const PAYGO_ENTRIES: usize = 512;
/// Entries of a core's delta cache, for all that Refcache counts.
pub const DELTA_ENTRIES: usize = 2048;
/// Bytes of the counters of a process (`read_refs=lodic`).
pub const COUNTERS: usize = 4096;
/// Regions of files that a process may name.
pub const REGIONS: usize = 8;
/// Bits of an entry of a page table that count reads: the first, and their number.
pub const ENTRY: (u32, u32) = (52, 7);
/// Entries of a page table, and its bytes.
pub const TABLE: (usize, usize) = (512, 4096);
