//! A TLB that keeps translations, and ways to tables, under numbers.

use std::collections::BTreeMap;

use crate::core::{LEAF, Memory};

#[derive(Default)]
pub struct Tlb {
    root: Option<usize>,
    number: u64,
    /// By number and page: the frame.
    pages: BTreeMap<(u64, u64), usize>,
    /// By number and page divided by [`LEAF`]: the table of the lower level.
    ways: BTreeMap<(u64, u64), usize>,
    /// How often it had what was asked for.
    pub hits: usize,
}

impl Tlb {
    /// Another top table, or none with a user's pages. Forgets what it has under `number`, unless that is to
    /// be kept.
    pub fn load(&mut self, root: Option<usize>, number: u64, keep: bool) {
        (self.root, self.number) = (root, number);
        if !keep {
            self.pages.retain(|(of, _), _| *of != number);
            self.ways.retain(|(of, _), _| *of != number);
        }
    }

    /// Forgets one page, and all ways, of the number in use.
    pub fn flush_page(&mut self, page: u64) {
        self.pages.remove(&(self.number, page));
        self.ways.retain(|(of, _), _| *of != self.number);
    }

    /// Where `page` is: as it knows, or as a walk from the lowest table that it knows says.
    pub fn translate(&mut self, memory: &Memory, page: u64) -> Option<usize> {
        if let Some(frame) = self.pages.get(&(self.number, page)) {
            self.hits += 1;
            return Some(*frame);
        }
        let way = (self.number, page / LEAF);
        let leaf = match self.ways.get(&way) {
            Some(leaf) => *leaf,
            None => memory.entry(self.root?, page / LEAF)?,
        };
        self.ways.insert(way, leaf);
        let frame = memory.entry(leaf, page)?;
        self.pages.insert((self.number, page), frame);
        Some(frame)
    }
}
