//! Computes the large pages that map all memory at one constant offset.

use crate::MemoryMap;

/// Bytes of a large page.
pub const MIB_2: u64 = 2 << 20;
/// Bytes of a page of a gibibyte.
pub const GIB: u64 = 1 << 30;
/// Devices of a PC lie below this address.
const FOUR_GIB: u64 = 4 << 30;

/// A page of the physmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Physical address, a multiple of the size.
    pub at: u64,
    /// [`MIB_2`] or [`GIB`].
    pub bytes: u64,
    /// True if there is any memory in it. Otherwise there are at most devices.
    pub is_memory: bool,
}

/// The pages that map all memory of a map, and everything below 4 GiB, lowest first. Gaps between regions
/// above 4 GiB are not mapped, so the number of pages depends on the amount of memory and not on its place.
pub struct Pages<'a> {
    memory: &'a MemoryMap,
    /// Whether the CPU has pages of a gibibyte.
    has_gib: bool,
    next: u64,
}

impl<'a> Pages<'a> {
    /// Returns the pages for this memory, on a CPU with or without pages of a gibibyte.
    pub fn new(memory: &'a MemoryMap, has_gib: bool) -> Self {
        Self { memory, has_gib, next: 0 }
    }

    /// Returns the first address from `at` on that must be mapped.
    fn wanted(&self, at: u64) -> Option<u64> {
        if at < FOUR_GIB {
            return Some(at);
        }
        let (start, _) = self.memory.iter().find(|(_, end)| *end > at)?;
        Some(at.max(start & !(MIB_2 - 1)))
    }

    /// Returns whether all of the page is memory.
    fn is_filled(&self, at: u64, bytes: u64) -> bool {
        self.memory.iter().any(|(start, end)| start <= at && at + bytes <= end)
    }

    fn has_memory(&self, at: u64, bytes: u64) -> bool {
        self.memory.iter().any(|(start, end)| start < at + bytes && at < end)
    }
}

impl Iterator for Pages<'_> {
    type Item = Page;

    fn next(&mut self) -> Option<Page> {
        let at = self.wanted(self.next)?;
        let large = self.has_gib && at >= FOUR_GIB && at.is_multiple_of(GIB) && self.is_filled(at, GIB);
        let bytes = if large { GIB } else { MIB_2 };
        self.next = at + bytes;
        Some(Page { at, bytes, is_memory: self.has_memory(at, bytes) })
    }
}
