//! Copy-on-write: a shared frame is copied before the write, and never twice.
//!
//! # The states of a page
//!
//! | state | frame | others that have it | a translation allows |
//! |---|---|---|---|
//! | untouched | none | | nothing |
//! | alone | owned | none | the page's rights |
//! | counted | one reference of it | pages of other spaces, after `fork` | the page's rights without writing |
//! | shown, private | one reference of it | the backing, and others that map it | the page's rights without writing |
//! | shown, shared | one reference of it | the same | the page's rights |
//!
//! ```text
//!                     ┌─────────── write: the last holder ────────────┐
//!                     ▼                                               │
//!   untouched ──▶   alone   ─────────────── fork ──────────────▶   counted
//!     │    touch: zeroes ▲                                            │ write: a copy for this page
//!     │                  └────────────────────────────────────────────┘
//!     │                  ▲ write, private: a copy for this page
//!     └─────────────▶  shown
//!       touch: the backing's frame
//! ```
//!
//! # Invariants
//!
//! 1. A frame is written through a translation only where that is allowed: no translation allows more than
//!    `Page::rights` says. This is the one place that takes writing away from pages that are counted and not
//!    shared.
//! 2. Each page that is not untouched owns its frame, or one reference, or has its contents in compressed
//!    memory. These leave the page in `release` only, or by being compressed (`compressed.rs`), after the
//!    page's translations were invalidated.
//! 3. A page's state changes under its slot's lock. An operation that lowers its rights invalidates its
//!    translations before the unlock.
//! 4. Only a holder adds references, with its own slot locked. So if the only holder asks
//!    (`Frames::unshare`), no page can become another one before it has answered.
//! 5. Each page of a mapping with a backing is one reference of the backing, whatever its state.
//!
//! # Orders
//!
//! - *fork counts, then invalidates, then unlocks.* Until then other cores may still write the frame that the
//!   child shall have: the child does not run yet, so it is as if they had written before the fork. A core
//!   that writes an invalidated page waits for the unlock. So nothing that comes after that write is in the
//!   child.
//! - *A write copies, then invalidates, then fills, then releases.* Cores that only read the old frame would
//!   go on reading it, unlocked, after a write. So their translations go before the new one is there. If the
//!   fill fails the page has its old frame still, untranslated.
//! - *A new state is set before the translation is filled.* If the fill fails, the page is in that state,
//!   without a translation: as correct as before, and there is nothing to undo.

use core::mem;

use percore::Pinned;
use radixmap::{Entry, Run};

use super::shootdown::Backend;
use super::shootdown_set::{Scattered, ShootdownSet};
use crate::page_word::Page;
use crate::types::Change;
use crate::{
    Access, BackingError, BackingNum, Backings, Fault, FaultError, Flags, Frames, HUGE_PAGES, Memory, Mmu,
    PageNum, PageRange,
};

impl<M: Mmu, F: Memory> Backend<M, F> {
    /// Releases the page's frame, or its reference to one, and adds that to `change`. No core translates the
    /// page.
    #[inline]
    pub fn release(&self, pin: &Pinned, page: Page, change: &mut Change) {
        match page.frame() {
            Some(frame) if page.is_counted() => {
                *(if page.is_shown() { &mut change.shown } else { &mut change.own }) -= 1;
                Frames::adjust(&self.memory, pin, frame, -1);
            }
            Some(first) if page.is_huge() => {
                change.own -= HUGE_PAGES as i64;
                self.memory.free_huge(pin, first);
            }
            Some(frame) => {
                change.own -= 1;
                self.memory.free(pin, frame);
            }
            None => self.forget_compressed(pin, page),
        }
    }

    /// `pages` more pages refer to `backing`.
    #[inline]
    pub fn refer(&self, pin: &Pinned, backing: Option<BackingNum>, pages: i64) {
        if let Some(backing) = backing {
            Backings::adjust(&self.memory, pin, backing, pages);
        }
    }

    /// Touches the locked page `at`, which is untouched and has a backing: it shows the backing's frame, or
    /// has a copy if it is to be written.
    pub(crate) fn show(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        (page, backing): (Page, BackingNum),
        access: Access,
    ) -> Result<Fault, FaultError> {
        let writes = page.is_shared() && page.prot().allows(Access::Write);
        let asked = if writes { Access::Write } else { Access::Read };
        let shown = page.with_shown(self.memory.frame(pin, backing, at, asked)?);
        entry.set(shown);
        self.counts.change(pin, &Change::show());
        match access {
            Access::Write if !page.is_shared() => self.own(pin, at, entry, shown),
            _ => self.fill(pin, at, entry, shown),
        }
    }

