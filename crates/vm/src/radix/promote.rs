//! Promotion: pages of a block that have frames of their own become one huge page.
//!
//! ```text
//!   a leaf: 512 pages of one anonymous mapping                                     a huge page: one slot
//!     │                                                                                   ▲
//!     │ locked; nobody translates them any more                                           │ fold
//!     ├────────── their frames lie side by side already ─────────────────────────────────▶┤
//!     └── gather: each page gets a copy in a huge frame, and gives up what it had ────────┘
//! ```
//!
//! 1. All slots of the block are held from the first look to the fold, and the translations are invalidated
//!    before anything is copied. So no core finds a page at both places, or writes to the old one. No core is
//!    linked to the leaf by then (`linkage.rs`), and the leaf goes.
//! 2. After *gather* each page owns its new frame alone, like any small page. So if there is no memory for
//!    the fold (a second word), the pages stay as they are, and the next try finds them side by side.
//! 3. A huge frame is asked for before anything is done. If there is none nothing has changed.
//! 4. A promotion is counted before the block is unlocked, for `fork`, which asks whether there may be huge
//!    pages.
//!
//! A block of which all was dropped folds too, untouched, so that its next touch finds it as it was at first.
//!
//! A program may ask for it (MADV_COLLAPSE) for pages of all kinds. It happens by itself when a fault has
//! filled the first or last page of a block and all pages of it have frames of their own. A program that
//! fills a block in order ends there. Most other faults at the ends of a block find the page beside it
//! missing, or one of [`PROBES`], which costs a look or two.

use core::ops::{ControlFlow, Range};

use percore::Pinned;
use radixmap::{Expand, IfDiffering, Never};
use refcache::Domain;

use super::remap::uniform;
use super::{Guard, RadixSpace, keys};
use crate::page_word::Page;
use crate::protocol::{ShootdownSet, range};
use crate::types::Change;
use crate::{Event, Flags, FrameNum, Frames, HUGE_PAGES, Mapping, Memory, Mmu, PageNum, PageRange, VmError};

/// Pages of a block that are looked at, one by one, before all of it is locked: both ends and some between.
const PROBES: usize = 8;
const PROBE_DISTANCE: usize = (HUGE_PAGES as usize - 1) / (PROBES - 1);

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Returns whether page `at`, which is locked and has got a frame, may be the last one
    /// that its block needs to become huge.
    #[inline(always)]
    pub(super) fn may_be_last(&self, at: PageNum, guard: &mut Guard<'_>) -> bool {
        (at.get() + 1) % HUGE_PAGES <= 1 && self.is_of_huge(at, guard)
    }

    /// Returns whether page `at`, which is locked, belongs to a mapping that may have huge pages.
    #[inline(never)]
    fn is_of_huge(&self, at: PageNum, guard: &mut Guard<'_>) -> bool {
        let page =
            guard.try_for_each_used_in(keys(PageRange::one(at)), |run| ControlFlow::Break(run.value()));
        page.break_value().is_some_and(|page| self.may_be_huge(page.mapping(), false))
    }

    /// Promotes the block of `at` if all its pages have frames. The page beside `at` is checked first: its
    /// slot is on the same line. Most checks end there, and so read no other core's pages.
    #[inline(never)]
    pub(super) fn promote_if_filled(&self, pin: &Pinned, at: PageNum) {
        let (block, beside) = (block_of(at), PageNum::new(at.get() ^ 1));
        let fits = |at| {
            let mut fits = false;
            self.look_at(pin, at, |page| fits = is_owned(page) && self.may_be_huge(page.mapping(), false));
            fits
        };
        if fits(beside) && block.iter().step_by(PROBE_DISTANCE).all(fits) {
            // A block that cannot be promoted stays as it is.
            let _ = self.promote(pin, block, false);
        }
    }

    /// Makes the pages of `block` a huge page: if they are `asked` for, or all of them own their frames.
    pub(super) fn promote(&self, pin: &Pinned, block: PageRange, asked: bool) -> Result<(), VmError> {
        let mut guard = self.lock_leaves(pin, self.check(block)?);
        let mapping = uniform(&mut guard, keys(block))?;
        match folded(&mut guard) {
            Some(page) if page.is_huge() => return Ok(()),
            Some(_) => return Err(VmError::Mixed),
            None if !self.may_be_huge(mapping, asked) => return Err(VmError::Mixed),
            None if !asked && !all(&mut guard, |_, page| is_owned(page)) => return Err(VmError::Mixed),
            None => {}
        }
        let wanted = asked || mapping.flags().contains(Flags::HUGE);
        let first = self.bring_together(pin, &mut guard, wanted).ok_or(VmError::OutOfMemory)?;
        let huge = Page::new(mapping).with_huge(first);
        guard.fold(keys(block), huge).map_err(|_| VmError::OutOfMemory)?;
        self.backend.counts.add(pin, Event::Promotion, 1);
        Ok(())
    }

    /// Leaves in the locked `keys` whose pages are alike and untouched fold into one slot, if the next touch
    /// may want a huge page. Otherwise they would be back with it.
    pub(super) fn fold_untouched(&self, guard: &mut Guard<'_, IfDiffering>, mut keys: Range<u64>) {
        if !self.backend.memory.allows_huge(true) {
            return;
        }
        while let Some((block, page)) = first_untouched_leaf(guard, keys.clone()) {
            keys.start = block.end;
            if self.may_fold(page) {
                // Without memory for a second word the leaf stays.
                let _ = guard.fold(block, page);
            }
        }
    }

    /// Returns whether leaves of such pages fold once they are untouched.
    fn may_fold(&self, page: Page) -> bool {
        !page.is_held() && self.may_be_huge(page.mapping(), false)
    }

    /// Only plain anonymous memory is ever huge, if its program and the machine's user have nothing against
    /// it.
    fn may_be_huge(&self, mapping: Mapping, asked: bool) -> bool {
        is_plain(mapping) && self.backend.memory.allows_huge(asked || mapping.flags().contains(Flags::HUGE))
    }

    /// Sees to it that no core translates the locked pages, and that their frames lie side by side: the first
    /// one.
    fn bring_together(&self, pin: &Pinned, guard: &mut Guard<'_, Never>, wanted: bool) -> Option<FrameNum> {
        let beside = side_by_side(guard);
        let first = beside.or_else(|| self.backend.memory.alloc_huge_raw(pin, wanted))?;
        let set = ShootdownSet::of(guard, self.backend.grain, |_| true);
        self.backend.invalidate_leaves(pin, guard, set);
        if beside.is_none() {
            self.gather(pin, guard, first);
        }
        Some(first)
    }

    /// Moves the locked pages, which no core translates, to the frames from `first` on.
    fn gather(&self, pin: &Pinned, guard: &mut Guard<'_, Never>, first: FrameNum) {
        let mut change = Change::default();
        guard.for_each(|entry| {
            let Some((mut entry, page)) = entry.used() else { unreachable!("all of the block is mapped") };
            let frame = FrameNum::new(first.get() + entry.keys().start % HUGE_PAGES);
            self.backend.copy_contents(pin, page, frame);
            entry.set(page.with_frame(frame));
            change.own += 1;
            self.backend.release(pin, page, &mut change);
        });
        self.backend.counts.change(pin, &change);
    }
}

