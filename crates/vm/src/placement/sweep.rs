//! Next fit with a budget: how one arena finds holes.
//!
//! ```text
//! all.start          floor              window           cursor               top
//!   |  never handed out |  given up lately  |   ... next      |  swept in this    |
//!   |                   |                   |                 |  pass             |
//!   └──── advance ──────┘◀──── extend ──────┘◀──── sweep ─────┘                   |
//! ```
//!
//! Passes go down through the *window*, from its top, each from where the last search stood. The map is asked
//! whether a page is free. So a hole is found whichever core made it, and no core has to announce it.
//!
//! 1. **Sweep.** A search for `n` pages goes at most [`CREDIT`]` * n` pages on in this pass.
//! 2. **Extend.** If there was no hole, the window is extended: into land that an earlier window covered, for
//!    [`STRIDE`] pages more at most, or
//! 3. **advance** into land where nothing was ever handed out, which takes a look or two.
//! 4. Only if all of that is used the arena is searched as a whole.
//!
//! So no search looks along more than `2 * CREDIT * n + STRIDE` pages while there is new land, and few
//! searches look that far. Still the spread is bounded. A search that extends the window by `n` pages has
//! just swept `CREDIT * n` (or the rest of a pass) without a hole. So a pass extends it by a third at most,
//! and only where it is densely used. A pass that handed out more than half of the window halves it. So the
//! window is a small multiple of what is mapped, whether that grows or shrinks.

use core::ops::Range;

use super::hole::{LARGE, Look, hole_below};
use crate::PageRange;

/// How many pages a search may sweep for each page that is asked for.
const CREDIT: u64 = 3;

/// How many pages of land that was given up are looked at before the search goes on in new land.
const STRIDE: u64 = 16 * LARGE;

#[derive(Debug)]
pub(crate) struct Sweep {
    all: Range<u64>,
    /// Passes begin below this page.
    top: u64,
    /// The lowest page ever handed out.
    floor: u64,
    /// Passes end at this page.
    window: u64,
    /// This pass goes on below this page.
    cursor: u64,
    /// Pages that this pass has handed out.
    handed: u64,
}

impl Sweep {
    /// Hands out `all`, downwards from `top`.
    pub(crate) fn new(all: Range<u64>, top: u64) -> Self {
        let window = top.saturating_sub(LARGE).max(all.start);
        Self { all, top, floor: window, window, cursor: top, handed: 0 }
    }

    /// Returns a hole of `pages` pages, any number, or `None` if there is none at all.
    pub(crate) fn search(&mut self, pages: u64, look: &impl Look) -> Option<u64> {
        if pages > self.all.end - self.all.start {
            return None;
        }
        self.sweep(pages, look)
            .or_else(|| self.extend(pages, look))
            .or_else(|| self.advance(pages, look))
            .or_else(|| hole_below(self.all.clone(), pages, look).ok())
    }

    /// Returns whether `range` lies where the passes go.
    #[inline]
    pub(crate) fn covers(&self, range: PageRange) -> bool {
        self.window <= range.start().get() && range.end().get() <= self.top
    }

    fn sweep(&mut self, pages: u64, look: &impl Look) -> Option<u64> {
        if self.cursor - self.window < pages {
            self.turn();
        }
        let low = self.cursor.saturating_sub(CREDIT * pages).max(self.window);
        match hole_below(low..self.cursor, pages, look) {
            Ok(start) => {
                self.cursor = start;
                self.handed += pages;
                Some(start)
            }
            Err(end) => {
                self.cursor = end.max(self.window);
                if low == self.window {
                    self.turn();
                }
                None
            }
        }
    }

    /// The pass is over. If it found more than half of the window free, half is enough.
    fn turn(&mut self) {
        let size = self.top - self.window;
        if 2 * self.handed > size && size >= 2 * LARGE {
            self.window += size / 2;
        }
        self.cursor = self.top;
        self.handed = 0;
    }

