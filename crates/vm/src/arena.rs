//! Where a mapping goes when the caller does not say.
//!
//! One place to look for holes would be one place to meet. So each core looks in an *arena* of its own: a
//! part of the address space whose slots, nodes and table pages no other core needs to touch.
//!
//! ```text
//! bottom            window                    cursor              top
//!   |  never used     |   next pass ...         |  ... this pass   |
//! ```
//!
//! - **Recent.** The ranges this core unmapped last, newest first. Who maps and unmaps in a loop gets the
//!   same pages, nodes and table pages again.
//! - **Cursor.** Otherwise the search goes down from where it stood, through a *window* below the arena's
//!   top. At the end of the window one pass is over. If less than half of the window could be handed out in
//!   it, the window doubles and the search goes on in new land; else it starts again at the top. So a pass
//!   costs about two looks a page handed out, and the window stays within a small multiple of what is mapped:
//!   addresses are reused, not used up.
//! - Nothing here is a reservation, and no other core writes here: every candidate is verified under the
//!   range lock by the caller, and one that was taken meanwhile is passed over.
//!
//! An arena that is full says so, and the caller looks everywhere else.

use core::ops::Range;

use percore::{PerCore, Pinned};
use sync::SpinLock;

use crate::hole::{LARGE, Look, alignment, hole_below};
use crate::layout::{Layout, Split};
use crate::{PageNum, PageRange};

/// Ranges remembered for reuse.
const RECENT: usize = 8;

/// The arenas of all cores.
#[derive(Debug)]
pub(crate) struct Arenas(PerCore<SpinLock<Arena>>);

impl Arenas {
    pub(crate) fn new(layout: &Layout) -> Self {
        let split = Split::of(layout);
        Self(PerCore::new(layout.cores, |core| SpinLock::new(Arena::new(split.part(core.index())))))
    }

    /// A range of `pages` pages that this core unmapped lately.
    #[inline]
    pub(crate) fn recent(&self, pin: &Pinned, pages: u64) -> Option<PageNum> {
        self.0.mine(pin).lock().recent.take(pages).map(PageNum::new)
    }

    /// The next hole of `pages` pages in this core's arena; `None` if a whole pass found none.
    pub(crate) fn search(&self, pin: &Pinned, pages: u64, look: impl Fn(u64) -> Look) -> Option<PageNum> {
        self.0.mine(pin).lock().search(pages, &look).map(PageNum::new)
    }

    /// This core unmapped `range`.
    #[inline]
    pub(crate) fn released(&self, pin: &Pinned, range: PageRange) {
        self.0.mine(pin).lock().released(range);
    }
}

#[derive(Debug)]
struct Arena {
    all: Range<u64>,
    /// Lowest page searched so far.
    window: u64,
    /// The search goes on below this page.
    cursor: u64,
    /// Pages handed out in this pass.
    taken: u64,
    recent: Recent,
}

impl Arena {
    fn new(all: Range<u64>) -> Self {
        let top = all.end;
        let window = top.saturating_sub(LARGE).max(all.start);
        Self { all, window, cursor: top, taken: 0, recent: Recent::default() }
    }

    fn search(&mut self, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
        let mut restarted = false;
        loop {
            if let Some(start) = hole_below(self.window..self.cursor, pages, look) {
                self.cursor = start;
                self.taken += pages;
                return Some(start);
            }
            if !self.grow() {
                if restarted {
                    return None;
                }
                restarted = true;
                self.restart();
            }
        }
    }

    /// The pass is over: doubles the window if the pass was a poor one and there is room.
    fn grow(&mut self) -> bool {
        let size = self.all.end - self.window;
        if self.taken * 2 >= size.max(1) || self.window == self.all.start {
            return false;
        }
        self.window = self.window.saturating_sub(size).max(self.all.start);
        true
    }

    fn restart(&mut self) {
        self.cursor = self.all.end;
        self.taken = 0;
    }

    fn released(&mut self, range: PageRange) {
        if self.window <= range.start().get() && range.end().get() <= self.all.end {
            self.recent.put(range);
        }
    }
}