/// Returns whether pages of `mapping` may be huge, if the machine allows it.
pub(super) fn is_plain(mapping: Mapping) -> bool {
    mapping.backing().is_none() && !mapping.flags().contains(Flags::NOHUGE)
}

/// Returns the block of `page`.
pub(super) fn block_of(page: PageNum) -> PageRange {
    let start = page.get() & !(HUGE_PAGES - 1);
    range(start..start + HUGE_PAGES)
}

fn is_owned(page: Page) -> bool {
    page.frame().is_some() && !page.is_counted()
}

/// Returns the first block in the locked `keys` that has a leaf whose pages are alike and untouched, and such
/// a page.
pub(super) fn first_untouched_leaf<E: Expand>(
    guard: &mut Guard<'_, E>,
    keys: Range<u64>,
) -> Option<(Range<u64>, Page)> {
    let first = guard.try_for_each_used_in(keys, |run| {
        let (pages, page) = (range(run.keys()), run.value());
        match run.is_in_leaf() && pages.pages() == HUGE_PAGES && !page.is_touched() {
            true => ControlFlow::Break((run.keys(), page)),
            false => ControlFlow::Continue(()),
        }
    });
    first.break_value()
}

/// Returns the page of a locked block that has no leaf.
fn folded(guard: &mut Guard<'_, Never>) -> Option<Page> {
    let first = guard.try_for_each(|entry| ControlFlow::Break((entry.keys(), entry.value())));
    first.break_value().filter(|(keys, _)| keys.end - keys.start > 1)?.1
}

/// Returns whether `test` holds for all locked pages, each with how many are before it in its block.
fn all(guard: &mut Guard<'_, Never>, mut test: impl FnMut(u64, Page) -> bool) -> bool {
    let walked = guard.try_for_each(|entry| {
        let at = entry.keys().start % HUGE_PAGES;
        match entry.value().is_some_and(|page| test(at, page)) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    walked.is_continue()
}

/// Returns the first frame of a locked block whose pages own frames that lie as those of a huge page do.
fn side_by_side(guard: &mut Guard<'_, Never>) -> Option<FrameNum> {
    let mut first = None;
    let fits = all(guard, |at, page| {
        let start = page.frame().and_then(|frame| frame.get().checked_sub(at));
        is_owned(page)
            && start.is_some_and(|start| start % HUGE_PAGES == 0 && *first.get_or_insert(start) == start)
    });
    first.filter(|_| fits).map(FrameNum::new)
}
