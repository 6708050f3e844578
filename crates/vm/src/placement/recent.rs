//! The last few ranges that a core unmapped. A program that maps and unmaps in a loop gets the same pages,
//! nodes and table pages again without a search of the map.
//!
//! Only a range of just the size that is asked for comes back. To split a larger one would cost the loop that
//! uses it its place. A range that is not asked for again is forgotten, and found as a hole by the search.

use super::hole::alignment;
use crate::{PageNum, PageRange};

/// Ranges remembered.
const RECENT: usize = 8;

/// The newest range of a size is reused first, the oldest of all forgotten first.
#[derive(Debug)]
pub(crate) struct Recent {
    ranges: [PageRange; RECENT],
    next: usize,
}

impl Default for Recent {
    fn default() -> Self {
        Self { ranges: [PageRange::EMPTY; RECENT], next: 0 }
    }
}

impl Recent {
    #[inline]
    pub(crate) fn put(&mut self, range: PageRange) {
        self.ranges[self.next % RECENT] = range;
        self.next = (self.next + 1) % RECENT;
    }

    #[inline]
    pub(crate) fn take(&mut self, pages: u64) -> Option<PageNum> {
        let newest_first = (1..=RECENT).map(|back| (self.next + RECENT - back) % RECENT);
        let mut fitting = newest_first.filter(|&at| fits(self.ranges[at], pages));
        let at = fitting.next()?;
        let start = self.ranges[at].start();
        self.ranges[at] = PageRange::EMPTY;
        if (at + 1) % RECENT == self.next {
            self.next = at;
        }
        Some(start)
    }
}

#[inline]
fn fits(range: PageRange, pages: u64) -> bool {
    range.pages() == pages && range.start().get().is_multiple_of(alignment(pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_range_of_a_size_comes_back_first() {
        let mut recent = Recent::default();
        let range = |start, pages| PageRange::new(PageNum::new(start), pages).unwrap();
        for (start, pages) in [(10, 1), (20, 2), (30, 1), (1000, 512), (1024, 512)] {
            recent.put(range(start, pages));
        }
        let mut take = |pages| recent.take(pages).map(PageNum::get);
        assert_eq!(take(1), Some(30));
        assert_eq!(take(512), Some(1024));
        assert_eq!(take(512), None, "page 1000 is no place for a large page");
        assert_eq!((take(1), take(1), take(2)), (Some(10), None, Some(20)));
        (0..20).for_each(|start| recent.put(range(start, 3)));
        let all: alloc::vec::Vec<_> = core::iter::from_fn(|| recent.take(3).map(PageNum::get)).collect();
        assert_eq!(all, [19, 18, 17, 16, 15, 14, 13, 12]);
    }

    #[test]
    fn a_loop_over_the_newest_range_forgets_no_other() {
        let mut recent = Recent::default();
        let range = |pages| PageRange::new(PageNum::new(100 * pages), pages).unwrap();
        (1..=RECENT as u64).for_each(|pages| recent.put(range(pages)));
        for _ in 0..2 * RECENT {
            assert!(recent.take(RECENT as u64).is_some());
            recent.put(range(RECENT as u64));
        }
        assert!((1..=RECENT as u64).all(|pages| recent.take(pages) == Some(range(pages).start())));
    }
}
