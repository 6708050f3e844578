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
//! whether a page is free: so a hole is found whoever made it, and nobody has to tell anybody about it.
//!
//! 1. **Sweep.** A search for `n` pages goes at most [`CREDIT`]` * n` pages on in this pass.
//! 2. **Extend.** If there was no hole, the window is extended: into land that an earlier window covered, for
//!    [`STRIDE`] pages more at most, or
//! 3. **advance** into land where nothing was ever handed out, which takes a look or two.
//! 4. Only if all of that is used the arena is searched as a whole.
//!
//! So no search takes more than `2 * CREDIT * n + STRIDE` looks while there is new land, and usually `CREDIT`.
//! Still the spread is bounded. Whoever extends the window by `n` pages has just swept `CREDIT * n` without a
//! hole: a pass extends it by a third at most, and only where it is densely used. And a pass that handed out more
//! than half of the window halves it. So the window is a small multiple of what is mapped, whether that grows
//! or shrinks, and all that is handed out lies in it.

use core::ops::Range;

use crate::PageRange;
use crate::hole::{LARGE, Look, hole_below};

/// How many pages a search may sweep for each page that is asked for.
const CREDIT: u64 = 4;

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

    /// A hole of `pages` pages; `None` if there is none at all.
    pub(crate) fn search(&mut self, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
        self.sweep(pages, look)
            .or_else(|| self.extend(pages, look))
            .or_else(|| self.advance(pages, look))
            .or_else(|| hole_below(self.all.clone(), pages, look).ok())
    }

    /// Whether `range` lies where the passes go.
    #[inline]
    pub(crate) fn covers(&self, range: PageRange) -> bool {
        self.window <= range.start().get() && range.end().get() <= self.top
    }

    fn sweep(&mut self, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
        let low = self.cursor.saturating_sub(CREDIT * pages).max(self.window);
        match hole_below(low..self.cursor, pages, look) {
            Ok(start) => {
                self.cursor = start;
                self.handed += pages;
                Some(start)
            }
            Err(end) => {
                self.cursor = end;
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

    fn extend(&mut self, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
        let low = self.window.saturating_sub(STRIDE + CREDIT * pages).max(self.floor);
        let hole = hole_below(low..self.window, pages, look).ok();
        self.window = hole.unwrap_or(low);
        hole
    }

    fn advance(&mut self, pages: u64, look: &impl Fn(u64) -> Look) -> Option<u64> {
        let start = hole_below(self.all.start..self.floor, pages, look).ok()?;
        if self.window == self.floor {
            self.window = start;
        }
        self.floor = start;
        Some(start)
    }
}
