//! Page out: a clock goes round the space, a block at a step. Pages that are idle when the hand comes are
//! compressed. The others become idle, unless a core touches them before the hand comes again. The protocol
//! is in `compressed.rs`.
//!
//! A huge page is idle as a whole, and then split. If there is no memory for that, it stays until the hand is
//! back.

use percore::Pinned;
use radixmap::IfDiffering;
use refcache::Domain;

use super::huge::split_huge;
use super::promote::block_of;
use super::{Guard, RadixSpace, keys};
use crate::machine::lock_slots;
use crate::page_word::Page;
use crate::protocol::Scattered;
use crate::{HUGE_PAGES, Memory, Mmu, OutOfMemory, PageNum, PageRange};

impl<R: Domain, M: Mmu, F: Memory> RadixSpace<R, M, F> {
    /// Does one step of the clock. Returns the number of pages that have left memory, and where the next step
    /// begins.
    pub(super) fn step_clock(&self, pin: &Pinned, from: PageNum) -> Option<(u64, PageNum)> {
        let from = from.max(self.user.start());
        let used = (from < self.user.end())
            .then(|| self.map.first_used(pin, from.get()..self.user.end().get()))
            .flatten()?;
        if used.end - used.start > HUGE_PAGES {
            // Nothing so large has frames.
            return Some((0, PageNum::new(used.end)));
        }
        let block = block_of(from.max(PageNum::new(used.start)));
        Some((self.visit_block(pin, block.common(self.user)), block.end()))
    }

    /// Moves the hand to `block`. A slot is the block, or part of it, or larger and untouched: so none is
    /// expanded.
    fn visit_block(&self, pin: &Pinned, block: PageRange) -> u64 {
        lock_slots(pin);
        let Ok(mut guard) = self.map.lock_range(pin, keys(block), IfDiffering) else { return 0 };
        let _stays = cut_if_idle(&mut guard);
        let (mut gone, mut woken) = (0, Scattered::new(&self.backend, pin));
        guard.for_each(|entry| match entry.used() {
            Some((_, page)) if !page.may_leave() => {}
            Some((mut entry, page)) if !page.is_idle() => {
                woken.add(&mut entry, page);
                entry.set(page.untracked());
            }
            Some((mut entry, page)) if !page.is_huge() && !page.is_refused() => {
                gone += u64::from(self.backend.compress(pin, &mut entry, page));
            }
            _ => {}
        });
        woken.invalidate();
        gone
    }
}

/// Splits the locked block if it is an idle huge page.
fn cut_if_idle(guard: &mut Guard<'_, IfDiffering>) -> Result<(), OutOfMemory> {
    let (keys, mut is_idle) = (guard.keys(), false);
    guard.for_each(|entry| is_idle |= entry.value().is_some_and(is_idle_huge));
    if is_idle { split_huge(guard, &keys) } else { Ok(()) }
}

fn is_idle_huge(page: Page) -> bool {
    page.is_huge() && page.may_leave() && page.is_idle()
}
