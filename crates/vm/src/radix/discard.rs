//! Discard: pages lose their contents and stay mapped (MADV_DONTNEED).
//!
//! A long range has contents in a few places as a rule: of a thread's stack of 8 MiB a page or two. So a look
//! that takes no lock finds these places first, and only they are locked, one after the other.
//!
//! ```text
//!   pages   |---------|################|---------|     contents in two leaves
//!   look    . . . . . . . . . . . . . . . . . . . .    no lock, one word for each run of equal slots
//!   parts      [-]    |                |  [---]        each locked, scanned, invalidated and released by itself
//! ```
//!
//! 1. *A page that is touched before the call is found.* The fault has written the page's word before the
//!    call began, and a later look at this word sees it or a newer one (`look.rs` of radixmap).
//! 2. The look only says where to lock. The locked parts are then dropped as a whole range would be. Pages
//!    that others touch, map or move meanwhile are dropped or not, each as if its own discard came before or
//!    after.
//! 3. The whole range is locked if the look sees a page that is not mapped, one that must not be dropped, or
//!    contents in many places.
//! 4. A part whose pages may become huge is a whole block where the range has one, so that it folds.
//!
//! The cost is one shootdown for each part, instead of one for all. So there are few parts.

use core::cell::Cell;
use core::ops::ControlFlow;

use percore::Pinned;
use radixmap::IfDiffering;
use refcache::Domain;

use super::promote::{block_of, is_plain};
use super::{RadixSpace, has_leaves, keys};
use crate::page_word::Page;
use crate::protocol::{Found, Removed, Runs, range};
use crate::types::Unbroken;
use crate::{Flags, HUGE_PAGES, Memory, Mmu, PageNum, PageRange, VmError};

/// The most parts that are locked one after the other.
const PARTS: usize = 2;
/// The fewest pages that are looked at first. Fewer are locked at once in less time.
const LONG: u64 = 128;
/// The look ends when it has seen more runs with contents than the range has pages, divided by this. The
/// pages then cost more than their locks.
const SPARSE: u64 = 16;

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    pub(super) fn drop_contents(
        &self,
        pin: &Pinned,
        pages: PageRange,
        refused: Flags,
    ) -> Result<(), VmError> {
        let Some(parts) = self.parts_with_contents(pin, pages, refused) else {
            return self.drop_locked(pin, pages, refused);
        };
        let drop_next = |done: Result<(), VmError>, part: &PageRange| {
            let dropped = self.drop_locked(pin, *part, refused);
            done.and(dropped)
        };
        parts.get().iter().fold(Ok(()), drop_next)
    }

    /// Returns the parts of `pages` that have contents, unless all of `pages` must be locked.
    fn parts_with_contents(&self, pin: &Pinned, pages: PageRange, refused: Flags) -> Option<Parts> {
        if pages.pages() < LONG {
            return None;
        }
        let (mut parts, mut mapped, mut runs) = (Parts::none(), Unbroken::from(pages.start()), 0);
        let walked = self.map.look(pin, keys(pages), u64::MAX, |keys, page| {
            let run = range(keys);
            let is_usual = mapped.add(run) && page.flags() & refused == Flags::NONE;
            if page.is_touched() || self.is_open_block(pin, run, page) {
                runs += 1;
                parts.add(if is_plain(page.mapping()) { whole_block(run, pages) } else { run });
            }
            if is_usual && runs * SPARSE <= pages.pages() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        (walked.is_continue() && mapped.reaches(pages.end()) && parts.len <= PARTS).then_some(parts)
    }

    /// Returns whether `run` is a block of equal pages with a leaf, which folds.
    fn is_open_block(&self, pin: &Pinned, run: PageRange, page: Page) -> bool {
        run == block_of(run.start()) && is_plain(page.mapping()) && {
            let slot = self.map.peek(pin, run.start().get()).span;
            slot.end - slot.start < HUGE_PAGES
        }
    }

    /// Drops the contents of `pages` under one lock. Only leaves and huge pages have frames, so nothing else
    /// is expanded.
    fn drop_locked(&self, pin: &Pinned, pages: PageRange, refused: Flags) -> Result<(), VmError> {
        let mut guard = self.lock(pin, pages, IfDiffering)?;
        let (flags, some_plain) = (Cell::new(Flags::NONE), Cell::new(false));
        let all = |page: Page| {
            flags.set(flags.get() | page.flags());
            some_plain.set(some_plain.get() | is_plain(page.mapping()));
            true
        };
        let (backend, is_refused) = (&self.backend, || flags.get() & refused != Flags::NONE);
        if !has_leaves(&guard) {
            let invalidated = Removed::scan(&mut guard, backend.grain, all).invalidate_in(pin, backend);
            return match (is_refused(), invalidated.holes) {
                (true, _) => Err(VmError::Mixed),
                (false, holes) => {
                    invalidated.forget(pin, backend);
                    if holes { Err(VmError::NotMapped) } else { Ok(()) }
                }
            };
        }
        let (mut resident, mut found) = (Runs::none(), Found::none());
        let note = |run| resident.add(run);
        let removed = Removed::scan_with_leaves(&mut guard, backend.grain, all, note, &mut found);
        let mut invalidated = removed.invalidate_leaves(pin, backend);
        invalidated.abandon_leaves();
        if is_refused() {
            return Err(VmError::Mixed);
        }
        let holes = invalidated.holes;
        invalidated.forget_these(pin, backend, &resident);
        if some_plain.get() {
            self.fold_untouched(&mut guard, keys(pages));
        }
        if holes { Err(VmError::NotMapped) } else { Ok(()) }
    }
}

/// Returns the block of `run`, if `pages` has all of it, and `run` otherwise.
fn whole_block(run: PageRange, pages: PageRange) -> PageRange {
    let block = block_of(run.start());
    if pages.covers(block) && block.covers(run) { block } else { run }
}

/// Parts of a range, from the left, at most one in a block.
struct Parts {
    parts: [PageRange; PARTS],
    /// The number of all that were added, which may be more than there is room for.
    len: usize,
}

impl Parts {
    const fn none() -> Self {
        Self { parts: [PageRange::EMPTY; PARTS], len: 0 }
    }

    /// Returns those that there was room for.
    fn get(&self) -> &[PageRange] {
        &self.parts[..self.len.min(PARTS)]
    }

    /// Adds a run of pages, or makes the last part longer if it is beside the run or in the same block.
    fn add(&mut self, run: PageRange) {
        let have = self.len.min(PARTS);
        if let Some(last) = self.parts[..have].last_mut()
            && (last.end() >= run.start()
                || block_of(PageNum::new(last.end().get() - 1)) == block_of(run.start()))
        {
            *last = last.hull(run);
            return;
        }
        if let Some(place) = self.parts.get_mut(self.len) {
            *place = run;
        }
        self.len += 1;
    }
}