    /// Prepares a write of the locked page `at`, which is counted: its frame becomes its own, or it gets a
    /// copy.
    pub(crate) fn own(
        &self,
        pin: &Pinned,
        at: PageNum,
        entry: &mut Entry<'_, Page>,
        page: Page,
    ) -> Result<Fault, FaultError> {
        let Some(frame) = page.frame() else { unreachable!("only a frame is counted") };
        if self.memory.unshare(pin, frame) {
            entry.set(page.owned());
            self.counts.change(pin, &Change::own(page.is_shown()));
            return self.fill(pin, at, entry, page.owned()).map(|_| Fault::Reuse);
        }
        let copy = self.memory.alloc_copy(pin, frame).ok_or(FaultError::OutOfMemory)?;
        let mut set = ShootdownSet::NONE;
        set.add(entry, page, self.grain);
        self.invalidate(pin, set);
        entry.set(page.untracked());
        if let Err(error) = self.fill(pin, at, entry, page.with_frame(copy)) {
            self.memory.free(pin, copy);
            return Err(error);
        }
        let mut change = Change::gain();
        self.release(pin, page, &mut change);
        self.counts.change(pin, &change);
        Ok(Fault::Copy)
    }

    /// Forks a locked page: returns the child's page, and the new state of this one. A frame that the backing
    /// can show the child too is not counted for the child before the child faults.
    pub fn fork_page(&self, pin: &Pinned, page: Page) -> ForkedPage {
        let flags = page.flags() - Flags::LOCKED;
        assert!(!page.is_huge(), "a huge page is split before others have its frames");
        let is_inherited = !flags.contains(Flags::WIPEONFORK) && !page.is_shown();
        if is_inherited && let Some(compressed) = page.compressed() {
            self.memory.adjust_compressed(pin, compressed, 1);
            return ForkedPage { kept: page, child: page.with_flags(flags) };
        }
        let Some(frame) = page.frame().filter(|_| is_inherited) else {
            return ForkedPage { kept: page, child: page.without_frame().with_flags(flags) };
        };
        if !page.is_counted() {
            self.memory.share(pin, frame);
        }
        Frames::adjust(&self.memory, pin, frame, 1);
        let kept = page.counted();
        ForkedPage { kept, child: kept.untracked().with_flags(flags) }
    }
}

impl<M: Mmu, F: Memory> Scattered<'_, M, F> {
    /// Sets the page of `run`, which lies to the right of all before, to `kept`, and invalidates its
    /// translations if that has fewer rights.
    pub fn keep(&mut self, run: &mut Run<'_, Page>, kept: Page) {
        let page = run.value();
        if !kept.rights().contains(page.rights()) {
            self.add(&mut run.one(), page);
            run.set(kept.untracked());
        } else if kept != page {
            run.set(kept);
        }
    }
}

/// Pages that come or go: references of backings, told once for each run of pages that show the same, and the
/// space's own counts.
pub(crate) struct References<'a, M: Mmu, F: Memory> {
    backend: &'a Backend<M, F>,
    pin: &'a Pinned,
    backing: Option<BackingNum>,
    pages: i64,
    change: Change,
}

impl<'a, M: Mmu, F: Memory> References<'a, M, F> {
    pub(crate) fn new(backend: &'a Backend<M, F>, pin: &'a Pinned) -> Self {
        Self { backend, pin, backing: None, pages: 0, change: Change::default() }
    }

    /// `pages` more pages are mapped that refer to `backing`, less if it is negative.
    #[inline]
    fn add(&mut self, backing: Option<BackingNum>, pages: i64) {
        if backing != self.backing {
            self.tell();
            self.backing = backing;
        }
        self.pages += pages;
    }

    /// Releases `pages`, which are like `page`. No core translates them.
    #[inline]
    pub(crate) fn release(&mut self, pages: PageRange, page: Page) {
        self.backend.release(self.pin, page, &mut self.change);
        self.add(page.backing(), -(pages.pages() as i64));
    }

    /// Adds `pages` pages that are like `page` and came from a parent, with `backing`.
    pub(crate) fn add_forked(&mut self, backing: Option<BackingNum>, pages: u64, page: Page) {
        self.change.own += i64::from(page.frame().is_some());
        self.add(backing, pages as i64);
    }

    /// All is told, and that it took `calls` calls of `unmap`. (Drop does the same, out of line.)
    #[inline(always)]
    pub(crate) fn finish(mut self, calls: u64) {
        self.tell();
        self.backend.counts.unmap(self.pin, &self.change, calls);
        mem::forget(self);
    }

    #[inline(always)]
    fn tell(&mut self) {
        let pages = mem::take(&mut self.pages);
        self.change.mapped += pages;
        self.backend.refer(self.pin, self.backing, pages);
    }
}

impl<M: Mmu, F: Memory> Drop for References<'_, M, F> {
    fn drop(&mut self) {
        self.tell();
        self.backend.counts.change(self.pin, &self.change);
    }
}

/// A page after a fork, in both spaces.
#[derive(Debug)]
pub struct ForkedPage {
    /// The parent's page.
    pub kept: Page,
    /// The child's page, which no core translates.
    pub child: Page,
}

impl From<BackingError> for FaultError {
    fn from(error: BackingError) -> Self {
        match error {
            BackingError::OutOfMemory => Self::OutOfMemory,
            BackingError::BeyondEnd => Self::BeyondEnd,
        }
    }
}
