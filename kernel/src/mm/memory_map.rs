//! Which physical memory may be handed out.

use crate::arch::{BootInfo, kernel_image};

/// Bytes of a frame.
pub const FRAME: u64 = 4096;
/// Firmware, and where starting cores begin.
const LOW_MEMORY: u64 = 1 << 20;
const MAX_REGIONS: usize = 64;

/// Free physical memory: frame-aligned (start, end) byte ranges, disjoint.
#[derive(Clone, Copy)]
pub struct MemoryMap {
    regions: [(u64, u64); MAX_REGIONS],
    count: usize,
}

impl MemoryMap {
    /// What the boot loader calls RAM, without the kernel, the initial image and low memory.
    pub fn new(boot: &BootInfo) -> Self {
        let mut map = Self { regions: [(0, 0); MAX_REGIONS], count: 0 };
        boot.ram().for_each(|(start, end)| map.add(start.next_multiple_of(FRAME), end & !(FRAME - 1)));
        map.remove((0, LOW_MEMORY));
        map.remove(kernel_image());
        map.remove(boot.image());
        map
    }

    fn add(&mut self, start: u64, end: u64) {
        if start < end {
            assert!(self.count < MAX_REGIONS, "the memory map has too many regions");
            self.regions[self.count] = (start, end);
            self.count += 1;
        }
    }

    fn remove(&mut self, (start, end): (u64, u64)) {
        let (start, end) = (start & !(FRAME - 1), end.next_multiple_of(FRAME));
        for at in 0..self.count {
            let (low, high) = self.regions[at];
            if start < high && low < end {
                self.regions[at] = (low, start.max(low));
                self.add(end.min(high), high);
            }
        }
    }

    /// The regions.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.regions[..self.count].iter().copied().filter(|(start, end)| start < end)
    }

    /// One past the highest frame.
    pub fn end_frame(&self) -> u64 {
        self.iter().map(|(_, end)| end / FRAME).max().unwrap_or(0)
    }

    /// Frames in all regions.
    pub fn frames(&self) -> u64 {
        self.iter().map(|(start, end)| (end - start) / FRAME).sum()
    }

    /// Takes `bytes` away from the top of the largest region below `limit`, and says where they are.
    ///
    /// # Panics
    /// If no region has that much.
    pub fn carve(&mut self, bytes: u64, limit: u64) -> u64 {
        let bytes = bytes.next_multiple_of(FRAME);
        let below = self.regions[..self.count].iter_mut().filter(|(_, end)| *end <= limit);
        let region = below.max_by_key(|(start, end)| end - start).expect("there is memory");
        assert!(region.1 - region.0 >= bytes, "not enough memory to boot");
        region.1 -= bytes;
        region.1
    }
}
