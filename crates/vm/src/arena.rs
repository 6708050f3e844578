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

use crate::{PageNum, PageRange};

/// Pages of a leaf node, of a table page, and of a large page. Larger mappings start at a multiple of it.
const LARGE: u64 = 512;

/// Ranges remembered for reuse.
const RECENT: usize = 8;

/// What may be mapped where.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Cores of the machine.
    pub cores: usize,
    /// Every page that may be mapped.
    pub user: PageRange,
    /// Where mappings without a fixed address go first, and where the cores' arenas lie. Within `user`.
    pub anywhere: PageRange,
}

/// What one look at the map says about a page: how far down the same holds, and whether it is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) start: u64,
    pub(crate) used: bool,
}

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

/// How `anywhere` is divided: along the largest node boundaries that give each core a part.
struct Split {
    grain: u64,
    units: Range<u64>,
    cores: u64,
}

impl Split {
    fn of(layout: &Layout) -> Self {
        let (cores, within) = (layout.cores as u64, layout.anywhere);
        let split = |shift: u32| Self { grain: 1 << shift, units: units(within, 1 << shift), cores };
        let fits = |split: &Self| split.units.end.saturating_sub(split.units.start) >= cores;
        [27, 18, 9].map(split).into_iter().find(fits).unwrap_or_else(|| split(0))
    }

    fn part(&self, core: usize) -> Range<u64> {
        let units = self.units.end - self.units.start;
        let bound = |core: u64| (self.units.start + units * core / self.cores) * self.grain;
        bound(core as u64)..bound(core as u64 + 1)
    }
}

fn units(within: PageRange, grain: u64) -> Range<u64> {
    within.start().get().div_ceil(grain)..within.end().get() / grain
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

/// The highest hole of `pages` pages in `within`: an aligned one if there is one.
pub(crate) fn any_hole(within: Range<u64>, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
    let aligned = hole_below(within.clone(), pages, look);
    if pages < LARGE { aligned } else { aligned.or_else(|| hole_aligned(within, pages, 1, look)) }
}

/// The highest aligned hole of `pages` pages in `within`. Looks at each page at most once, alignment aside.
fn hole_below(within: Range<u64>, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
    hole_aligned(within, pages, alignment(pages), look)
}

/// [`hole_below`] at multiples of `align` only.
fn hole_aligned(within: Range<u64>, pages: u64, align: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
    let mut end = within.end;
    loop {
        let start = end.checked_sub(pages)? / align * align;
        if start < within.start {
            return None;
        }
        match used_in(start..start + pages, look) {
            None => return Some(start),
            Some(used) => end = used,
        }
    }
}

/// Where the highest used slot that overlaps `range` starts.
fn used_in(range: Range<u64>, look: &impl Fn(u64) -> Look) -> Option<u64> {
    let mut at = range.end;
    while at > range.start {
        let Look { start, used } = look(at - 1);
        if used {
            return Some(start);
        }
        at = start;
    }
    None
}

fn alignment(pages: u64) -> u64 {
    if pages < LARGE { 1 } else { LARGE }
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

    fn layout(cores: usize, pages: Range<u64>) -> Layout {
        let all = PageRange::between(PageNum::new(pages.start), PageNum::new(pages.end));
        Layout { cores, user: all, anywhere: all }
    }

    #[test]
    fn parts_are_disjoint_ordered_and_cover_at_least_half() {
        for cores in [1, 2, 7, 64, 256] {
            for pages in [16..1 << 35, 0..1 << 36, 700..(1 << 20) + 3, 3..2000, 5..9] {
                let split = Split::of(&layout(cores, pages.clone()));
                let parts: alloc::vec::Vec<_> = (0..cores).map(|core| split.part(core)).collect();
                assert!(
                    parts.windows(2).all(|pair| pair[0].end == pair[1].start),
                    "{cores} cores, {pages:?}"
                );
                assert!(pages.start <= parts[0].start && parts[cores - 1].end <= pages.end);
                let covered = parts[cores - 1].end - parts[0].start;
                assert!(2 * covered >= pages.end - pages.start, "{cores} cores, {pages:?}: {covered} pages");
                let largest = if pages.end > 1 << 34 && cores <= 64 { 1 << 27 } else { 1 };
                assert!(parts.iter().all(|part| part.start % largest == 0));
            }
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
