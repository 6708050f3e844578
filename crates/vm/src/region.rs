//! What is mapped, as a whole: for lists of mappings and sums over them.

use crate::meta::Page;
use crate::{Mapping, PageNum, PageRange};

/// Pages side by side that are of one mapping, as many as there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Which.
    pub pages: PageRange,
    /// What they have in common.
    pub mapping: Mapping,
    /// How many of them are in memory.
    pub resident: Resident,
}

/// Pages that have frames, by who else may have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Nobody.
    pub alone: u64,
    /// Nobody, in huge pages: these are among those above.
    pub huge: u64,
    /// Other spaces, since a fork.
    pub counted: u64,
    /// The backing.
    pub shown: u64,
}

impl Resident {
    /// All of them.
    pub fn total(self) -> u64 {
        self.alone + self.counted + self.shown
    }

    fn add(&mut self, pages: u64, page: Page) {
        match (page.frame(), page.is_shown(), page.is_counted()) {
            (None, ..) => {}
            (_, true, _) => self.shown += pages,
            (_, _, true) => self.counted += pages,
            _ => self.alone += pages,
        }
        if page.is_huge() {
            self.huge += pages;
        }
    }
}

impl Region {
    /// Equal pages.
    pub(crate) fn new(pages: PageRange, page: Page) -> Self {
        let mut resident = Resident::default();
        resident.add(pages.pages(), page);
        Self { pages, mapping: page.mapping(), resident }
    }

    /// The region with equal pages that follow, if they are of the same mapping.
    pub(crate) fn joined(mut self, pages: PageRange, page: Page) -> Option<Self> {
        if self.pages.end() != pages.start() || self.mapping != page.mapping() {
            return None;
        }
        self.pages = PageRange::between(self.start(), pages.end());
        self.resident.add(pages.pages(), page);
        Some(self)
    }

    fn start(&self) -> PageNum {
        self.pages.start()
    }
}
