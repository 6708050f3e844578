//! The parts of page words that regions and their sums count.

use super::meta::Page;
use crate::{FrameNum, FrameRun, HUGE_PAGES, PageRange, Region, Resident};

impl Resident {
    #[inline(always)]
    fn add(&mut self, pages: u64, page: Page) {
        match (page.frame(), page.is_shown(), page.is_counted()) {
            (None, ..) if page.compressed().is_some() => self.compressed += pages,
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
    /// Returns a region of `pages`, which are all like `page`.
    #[inline]
    pub fn new(pages: PageRange, page: Page) -> Self {
        let mut resident = Resident::default();
        resident.add(pages.pages(), page);
        Self { pages, mapping: page.mapping(), resident }
    }

    /// Counts `pages` of the region, which are like `page`.
    #[inline(always)]
    pub fn count(&mut self, pages: PageRange, page: Page) {
        self.resident.add(pages.pages(), page);
    }

    /// Adds `pages`, which are like `page`, if they follow and are of the same mapping. Returns whether they
    /// are.
    #[inline(always)]
    pub(crate) fn goes_on(&mut self, pages: PageRange, page: Page) -> bool {
        let same = self.pages.end() == pages.start() && self.mapping == page.mapping();
        if same {
            self.pages = PageRange::between(self.pages.start(), pages.end());
            self.count(pages, page);
        }
        same
    }
}

impl FrameRun {
    /// Returns the frames of `pages`, which are a page or part of a huge one, and all like `page`. Returns
    /// `None` if they have none.
    pub fn of(pages: PageRange, page: Page) -> Option<Self> {
        let before = if page.is_huge() { pages.start().get() % HUGE_PAGES } else { 0 };
        let first = FrameNum::new(page.frame()?.get() + before);
        Some(Self { pages, first, is_shown: page.is_shown() })
    }
}
