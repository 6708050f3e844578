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
//!   top. At the end of the window one pass is over. If less than half of the window could be handed out in it, the
//!   window doubles and the search goes on in new land; else it starts again at the top. So a pass costs about two looks a
//!   page handed out, and the window stays within a small multiple of what is mapped: addresses are reused, not used up.
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
        self.cursor = self.cursor.min(self.window.saturating_add(LARGE));
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

/// The highest hole of `pages` pages in `within`. Looks at each page at most once, alignment aside.
pub(crate) fn hole_below(within: Range<u64>, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
    hole_aligned(within, pages, alignment(pages), look)
}

/// [`hole_below`] at multiples of `align` only.
pub(crate) fn hole_aligned(
    within: Range<u64>,
    pages: u64,
    align: u64,
    look: &impl Fn(u64) -> Look,
) -> Option<u64> {
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
    range.pages() == pages && range.start().get() % alignment(pages) == 0
}