    fn extend(&mut self, pages: u64, look: &impl Look) -> Option<u64> {
        let low = self.window.saturating_sub(STRIDE + CREDIT * pages).max(self.floor);
        let hole = hole_below(low..self.window, pages, look).ok();
        self.window = hole.unwrap_or(low);
        hole
    }

    fn advance(&mut self, pages: u64, look: &impl Look) -> Option<u64> {
        let start = hole_below(self.all.start..self.floor, pages, look).ok()?;
        if self.window == self.floor {
            self.window = start;
        }
        self.floor = start;
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::{BTreeSet, VecDeque};
    use alloc::vec::Vec;
    use core::cell::{Cell, RefCell};

    const TOP: u64 = 1 << 30;

    /// A map that counts how often it is looked at.
    #[derive(Default)]
    struct Land {
        used: RefCell<BTreeSet<u64>>,
        looks: Cell<u64>,
    }

    impl Land {
        fn look(&self, pages: Range<u64>) -> Option<u64> {
            self.looks.set(self.looks.get() + 1);
            self.used.borrow().range(pages).next().copied()
        }

        fn take(&self, sweep: &mut Sweep, pages: u64) -> Option<u64> {
            let start = sweep.search(pages, &|pages| self.look(pages))?;
            self.used.borrow_mut().extend(start..start + pages);
            Some(start)
        }

        fn free(&self, pages: Range<u64>) {
            self.used.borrow_mut().retain(|page| !pages.contains(page));
        }

        /// Returns how many looks `f` takes.
        fn looks(&self, f: impl FnOnce()) -> u64 {
            let before = self.looks.get();
            f();
            self.looks.get() - before
        }
    }

    fn sweep() -> Sweep {
        Sweep::new(0..TOP, TOP)
    }

    #[test]
    fn mapping_and_never_unmapping_costs_a_few_looks_a_page_and_leaves_no_holes() {
        for size in [1, 3, 64, 2048] {
            let (land, mut sweep) = (Land::default(), sweep());
            let looks = land.looks(|| (0..8192 / size).for_each(|_| _ = land.take(&mut sweep, size)));
            assert!(looks <= (2 * CREDIT + 2) * (8192 / size), "{size} pages at a time: {looks} looks");
            let lowest = *land.used.borrow().first().unwrap();
            assert!(TOP - lowest <= 8192 + LARGE, "{size} pages at a time: down to {lowest:#x}");
        }
    }

    #[test]
    fn a_queue_of_pages_freed_by_others_cycles_in_the_first_window() {
        let (land, mut sweep, mut queue) = (Land::default(), sweep(), VecDeque::new());
        for _ in 0..20_000 {
            let looks = land.looks(|| queue.push_back(land.take(&mut sweep, 1).unwrap()));
            assert!(looks <= CREDIT + 1);
            assert!(queue.back() >= Some(&(TOP - LARGE)), "left the window");
            if queue.len() > 100 {
                land.used.borrow_mut().remove(&queue.pop_front().unwrap());
            }
        }
    }

    #[test]
    fn the_window_shrinks_with_what_is_mapped_and_no_search_is_long() {
        let (land, mut sweep, mut queue) = (Land::default(), sweep(), VecDeque::new());
        for (live, widest) in [(20_000, 27_000), (200, 1200), (5000, 8000), (0, 1024)] {
            for _ in 0..100_000 {
                let looks = land.looks(|| queue.push_back(land.take(&mut sweep, 1).unwrap()));
                assert!(looks <= 2 * CREDIT + STRIDE + 1, "{looks} looks");
                while queue.len() > live {
                    land.used.borrow_mut().remove(&queue.pop_front().unwrap());
                }
            }
            let window = sweep.top - sweep.window;
            assert!(window <= widest, "{live} pages are mapped, and the window has {window}");
        }
    }

    #[test]
    fn a_used_slot_may_reach_below_the_window() {
        let (mut sweep, slot) = (sweep(), 1024..TOP - 100);
        let look =
            |pages: Range<u64>| (pages.start < slot.end && slot.start < pages.end).then_some(slot.start);
        let found: Vec<_> = (0..102).map(|_| sweep.search(1, &look).unwrap()).collect();
        assert_eq!(found[..100], (TOP - 100..TOP).rev().collect::<Vec<_>>());
        assert_eq!(found[100..], [1023, 1022]);
    }

    #[test]
    fn there_is_no_hole_for_more_pages_than_there_are() {
        let (land, mut sweep) = (Land::default(), sweep());
        for pages in [TOP + 1, u64::MAX / CREDIT + 1, u64::MAX] {
            assert_eq!(land.take(&mut sweep, pages), None);
        }
        assert_eq!(sweep.search(TOP, &|pages| land.look(pages)), Some(0));
    }

    #[test]
    fn holes_are_used_when_nothing_else_is_left() {
        let (land, mut sweep) = (Land::default(), Sweep::new(1000..3000, 2222));
        while land.take(&mut sweep, 1).is_some() {}
        assert_eq!(land.used.borrow().len(), 2000);
        land.free(1500..1507);
        land.free(2800..2807);
        assert_eq!(land.take(&mut sweep, 8), None);
        assert_eq!(land.take(&mut sweep, 7), Some(2800));
        assert_eq!(land.take(&mut sweep, 7), Some(1500));
        assert_eq!(land.take(&mut sweep, 1), None);
    }

    /// Everything from `floor` on is used, and the pass is in the middle of a window of 4096 pages.
    fn crowded(floor: u64) -> (Land, Sweep) {
        let land = Land::default();
        land.used.borrow_mut().extend(floor..TOP);
        let window = TOP - 4096;
        (land, Sweep { all: 0..TOP, top: TOP, floor, window, cursor: TOP - 2048, handed: 0 })
    }

    #[test]
    fn a_search_goes_as_far_as_its_credit() {
        for pages in [1, 100] {
            let floor = TOP - 100_000;
            let (land, mut sweep) = crowded(floor);
            assert_eq!(land.take(&mut sweep, pages), Some(floor - pages), "new land comes last");
            let swept = TOP - 2048 - sweep.cursor;
            assert!(CREDIT * pages - pages < swept && swept <= CREDIT * pages, "{swept} pages were swept");
            assert_eq!(TOP - 4096 - sweep.window, STRIDE + CREDIT * pages);
        }
    }

    #[test]
    fn land_that_was_given_up_is_used_before_new_land() {
        let (land, mut sweep) = crowded(TOP - 5000);
        land.free(TOP - 4500..TOP - 4490);
        let found: Vec<_> = (0..10).map(|_| land.take(&mut sweep, 1).unwrap()).collect();
        assert_eq!(found, (TOP - 4500..TOP - 4490).rev().collect::<Vec<_>>());
        assert_eq!((sweep.floor, sweep.window), (TOP - 5000, TOP - 4500));
    }

    #[test]
    fn a_pass_ends_where_the_rest_is_too_small() {
        let (land, mut sweep) = (Land::default(), Sweep::new(0..TOP, TOP));
        let mut take = || sweep.search(LARGE / 2, &|pages| land.look(pages)).unwrap();
        assert_eq!([take(), take(), take()], [TOP - LARGE / 2, TOP - LARGE, TOP - LARGE / 2]);
        let mut sweep = Sweep::new(0..TOP, TOP);
        let mut take = || sweep.search(LARGE - 1, &|pages| land.look(pages)).unwrap();
        assert_eq!([take(), take()], [TOP - LARGE + 1; 2]);
    }

    #[test]
    fn a_window_of_which_more_than_half_was_free_is_halved() {
        for (size, handed, left) in
            [(4096, 2048, 4096), (4096, 2049, 2048), (2 * LARGE - 1, 2 * LARGE - 1, 2 * LARGE - 1)]
        {
            let window = TOP - size;
            let mut sweep = Sweep { all: 0..TOP, top: TOP, floor: window, window, cursor: window, handed };
            sweep.turn();
            assert_eq!((TOP - sweep.window, sweep.cursor, sweep.handed), (left, TOP, 0));
        }
    }
}
