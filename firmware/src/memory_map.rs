//! The set of usable physical memory.

/// Bytes of a frame.
pub const FRAME: u64 = 4096;
/// Maximum number of regions. No firmware reports as many, after merging.
const MAX_REGIONS: usize = 128;

/// An entry of a boot loader's memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Address of the first byte.
    pub start: u64,
    /// Address past the last byte.
    pub end: u64,
    /// True if the entry may be used as memory. All other entries must not be written.
    pub usable: bool,
}

/// A set of frames: sorted, disjoint byte ranges that begin and end between frames.
#[derive(Clone, Debug)]
pub struct MemoryMap {
    regions: [(u64, u64); MAX_REGIONS],
    count: usize,
    /// Bytes that could not be kept.
    lost: u64,
}

impl MemoryMap {
    /// Collects the frames below `limit` that are usable in whole.
    ///
    /// Entries may come in any order and overlap. Where a usable one overlaps another kind, the memory is not
    /// used.
    pub fn new(entries: impl Iterator<Item = Memory> + Clone, limit: u64) -> Self {
        let mut map = Self { regions: [(0, 0); MAX_REGIONS], count: 0, lost: 0 };
        let (usable, other) = (|entry: &Memory| entry.usable, |entry: &Memory| !entry.usable);
        entries.clone().filter(usable).for_each(|entry| map.add(inner_frames(entry)));
        entries.filter(other).for_each(|entry| map.remove((entry.start, entry.end)));
        map.lose_above(limit);
        map
    }

    /// Removes every frame that the range touches.
    pub fn remove(&mut self, (start, end): (u64, u64)) {
        if start >= end {
            return;
        }
        let (start, end) = (start & !(FRAME - 1), end.checked_next_multiple_of(FRAME).unwrap_or(u64::MAX));
        for (low, high) in self.take_overlapping(start, end) {
            self.insert((low, start));
            self.insert((end, high));
        }
    }

    /// Returns the regions, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + Clone {
        self.regions[..self.count].iter().copied()
    }

    /// Returns one past the highest frame.
    pub fn end_frame(&self) -> u64 {
        self.iter().last().map_or(0, |(_, end)| end / FRAME)
    }

    /// Returns the number of frames in all regions.
    pub fn frames(&self) -> u64 {
        self.iter().map(|(start, end)| (end - start) / FRAME).sum()
    }

    /// Returns the bytes of usable memory that are left out: beyond the limit, [not worth its
    /// table](Self::lose_unaffordable), or in too many pieces.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Removes `bytes`, rounded up to frames, from the top of the highest region that has them below `limit`,
    /// and returns their address. Returns `None` if no region has them.
    pub fn carve(&mut self, bytes: u64, limit: u64) -> Option<u64> {
        let bytes = bytes.checked_next_multiple_of(FRAME)?;
        let room =
            |&(start, end): &(u64, u64)| end.min(limit).checked_sub(start).is_some_and(|room| room >= bytes);
        let (_, end) = self.iter().filter(room).last()?;
        let at = end.min(limit) - bytes;
        self.remove((at, at + bytes));
        Some(at)
    }

    /// Leaves out the highest regions as long as a table with `each` bytes for every frame up to the highest
    /// fits into no region, or takes more than one part in `share` of all memory.
    pub fn lose_unaffordable(&mut self, each: u64, share: u64) {
        let largest = |map: &Self| map.iter().map(|(start, end)| end - start).max().unwrap_or(0);
        while self.end_frame() * each > largest(self).min(self.frames() * FRAME / share) {
            self.lose_last();
        }
    }

    fn lose_above(&mut self, limit: u64) {
        let before = self.frames();
        self.remove((limit, u64::MAX));
        self.lost += (before - self.frames()) * FRAME;
    }

    fn lose_last(&mut self) {
        if let Some((start, end)) = self.iter().last() {
            self.count -= 1;
            self.lost += end - start;
        }
    }

    /// Adds a range. It is merged with the regions that it overlaps or meets.
    fn add(&mut self, (mut start, mut end): (u64, u64)) {
        if start >= end {
            return;
        }
        for (low, high) in self.take_overlapping(start.saturating_sub(1), end.saturating_add(1)) {
            (start, end) = (start.min(low), end.max(high));
        }
        self.insert((start, end));
    }

    /// Removes and returns the regions that overlap the range.
    fn take_overlapping(&mut self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let first = self.iter().take_while(|(_, high)| *high <= start).count();
        let taken = self.iter().skip(first).take_while(|(low, _)| *low < end).count();
        let old = self.regions;
        self.regions.copy_within(first + taken..self.count, first);
        self.count -= taken;
        (first..first + taken).map(move |at| old[at])
    }

    /// Inserts a range that overlaps no region, in order. With no place left, the smallest region is lost.
    fn insert(&mut self, (start, end): (u64, u64)) {
        if start >= end {
            return;
        }
        if self.count == MAX_REGIONS && !self.lose_smaller_than(end - start) {
            self.lost += end - start;
            return;
        }
        let at = self.iter().take_while(|(low, _)| *low < start).count();
        self.regions.copy_within(at..self.count, at + 1);
        self.regions[at] = (start, end);
        self.count += 1;
    }

    fn lose_smaller_than(&mut self, bytes: u64) -> bool {
        let smallest = self.iter().enumerate().map(|(at, (low, high))| (high - low, at)).min();
        let Some((size, at)) = smallest.filter(|(size, _)| *size < bytes) else { return false };
        self.regions.copy_within(at + 1..self.count, at);
        self.count -= 1;
        self.lost += size;
        true
    }
}

/// Returns the frames that lie in an entry in whole.
fn inner_frames(entry: Memory) -> (u64, u64) {
    let start = entry.start.checked_next_multiple_of(FRAME).unwrap_or(u64::MAX);
    (start, entry.end & !(FRAME - 1))
}
