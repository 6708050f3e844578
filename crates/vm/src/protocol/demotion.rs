//! Demotion: one core owns a shared leaf again, when only that core still invalidates pages of it.
//!
//! Nothing shows what hardware reads through a leaf. But a core that invalidates pages interrupts every core
//! that is linked. When one core has done so several times in a row, and no other core invalidated, linked or
//! faulted there meanwhile, the others seem to use the leaf no more. So the same interrupts unlink them. A
//! core that still uses the leaf faults, as a private sharer, and may make it shared again. Then it takes
//! twice as many invalidations until the next time, so that being wrong costs little.
//!
//! ```text
//!   unlink the others, by the new owner                     link, or link once more
//!   ───────────────────────────────────                     ───────────────────────
//!   D1  state: shared → leaving, owner me                   L1  the set ∪= me, if I am not in it
//!   D2  fence                                               L2  fence
//!   D3  read the set                                        L3  upper entry := the leaf
//!   D4  interrupt it: all clear the whole leaf's pages      L4  state: shared, or mine?  in the set?  if not, unlink and leave it
//!   D5  the set −= those; state: owner me
//! ```
//!
//! 1. *A core in the set is interrupted until it has unlinked.* It leaves the set in D5, or by itself after
//!    it has unlinked. Until then any other core that invalidates pages of the leaf interrupts it too.
//! 2. *No core that D5 takes out is linked.* Between D1 and D5 no link survives L4: nothing makes a leaf
//!    shared that is leaving. A core that passed L4 before its interrupt was unlinked by the interrupt. A
//!    core that links after its interrupt reads the state after it, finds D1, and unlinks. If the leaf is
//!    shared once more by then, it finds what came before that: D5 took it out.
//! 3. *No core outside the set is linked.* If D3 misses L1, then L4 finds D1: the two fences forbid that both
//!    miss. A core that fails L4 has an upper entry that leads to the leaf for a moment, but runs none of the
//!    program before it has unlinked.
//! 4. *Entries cleared in excess are filled again.* The owner has locked some pages of the leaf only. Other
//!    pages may be filled meanwhile, in the leaf or in pages of the cores' own. Their words are left alone,
//!    and name at least every translation there is.
//! 5. The owner itself stays linked, and so the leaf stays (`linkage.rs`, 3). Words with bit 0 set are its
//!    own translations now. Private sharers stay recorded, in the list and in the words.

use percore::{CoreSet, Pinned};
use radixmap::{Expand, RangeGuard};

use super::shootdown::Backend;
use super::shootdown_set::{ShootdownSet, around, linkage};
use crate::page_word::Page;
use crate::{Memory, Mmu, PageNum, Tables};

impl<M: Mmu, F: Memory> Backend<M, F> {
    /// Invalidates the translations in `set`, of locked pages. If they are of one leaf that seems to be
    /// shared no more, the other cores are unlinked from it.
    #[inline(always)]
    pub(crate) fn invalidate_in<E: Expand>(
        &self,
        pin: &Pinned,
        guard: &mut RangeGuard<'_, Page, E>,
        set: ShootdownSet,
    ) {
        if set.cores.is_empty() {
            return;
        }
        let mut targets = self.clear_here(pin, &set);
        targets.remove(pin.core());
        if !targets.is_empty() {
            self.invalidate_there(pin, guard, targets, set);
        }
    }

    fn invalidate_there<E: Expand>(
        &self,
        pin: &Pinned,
        guard: &mut RangeGuard<'_, Page, E>,
        mut targets: CoreSet,
        set: ShootdownSet,
    ) {
        let Some(others) = self.cores_to_unlink(pin, guard) else {
            return self.clear_there(pin, &targets, set.pages);
        };
        targets.union(&others);
        self.clear_there(pin, &targets, around(PageNum::new(guard.keys().start))); // D4
        guard.with_leaf(|leaf| leaf.release(linkage(&leaf).emptied(&others)));
    }

    /// Returns the other cores that are linked to the leaf of the locked pages, if they are to be unlinked.
    fn cores_to_unlink<E: Expand>(
        &self,
        pin: &Pinned,
        guard: &mut RangeGuard<'_, Page, E>,
    ) -> Option<CoreSet> {
        if self.mmu.tables() != Tables::Adaptive {
            return None;
        }
        let others = guard.with_leaf(|leaf| {
            let (linkage, core) = (linkage(&leaf), pin.core());
            linkage.note_invalidation(core).then(|| linkage.others(core))
        });
        others.flatten()
    }
}
