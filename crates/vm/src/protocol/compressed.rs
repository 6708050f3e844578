//! Compressed pages: their contents leave memory and come back.
//!
//! # The states
//!
//! ```text
//!                   the clock: take back             the clock again: compress
//!   alone, tracked ───────────────────▶ alone, idle ──────────────────────────▶ compressed
//!      ▲   ▲                               │  │  ▲                                  │
//!      │   └───────── fault: fill ─────────┘  └──┘ refused, until the next fill     │
//!      └───────────────────── fault: a frame, decompress, fill ────────────────────┘
//! ```
//!
//! A page is *idle* if it is neither tracked nor linked: no core has touched it since the clock came by last,
//! or it would have faulted. So the trackers are the clock's accessed bits, no core is asked for any, and
//! what is compressed needs no shootdown.
//!
//! # Invariants
//!
//! 1. A compressed page has no frame, no tracker, and no leaf's link: no core translates it. It holds its
//!    contents (`adjust_compressed`), alone or with pages of other spaces that inherited them, and releases
//!    them where it would release a frame.
//! 2. Only a page that owns its frame alone is compressed. If it has a reference, and is known to have the
//!    only one, it owns the frame from then on. No page can become another holder meanwhile (`sharing.rs`,
//!    4).
//! 3. A page's state changes under its slot's lock only: a fault waits for the clock, or the clock for the
//!    fault. The frame is filled before the slot says so, and the contents are released after.
//! 4. Compressed contents never change. A page that inherits them adds a holder. Whether parent or child
//!    writes first, each gets a frame of its own from the same bytes.
//! 5. Compressing needs no memory: compressed contents are kept in frames that pages gave up before, or in
//!    the page's own.
//!
//! The models are in `tests/loom/clock.rs`.

use percore::Pinned;
use radixmap::Entry;

use super::shootdown::Backend;
use crate::page_word::Page;
use crate::types::Change;
use crate::{Event, Fault, FaultError, Flags, FrameNum, Frames, Memory, Mmu, PageNum};

impl<M: Mmu, F: Memory> Backend<M, F> {
    /// Gives the locked page `at`, which is compressed, a frame. If the table has no room it has it all the
    /// same, untranslated.
    #[cold]
    pub(crate) fn bring_back(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        let frame = self.memory.alloc_zeroed(pin).ok_or(FaultError::OutOfMemory)?;
        self.copy_contents(pin, page, frame);
        entry.set(page.with_frame(frame));
        self.counts.change(pin, &Change::gain());
        self.forget_compressed(pin, page);
        self.fill(pin, at, entry, page.with_frame(frame)).map(|_| Fault::PageIn)
    }

    /// Compresses the locked `page`, which is idle, if that is worth it. Returns whether it was.
    pub(crate) fn compress(&self, pin: &Pinned, entry: &mut Entry<'_, Page>, page: Page) -> bool {
        let Some(frame) = page.frame() else { unreachable!("only what is in memory leaves it") };
        if page.is_counted() && !self.memory.unshare(pin, frame) {
            return false;
        }
        let compressed = self.memory.compress(pin, frame);
        entry.set(match compressed {
            Some(number) => page.with_compressed(number),
            None => page.owned().refused(),
        });
        if compressed.is_some() {
            self.counts.add(pin, Event::PageOut, 1);
            self.counts.change(pin, &Change::lose());
        }
        compressed.is_some()
    }

    /// The page gives its compressed contents up, if it has any.
    pub(crate) fn forget_compressed(&self, pin: &Pinned, page: Page) {
        if let Some(compressed) = page.compressed() {
            self.memory.adjust_compressed(pin, compressed, -1);
        }
    }

    /// Fills `frame`, which no core translates, with the page's contents.
    pub(crate) fn copy_contents(&self, pin: &Pinned, page: Page, frame: FrameNum) {
        match page.compressed() {
            Some(compressed) => self.memory.decompress(pin, compressed, frame),
            None => self.memory.fill_frame(pin, frame, page.frame()),
        }
    }
}

impl Page {
    /// Returns whether no core translates it: no core has touched it since its translations were invalidated.
    pub(crate) fn is_idle(self) -> bool {
        !self.is_linked() && self.tracker().is_empty()
    }

    /// Returns whether its contents may leave memory: they are the program's own, and it does not want them
    /// to stay.
    pub(crate) fn may_leave(self) -> bool {
        self.frame().is_some() && !self.is_shown() && !self.flags().contains(Flags::LOCKED)
    }
}
