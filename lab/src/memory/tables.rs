//! Page tables of one core that are only counted, as frames of x86-64 tables. A linked leaf belongs to the
//! space, and is counted there.

use std::collections::HashSet;
use std::sync::Mutex;

use percore::{CoreSet, Pinned};
use vm::{FrameNum, Mmu, OutOfMemory, PageNum, PageRange, Prot, Shot, Tables};

use super::snapshot::Region;

/// log2 of the pages that a table of each level covers: page table, page directory, directory pointers, root.
pub const LEVELS: [u32; 4] = [9, 18, 27, 36];

/// The counted tables.
pub struct CountedTables {
    kind: Tables,
    there: Mutex<HashSet<(u32, u64)>>,
}

impl CountedTables {
    /// Creates empty tables with room for `regions`, so that counting allocates nothing.
    pub fn for_regions(kind: Tables, regions: &[Region]) -> Self {
        let runs = regions.iter().flat_map(|region| &region.resident);
        let room = runs.map(|(_, pages)| 2 * LEVELS.len() + *pages as usize / 256).sum();
        Self { kind, there: Mutex::new(HashSet::with_capacity(room)) }
    }

    /// Adds the tables of these levels on the way to `page`.
    fn add(&self, levels: &[u32], page: PageNum) {
        let tables = levels.iter().map(|&bits| (bits, page.get() >> bits));
        self.there.lock().expect("counting does not panic").extend(tables);
    }

    /// Returns the number of their frames.
    pub fn frames(&self) -> u64 {
        self.there.lock().expect("counting does not panic").len() as u64
    }
}

impl Mmu for CountedTables {
    fn tables(&self) -> Tables {
        self.kind
    }

    fn fill(&self, _: &Pinned, page: PageNum, _: FrameNum, _: Prot) -> Result<(), OutOfMemory> {
        self.add(&LEVELS, page);
        Ok(())
    }

    fn fill_huge(&self, _: &Pinned, first: PageNum, _: FrameNum, _: Prot) -> Result<(), OutOfMemory> {
        self.add(&LEVELS[1..], first);
        Ok(())
    }

    fn clear(&self, _: &Pinned, _: PageRange) {}

    fn shootdown(&self, _: &Pinned, _: &CoreSet, _: PageRange) -> Shot {
        Shot::default()
    }

    fn users(&self, _: &Pinned) -> CoreSet {
        CoreSet::EMPTY
    }

    /// Returns a present entry.
    fn entry(&self, _: Prot) -> u64 {
        1
    }

    fn link(&self, _: &Pinned, page: PageNum, _: usize) -> Result<bool, OutOfMemory> {
        self.add(&LEVELS[1..], page);
        Ok(true)
    }
}
