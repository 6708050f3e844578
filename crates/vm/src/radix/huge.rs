//! Huge pages: an aligned block of anonymous pages, folded in one slot, with as many frames side by side.
//!
//! ```text
//!                first touch, a huge frame                 part of it changes: the map expands the slot
//!   untouched ──────────────────────────────▶ huge ─────────────────────────────────────────────▶ 512 pages, each alone
//!    (folded)                              (folded) ◀─────────────────────────────────────────────
//!                                                               promotion: `promote.rs`
//! ```
//!
//! 1. A huge page's frames are its own alone. So it is split before its frames get references (`fork`), and
//!    each of its pages is like any other from then on: it goes back alone, is counted alone, is copied
//!    alone.
//! 2. A huge page is one slot: no thread holds a part of it. It is locked as a whole, or the lock expands it,
//!    which gives each page its frame and the tracker of the whole ([`Page::part`]).
//! 3. A core has one translation of a huge page, or none. Invalidating a part invalidates the whole, on the
//!    cores that the tracker names. The other parts' trackers still name these cores, which sometimes costs a
//!    useless interrupt but is correct: a tracker may name too many cores.
//! 4. Translations of pages side by side may be left of the whole in some TLB when one of them is filled in
//!    anew. They say the same of each page whose slot was not locked meanwhile, and an operation that locks
//!    one finds the core in its tracker.
//!
//! Counting references of the huge frame as a whole would spare `fork` the split, but not the child's first
//! write. Also, a huge frame with one used page in 512 would keep all its memory.

use core::ops::{ControlFlow, Range};

use percore::Pinned;
use radixmap::{Entry, Expand};
use refcache::Domain;

use super::{Guard, RadixSpace};
use crate::page_word::Page;
use crate::protocol::Backend;
use crate::{Access, Event, Fault, FaultError, Flags, Frames, HUGE_PAGES, Memory, Mmu, OutOfMemory};

/// Returns whether a fault on a folded block of such pages is one of the whole block.
pub(super) fn is_meant_whole(page: Page) -> bool {
    let wanted = page.frame().is_none() && page.backing().is_none();
    page.is_huge() || wanted && !page.flags().contains(Flags::NOHUGE)
}

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Resolves a fault on a locked block as a whole. Returns none if that cannot be, and the block has to be
    /// split.
    pub(super) fn resolve_whole(
        &self,
        pin: &Pinned,
        guard: &mut Guard<'_>,
        access: Access,
    ) -> Option<Result<Fault, FaultError>> {
        let mut outcome = None;
        guard.for_each(|entry| {
            outcome = entry.value().and_then(|page| self.backend.whole(pin, entry, page, access))
        });
        outcome
    }

    /// Returns whether there may be huge pages, for a caller that holds all of the space: they are counted
    /// before they are unlocked.
    pub(super) fn may_have_huge(&self) -> bool {
        let counts = self.backend.counts.sum();
        counts[Event::HugeFault] + counts[Event::Promotion] > 0
    }
}

impl<M: Mmu, F: Memory> Backend<M, F> {
    fn whole(
        &self,
        pin: &Pinned,
        entry: &mut Entry<'_, Page>,
        page: Page,
        access: Access,
    ) -> Option<Result<Fault, FaultError>> {
        if !page.prot().allows(access) {
            return Some(Err(FaultError::Denied));
        }
        if page.is_huge() {
            return Some(self.fill_huge(pin, entry, page));
        }
        let first = self.memory.alloc_huge(pin, page.flags().contains(Flags::HUGE))?;
        let filled = self.fill_huge(pin, entry, page.with_huge(first)).map(|_| Fault::AllocHuge);
        Some(filled.inspect_err(|_| self.memory.free_huge(pin, first)))
    }
}

/// Returns whether the guard holds a block as one slot.
#[inline(always)]
pub(super) fn is_block(guard: &Guard<'_>) -> bool {
    let keys = guard.keys();
    keys.end - keys.start == HUGE_PAGES
}

/// Splits every huge page of the locked `keys`.
pub(super) fn split_all<E: Expand>(
    guard: &mut Guard<'_, E>,
    mut keys: Range<u64>,
) -> Result<(), OutOfMemory> {
    while !keys.is_empty() {
        let huge = |entry: &mut Entry<'_, Page, _>| match entry.value() {
            Some(page) if page.is_huge() => ControlFlow::Break(entry.keys()),
            _ => ControlFlow::Continue(()),
        };
        let ControlFlow::Break(block) = guard.try_for_each_in(keys.clone(), huge) else { break };
        split_huge(guard, &block)?;
        keys.start = block.end;
    }
    Ok(())
}

/// Splits the huge page that is `block`, which is locked.
pub(super) fn split_huge<E: Expand>(guard: &mut Guard<'_, E>, block: &Range<u64>) -> Result<(), OutOfMemory> {
    guard.split(block.start..block.start + 1).map_err(|_| OutOfMemory)
}