/// The last few ranges unmapped; the newest of a size is reused first, the oldest of all forgotten first.
#[derive(Debug)]
struct Recent {
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
    fn put(&mut self, range: PageRange) {
        self.ranges[self.next % RECENT] = range;
        self.next = (self.next + 1) % RECENT;
    }

    #[inline]
    fn take(&mut self, pages: u64) -> Option<u64> {
        let newest_first = (1..=RECENT).map(|back| (self.next + RECENT - back) % RECENT);
        let mut fitting = newest_first.filter(|&at| fits(self.ranges[at], pages));
        let at = fitting.next()?;
        let start = self.ranges[at].start().get();
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
    use alloc::collections::BTreeSet;
    use core::cell::{Cell, RefCell};

    /// A map that counts how often it is looked at.
    #[derive(Default)]
    struct Land {
        used: RefCell<BTreeSet<u64>>,
        looks: Cell<u64>,
    }

    impl Land {
        fn look(&self, page: u64) -> Look {
            self.looks.set(self.looks.get() + 1);
            Look { start: page, used: self.used.borrow().contains(&page) }
        }

        fn take(&self, arena: &mut Arena, pages: u64) -> Option<u64> {
            let start = arena.search(pages, &|page| self.look(page))?;
            self.used.borrow_mut().extend(start..start + pages);
            Some(start)
        }

        fn free(&self, pages: Range<u64>) {
            self.used.borrow_mut().retain(|page| !pages.contains(page));
        }
    }

    #[test]
    fn mapping_and_never_unmapping_costs_a_few_looks_a_page() {
        let (land, mut arena) = (Land::default(), Arena::new(0..1 << 30));
        for size in [1, 3, 64, 2048] {
            let before = land.looks.get();
            let pages: u64 = (0..8192 / size).map(|_| land.take(&mut arena, size).map_or(0, |_| size)).sum();
            let looks = land.looks.get() - before;
            assert!(looks <= 6 * pages, "{size} pages at a time: {looks} looks for {pages} pages");
        }
    }

    #[test]
    fn a_queue_of_pages_freed_by_others_cycles_in_the_first_window() {
        let (land, mut arena) = (Land::default(), Arena::new(0..1 << 30));
        let mut queue = alloc::collections::VecDeque::new();
        for _ in 0..20_000 {
            let start = land.take(&mut arena, 1).unwrap();
            assert!(start >= (1 << 30) - LARGE, "left the window for page {start:#x}");
            queue.push_back(start);
            if queue.len() > 100 {
                let oldest = queue.pop_front().unwrap();
                land.free(oldest..oldest + 1);
            }
        }
    }

    #[test]
    fn holes_are_used_when_nothing_else_is_left() {
        let (land, mut arena) = (Land::default(), Arena::new(1000..3000));
        while land.take(&mut arena, 1).is_some() {}
        assert_eq!(land.used.borrow().len(), 2000);
        land.free(1500..1507);
        land.free(2800..2807);
        assert_eq!(land.take(&mut arena, 8), None);
        assert_eq!(land.take(&mut arena, 7), Some(2800));
        assert_eq!(land.take(&mut arena, 7), Some(1500));
        assert_eq!(land.take(&mut arena, 1), None);
    }

    #[test]
    fn the_newest_range_of_a_size_comes_back_first() {
        let mut recent = Recent::default();
        let range = |start, pages| PageRange::new(PageNum::new(start), pages).unwrap();
        for (start, pages) in [(10, 1), (20, 2), (30, 1), (1000, 512), (1024, 512)] {
            recent.put(range(start, pages));
        }
        assert_eq!(recent.take(1), Some(30));
        assert_eq!(recent.take(512), Some(1024));
        assert_eq!(recent.take(512), None, "page 1000 is no place for a large page");
        assert_eq!((recent.take(1), recent.take(1), recent.take(2)), (Some(10), None, Some(20)));
        (0..20).for_each(|start| recent.put(range(start, 3)));
        let all: alloc::vec::Vec<_> = core::iter::from_fn(|| recent.take(3)).collect();
        assert_eq!(all, [19, 18, 17, 16, 15, 14, 13, 12]);
    }
}
